//! One level of fair queueing: EEVDF, with the virtual time as the weighted mean of all start tags, as Linux has it.
//!
//! Each member has a *start*: the virtual time at which it was due what it has received. A member whose start is not
//! after the virtual time is owed something; of those, the one whose turn would end first is next. So each member stays
//! within one largest cost of its share, whatever the weights are.
//!
//! Because the virtual time is a mean, members that join need no special case. One that has nothing to send any more still counts
//! until the virtual time has come to its start, as in fluid sharing, where it would be served until then. Without that each of
//! those that come for one request would take its turn back out of the mean with it: the virtual time would stand still, and
//! nobody who has been served would be owed anything again while others come. Linux delays the same in the same way.
//!
//! I. Stoica, H. Abdel-Wahab, "Earliest Eligible Virtual Deadline First", Old Dominion University TR-95-22, 1995.

mod share;
mod turn;

use std::collections::VecDeque;

use smallvec::SmallVec;

pub(super) use self::{
    share::Share,
    turn::{Level, Standing, Turn},
};
use super::{
    claim::{Comes, Weight},
    slab::Slab,
    sorted_set::SortedSet,
};

/// What has members has them by their numbers.
pub(super) trait Members {
    fn member(&mut self, id: u32) -> &mut FairMember;
}

/// The numbers of members that may be forgotten.
pub(super) type Forgotten = SmallVec<[u32; 8]>;

/// A client among clients, or a flow among the flows of its client.
#[derive(Debug)]
pub(super) struct FairMember {
    start: u128,
    /// By how much later than its start it is sorted where it is listed, or is over if it has nothing to send.
    offset: u64,
    weight: Weight,
    listed: Listed,
    /// Whether it has something to send.
    active: bool,
    /// Whether it is among the idle ones: it had nothing to send once, and may have by now.
    idle: bool,
    /// Its number among those that had something to send. Of those whose turns end together the one with the least is first: it
    /// has waited for longest. Numbers begin again after [`NUMBERS`]; 0 if it never had any.
    number: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// It does not count, or there is no other.
    No,
    /// With those that are owed something, by the ends of their turns. All of them have something to send.
    Owed,
    /// With those that are owed nothing, by their starts. Some of them have nothing to send any more.
    Ahead,
}

/// Shares what it is told of among its members.
#[derive(Debug)]
pub(super) struct Fair {
    owed: SortedSet<Tag>,
    ahead: SortedSet<Tag>,
    /// Those that had nothing to send when they came here, each once, and when they may be forgotten.
    idle: VecDeque<Tag>,
    /// The sum of the starts of members that count, by weight; the virtual time while none does.
    starts: u128,
    /// The sum of their weights.
    weights: u64,
    /// The largest cost so far: the length of a turn.
    largest: u64,
    active: u32,
    /// How many turns a member is owed at most that comes back from another place.
    credit: u8,
    /// The number of the last member that had something to send.
    last: u16,
}

/// A virtual time and the number of a member: sorts by the one, then by the other. In 16 bytes, as what is listed is looked at
/// more often than anything else; 96 bits of time are a million million requests of the largest cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tag {
    upper: u64,
    lower: u64,
}

/// What a unit of cost is in virtual time: a weight of 65,535 still leaves digits of it. Starts have 128 bits, because a few
/// hundred requests of the largest cost use up 64.
const UNIT: u64 = 1 << 24;

/// Members have so many numbers: together they are less than a thousandth of a request of weight 1.
const NUMBERS: u16 = 1 << 12;

/// A member that has left is remembered for so many times what it may be owed when it comes back.
const REMEMBERED: u64 = 4;

// === impl FairMember ===

