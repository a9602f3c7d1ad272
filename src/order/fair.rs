//! A level of fair queueing: EEVDF, with the virtual time as the weighted mean of all start tags, as in Linux.
//!
//! Each member has a *start*: the virtual time at which it was due what it has received. A member whose start is not
//! after the virtual time is eligible. The eligible member whose turn would end first is next. So each member stays
//! within one largest cost of its share, whatever the weights are.
//!
//! Because the virtual time is a mean, members that join need no special case. A member with nothing left to send
//! counts until the virtual time reaches its start. Fluid sharing would serve it until then. Otherwise each client that
//! comes for one request would take its turn back out of the mean when it leaves. The virtual time would stand still,
//! and no served member would become eligible again while others come. Linux delays the departure in the same way.
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

/// Access to members by their numbers.
pub(super) trait Members {
    fn member(&mut self, id: u32) -> &mut FairMember;
}

/// The numbers of members that may be forgotten.
pub(super) type Forgotten = SmallVec<[u32; 8]>;

/// A client among clients, or a flow among the flows of its client.
#[derive(Debug)]
pub(super) struct FairMember {
    start: u128,
    /// Offset from the start: of its sort key while it is listed, or of its expiry while it has nothing to send.
    offset: u64,
    weight: Weight,
    listed: Listed,
    /// True if the member has something to send.
    active: bool,
    /// True if the member is in the idle list: it once had nothing to send, and may have something by now.
    idle: bool,
    /// Distance of its start from the virtual time after it left with something owed, in [`OWED_STEPS`] of the largest
    /// cost. Without it the virtual time moves on to the starts of the others, which large costs have put far ahead. A
    /// client that sends its next request after each answer would lose its share to them.
    owed: u8,
    /// The member's number among those that had something to send. Of members whose turns end together, the one with
    /// the lowest number is first: it has waited longest. Numbers begin again after [`NUMBERS`]; 0 if it never had one.
    number: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// The member does not count, or it is the only one.
    No,
    /// Among the eligible members, sorted by the ends of their turns. All of them have something to send.
    Owed,
    /// Among the members that are not eligible, sorted by their starts. The list includes members that have nothing to
    /// send any more.
    Ahead,
}

/// Shares the charged costs fairly among its members.
#[derive(Debug)]
pub(super) struct Fair {
    owed: SortedSet<Tag>,
    ahead: SortedSet<Tag>,
    /// Members that had nothing to send when they came here, each once, and when they may be forgotten.
    idle: VecDeque<Tag>,
    /// The sum of the starts of members that count, by weight; the virtual time while none counts.
    starts: u128,
    /// The sum of the weights of members that count.
    weights: u64,
    /// The largest cost so far: the length of a turn.
    largest: u64,
    active: u32,
    /// The most turns owed to a member that returns from another place.
    credit: u8,
    /// The number of the last member that had something to send.
    last: u16,
}

/// A virtual time and a member's number, sorted in this order. Packed into 16 bytes, because no other value is compared
/// more often. The 96 bits of time suffice for a million million requests of the largest cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tag {
    upper: u64,
    lower: u64,
}

/// A unit of cost in virtual time: divided by a weight of 65,535, it keeps some digits. Starts have 128 bits, because a
/// few hundred requests of the largest cost use up 64.
const UNIT: u64 = 1 << 24;

/// The largest member number. As a tie-breaker in virtual time it is less than a thousandth of a request of weight 1.
const NUMBERS: u16 = 1 << 12;

/// Steps in which a member remembers the largest cost: few enough for one byte to hold several largest costs.
const OWED_STEPS: u64 = 32;

/// A member that has left is remembered for this many times the credit it may return to.
const REMEMBERED: u64 = 4;

// === impl FairMember ===

impl FairMember {
    fn new(start: u128, weight: Weight) -> Self {
        Self { start, offset: 0, weight, listed: Listed::No, active: false, idle: false, owed: 0, number: 0 }
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    pub(super) fn start(&self) -> u128 {
        self.start
    }

    /// Returns whether the member, which has nothing to send, has expired. The idle list may still hold it.
    fn is_over(&self, now: u128) -> bool {
        self.idle && !self.counts() && self.start + u128::from(self.offset) <= now
    }

    /// Returns whether its start is a part of the mean.
    fn counts(&self) -> bool {
        self.listed != Listed::No
    }

    /// Makes an expired member a newcomer.
    fn renew(&mut self, now: u128) {
        if self.is_over(now) {
            (self.start, self.number) = (now, 0);
        }
    }

    /// The virtual time of this cost for this member. Costs have 32 bits.
    fn virtual_time(&self, cost: u64) -> u64 {
        cost * UNIT / self.weight.get()
    }
}

// === impl Fair ===

impl Fair {
    /// Creates a level without members.
    pub(super) fn new(credit: u8) -> Self {
        let (owed, ahead) = Default::default();
        Self { owed, ahead, idle: VecDeque::new(), starts: 0, weights: 0, largest: 0, active: 0, credit, last: 0 }
    }

    /// Returns whether no member has anything to send.
    pub(super) fn is_idle(&self) -> bool {
        self.active == 0
    }

    /// A new member without credit or debt.
    pub(super) fn newcomer(&self, weight: Weight) -> FairMember {
        FairMember::new(self.virtual_time(), weight)
    }

