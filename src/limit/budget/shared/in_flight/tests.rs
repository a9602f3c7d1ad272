//! Members that share an in-flight limit, and the book that all of them call.

use andante_fleet::{Division, Extent, Member, MemberId, Micros, ReplyOutcome, StoreDown, Terms, WakeUp};
use andante_fleet_model::Book;

use super::*;
use crate::MarginSpec;

struct World {
    book: Book,
    members: Vec<(Member, Budget)>,
    now: Instant,
}

const LEASE: Micros = 10_000_000;
const HOLD: Duration = Duration::from_secs(60);

fn ms(of: u64) -> Duration {
    Duration::from_millis(of)
}

fn limit(of: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(of)
}

impl World {
    fn new(members: u64, most: u32) -> Self {
        let now = Instant::START + ms(1000);
        let member = |id| {
            let lease = Lease::new(StoreDown::Wait).holding(HOLD);
            let terms = Terms { lease: LEASE, split: 0, division: Division::default() };
            let mut budget = Budget::new(&[], MarginSpec::Fixed(ms(0)), now);
            budget.share(lease.clone());
            budget.share_in_flight(now, limit(most));
            (Member::new(MemberId(id), terms, lease), budget)
        };
        let book = Book::declared_new("0", 0, LEASE, 1);
        let mut world = Self { book, members: (1..=members).map(member).collect(), now };
        (0..members as usize).for_each(|member| world.talk(member, 0));
        world
    }

    fn speak(&mut self, member: usize, waiting: u32) -> Vec<Entry> {
        let budget = &mut self.members[member].1;
        let mut spoken = budget.speak(self.now, "api", |_| waiting.into(), false);
        budget.speak_in_flight(self.now, "api", waiting, false, &mut spoken);
        spoken.entries
    }

    /// Makes one call of this member with `waiting` requests.
    fn talk(&mut self, member: usize, waiting: u32) {
        let entries = if self.members[member].0.has_joined() { self.speak(member, waiting) } else { Vec::new() };
        let (member, budget) = &mut self.members[member];
        let call = member.call(self.now, Extent::Some, entries, Vec::new());
        let (reply, hints) = self.book.sync(&call, micros(self.now.since(Instant::START)), "0");
        match member.heard(self.now, call.seq, reply) {
            ReplyOutcome::Granted { given, .. } => budget.given(self.now, call.entries.iter().zip(&given)),
            other => panic!("{other:?}"),
        }
        for hint in hints {
            let WakeUp::Pool { member: to, pool } = hint else { continue };
            for (other, budget) in self.members.iter_mut().filter(|(other, _)| other.id() != call.member) {
                if to.is_none_or(|to| to == other.id()) {
                    budget.hinted(self.now, &pool, to.is_some());
                }
            }
        }
    }

    fn under_way(&mut self, member: usize, count: u32) {
        self.members[member].1.under_way(self.now, count);
    }

    fn held(&mut self, member: usize) -> u32 {
        self.members[member].1.in_flight_share(self.now).unwrap().held
    }

    /// Advances the time by `time`, while all members call.
    fn pass(&mut self, time: Duration, waiting: &[u32]) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + ms(100);
            (0..self.members.len()).for_each(|member| self.talk(member, waiting[member]));
        }
    }
}

#[test]
fn a_peak_is_that_of_the_last_stretch_and_of_the_one_before() {
    let at = |seconds: u64| Instant::START + ms(1000 * seconds);
    let mut peak = Peak::new(ms(10_000));
    peak.set(at(100), 3);
    peak.set(at(104), 7);
    peak.set(at(105), 1);
    assert_eq!([peak.read(at(109)), peak.read(at(111)), peak.read(at(119))], [7, 7, 7]);
    assert_eq!(peak.read(at(121)), 1, "what there is counts for every stretch that it lasts");
    assert_eq!(peak.read(at(500)), 1);
}

