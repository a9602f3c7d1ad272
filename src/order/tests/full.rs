//! Evictions from a full queue.

use proptest::prelude::*;

use super::*;

/// A waiting request.
#[derive(Clone, Copy, Debug)]
struct One {
    claim: Claim,
    cost: u64,
    resent: bool,
    number: usize,
    place: QueuePlace,
}

/// Backlog beyond one request of mean cost, divided by weight, in 65,536ths; `cost` is that of an additional request.
fn size<'a>(waiting: impl Iterator<Item = &'a One>, weight: Weight, cost: Option<u64>) -> u64 {
    let costs: Vec<u64> = waiting.map(|one| one.cost).chain(cost).collect();
    let units = costs.iter().sum::<u64>() * 65_536;
    (units - units / costs.len().max(1) as u64) / u64::from(weight.0.get())
}

fn same_client(a: &Claim, b: &Claim) -> bool {
    (a.urgency, a.client) == (b.urgency, b.client)
}

fn same_flow(a: &Claim, b: &Claim) -> bool {
    same_client(a, b) && a.flow == b.flow
}

proptest! {
    #[test]
    fn the_newest_of_the_longest_flow_of_the_least_urgent_gives_way(
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
                    let client_size = |of: &Claim, cost| {
                        size(waiting.iter().filter(|one| same_client(&one.claim, of)), of.client_weight, cost)
                    };
                    let flow_size = |of: &Claim, cost| {
                        size(waiting.iter().filter(|one| same_flow(&one.claim, of)), of.flow_weight, cost)
                    };
                    let gone = world.queue.victim(&claim, Cost::new(cost).unwrap());
                    // Resent requests are never evicted, nor are more urgent ones. More urgent requests do not take the
                    // places guaranteed to each urgency, one of 21.
                    let spared = (waiting.len() / 21).max(1);
                    let exceeds = |urgency| waiting.iter().filter(|one| one.claim.urgency == urgency).count() > spared;
                    let may = waiting.iter().filter(|one| !one.resent && one.claim.urgency >= claim.urgency);
                    let may: Vec<_> = may
                        .filter(|one| one.claim.urgency == claim.urgency || exceeds(one.claim.urgency))
                        .collect();
                    let least = may.iter().map(|one| one.claim.urgency).max();
                    let may: Vec<_> = may.into_iter().filter(|one| Some(one.claim.urgency) == least).collect();
                    let largest = may.iter().map(|one| client_size(&one.claim, None)).max();
                    let longest = |client: &Claim| {
                        let of_client = may.iter().filter(|one| same_client(&one.claim, client));
                        of_client.map(|one| flow_size(&one.claim, None)).max()
                    };
                    let (own_client, own_flow) = (client_size(&claim, Some(cost.into())), flow_size(&claim, Some(cost.into())));
                    let Some(gone) = gone else {
                        // No less urgent request may be evicted. No client has a larger backlog than the request's own,
                        // counting the request. The request's client has no flow with a larger backlog, or others have
                        // equal backlogs.
                        prop_assert!(least.is_none_or(|least| least == claim.urgency), "{claim:?} is refused for nothing");
                        prop_assert!(largest.is_none_or(|largest| largest <= own_client), "{claim:?} is refused for nothing");
                        let others = may.iter().any(|one| {
                            !same_client(&one.claim, &claim) && Some(client_size(&one.claim, None)) == largest
                        });
                        let own_is_largest = !others && Some(client_size(&claim, None)) == largest;
                        prop_assert!(!own_is_largest || longest(&claim) <= Some(own_flow), "{claim:?} is refused for nothing");
                        continue;
                    };
                    let one = *may.iter().find(|one| one.place == gone).expect("it waits, and may give way");
                    prop_assert_eq!(Some(client_size(&one.claim, None)), largest);
                    prop_assert_eq!(Some(flow_size(&one.claim, None)), longest(&one.claim));
                    let of_flow = may.iter().filter(|other| same_flow(&other.claim, &one.claim));
                    prop_assert_eq!(of_flow.map(|other| other.number).max(), Some(one.number));
                    if same_client(&one.claim, &claim) {
                        prop_assert!(flow_size(&one.claim, None) > own_flow);
                    } else if one.claim.urgency == claim.urgency {
                        prop_assert!(largest > Some(own_client));
                    }
                }
            }
        }
    }
}

/// Rank 1 has the most waiting, and loses nothing to a later rank.
#[test]
fn where_ranks_are_in_order_the_last_rank_is_evicted_however_little_waits_of_it() {
    for levels in [Levels::InOrder, Levels::Client] {
        let mut world = World::new(Limits::every(1));
        let of_rank = |rank: u16| Claim { levels, rank: FlowRank::new(Some(rank), None), ..claim(1, rank.into()) };
        let first: Vec<_> = (0..5).map(|_| world.add(0, of_rank(1))).collect();
        let second: Vec<_> = (0..2).map(|_| world.add(0, of_rank(2))).collect();
        let mut victim = |rank| world.queue.victim(&of_rank(rank), Cost::MIN);
        assert_eq!([victim(1), victim(0)], [Some(second[1]); 2], "{levels:?}");
        assert_eq!([victim(2), victim(3)], [None; 2], "{levels:?}: it would be last itself");
        assert!(second.into_iter().all(|place| world.queue.remove(place).is_some()));
        assert_eq!(world.queue.victim(&of_rank(0), Cost::MIN), Some(first[4]), "{levels:?}");
    }
}