    /// Activates a member that has something to send from now on. The member keeps no credit from the time before,
    /// except for what it was owed when it left. A member moved here from another place keeps some turns: otherwise it
    /// would lose each turn that came while its class was closed. Any excess that it received remains a debt.
    pub(super) fn activate(&mut self, id: u32, member: &mut FairMember, comes: Comes) {
        if member.counts() {
            self.leave(id, member);
        }
        let now = self.virtual_time();
        let credit = if comes == Comes::New {
            // Whether it has expired depends on when others were forgotten. What it was owed does not.
            u64::from(member.owed) * self.owed_step()
        } else {
            member.renew(now);
            self.credit(member)
        };
        if comes == Comes::Missed && member.number == 0 {
            // The member has been forgotten meanwhile.
            member.start = 0;
        }
        if comes == Comes::New || member.number == 0 {
            self.last = self.last % NUMBERS + 1;
            member.number = self.last;
        }
        member.start = member.start.max(now.saturating_sub(credit.into()));
        (member.active, member.owed) = (true, 0);
        self.active += 1;
        self.add(member);
        self.list(id, member);
    }

    /// Deactivates a member that has nothing to send any more.
    pub(super) fn deactivate(&mut self, id: u32, member: &mut FairMember) {
        member.active = false;
        self.active -= 1;
        if self.is_owed(member.start) {
            self.leave(id, member);
            let owed = u64::try_from(self.virtual_time().saturating_sub(member.start)).unwrap_or(u64::MAX);
            member.owed = u8::try_from(owed.div_ceil(self.owed_step())).unwrap_or(u8::MAX);
            // The member is remembered while it is owed something.
            member.offset = member.offset.saturating_add(owed);
            return;
        }
        if member.listed == Listed::Owed {
            self.relist(id, member);
        }
        self.remember(id, member);
    }

    /// Ends the turns of a member that has something to send, until it is resumed.
    pub(super) fn suspend(&mut self, id: u32, member: &mut FairMember) {
        self.unlist(id, member);
        self.subtract(member);
        self.active -= 1;
    }

    /// Resumes a suspended member. It keeps no turns of the time before.
    pub(super) fn resume(&mut self, id: u32, member: &mut FairMember) {
        member.start = member.start.max(self.virtual_time());
        self.active += 1;
        self.add(member);
        self.list(id, member);
    }

    /// Charges the member `cost`.
    pub(super) fn charge(&mut self, id: u32, member: &mut FairMember, cost: u64) {
        self.expect(cost);
        if !member.counts() {
            member.renew(self.virtual_time());
            self.rests(id, member);
        }
        self.change(id, member, |member| member.start += u128::from(member.virtual_time(cost)));
    }

    /// Changes the member's weight.
    pub(super) fn reweigh(&mut self, id: u32, member: &mut FairMember, weight: Weight) {
        if member.weight != weight {
            self.change(id, member, |member| member.weight = weight);
        }
    }

    /// Announces a cost, which may be the largest so far.
    pub(super) fn expect(&mut self, cost: u64) {
        self.largest = self.largest.max(cost);
    }

    /// The member whose turn it is. Members that may be forgotten go to `forgotten`.
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
            // Since then other members have left, and the mean has gone back.
            self.relist(id, member);
        }
    }

    /// All known members. Valid only if none has anything to send.
    pub(super) fn members(&self) -> impl Iterator<Item = u32> {
        debug_assert!(self.is_idle(), "others are known beside these");
        self.idle.iter().map(|tag| tag.parts().1)
    }

    /// The virtual time that one step of [`FairMember::owed`] stands for.
    fn owed_step(&self) -> u64 {
        (self.largest * UNIT / OWED_STEPS).max(1)
    }

    /// The most that a returning member may be owed.
    fn credit(&self, member: &FairMember) -> u64 {
        u64::from(self.credit) * member.virtual_time(self.largest)
    }

    fn virtual_time(&self) -> u128 {
        if self.weights == 0 { self.starts } else { divide(self.starts, self.weights) }
    }

    fn is_owed(&self, start: u128) -> bool {
        start * u128::from(self.weights) <= self.starts
    }

    /// Stops counting the member.
    fn leave(&mut self, id: u32, member: &mut FairMember) {
        self.unlist(id, member);
        self.subtract(member);
        self.rests(id, member);
    }

    /// Remembers a member that does not count for a while.
    fn rests(&mut self, id: u32, member: &mut FairMember) {
        // The member may come back for the turns that it has missed.
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
                // The member had something to send meanwhile, or still counts.
                self.idle.push_back(Tag::of(id, member));
                continue;
            }
            member.idle = false;
            if !member.active {
                forgotten.push(id);
            }
        }
        // Each idle member comes first in turn, so a member remembered for long, as its weight is small, delays no
        // other.
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
        // The virtual time of a single member is its start.
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
    /// The member's sort key in its list.
    fn of(id: u32, member: &FairMember) -> Self {
        let at = member.start + u128::from(member.offset);
        Self { upper: (at >> 32) as u64, lower: (at as u64) << 32 | u64::from(id) }
    }

    /// The time, and the number.
    fn parts(&self) -> (u128, u32) {
        (u128::from(self.upper) << 32 | u128::from(self.lower >> 32), self.lower as u32)
    }
}

/// Division of a number that usually fits into 64 bits, where it is ten times as quick.
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
