//! Members of one fleet, each with its own budget, and the book that all of them call.

use std::num::NonZeroU32;

use andante_fleet::{Division, Epoch, Extent, Floor, Member, MemberId, Reply, ReplyOutcome, StoreDown, Sync, Terms};
use andante_fleet_model::Book;

use super::*;
use crate::{LimitSpec, MarginSpec, Scope};

struct World {
    book: Book,
    members: Vec<(Member, Budget)>,
    now: Instant,
    name: &'static str,
}

const LEASE: Micros = 10_000_000;
const LIMIT: &str = "5/min burst 5";

fn ms(of: u64) -> Duration {
    Duration::from_millis(of)
}

fn limits(text: &str) -> Vec<LimitSpec> {
    text.split(", ").filter(|limit| !limit.is_empty()).map(|limit| limit.parse().unwrap()).collect()
}

/// Sends one request, which is answered at once.
fn send(budget: &mut Budget, now: Instant) {
    let charge = budget.take(now, now, Cost::MIN, Scope::NONE);
    budget.sent(charge, now);
    budget.answered(charge, now, now);
}

impl World {
    fn new(members: u64, limit: &str) -> Self {
        Self::configured(members, limit, StoreDown::Wait)
    }

    fn configured(members: u64, limit: &str, down: StoreDown) -> Self {
        let now = Instant::START + ms(1000);
        let member = |id| {
            let (lease, terms) = (Lease::new(down), Terms { lease: LEASE, split: 0, division: Division::default() });
            let mut budget = Budget::new(&limits(limit), MarginSpec::Fixed(ms(0)), now);
            budget.share(lease.clone());
            (Member::new(MemberId(id), terms, lease), budget)
        };
        let book = Book::declared_new("0", 0, LEASE, 1);
        let mut world = Self { book, members: (1..=members).map(member).collect(), now, name: "api" };
        (0..members as usize).for_each(|member| _ = world.talk(member, 0));
        world
    }

    /// Makes one call of this member with `waiting` requests. Returns the number of limits in the call.
    fn talk(&mut self, member: usize, waiting: u64) -> usize {
        let (member, budget) = &mut self.members[member];
        let joined = member.has_joined();
        let entries = if joined { budget.speak(self.now, self.name, |_| waiting, false).entries } else { Vec::new() };
        let call = member.call(self.now, Extent::Some, entries, Vec::new());
        let (reply, _) = self.book.sync(&call, micros(self.now.since(Instant::START)), "0");
        match member.heard(self.now, call.seq, reply) {
            ReplyOutcome::Granted { given, .. } => budget.given(self.now, call.entries.iter().zip(&given)),
            other => panic!("{other:?}"),
        }
        call.entries.len()
    }

    /// Sends up to `most` requests of this member that take `cost` tokens each; returns how many left.
    fn sends_of(&mut self, member: usize, cost: u32, most: u32) -> u32 {
        let (now, budget) = (self.now, &mut self.members[member].1);
        let cost = Cost::MIN.with(Unit::named("tokens").unwrap(), cost);
        let mut sent = 0;
        while sent < most && budget.ready(now, &cost, Scope::NONE).instant(now) <= now {
            let charge = budget.take(now, now, cost, Scope::NONE);
            budget.sent(charge, now);
            budget.answered(charge, now, now);
            sent += 1;
        }
        sent
    }

    /// Two members with 1,600 tokens a minute. The first holds 910, 30 of them free, and its requests take 40 each. The
    /// second has used 690, and its next request takes 230. Each waits for more than there is.
    fn crowded() -> Self {
        let mut world = World::new(2, "1600 tokens/min burst 1600");
        for (member, cost, count) in [(0, 40, 22), (1, 230, 3)] {
            world.sends_of(member, cost, 1);
            world.talk(member, u64::from(cost * count));
            assert_eq!(world.sends_of(member, cost, count), count);
            world.now = world.now + ms(10);
        }
        for (member, cost) in [(0, 40), (1, 230)] {
            assert_eq!(world.sends_of(member, cost, 1), 0);
            world.talk(member, 2000);
            world.now = world.now + ms(10);
        }
        world
    }

    /// Number of calls of the first member within `time`, for requests of `cost` tokens that cannot leave.
    fn calls(&mut self, cost: u32, time: Duration) -> u32 {
        let (mut calls, until) = (0, self.now + time);
        while self.now < until {
            assert_eq!(self.sends_of(0, cost, 1), 0);
            calls += u32::from(self.talk(0, 2000) > 0);
            self.now = self.now + ms(2);
        }
        calls
    }