#[test]
fn one_that_is_alone_has_all_and_keeps_what_it_uses() {
    let mut world = World::new(2, 20);
    world.pass(ms(200), &[20, 0]);
    assert_eq!(world.held(0), 20);
    world.under_way(0, 20);
    assert!(!world.members[0].1.has_room(world.now));
    // From here on two are in flight. Tokens unused for 30 to 60 s go back.
    world.under_way(0, 2);
    world.pass(ms(25_000), &[0, 0]);
    assert_eq!(world.held(0), 20, "it may need them again at any moment");
    world.pass(ms(70_000), &[0, 0]);
    assert_eq!(world.held(0), 4, "half as many more, and one");
    // Used tokens stay, however long the use lasts.
    world.pass(ms(200_000), &[0, 0]);
    assert_eq!(world.held(0), 4);
    world.under_way(0, 0);
    world.pass(ms(70_000), &[0, 0]);
    assert_eq!(world.held(0), 0);
}

#[test]
fn what_is_in_use_is_nobody_elses_until_its_answer_has_ended() {
    let mut world = World::new(2, 6);
    world.pass(ms(200), &[6, 0]);
    world.under_way(0, 6);
    world.pass(ms(120_000), &[6, 6]);
    assert_eq!((world.held(0), world.held(1)), (6, 0));
    // Two requests have ended: their tokens exceed the share of three, and go to others after the shortest way.
    world.under_way(0, 4);
    assert!(!world.members[0].1.has_room(world.now), "it begins nothing with what others are to have");
    world.pass(ms(200), &[6, 6]);
    assert_eq!((world.held(0), world.held(1)), (6, 0));
    world.pass(ms(400), &[6, 6]);
    assert_eq!((world.held(0), world.held(1)), (4, 2));
    world.under_way(1, 2);
    world.under_way(0, 2);
    world.pass(ms(1000), &[6, 6]);
    assert_eq!((world.held(0), world.held(1)), (3, 3));
}

#[test]
fn one_that_was_killed_is_missed_for_its_lease_and_the_hold() {
    let mut world = World::new(2, 6);
    world.pass(ms(2000), &[4, 0]);
    world.under_way(0, 4);
    world.pass(ms(2000), &[0, 0]);
    let held = world.held(0);
    assert!((4..=6).contains(&held), "{held}");
    world.members.remove(0);
    world.pass(ms(69_000), &[6]);
    assert_eq!(world.held(0), 6 - held);
    world.pass(ms(4000), &[6]);
    assert_eq!(world.held(0), 6);
}

#[test]
fn one_that_leaves_while_answers_are_under_way_leaves_as_much_behind() {
    let mut world = World::new(1, 6);
    world.pass(ms(200), &[6]);
    world.under_way(0, 2);
    let said = |entries: Vec<Entry>| -> Vec<(u32, u64)> {
        entries.iter().map(|entry| (entry.holds, entry.ends.unwrap() as u64 / 1_000_000)).collect()
    };
    let mut busy = world.members[0].1.clone();
    assert_eq!(said(busy.leave(world.now)), [(2, 60)]);
    assert!(!busy.has_room(world.now));
    world.under_way(0, 0);
    assert_eq!(said(world.members[0].1.leave(world.now)), [(6, 0)]);
}

#[test]
fn a_limit_that_is_gone_is_withheld_for_what_is_under_way() {
    let mut world = World::new(1, 6);
    world.pass(ms(200), &[6]);
    world.under_way(0, 3);
    world.members[0].1.share_in_flight(world.now, None);
    assert!(world.members[0].1.has_room(world.now), "nothing is limited any more");
    // The limit is configured again before the store has heard of its end.
    world.members[0].1.share_in_flight(world.now, limit(6));
    world.under_way(0, 3);
    world.pass(ms(1000), &[6]);
    assert_eq!(world.held(0), 3, "the rest is free, and these are to be waited for");
    assert!(!world.members[0].1.has_room(world.now), "what is under way counts");
    world.pass(ms(62_000), &[6]);
    assert_eq!(world.held(0), 6);
}