impl FairMember {
    fn new(start: u128, weight: Weight) -> Self {
        Self { start, offset: 0, weight, listed: Listed::No, active: false, idle: false, number: 0 }
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    pub(super) fn start(&self) -> u128 {
        self.start
    }

    /// Whether nothing of it is remembered any more, as it has nothing to send, although it may not be forgotten yet.
    fn is_over(&self, now: u128) -> bool {
        self.idle && !self.counts() && self.start + u128::from(self.offset) <= now
    }

    /// Whether its start is a part of the mean.
    fn counts(&self) -> bool {
        self.listed != Listed::No
    }

    /// Is a newcomer if that is so.
    fn renew(&mut self, now: u128) {
        if self.is_over(now) {
            (self.start, self.number) = (now, 0);
        }
    }

    /// What so much is of its virtual time. Costs have 32 bits.
    fn virtual_time(&self, cost: u64) -> u64 {
        cost * UNIT / self.weight.get()
    }
}

// === impl Fair ===

impl Fair {
    /// Nothing is shared yet.
    pub(super) fn new(credit: u8) -> Self {
        let (owed, ahead) = Default::default();
        Self { owed, ahead, idle: VecDeque::new(), starts: 0, weights: 0, largest: 0, active: 0, credit, last: 0 }
    }

    /// Whether no member has anything to send.
    pub(super) fn is_idle(&self) -> bool {
        self.active == 0
    }

    /// A member that has had its due so far.
    pub(super) fn newcomer(&self, weight: Weight) -> FairMember {
        FairMember::new(self.virtual_time(), weight)
    }

    /// The member has something to send from now on. It keeps no credit from the time before, except for some turns if
    /// it was moved here from another place: otherwise one whose turn comes while its line is closed would never get it.
    /// It still owes what it received too much.
    pub(super) fn activate(&mut self, id: u32, member: &mut FairMember, comes: Comes) {
        if member.counts() {
            self.leave(id, member);
        }
        let now = self.virtual_time();
        let credit = if comes == Comes::New { 0 } else { self.credit(member) };
        member.renew(now);
        if comes == Comes::Missed && member.number == 0 {
            // It has been forgotten meanwhile.
            member.start = 0;
        }
        if comes == Comes::New || member.number == 0 {
            self.last = self.last % NUMBERS + 1;
            member.number = self.last;
        }
        member.start = member.start.max(now.saturating_sub(credit.into()));
        member.active = true;
        self.active += 1;
        self.add(member);
        self.list(id, member);
    }

    /// The member has nothing to send any more.
    pub(super) fn deactivate(&mut self, id: u32, member: &mut FairMember) {
        member.active = false;
        self.active -= 1;
        if self.is_owed(member.start) {
            return self.leave(id, member);
        }
        if member.listed == Listed::Owed {
            self.relist(id, member);
        }
        self.remember(id, member);
    }

    /// The member has received `cost`.
    pub(super) fn charge(&mut self, id: u32, member: &mut FairMember, cost: u64) {
        self.expect(cost);
        if !member.counts() {
            member.renew(self.virtual_time());
            self.rests(id, member);
        }
        self.change(id, member, |member| member.start += u128::from(member.virtual_time(cost)));
    }

    /// The member's weight is another one from now on.
    pub(super) fn reweigh(&mut self, id: u32, member: &mut FairMember, weight: Weight) {
        if member.weight != weight {
            self.change(id, member, |member| member.weight = weight);
        }
    }

    /// There are costs as large as this.
    pub(super) fn expect(&mut self, cost: u64) {
        self.largest = self.largest.max(cost);
    }

    /// Whose turn it is. Members that may be forgotten go to `forgotten`.
    pub(super) fn next(&mut self, members: &mut impl Members, forgotten: &mut Forgotten) -> Option<u32> {
        if self.active == 0 {
            return None;
        }
        self.forget(members, forgotten);
        loop {
            while let Some((at, id)) = self.ahead.first().map(Tag::parts)
                && self.is_owed(at)
            {
                let member = members.member(id);
                if member.active { self.relist(id, member) } else { self.leave(id, member) }
            }
            let (_, id) = self.owed.first().map(Tag::parts).expect("the least start is not after the mean of all");
            let member = members.member(id);
            if self.is_owed(member.start) {
                return Some(id);
            }
            // Others have left since, and the mean has gone back.
            self.relist(id, member);
        }
    }

    /// All members that are known, if none has anything to send.
    pub(super) fn members(&self) -> impl Iterator<Item = u32> {
        debug_assert!(self.is_idle(), "others are known beside these");
        self.idle.iter().map(|tag| tag.parts().1)
    }

    /// What a member may be owed that comes back.
    fn credit(&self, member: &FairMember) -> u64 {
        u64::from(self.credit) * member.virtual_time(self.largest)
    }

