//! Properties of a queue in any history.

use std::collections::HashMap;

use andante_limit::{Cost, Unit};
use proptest::prelude::*;

use super::{Limits, World, at, claim, urgent, weight};
use crate::{Claim, ClientId, Hold, QueuePlace, TicketRules, Turn};

/// Serves as many requests as there are members: the largest distance of a member from fluid sharing, in units of the
/// largest cost.
fn furthest_from_ideal(weights: &[u16], costs: &[u32], by_flow: bool) -> f64 {
    let mut world = World::new(Limits::every(1));
    let of = |member: usize| {
        let weight = weight(weights[member]);
        if by_flow {
            Claim { flow_weight: weight, ..claim(1, member as u64) }
        } else {
            Claim { client_weight: weight, ..claim(member as u8, 0) }
        }
    };
    let mut next_cost = costs.iter().cycle();
    let mut claims = HashMap::new();
    for member in 0..weights.len() {
        claims.insert((of(member).client, of(member).flow), member);
        (0..3).for_each(|_| {
            world.add_with(0, of(member), *next_cost.next().unwrap(), Turn::New);
        });
    }
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let (mut got, mut all, mut worst) = (vec![0.0; weights.len()], 0.0, 0f64);
    for _ in 0..2000 {
        let left = world.step(u64::MAX - 1).unwrap();
        let member = claims[&(left.claim.client, left.claim.flow)];
        got[member] += left.cost as f64;
        all += left.cost as f64;
        for (got, weight) in got.iter().zip(weights) {
            worst = worst.max((got - all * f64::from(*weight) / total).abs());
        }
        world.add_with(0, of(member), *next_cost.next().unwrap(), Turn::New);
    }
    worst / f64::from(*costs.iter().max().unwrap())
}

