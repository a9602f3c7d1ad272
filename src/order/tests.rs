//! Properties of the order, checked against arithmetic.

mod budgets;
mod full;
mod levels;
mod properties;

use std::{collections::HashMap, num::NonZeroU16};

use andante_clock::Instant;
use andante_limit::{Cost, Unit};

use super::{
    claim::{Claim, ClientId, FlowId, FlowRank, Levels, Turn, Urgency, Weight},
    queue::{Hold, Next, Queue, QueuePlace, TicketRules},
};

/// A shared limit of `shared`, and classes with limits of their own: one request per this many nanoseconds.
#[derive(Default)]
struct Limits {
    shared: (u64, u64),
    own: HashMap<u32, (u64, u64)>,
    /// Clients that are not admitted.
    barred: Vec<ClientId>,
}

impl Limits {
    fn every(interval: u64) -> Self {
        Self { shared: (interval, 0), ..Self::default() }
    }

    fn with_line(mut self, line: u32, interval: u64) -> Self {
        self.own.insert(line, (interval, 0));
        self
    }

    fn take(&mut self, now: u64, line: u32, cost: u64) {
        self.shared.1 = now.max(self.shared.1) + self.shared.0 * cost;
        if let Some(own) = self.own.get_mut(&line) {
            // A budget that opens while the shared one is closed does not lose the time until that opens.
            own.1 = own.1.max(now.saturating_sub(own.0 / 4)) + own.0 * cost;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    number: u64,
    line: u32,
}

impl TicketRules<u32, Item> for Limits {
    fn line(&mut self, item: &Item, _: &u32) -> u32 {
        item.line
    }

    fn hold(&mut self, line: &u32, _: &[u32], _: Cost) -> Hold {
        let own = self.own.get(line).map_or(0, |own| own.1);
        match (own, self.shared.1) {
            (own, shared) if own > shared => Hold::Own(at(own)),
            (_, 0) => Hold::Open,
            (_, shared) => Hold::Shared(at(shared)),
        }
    }

    fn admits(&mut self, claim: &Claim) -> bool {
        !self.barred.contains(&claim.client)
    }
}

struct World {
    queue: Queue<u32, Item>,
    limits: Limits,
    now: u64,
    number: u64,
}

/// A served ticket.
#[derive(Clone, Copy, Debug)]
struct Departure {
    claim: Claim,
    item: Item,
    cost: u64,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self { queue: Queue::new(), limits, now: 0, number: 0 }
    }

    fn add(&mut self, line: u32, claim: Claim) -> QueuePlace {
        self.add_with(line, claim, 1, Turn::New)
    }

    fn add_with(&mut self, line: u32, claim: Claim, cost: u32, turn: Turn) -> QueuePlace {
        self.number += 1;
        let item = Item { number: self.number, line };
        self.queue.enqueue(line, &[], claim, Cost::new(cost).unwrap(), turn, item)
    }

    /// Serves all tickets that may leave until `end`.
    fn run(&mut self, end: u64) -> Vec<Departure> {
        let mut left = Vec::new();
        while let Some(one) = self.step(end) {
            left.push(one);
        }
        left
    }

    fn step(&mut self, end: u64) -> Option<Departure> {
        loop {
            match self.queue.next(at(self.now), &mut 64, &mut self.limits) {
                Next::Ticket { place, key } => {
                    let taken = self.queue.serve(place).unwrap();
                    let cost = taken.cost.share();
                    self.limits.take(self.now, key, cost);
                    return Some(Departure { claim: taken.claim, item: taken.ticket, cost });
                }
                Next::At(next) => {
                    assert!(next >= at(self.now), "a wake-up in the past");
                    if next >= at(end) {
                        return None;
                    }
                    self.now = next.as_nanos();
                }
            }
        }
    }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn claim(client: u8, flow: u64) -> Claim {
    Claim { client: ClientId::of([10, 0, 0, client].into()), flow: FlowId(flow), ..Claim::USUAL }
}

fn urgent(urgency: u8, claim: Claim) -> Claim {
    Claim { urgency: Urgency::new(urgency).unwrap(), ..claim }
}

fn weight(weight: u16) -> Weight {
    Weight(NonZeroU16::new(weight).unwrap())
}

fn numbers(left: &[Departure]) -> Vec<u64> {
    left.iter().map(|left| left.item.number).collect()
}

const S: u64 = 1_000_000_000;

/// A class opens at 4, and one of its two flows becomes ready and waits for the shared limit. When it leaves, the class
/// has closed again until 10. The other flow is blocked there, and nothing else waits.
#[test]
fn who_alone_is_left_at_what_has_closed_again_is_woken_when_that_opens() {
    let mut world = World::new(Limits::every(3));
    world.limits.own.insert(1, (4, 4));
    let first = world.add(1, claim(0, 0));
    let second = world.add(1, claim(0, 1));
    for _ in 0..2 {
        world.add(0, claim(1, 0));
    }
    assert_eq!(world.run(5).len(), 2, "of another line, at 0 and 3: what all share is closed until 6");
    world.limits.own.insert(1, (4, 10));
    world.queue.recheck();
    assert!(world.queue.remove(first).is_some() && world.queue.holds(second));
    assert_eq!((world.run(20).len(), world.now), (1, 10));
}

#[test]
fn first_come_first_served_retries_in_front_and_whoever_leaves_is_gone() {
    let mut world = World::new(Limits::every(1));
    let [_, two, ..] = [(); 4].map(|()| world.add(0, claim(1, 0)));
    for _ in 0..2 {
        world.add_with(0, claim(1, 0), 1, Turn::Resent);
    }
    assert!(world.queue.remove(two).is_some());
    assert!(world.queue.remove(two).is_none());
    assert_eq!(numbers(&world.run(S)), [5, 6, 1, 3, 4]);
    assert!(world.queue.is_empty());
}

#[test]
fn another_client_gets_every_other_slot_although_twenty_thousand_wait() {
    let mut world = World::new(Limits::every(1));
    (0..20_000).for_each(|_| {
        world.add(0, claim(1, 0));
    });
    world.run(1000);
    (0..100).for_each(|_| {
        world.add(0, claim(2, 0));
    });
    let left = world.run(1200);
    let clients: Vec<_> = left.iter().map(|left| left.claim.client).collect();
    assert_eq!(clients.iter().filter(|client| **client == claim(2, 0).client).count(), 100);
    let twice = clients.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(twice <= 1, "{twice} times one client had two slots in a row");
}

#[test]
fn ten_thousand_names_gain_nothing() {
    let mut world = World::new(Limits::every(1));
    (0..20_000u64).for_each(|n| {
        world.add(0, claim(1, (n % 10_000).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    });
    world.run(100);
    (0..1000).for_each(|_| {
        world.add(0, claim(2, 0));
    });
    let left = world.run(2100);
    let second = left.iter().filter(|left| left.claim.client == claim(2, 0).client).count();
    assert!((999..=1000).contains(&second), "{second} of 1000 in 2000 slots");
    assert!(world.queue.flows() <= 2 * 512 + 4, "{} flows are remembered", world.queue.flows());
}

#[test]
fn client_that_is_not_admitted_waits_while_others_leave_and_then_has_its_turns() {
    let mut world = World::new(Limits::every(1));
    let urgent = urgent(0, claim(1, 0));
    for barred in [claim(1, 0), claim(1, 1), urgent] {
        world.add(0, barred);
    }
    world.limits.barred = vec![urgent.client];
    // More clients come and go than are remembered.
    for number in 2..60 {
        world.add(0, claim(number, 0));
    }
    assert_eq!(world.run(500).len(), 58);
    world.add(0, claim(1, 2));
    assert!(world.run(1000).is_empty() && world.queue.has_suspended() && world.queue.is_blocked());
    // Others pass it, now and later.
    world.add(0, claim(2, 0));
    assert_eq!(numbers(&world.run(1500)), [63]);
    world.limits.barred.clear();
    world.queue.resume();
    assert_eq!(numbers(&world.run(2000)), [3, 1, 2, 62]);
}

#[test]
fn an_urgent_one_leaves_in_the_next_slot_and_the_last_get_a_share() {
    let mut world = World::new(Limits::every(1));
    (0..20_000u64).for_each(|n| {
        world.add(0, claim(1, n % 7));
    });
    world.run(100);
    world.add(0, urgent(0, claim(2, 0)));
    assert_eq!(world.step(S).unwrap().claim.urgency, Urgency::MOST);
    for _ in 0..4000 {
        world.add(0, urgent(0, claim(2, 0)));
        world.add(0, urgent(7, claim(3, 0)));
    }
    let mut served = [0u32; 8];
    (0..2100).for_each(|_| served[usize::from(world.step(S).unwrap().claim.urgency.get())] += 1);
    // Each lower urgency gets one slot after 20 of others.
    assert!(served[7].abs_diff(100) <= 1 && served[3].abs_diff(100) <= 1, "{served:?}");
}

#[test]
fn each_budget_is_shared_for_itself() {
    // 100/s in total, and 5/s for class 1: one client floods both, another one only class 1.
    let mut world = World::new(Limits::every(S / 100).with_line(1, S / 5));
    (0..6000).for_each(|_| {
        world.add(0, claim(1, 0));
    });
    for _ in 0..300 {
        world.add(1, claim(1, 1));
        world.add(1, claim(2, 0));
    }
    let left = world.run(60 * S);
    let of = |client| left.iter().filter(|left| left.item.line == 1 && left.claim.client == client).count();
    let (one, two) = (of(claim(1, 0).client), of(claim(2, 0).client));
    assert!(one.abs_diff(two) <= 2 && one + two >= 297, "{one} and {two} of 300");
    assert!(left.len() >= 5990, "{} of 6000", left.len());
}

#[test]
fn the_last_get_a_share_of_a_budget_that_is_closed_most_of_the_time() {
    for (shared, own) in [(S / 10, S), (S / 10, S * 7 / 10), (S / 10, S / 3), (S / 100, S / 5), (S / 7, S / 2)] {
        let mut world = World::new(Limits::every(shared).with_line(1, own));
        (0..20_000).for_each(|_| {
            world.add(0, claim(1, 0));
        });
        (0..3000u64).for_each(|n| {
            world.add(1, claim((n % 20) as u8, 1));
        });
        (0..200).for_each(|_| {
            world.add(1, urgent(7, claim(21, 0)));
        });
        let left = world.run(231 * own);
        let last = left.iter().filter(|left| left.claim.urgency == Urgency::LEAST).count();
        // The last urgency gets a slot after 20 of others. Within its class that is the least, as its first turn comes
        // late; of all slots it is the most.
        assert!(last >= 9 && last <= left.len() / 21 + 1, "{last} of 231 in the line, {} in all", left.len());
    }
}

#[test]
fn a_flow_queue_that_waits_for_its_turn_hides_nobody() {
    let mut world = World::new(Limits::every(S / 100).with_line(1, S / 5));
    (0..20).for_each(|_| {
        (1..1000).for_each(|flow| {
            world.add(0, claim(1, flow));
        })
    });
    for _ in 0..300 {
        world.add(1, claim(1, 0));
        world.add(1, claim(2, 0));
    }
    let left = world.run(60 * S);
    let in_line = left.iter().filter(|left| left.item.line == 1);
    let small = in_line.clone().filter(|left| left.claim.client == claim(2, 0).client).count();
    assert!(in_line.count() >= 297 && small >= 280, "the small client had {small}");
}

#[test]
fn ten_thousand_lines_cost_a_step_what_ten_do() {
    // A step checks a handful of classes, however many are closed.
    struct Counted(Limits, usize);
    impl TicketRules<u32, Item> for Counted {
        fn line(&mut self, item: &Item, key: &u32) -> u32 {
            self.0.line(item, key)
        }
        fn hold(&mut self, line: &u32, budgets: &[u32], cost: Cost) -> Hold {
            self.1 += 1;
            self.0.hold(line, budgets, cost)
        }
    }
    let mut world = World::new(Limits::every(1));
    for line in 0..10_000 {
        world.limits.own.insert(line, (20_000, 0));
        (0..3).for_each(|_| {
            world.add(line, claim(1, u64::from(line % 1000)));
        });
    }
    let mut counted = Counted(std::mem::take(&mut world.limits), 0);
    let (mut slots, mut now, mut most) = (0, 0, 0);
    while !world.queue.is_empty() {
        counted.1 = 0;
        match world.queue.next(at(now), &mut 64, &mut counted) {
            Next::Ticket { place, key } => {
                world.queue.serve(place).unwrap();
                counted.0.take(now, key, 1);
                slots += 1;
            }
            Next::At(next) => now = next.as_nanos(),
        }
        most = most.max(counted.1);
    }
    assert_eq!(slots, 30_000);
    assert!(most <= 80, "{most} lines were looked at in one step");
}

#[test]
fn a_changed_weight_holds_for_what_waits_already() {
    let mut world = World::new(Limits::every(1));
    for _ in 0..1000 {
        world.add(0, claim(1, 1));
        world.add(0, claim(1, 2));
    }
    world.run(200);
    world.add(0, Claim { flow_weight: weight(9), ..claim(1, 2) });
    let left = world.run(1200);
    let heavy = left.iter().filter(|left| left.claim.flow == FlowId(2)).count();
    assert!(heavy.abs_diff(900) <= 2, "{heavy} of 1000 at 9 to 1, were it not that they ran out");
}

#[test]
fn a_changed_weight_holds_for_a_flow_that_had_nothing_waiting_when_it_was_changed() {
    let mut world = World::new(Limits::every(1));
    (0..4000).for_each(|_| {
        world.add(0, claim(1, 1));
    });
    world.add(0, claim(1, 2));
    while world.queue.longest(2).len() == 2 {
        world.step(S);
    }
    (0..1000).for_each(|_| {
        world.add(0, Claim { flow_weight: weight(9), ..claim(1, 2) });
    });
    let left = world.run(world.now + 1000);
    let heavy = left.iter().filter(|left| left.claim.flow == FlowId(2)).count();
    assert!(heavy.abs_diff(900) <= 2, "{heavy} of 1000");
}

#[test]
fn what_is_sent_again_does_not_bring_back_the_weights_of_its_first_time() {
    let mut world = World::new(Limits::every(10));
    (0..100).for_each(|turn| {
        world.add(0, claim(1 + turn % 2, 0));
    });
    let heavier = |claim: &Claim| {
        if claim.client == self::claim(1, 0).client { Claim { client_weight: weight(3), ..*claim } } else { *claim }
    };
    world.queue.reweigh_all(heavier);
    // The request came when both clients had the same weight.
    world.add_with(0, claim(1, 0), 1, Turn::Resent);
    let left = world.run(400);
    let first = left.iter().filter(|departure| departure.claim.client == claim(1, 0).client).count();
    // Three of four slots, within one cost, and the resent request at the front.
    assert!((29..=32).contains(&first), "{first} of {}", left.len());
}

#[test]
fn tickets_that_change_lines_keep_their_order() {
    let mut world = World::new(Limits::every(1));
    (0..6).for_each(|_| {
        world.add(1, claim(1, 0));
    });
    world.add(2, claim(1, 0));
    world.queue.sort(|item| if item.number % 2 == 0 { 3 } else { 2 });
    let units = |counts: fn(&u32) -> bool| world.queue.units(Unit::REQUESTS, counts);
    assert_eq!((world.queue.len(), units(|line| *line == 3), units(|_| true)), (7, 3, 7));
    // The gate says that all of them belong to another class again.
    assert_eq!(numbers(&world.run(S)), [1, 2, 3, 4, 5, 6, 7]);
    assert!(world.queue.lines().next().is_none());
}
