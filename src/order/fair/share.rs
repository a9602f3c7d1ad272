//! A client's share, divided among its flows. Most clients have one flow: that needs no queueing, and little memory.

use super::{Comes, Fair, FairMember, Forgotten, Level, Members, Weight};

/// Shares the charged costs fairly among its members, like [`Fair`].
#[derive(Debug)]
pub(crate) enum Share {
    /// At most one member so far.
    Lone(Lone),
    /// Several members, now or before.
    Fair(Box<Fair>),
}

/// A member without others. The amount that it has received still counts once there are others; anything received while
/// it had nothing to send is a debt.
#[derive(Debug)]
pub(crate) struct Lone {
    /// The virtual time while it has nothing to send. Otherwise that is its start.
    rest: u128,
    /// The largest cost so far.
    largest: u64,
    id: u32,
    active: bool,
    credit: u8,
}

/// There is no member yet.
const NONE: u32 = u32::MAX;

// === impl Share ===

impl Share {
    /// Creates a share without members.
    pub(crate) fn new(credit: u8) -> Self {
        Self::Lone(Lone { rest: 0, largest: 0, id: NONE, active: false, credit })
    }

    /// Returns whether no member has anything to send.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Lone(lone) => !lone.active,
            Self::Fair(fair) => fair.is_idle(),
        }
    }

    /// Creates a member without credit or debt; [`joined`](Self::joined) sets its number. The others are among
    /// `members`.
    pub(crate) fn newcomer(&mut self, weight: Weight, members: &mut impl Members) -> FairMember {
        if let Self::Lone(lone) = self
            && lone.id != NONE
        {
            *self = Self::Fair(Box::new(Fair::of_one(lone, members.member(lone.id))));
        }
        match self {
            Self::Lone(lone) => FairMember::new(lone.rest, weight),
            Self::Fair(fair) => fair.newcomer(weight),
        }
    }

    /// Sets the number of the newcomer.
    pub(crate) fn joined(&mut self, id: u32) {
        if let Self::Lone(lone) = self {
            lone.id = id;
        }
    }

    /// Activates a member that has something to send from now on. See [`Fair::activate`].
    pub(crate) fn activate(&mut self, id: u32, member: &mut FairMember, comes: Comes) {
        match self {
            Self::Lone(lone) => {
                (lone.active, member.active) = (true, true);
                // Smaller than the numbers of others that join it.
                member.number = 1;
            }
            Self::Fair(fair) => fair.activate(id, member, comes),
        }
    }

    /// Deactivates a member that has nothing to send any more. A single member is remembered as long as its client.
    pub(crate) fn deactivate(&mut self, id: u32, member: &mut FairMember) {
        match self {
            Self::Lone(lone) => {
                (lone.active, member.active) = (false, false);
                lone.rest = member.start;
            }
            Self::Fair(fair) => fair.deactivate(id, member),
        }
    }

    /// Charges the member `cost`.
    pub(crate) fn charge(&mut self, id: u32, member: &mut FairMember, cost: u64) {
        match self {
            Self::Lone(_) => {
                self.expect(cost);
                member.start += u128::from(member.virtual_time(cost));
            }
            Self::Fair(fair) => fair.charge(id, member, cost),
        }
    }

    /// Changes the member's weight.
    pub(crate) fn reweigh(&mut self, id: u32, member: &mut FairMember, weight: Weight) {
        match self {
            Self::Lone(_) => member.weight = weight,
            Self::Fair(fair) => fair.reweigh(id, member, weight),
        }
    }

    /// Announces a cost, which may be the largest so far.
    pub(crate) fn expect(&mut self, cost: u64) {
        match self {
            Self::Lone(lone) => lone.largest = lone.largest.max(cost),
            Self::Fair(fair) => fair.expect(cost),
        }
    }

    /// The member whose turn it is. Members that may be forgotten go to `forgotten`.
    pub(crate) fn next(&mut self, members: &mut impl Members, forgotten: &mut Forgotten) -> Option<u32> {
        match self {
            Self::Lone(lone) => lone.active.then_some(lone.id),
            Self::Fair(fair) => fair.next(members, forgotten),
        }
    }

    /// The state by which its members are compared; `start_of` returns a member's start.
    pub(crate) fn level(&self, start_of: impl FnOnce(u32) -> u128) -> Level {
        match self {
            Self::Lone(lone) => {
                let virtual_time = if lone.active { start_of(lone.id) } else { lone.rest };
                Level::new(virtual_time, lone.largest, lone.credit)
            }
            Self::Fair(fair) => fair.level(),
        }
    }

    /// All known members. Valid only if none has anything to send.
    pub(crate) fn members(&self) -> impl Iterator<Item = u32> {
        let (lone, fair) = match self {
            Self::Lone(lone) => (Some(lone.id).filter(|id| *id != NONE), None),
            Self::Fair(fair) => (None, Some(fair.members())),
        };
        lone.into_iter().chain(fair.into_iter().flatten())
    }
}

// === impl Fair ===

impl Fair {
    /// The level whose only member `lone` has been.
    fn of_one(lone: &Lone, member: &mut FairMember) -> Self {
        let mut fair = Self { starts: lone.rest, largest: lone.largest, last: 1, ..Self::new(lone.credit) };
        if lone.active {
            fair.active = 1;
            fair.add(member);
            fair.list(lone.id, member);
        } else {
            fair.rests(lone.id, member);
        }
        fair
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::slab::Slab;

    proptest! {
        /// Whatever happens to a single member and to later ones, turns are as if the first had never been alone. The
        /// credit is so large that no member expires: an expired one may be forgotten at any time.
        #[test]
        fn one_alone_is_what_it_would_be_among_others(
            steps in prop::collection::vec((0_u8..5, 0_u32..4, 1_u64..9), 0..200),
            late in 0_usize..100,
        ) {
            let (mut share, mut fair) = (Share::new(250), Fair::new(250));
            let (mut of_share, mut of_fair) = (Slab::<FairMember>::new(), Slab::<FairMember>::new());
            for (number, (step, id, cost)) in steps.into_iter().enumerate() {
                // The others come late.
                let id = if number < late { 0 } else { id };
                while of_share.len() <= id as usize {
                    let member = share.newcomer(Weight::ONE, &mut of_share);
                    share.joined(of_share.insert(member));
                    of_fair.insert(fair.newcomer(Weight::ONE));
                }
                share.expect(cost);
                fair.expect(cost);
                let (one, other) = (&mut of_share[id], &mut of_fair[id]);
                match step {
                    0 | 1 if one.is_active() => {
                        share.charge(id, one, cost);
                        fair.charge(id, other, cost);
                    }
                    2 if one.is_active() => {
                        share.deactivate(id, one);
                        fair.deactivate(id, other);
                    }
                    // Served while it stood elsewhere.
                    0 => {
                        share.charge(id, one, cost);
                        fair.charge(id, other, cost);
                    }
                    _ if !one.is_active() => {
                        let comes = if step == 3 { Comes::Moved } else { Comes::New };
                        share.activate(id, one, comes);
                        fair.activate(id, other, comes);
                    }
                    _ => {}
                }
                let (mut forgotten, mut others) = (Forgotten::new(), Forgotten::new());
                prop_assert_eq!(share.next(&mut of_share, &mut forgotten), fair.next(&mut of_fair, &mut others));
                prop_assert_eq!(share.is_idle(), fair.is_idle());
                let starts = |members: &Slab<FairMember>| members.iter().map(|(_, one)| one.start).collect::<Vec<_>>();
                prop_assert_eq!(starts(&of_share), starts(&of_fair));
            }
        }
    }
}