    /// Number of requests that leave by this member within `time`; the member asks for all that it can get.
    fn sends(&mut self, member: usize, time: Duration) -> u32 {
        let (mut sent, until) = (0, self.now + time);
        while self.now < until {
            self.talk(member, 5);
            let (now, budget) = (self.now, &mut self.members[member].1);
            while budget.ready(now, &Cost::MIN, Scope::NONE).instant(now) <= now {
                send(budget, now);
                sent += 1;
                assert!(sent < 100, "nothing is limited");
            }
            self.now = now + ms(100);
        }
        sent
    }

    fn reconfigure(&mut self, member: usize, limit: &str) {
        self.members[member].1.reconfigure(&limits(limit), MarginSpec::Fixed(ms(0)), self.now);
    }
}

#[test]
fn a_limit_of_a_member_that_is_alone_is_used_and_kept() {
    let mut world = World::new(1, LIMIT);
    assert_eq!(world.sends(0, ms(50_000)), 5);
    assert_eq!(world.sends(0, ms(40_000)), 5);
}

/// 60 a minute with 100 ahead take two minutes; at one a minute the prediction would be 100 minutes.
#[test]
fn what_is_predicted_before_the_store_has_said_anything_is_not_that_nothing_is_due() {
    let now = Instant::START + ms(1000);
    let mut budget = Budget::new(&limits("60/min"), MarginSpec::Fixed(ms(0)), now);
    budget.share(Lease::new(StoreDown::Wait));
    let at = budget.project(now, now, |_, _| 100, Cost::MIN, Scope::NONE);
    assert!(at.since(now) <= ms(120_000), "{:?}", at.since(now));
}

#[test]
fn a_limit_that_is_added_counts_what_this_process_has_sent_before() {
    let mut world = World::new(1, "");
    let now = world.now;
    (0..5).for_each(|_| send(&mut world.members[0].1, now));
    world.now = now + ms(1000);
    world.reconfigure(0, LIMIT);
    assert_eq!(world.sends(0, ms(55_000)), 0);
    assert_eq!(world.sends(0, ms(30_000)), 5);
}

#[test]
fn a_member_that_is_alone_sends_no_more_for_a_limit_that_is_renamed() {
    let mut world = World::new(1, LIMIT);
    assert_eq!(world.sends(0, ms(5000)), 5);
    world.name = "renamed";
    assert_eq!(world.sends(0, ms(50_000)), 0);
    assert_eq!(world.sends(0, ms(30_000)), 5);
}

#[test]
fn what_is_held_of_a_limit_that_is_gone_is_said_until_a_reply_comes() {
    let mut world = World::new(1, LIMIT);
    assert_eq!(world.sends(0, ms(5000)), 5);
    world.reconfigure(0, "");
    let (now, budget) = (world.now, &mut world.members[0].1);
    let said = |entries: Vec<Entry>| -> Vec<_> {
        entries.into_iter().map(|entry| (entry.holds, entry.ends.is_some())).collect()
    };
    let gone = budget.speak(now, "api", |_| 0, false).entries;
    assert_eq!(said(gone.clone()), [(5, true)]);
    budget.reconfigure(&limits(LIMIT), MarginSpec::Fixed(ms(0)), now);
    budget.unheard(now, &gone);
    assert_eq!(said(budget.speak(now + ms(600), "api", |_| 3, true).entries), [(5, true)]);
}

#[test]
fn two_limits_with_one_window_have_a_pool_each_in_whatever_order_they_are_written() {
    for limits in ["5/min burst 5, 3/min burst 3", "3/min burst 3, 5/min burst 5", "3/min, 3/min strict"] {
        let mut world = World::new(1, limits);
        for _ in 0..5 {
            world.talk(0, 10);
            world.now = world.now + ms(1000);
        }
        let usage = world.members[0].1.usage(world.now);
        let held = |usage: &crate::LimitUsage| (usage.spec.rate.count.get(), usage.share.unwrap().held);
        // A single member gets all of each limit.
        assert!(usage.iter().map(held).all(|(count, held)| count == held), "{limits}: {usage:?}");
    }
}

