//! Levels other than clients and their flows.

use andante_limit::Cost;
use proptest::prelude::*;

use super::{Departure, Limits, S, World, claim, numbers, urgent, weight};
use crate::{Claim, ClientId, FlowId, FlowRank, Levels, Passing, Turn};

const LEVELS: [Levels; 5] =
    [Levels::ClientThenFlow, Levels::FlowThenClient, Levels::Client, Levels::Flow, Levels::InOrder];

fn shared_by(levels: Levels, client: u8, flow: u64) -> Claim {
    Claim { levels, ..claim(client, flow) }
}

fn ranked(levels: Levels, client: u8, flow: u64, rank: u16) -> Claim {
    Claim { rank: FlowRank::new(Some(rank), None), ..shared_by(levels, client, flow) }
}

/// Numbers of departures of each of these clients and flows.
fn counts<const N: usize>(left: &[Departure], of: [(u8, u64); N]) -> [usize; N] {
    of.map(|(client, flow)| {
        let claim = claim(client, flow);
        left.iter().filter(|left| (left.claim.client, left.claim.flow) == (claim.client, claim.flow)).count()
    })
}

#[test]
fn flow_on_three_clients_gets_as_much_as_flow_on_one_if_flows_share_first() {
    let of = [(1, 1), (2, 1), (3, 1), (4, 2)];
    for (levels, expected) in [
        (Levels::ClientThenFlow, [75, 75, 75, 75]),
        (Levels::FlowThenClient, [50, 50, 50, 150]),
        (Levels::Flow, [50, 50, 50, 150]),
    ] {
        let mut world = World::new(Limits::every(1));
        for (client, flow) in std::iter::repeat_n(of, 400).flatten() {
            world.add(0, shared_by(levels, client, flow));
        }
        let counts = counts(&world.run(300), of);
        for (count, expected) in counts.iter().zip(expected) {
            assert!(count.abs_diff(expected) <= 1, "{levels:?}: {counts:?}");
        }
    }
}

#[test]
fn weights_belong_to_the_flow_or_the_client_at_whatever_level_it_shares() {
    let mut world = World::new(Limits::every(1));
    let of = [(1, 1), (2, 1), (1, 2)];
    for (client, flow) in std::iter::repeat_n(of, 400).flatten() {
        let flow_weight = weight(if flow == 1 { 2 } else { 1 });
        let client_weight = weight(if client == 2 { 3 } else { 1 });
        let claim = shared_by(Levels::FlowThenClient, client, flow);
        world.add(0, Claim { flow_weight, client_weight, ..claim });
    }
    // Two thirds for the first flow, and three quarters of that for its second client.
    let counts = counts(&world.run(300), of);
    for (count, expected) in counts.iter().zip([50, 150, 100]) {
        assert!(count.abs_diff(expected) <= 2, "{counts:?}");
    }
}

#[test]
fn one_level_serves_its_members_in_order_of_arrival_and_retries_first() {
    for (levels, of) in [(Levels::Client, [(1, 1), (1, 2), (1, 3)]), (Levels::Flow, [(1, 1), (2, 1), (3, 1)])] {
        let mut world = World::new(Limits::every(1));
        for (client, flow) in [of[2], of[0], of[0], of[1], of[0]] {
            world.add(0, shared_by(levels, client, flow));
        }
        world.add_with(0, shared_by(levels, of[1].0, of[1].1), 1, Turn::Resent);
        assert_eq!(numbers(&world.run(S)), [6, 1, 2, 3, 4, 5], "{levels:?}");
    }
}

#[test]
fn lower_rank_is_finished_before_the_next_begins_and_retries_are_first_in_their_flow() {
    let mut world = World::new(Limits::every(1));
    let [late, soon, unranked] = [2, 1, u16::MAX].map(|rank| match rank {
        u16::MAX => shared_by(Levels::InOrder, 1, 9),
        rank => ranked(Levels::InOrder, 1, rank.into(), rank),
    });
    for claim in [unranked, late, late, soon] {
        world.add(0, claim);
    }
    // Another client of the first flow comes later.
    world.add(0, ranked(Levels::InOrder, 2, 1, 1));
    world.add_with(0, late, 1, Turn::Resent);
    world.add_with(0, soon, 1, Turn::Resent);
    assert_eq!(numbers(&world.run(S)), [7, 4, 5, 6, 2, 3, 1]);
}

#[test]
fn clients_share_whatever_the_ranks_of_their_flows_are() {
    let mut world = World::new(Limits::every(1));
    for _ in 0..100 {
        world.add(0, ranked(Levels::Client, 1, 1, 5));
        world.add(0, ranked(Levels::Client, 1, 2, 4));
        world.add(0, ranked(Levels::Client, 2, 3, 9));
    }
    let left = world.run(100);
    assert_eq!(counts(&left, [(1, 1), (1, 2), (2, 3)]), [0, 50, 50]);
}

#[test]
fn rank_orders_flows_of_one_urgency_alone() {
    let mut world = World::new(Limits::every(1));
    for _ in 0..200 {
        world.add(0, urgent(3, ranked(Levels::InOrder, 1, 1, 9)));
        world.add(0, urgent(5, ranked(Levels::InOrder, 1, 2, 0)));
    }
    // The lower urgency has its guaranteed share, one in 21.
    let counts = counts(&world.run(105), [(1, 1), (1, 2)]);
    assert!(counts[1].abs_diff(5) <= 1, "{counts:?}");
}