#[test]
fn one_that_is_remembered_for_long_does_not_hold_up_the_forgetting_of_others() {
    let mut world = World::new(Limits::every(1));
    let of = |number: u32| Claim {
        client: ClientId::of(number.to_be_bytes().into()),
        client_weight: weight(if number == 0 { 1 } else { 100 }),
        ..claim(1, 0)
    };
    for number in 0..3 {
        world.add(0, of(number));
    }
    let mut newest = 2;
    for _ in 0..5000 {
        // The second and the third client stay; each of the others comes once.
        let left = world.step(u64::MAX - 1).unwrap();
        if [of(1), of(2)].contains(&left.claim) {
            world.add(0, left.claim);
        } else {
            newest += 1;
            world.add(0, of(newest));
        }
    }
    // A client of weight 100 is remembered for a third of a turn of weight 1, which is some hundred slots here.
    let known = world.queue.flows();
    assert!(newest > 1000 && known <= 1000, "{newest} came, and {known} clients and flows are known");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Clients that are not admitted for a while keep their tickets and order, and block no other client.
    #[test]
    fn those_that_are_admitted_leave_and_all_do_in_the_end(
        steps in proptest::collection::vec((0u8..4, 0u64..3, 0u8..3, 0u8..8), 1..200),
    ) {
        let mut world = World::new(Limits::every(1));
        let (mut waiting, mut left) = (Vec::<(QueuePlace, u64, Claim)>::new(), Vec::new());
        for (client, flow, level, act) in steps {
            let one = urgent(level, claim(client, flow));
            match act {
                0 => world.limits.barred.push(one.client),
                1 => {
                    world.limits.barred.retain(|barred| *barred != one.client);
                    world.queue.resume();
                }
                2 if !waiting.is_empty() => {
                    let (place, ..) = waiting.remove(usize::from(client) % waiting.len());
                    prop_assert!(world.queue.remove(place).is_some());
                }
                3 | 4 => {
                    let may = waiting.iter().any(|(.., claim)| !world.limits.barred.contains(&claim.client));
                    let departure = world.step(world.now + 2);
                    prop_assert_eq!(departure.is_some(), may);
                    if let Some(departure) = departure {
                        prop_assert!(!world.limits.barred.contains(&departure.claim.client));
                        waiting.retain(|(_, number, _)| *number != departure.item.number);
                        left.push(departure);
                    }
                }
                _ => {
                    let place = world.add(0, one);
                    waiting.push((place, world.number, one));
                }
            }
        }
        world.limits.barred.clear();
        world.queue.resume();
        let rest = world.run(u64::MAX - 1);
        prop_assert_eq!(rest.len(), waiting.len());
        left.extend(rest);
        let mut last = HashMap::new();
        for departure in left {
            let before = last.insert(departure.claim, departure.item.number);
            prop_assert!(before < Some(departure.item.number), "order within a flow");
        }
    }

    /// While all wait, each member is within one largest cost of its share, at each level.
    #[test]
    fn within_one_largest_cost_of_ideal(
        weights in proptest::collection::vec(prop_oneof![3 => Just(1u16), 1 => 1u16..100], 2..60),
        costs in proptest::collection::vec(1u32..4000, 1..50),
        by_flow: bool,
    ) {
        let worst = furthest_from_ideal(&weights, &costs, by_flow);
        prop_assert!(worst <= 1.001, "{worst} largest costs");
    }

    /// Flows that come and go, compared with fluid sharing.
    #[test]
    fn within_three_largest_costs_while_flows_come_and_go(
        weights in proptest::collection::vec(1u16..9, 20),
        steps in proptest::collection::vec((0u32..100, 0usize..20, 1u32..100), 1000..4000),
    ) {
        let mut world = World::new(Limits::every(0));
        let n = weights.len();
        let (mut fluid, mut ideal, mut got) = (vec![0f64; n], vec![0f64; n], vec![0f64; n]);
        for (number, (dice, member, cost)) in steps.into_iter().enumerate() {
            if dice < 48 || number < 50 {
                world.add_with(0, Claim { client_weight: weight(weights[member]), ..claim(member as u8, 0) }, cost, Turn::New);
                fluid[member] += f64::from(cost);
                continue;
            }
            let Some(left) = world.step(1) else { continue };
            let mut cost = left.cost as f64;
            let member = (0..n).find(|n| claim(*n as u8, 0).client == left.claim.client).unwrap();
            got[member] += cost;
            while cost > 1e-9 {
                let busy: Vec<usize> = (0..n).filter(|member| fluid[*member] > 1e-9).collect();
                let total: f64 = busy.iter().map(|member| f64::from(weights[*member])).sum();
                let first = busy.iter().map(|member| fluid[*member] / f64::from(weights[*member]));
                let step = first.fold(cost / total, f64::min);
                for member in busy {
                    let served = step * f64::from(weights[member]);
                    (fluid[member], ideal[member], cost) =
                        (fluid[member] - served, ideal[member] + served, cost - served);
                }
            }
            for member in 0..n {
                let off = (got[member] - ideal[member]).abs() / 100.0;
                prop_assert!(off <= 3.0, "{off} largest costs");
            }
        }
    }

    /// A member that stays keeps its share while others come for one request each; the number waiting is constant.
    /// Fluid sharing would serve those others for longer than they wait here: at most e times as many at once.
    #[test]
    fn one_that_stays_has_its_share_beside_others_that_come_once(others in 1u32..200, by_flow: bool) {
        let of = |number: u32| match by_flow {
            true => claim(1, number.into()),
            false => Claim { client: ClientId::of(number.to_be_bytes().into()), ..claim(1, 0) },
        };
        let mut world = World::new(Limits::every(1));
        for number in 0..=others {
            world.add(0, of(number));
        }
        let (mut got, mut newest) = (0, others);
        for _ in 0..20 * (others + 1) {
            let left = world.step(u64::MAX - 1).unwrap();
            if left.claim == of(0) {
                got += 1;
                world.add(0, of(0));
            } else {
                newest += 1;
                world.add(0, of(newest));
            }
        }
        prop_assert!(got >= 6, "{got} of 20 / e");
    }

    /// A member that asks for its next request only after each answer has its share in units, however large the costs
    /// of others are that always wait.
    #[test]
    fn one_request_at_a_time_has_its_share_beside_large_costs(
        others in 1u8..6,
        cost in 1u32..50,
        waiting in 1u32..4,
        own in 1u16..20,
        by_flow: bool,
    ) {
        let of = |member: u8| {
            let weight = weight(if member == 0 { own } else { 1 });
            if by_flow {
                Claim { flow_weight: weight, ..claim(1, member.into()) }
            } else {
                Claim { client_weight: weight, ..claim(member, 0) }
            }
        };
        let mut world = World::new(Limits::every(1));
        for other in 1..=others {
            (0..waiting).for_each(|_| _ = world.add_with(0, of(other), cost, Turn::New));
        }
        world.add(0, of(0));
        let (mut got, mut all) = (0, 0);
        while all < 40 * u64::from(cost) * u64::from(own + u16::from(others)) {
            let left = world.step(u64::MAX - 1).unwrap();
            all += left.cost;
            // The lane asks again before the answer is there.
            let _ = world.queue.next(at(world.now), &mut 64, &mut world.limits);
            if left.claim == of(0) {
                got += 1;
                world.add(0, of(0));
            } else {
                world.add_with(0, left.claim, cost, Turn::New);
            }
        }
        let share = got as f64 * f64::from(own + u16::from(others)) / f64::from(own) / all as f64;
        prop_assert!((0.9..1.1).contains(&share), "{share} of its share");
    }

    /// Any operations in any order: no ticket is lost, and the order within a flow and class is kept. No ticket that
    /// may leave waits, and the reported backlog is true.
    #[test]
    fn anything_goes(
        seed: u8,
        steps in proptest::collection::vec((0u8..12, 0u32..5, 0u8..3, 0u64..3, 0u8..3, 1u32..6), 1..400),
    ) {
        let mut limits = Limits::every(u64::from(seed % 4));
        for line in 1..5 {
            limits = limits.with_line(line, u64::from(seed / 4 % 5) * u64::from(line));
        }
        let mut world = World::new(limits);
        let mut waiting: Vec<(QueuePlace, u64, Claim, u32, u32, Turn)> = Vec::new();
        for (step, line, client, flow, band, cost) in steps {
            let claim = urgent([0, 3, 7][usize::from(band)], claim(client, flow));
            match step {
                0..=4 => {
                    let turn = if cost == 5 { Turn::Resent } else { Turn::New };
                    let place = world.add_with(line, claim, cost, turn);
                    waiting.push((place, world.number, claim, line, cost, turn));
                }
                5 if !waiting.is_empty() => {
                    let (place, number, ..) = waiting.remove(cost as usize * 7 % waiting.len());
                    prop_assert_eq!(world.queue.remove(place).map(|taken| taken.ticket.number), Some(number));
                }
                6 => {
                    world.limits.own.insert(line, (u64::from(cost), world.now + u64::from(cost) * 3));
                    world.queue.recheck();
                }
                7 => world.queue.recheck(),
                _ => {
                    let end = world.now + u64::from(cost);
                    while let Some(left) = world.step(end + 1) {
                        let index = waiting.iter().position(|one| one.1 == left.item.number).unwrap();
                        let (_, number, claim, line, _, turn) = waiting.remove(index);
                        let alike = |one: &&(QueuePlace, u64, Claim, u32, u32, Turn)| one.2 == claim && one.3 == line;
                        let first = waiting.iter().filter(alike).map(|one| (one.5, one.1)).min();
                        prop_assert!(first.is_none_or(|first| (turn, number) < first), "the order within a flow");
                    }
                    for (.., line, cost, _) in &waiting {
                        let hold = world.limits.hold(line, &[], Cost::new(*cost).unwrap());
                        let held = matches!(hold, Hold::Shared(until) | Hold::Own(until) if until > at(world.now));
                        prop_assert!(held, "one of line {line} could leave");
                    }
                    world.now = world.now.max(end);
                }
            }
            prop_assert_eq!(world.queue.len(), waiting.len());
            let units: u64 = waiting.iter().map(|one| u64::from(one.4)).sum();
            prop_assert_eq!(world.queue.units(Unit::REQUESTS, |_| true), units);
            let told: u32 = world.queue.longest(1000).iter().map(|flow| flow.waiting).sum();
            prop_assert_eq!(told as usize, waiting.len());
        }
        // No starvation: every ticket leaves, and the total time is the total cost.
        let left = world.run(u64::MAX - 1);
        prop_assert_eq!(left.len(), waiting.len());
        prop_assert!(world.queue.is_empty() && world.queue.lines().next().is_none());
    }

    /// The least urgent flow of the client with most flows waits for a bounded time, under floods of all others.
    #[test]
    fn nobody_starves(clients in 1u8..20, flows in 1u64..20, bands in 1u8..8) {
        let mut world = World::new(Limits::every(1));
        let last = urgent(7, claim(0, 0));
        for band in 0..=bands.min(7) {
            for client in 0..clients {
                for flow in 0..flows {
                    (0..2).for_each(|_| { world.add(0, urgent(band, claim(client, flow))); });
                }
            }
        }
        world.add(0, last);
        let mut slots = 0;
        loop {
            let left = world.step(u64::MAX - 1).unwrap();
            if left.claim == last {
                break;
            }
            slots += 1;
            world.add(0, left.claim);
        }
        // The urgency has one slot in 21; there each client has a turn once in `clients` + 1, each flow once in `flows`
        // + 1.
        prop_assert!(slots <= 21 * 2 * (u32::from(clients) + 1) * (flows as u32 + 1), "{slots} slots");
    }
}