/// Two members own 5 of 20 each, and 10 are lent: the API counts a request's whole cost.
#[test]
fn a_request_that_takes_more_than_is_lent_counts_in_full() {
    let floor = Floor { percent: 50, members: NonZeroU32::new(2).unwrap() };
    let mut world = World::configured(1, "20/s burst 20", StoreDown::Floor(floor));
    world.members[0].1.shared.as_ref().unwrap().lease.count(world.now, 1, 0);
    world.now = world.now + ms(3000);
    let cost = Cost::new(11).unwrap();
    for _ in 0..10 {
        world.talk(0, 11);
        world.now = world.now + ms(100);
        if world.members[0].1.ready(world.now, &cost, Scope::NONE).instant(world.now) <= world.now {
            break;
        }
    }
    let (now, budget) = (world.now, &mut world.members[0].1);
    assert_eq!(budget.ready(now, &cost, Scope::NONE).instant(now), now, "it has 15");
    budget.take(now, now, cost, Scope::NONE);
    assert_eq!(budget.usage(now)[0].used, 11);
    // Units that no member can get are not requested, and block no other request.
    let cost = Cost::new(16).unwrap();
    assert_eq!(budget.ready(now, &cost, Scope::NONE).instant(now), Instant::FAR);
    assert!(budget.speak(now + ms(2000), "api", |_| 16, false).entries.iter().all(|entry| entry.want == 0));
}

#[test]
fn a_member_that_has_used_its_share_is_not_looked_at_before_something_can_change() {
    let mut world = World::new(2, "20/s burst 20");
    for _ in 0..30 {
        (0..2).for_each(|member| _ = world.talk(member, 40));
        let (now, budget) = (world.now, &mut world.members[0].1);
        while budget.ready(now, &Cost::MIN, Scope::NONE).instant(now) <= now {
            send(budget, now);
        }
        world.now = now + ms(100);
    }
    // The member has 10 units, all used within this second.
    let (now, budget) = (world.now, &mut world.members[0].1);
    let spoken = budget.speak(now, "api", |_| 40, false);
    let again = spoken.next.since(now);
    assert!(spoken.entries.is_empty() && again > ms(20), "{again:?}: {spoken:?}");
}

/// The first member is due 800, so the 30 free tokens are the second's. The tokens suffice for neither request and lie
/// in the pool, yet the first was granted them again and again. A member reports its usage each 1.25 s.
#[test]
fn a_member_above_its_target_asks_for_all_that_its_next_request_lacks_or_for_nothing() {
    let calls = World::crowded().calls(40, ms(5000));
    assert!((1..=5).contains(&calls), "{calls}");
}

/// While no request can leave, each report after 1.25 s is the same, so every other one suffices.
#[test]
fn a_member_of_which_nothing_has_changed_says_so_each_two_and_a_half_seconds() {
    let calls = World::crowded().calls(40, ms(25_000));
    assert!((9..=12).contains(&calls), "{calls}");
}