/// Flows that wait for a limit of their own are ordered there, too.
#[test]
fn lower_rank_is_first_at_a_limit_of_some_requests() {
    let mut world = World::new(Limits::every(1).with_line(1, 10));
    for _ in 0..20 {
        world.add(1, ranked(Levels::InOrder, 1, 1, 2));
        world.add(1, ranked(Levels::InOrder, 2, 2, 1));
        world.add(0, ranked(Levels::InOrder, 3, 3, 3));
    }
    let left = world.run(150);
    let counts = counts(&left, [(1, 1), (2, 2), (3, 3)]);
    assert!(counts[0] <= 1 && counts[1].abs_diff(15) <= 1 && counts[2] == 20, "{counts:?}");
}

#[test]
fn names_beyond_256_share_places_if_flows_share_first() {
    for levels in [Levels::FlowThenClient, Levels::Flow] {
        let mut world = World::new(Limits::every(1));
        (0..5000).for_each(|number| {
            world.add(0, shared_by(levels, 1, number << 20));
        });
        world.step(1);
        assert!(world.queue.flows() <= 4 * 256, "{levels:?}: {} are known", world.queue.flows());
        assert_eq!(world.run(S).len(), 4999);
    }
}

/// Clients whose addresses differ in one half only are told apart below a flow.
#[test]
fn addresses_and_networks_are_distinct_below_a_flow() {
    let mut world = World::new(Limits::every(1));
    let addresses = ["10.0.0.1", "10.0.0.2", "2001:db8::", "2001:db8:0:1::", "2001:db8::1", "2001:db8::2"];
    let of = |address: &str| ClientId::of(address.parse().unwrap());
    for address in std::iter::repeat_n(addresses, 100).flatten() {
        world.add(0, Claim { client: of(address), ..shared_by(Levels::FlowThenClient, 0, 1) });
    }
    let left = world.run(60);
    for address in addresses {
        let count = left.iter().filter(|left| left.claim.client == of(address)).count();
        assert!(count.abs_diff(10) <= 1, "{address}: {count} of 60");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The number of requests ahead that a request is told is right within one turn of each member, if no other comes.
    #[test]
    fn a_prediction_is_right_within_a_round(
        others in proptest::collection::vec((1u8..4, 1u64..4), 1..120),
        served in 0u64..40,
        of in (1u8..4, 1u64..4),
        levels in proptest::sample::select(LEVELS.to_vec()),
    ) {
        let mut world = World::new(Limits::every(1));
        let by_flow = |client, flow| match levels {
            Levels::Client | Levels::InOrder => ranked(levels, client, flow, flow as u16),
            _ => shared_by(levels, client, flow),
        };
        for (client, flow) in others {
            world.add(0, by_flow(client, flow));
        }
        world.run(served);
        let claim = by_flow(of.0, of.1);
        let ahead = world.queue.ahead(&claim, &Cost::MIN, Passing::ALL, 0.0).of(world.queue.len() as f64) as f64;
        world.add(0, claim);
        let number = world.number;
        let left = numbers(&world.run(S));
        let place = left.iter().position(|left| *left == number).unwrap() as f64;
        prop_assert!((place - ahead).abs() <= 6.0, "{levels:?}: {place} were ahead, {ahead} were told");
    }

    /// A reload may change the levels while requests wait.
    #[test]
    fn requests_of_all_levels_wait_together_and_all_leave(
        steps in proptest::collection::vec((0usize..5, 1u8..5, 1u64..5, 0u8..4, 1u16..4), 1..300),
    ) {
        let mut world = World::new(Limits::every(1).with_line(1, 3));
        let (mut places, mut gone) = (Vec::new(), 0);
        for (number, (levels, client, flow, action, heavy)) in steps.iter().enumerate() {
            let claim = Claim {
                client_weight: weight(*heavy),
                flow_weight: weight(4 - *heavy),
                ..ranked(LEVELS[*levels], *client, *flow, *heavy)
            };
            match action {
                0 => gone += usize::from(world.step(world.now + 1).is_some()),
                1 if !places.is_empty() => {
                    let place = places.swap_remove(number % places.len());
                    gone += usize::from(world.queue.remove(place).is_some());
                }
                2 => {
                    let evicted = world.queue.victim(&claim, Cost::MIN);
                    gone += evicted.map_or(0, |place| usize::from(world.queue.remove(place).is_some()));
                }
                _ => {}
            }
            places.push(world.add(number as u32 % 2, claim));
            world.queue.ahead(&claim, &Cost::MIN, Passing::ALL, world.queue.inflow_above(claim.urgency));
        }
        let shown: u32 = world.queue.longest(usize::MAX / 32).iter().map(|flow| flow.waiting).sum();
        prop_assert_eq!(shown as usize, world.queue.len());
        gone += world.run(S).len();
        prop_assert!(world.queue.is_empty());
        prop_assert_eq!(gone, steps.len());
    }
}

#[test]
fn status_names_client_and_flow_whatever_the_levels() {
    for levels in LEVELS {
        let mut world = World::new(Limits::every(1));
        for (client, flow) in [(1, 7), (1, 7), (1, 7), (2, 7), (2, 7), (2, 8)] {
            world.add(0, shared_by(levels, client, flow));
        }
        let longest = world.queue.longest(5);
        let named: Vec<_> = longest.iter().map(|of| (of.claim.client, of.claim.flow, of.waiting)).collect();
        let expected =
            [(1, 7, 3), (2, 7, 2), (2, 8, 1)].map(|(of, flow, waiting)| (claim(of, 0).client, FlowId(flow), waiting));
        assert_eq!(named, expected, "{levels:?}");
    }
}