    fn virtual_time(&self) -> u128 {
        if self.weights == 0 { self.starts } else { divide(self.starts, self.weights) }
    }

    fn is_owed(&self, start: u128) -> bool {
        start * u128::from(self.weights) <= self.starts
    }

    /// The member counts no more.
    fn leave(&mut self, id: u32, member: &mut FairMember) {
        self.unlist(id, member);
        self.subtract(member);
        self.rests(id, member);
    }

    /// The member does not count, and is remembered for a while.
    fn rests(&mut self, id: u32, member: &mut FairMember) {
        // It may come back for the turns that it has missed.
        member.offset = REMEMBERED * self.credit(member);
        self.remember(id, member);
    }

    fn remember(&mut self, id: u32, member: &mut FairMember) {
        if !std::mem::replace(&mut member.idle, true) {
            self.idle.push_back(Tag::of(id, member));
        }
    }

    /// Forgets members that have had nothing to send for long.
    fn forget(&mut self, members: &mut impl Members, forgotten: &mut Forgotten) {
        while let Some((at, id)) = self.idle.front().map(Tag::parts)
            && self.is_owed(at)
        {
            self.idle.pop_front();
            let member = members.member(id);
            if member.counts() && !member.active && self.is_owed(member.start) {
                self.leave(id, member);
            }
            if !member.active && !member.is_over(self.virtual_time()) {
                // It had something to send meanwhile, or still counts.
                self.idle.push_back(Tag::of(id, member));
                continue;
            }
            member.idle = false;
            if !member.active {
                forgotten.push(id);
            }
        }
        // One that is remembered for long, as its weight is small, holds up no others: each is first in turn.
        if !self.idle.is_empty() {
            self.idle.rotate_left(1);
        }
    }

    fn change(&mut self, id: u32, member: &mut FairMember, change: impl FnOnce(&mut FairMember)) {
        if !member.counts() {
            return change(member);
        }
        self.unlist(id, member);
        self.subtract(member);
        change(member);
        self.add(member);
        self.list(id, member);
    }

    fn add(&mut self, member: &FairMember) {
        let start = u128::from(member.weight.get()) * member.start;
        self.starts = if self.weights == 0 { start } else { self.starts + start };
        self.weights += member.weight.get();
    }

    fn subtract(&mut self, member: &FairMember) {
        self.weights -= member.weight.get();
        // The virtual time of one alone is its start.
        self.starts = match self.weights {
            0 => member.start,
            _ => self.starts - u128::from(member.weight.get()) * member.start,
        };
    }

    fn relist(&mut self, id: u32, member: &mut FairMember) {
        self.unlist(id, member);
        self.list(id, member);
    }

    fn list(&mut self, id: u32, member: &mut FairMember) {
        let set = if member.active && self.is_owed(member.start) {
            let end = member.virtual_time(self.largest) + u64::from(member.number);
            (member.listed, member.offset) = (Listed::Owed, end);
            &mut self.owed
        } else {
            (member.listed, member.offset) = (Listed::Ahead, 0);
            &mut self.ahead
        };
        set.insert(Tag::of(id, member));
    }

    fn unlist(&mut self, id: u32, member: &mut FairMember) {
        let removed = match member.listed {
            Listed::No => true,
            Listed::Owed => self.owed.remove(&Tag::of(id, member)),
            Listed::Ahead => self.ahead.remove(&Tag::of(id, member)),
        };
        debug_assert!(removed, "a member stands where it was listed");
        member.listed = Listed::No;
    }
}

// === impl Tag ===

impl Tag {
    /// By what a member is sorted where it is listed.
    fn of(id: u32, member: &FairMember) -> Self {
        let at = member.start + u128::from(member.offset);
        Self { upper: (at >> 32) as u64, lower: (at as u64) << 32 | u64::from(id) }
    }

    /// The time, and the number.
    fn parts(&self) -> (u128, u32) {
        (u128::from(self.upper) << 32 | u128::from(self.lower >> 32), self.lower as u32)
    }
}

/// Division of what mostly fits into 64 bits, which is ten times as quick there.
fn divide(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => (dividend / divisor).into(),
        Err(_) => dividend / u128::from(divisor),
    }
}

impl Members for Slab<FairMember> {
    fn member(&mut self, id: u32) -> &mut FairMember {
        &mut self[id]
    }
}