/// A call that founded an epoch arrives once more, late, at a store that has lost its state. The members' tokens may
/// have changed since.
#[test]
fn a_late_call_does_not_begin_the_same_epoch_twice() {
    let call = Sync {
        member: MemberId(1),
        seq: 46,
        epoch: Some(Epoch { counter: 1, id: 7 }),
        leased: true,
        basis: None,
        terms: Terms { lease: LEASE, split: 0, division: Division::default() },
        nonce: 5,
        extent: Extent::All,
        pauses_known: 0,
        pauses: Vec::new(),
        entries: Vec::new(),
    };
    let began = |wall| match Book::default().sync(&call, wall, "1").0 {
        Reply::Done { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    };
    assert_ne!(began(1_000_000), began(9_000_000));
}

/// Tokens of one limit are requested after those of the other. While a call for the first is in flight, there is no
/// news.
#[test]
fn who_lacks_tokens_of_two_limits_calls_for_those_that_it_asks_for() {
    let [first, second] = ["first", "second"].map(|name| Unit::named(name).unwrap());
    let cost = Cost::MIN.with(first, 10).with(second, 10);
    let lacking = || {
        let mut world = World::new(1, "100 first/min burst 100, 100 second/min burst 100");
        // The pools have names from then on.
        world.talk(0, 0);
        world
    };
    let earliest = |world: &mut World| {
        let (now, budget) = (world.now, &mut world.members[0].1);
        (budget.ready(now, &cost, Scope::NONE).instant(now), budget.calls())
    };
    let mut world = lacking();
    assert_eq!(earliest(&mut world), (Instant::FAR, true));
    let spoken = world.members[0].1.speak(world.now, world.name, |_| 10, false).entries;
    assert!(matches!(&*spoken, [entry] if entry.pool.contains("first")), "{spoken:?}");
    assert_eq!(earliest(&mut world), (Instant::FAR, false), "no answer has come");
    let mut world = lacking();
    for _ in 0..2 {
        assert_eq!(earliest(&mut world), (Instant::FAR, true));
        assert_eq!(world.talk(0, 10), 1);
    }
    assert_eq!(earliest(&mut world), (world.now, false));
}

/// A queue asks for each of its classes and for their common bottleneck. Neither query calls for tokens that are
/// requested later.
#[test]
fn who_lacks_tokens_of_one_limit_does_not_call_for_another_one_that_others_take_alone() {
    let unit = Unit::named("first").unwrap();
    let (metered, plain) = (Cost::MIN.with(unit, 10), Cost::MIN);
    let mut world = World::new(1, "100 first/min burst 100, 100/min burst 100");
    world.talk(0, 0);
    let earliest = |world: &mut World, cost| {
        let (now, budget) = (world.now, &mut world.members[0].1);
        (budget.ready(now, &cost, Scope::NONE).instant(now), budget.calls())
    };
    assert_eq!(earliest(&mut world, metered), (Instant::FAR, true));
    let spoken = world.members[0].1.speak(world.now, world.name, |_| 10, false).entries;
    assert!(matches!(&*spoken, [entry] if entry.pool.contains("first")), "{spoken:?}");
    for cost in [metered, plain, metered] {
        assert_eq!(earliest(&mut world, cost), (Instant::FAR, false), "no answer has come");
    }
    // The requests that wait for the first limit have left.
    world.members[0].1.speak(world.now, world.name, |of| u64::from(of == Unit::REQUESTS) * 10, false);
    assert_eq!(earliest(&mut world, plain), (Instant::FAR, true));
}

/// Used tokens come back by themselves; only then are tokens of the other limit requested.
#[test]
fn who_has_used_up_the_tokens_of_one_limit_looks_again_when_they_come_back() {
    let [first, second] = ["first", "second"].map(|name| Unit::named(name).unwrap());
    let (both, one) = (Cost::MIN.with(first, 10).with(second, 10), Cost::MIN.with(first, 10));
    let mut world = World::new(1, "100 first/min burst 100, 100 second/min burst 100");
    world.talk(0, 0);
    let earliest = |world: &mut World| {
        let (now, budget) = (world.now, &mut world.members[0].1);
        (budget.ready(now, &both, Scope::NONE).instant(now), budget.calls())
    };
    assert_eq!(earliest(&mut world), (Instant::FAR, true));
    assert_eq!(world.talk(0, 10), 1);
    let (now, budget) = (world.now, &mut world.members[0].1);
    while budget.ready(now, &one, Scope::NONE).instant(now) == now {
        let charge = budget.take(now, now, one, Scope::NONE);
        budget.sent(charge, now);
        budget.answered(charge, now, now);
    }
    let (again, _) = earliest(&mut world);
    let minute = Duration::from_secs(60);
    assert!(again >= now + minute && again <= now + minute * 2, "{again:?} after {now:?}");
    world.now = again;
    assert_eq!(earliest(&mut world), (Instant::FAR, true), "now the other one is asked for");
}

/// A response reports more than was reserved, and then other units leave the window. For a while those are free here
/// but not elsewhere. The budget calls for a request that lacks tokens, and the report has to agree that it does:
/// otherwise the lane and the task that talks to the store would wake each other without end.
#[test]
fn a_member_in_debt_calls_no_more_often_than_it_has_something_to_report() {
    let tokens = Unit::named("tokens").unwrap();
    let mut world = World::new(1, "100 tokens/s burst 100");
    world.talk(0, 0);
    assert_eq!(world.sends_of(0, 60, 1), 0);
    world.talk(0, 100);
    assert_eq!(world.sends_of(0, 60, 1), 1);
    world.now = world.now + ms(500);
    let (now, budget) = (world.now, &mut world.members[0].1);
    let charge = budget.take(now, now, Cost::MIN.with(tokens, 40), Scope::NONE);
    budget.sent(charge, now);
    budget.answered(charge, now, now);
    budget.settle(charge, tokens, 60, now);
    assert_eq!(budget.usage(now)[0].used, 120);
    world.now = world.now + ms(510);
    assert_eq!(world.members[0].1.usage(world.now)[0].used, 60);
    let mut calls = 0;
    for _ in 0..20 {
        assert_eq!(world.sends_of(0, 50, 1), 0, "60 of 100 are used");
        if !world.members[0].1.calls() {
            break;
        }
        calls += 1;
        world.talk(0, 50);
    }
    assert!(calls <= 2, "{calls} calls at one instant");
}
