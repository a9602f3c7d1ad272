//! Who gives way in a full queue.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct One {
    claim: Claim,
    cost: u64,
    resent: bool,
    number: usize,
    place: QueuePlace,
}

/// What waits by weight, in 65,536ths.
fn size<'a>(waiting: impl Iterator<Item = &'a One>, weight: Weight) -> u64 {
    waiting.map(|one| one.cost).sum::<u64>() * 65_536 / u64::from(weight.0.get())
}

fn same_client(a: &Claim, b: &Claim) -> bool {
    (a.urgency, a.client) == (b.urgency, b.client)
}

fn same_flow(a: &Claim, b: &Claim) -> bool {
    same_client(a, b) && a.flow == b.flow
}

proptest! {
    #[test]
    fn the_newest_of_the_longest_flow_gives_way(
        steps in prop::collection::vec((0..4u8, 0..3u64, 2..5u8, 1..20u32, any::<bool>(), 0..6u8), 1..200),
    ) {
        let mut world = World::new(Limits::every(1));
        let mut waiting: Vec<One> = Vec::new();
        for (client, flow, urgency, cost, resent, what) in steps {
            let weighted = Claim { client_weight: weight(1 + u16::from(client)), flow_weight: weight(1 + flow as u16), ..claim(client, flow) };
            let claim = urgent(urgency, weighted);
            match what {
                0 if !waiting.is_empty() => {
                    let one = waiting.swap_remove(cost as usize % waiting.len());
                    prop_assert!(world.queue.remove(one.place).is_some());
                }
                1..4 => {
                    let turn = if resent { Turn::Resent } else { Turn::New };
                    let place = world.add_with(client.into(), claim, cost, turn);
                    waiting.push(One { claim, cost: cost.into(), resent, number: world.number as usize, place });
                }
                _ => {
                    let own = |same: fn(&Claim, &Claim) -> bool, weight: Weight| {
                        let units = waiting.iter().filter(|one| same(&one.claim, &claim)).map(|one| one.cost).sum::<u64>();
                        (units + u64::from(cost)) * 65_536 / u64::from(weight.0.get())
                    };
                    let (own_client, own_flow) = (own(same_client, claim.client_weight), own(same_flow, claim.flow_weight));
                    let below: Vec<_> = waiting.iter().filter(|one| one.claim.urgency >= claim.urgency).collect();
                    let mut clients = BTreeMap::new();
                    for one in &below {
                        let all = waiting.iter().filter(|other| same_client(&other.claim, &one.claim));
                        clients.insert((one.claim.urgency, one.claim.client), size(all, one.claim.client_weight));
                    }
                    let largest = clients.values().copied().max().unwrap_or(0);
                    let flow_size = |of: &Claim| size(waiting.iter().filter(|one| same_flow(&one.claim, of)), of.flow_weight);
                    let gone = world.queue.gives_way(&claim, Cost::new(cost).unwrap());
                    let Some(gone) = gone else {
                        // Nobody waits with more than the client of this one would; or it is the largest itself, and no
                        // flow of it is longer than this one's would be; or all of that flow has been sent before.
                        let largest_of = below.iter().filter(|one| clients[&(one.claim.urgency, one.claim.client)] == largest);
                        let is_longest = |one: &One| !below.iter().any(|other| {
                            same_client(&one.claim, &other.claim) && flow_size(&other.claim) > flow_size(&one.claim)
                        });
                        let reason = largest <= own_client
                            || largest_of.clone().any(|one| same_client(&one.claim, &claim) && waiting.iter()
                                .filter(|other| same_client(&other.claim, &claim)).all(|other| flow_size(&other.claim) <= own_flow))
                            || largest_of.clone().any(|one| is_longest(one) && waiting.iter()
                                .filter(|other| same_flow(&other.claim, &one.claim)).all(|other| other.resent));
                        prop_assert!(reason, "{claim:?} is refused for nothing");
                        continue;
                    };
                    let one = *waiting.iter().find(|one| one.place == gone).expect("it waits");
                    prop_assert!(!one.resent && one.claim.urgency >= claim.urgency);
                    prop_assert_eq!(clients[&(one.claim.urgency, one.claim.client)], largest);
                    let of_client = waiting.iter().filter(|other| same_client(&other.claim, &one.claim));
                    let longest = of_client.map(|other| flow_size(&other.claim)).max();
                    prop_assert_eq!(Some(flow_size(&one.claim)), longest);
                    let of_flow = waiting.iter().filter(|other| same_flow(&other.claim, &one.claim) && !other.resent);
                    prop_assert_eq!(of_flow.map(|other| other.number).max(), Some(one.number));
                    if same_client(&one.claim, &claim) {
                        prop_assert!(flow_size(&one.claim) > own_flow);
                    } else {
                        prop_assert!(largest > own_client);
                    }
                }
            }
        }
    }
}
