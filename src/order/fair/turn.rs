//! When a member's turn comes, from its start and those of the others: computed for predictions, without serving any
//! member.

use super::{Fair, FairMember, UNIT, Weight};

/// The state of a level by which its members are compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    virtual_time: u128,
    /// The largest cost.
    largest: f64,
    credit: f64,
}

/// A member's standing in its level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Distance of its start after the virtual time: cost divided by weight.
    start: f64,
    /// The member's number among those that send something; larger than all others if it does not wait yet.
    number: u32,
}

/// A member's turn for a request behind some of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The virtual time, counted from now, from which the member is eligible for the turn.
    owed: f64,
    /// The virtual time at which the member has the turn: at the latest when the turn ends.
    at: f64,
    /// The largest cost.
    largest: f64,
    weight: f64,
    number: u32,
}

// === impl Level ===

impl Level {
    pub(crate) fn new(virtual_time: u128, largest: u64, credit: u8) -> Self {
        Self { virtual_time, largest: largest as f64, credit: credit.into() }
    }

    /// The standing of a member that sends something. A member that waits elsewhere gets the best standing it will have
    /// once it is here. With `comes`, the member does not wait yet and has no credit.
    pub(crate) fn standing(&self, member: &FairMember, comes: bool) -> Standing {
        if member.is_over(self.virtual_time) {
            return Standing::UNKNOWN;
        }
        let start = self.since(member.start);
        let least = match (member.active, comes) {
            (true, _) => f64::NEG_INFINITY,
            (false, true) => 0.0,
            (false, false) => -self.credit * self.largest / member.weight.get() as f64,
        };
        Standing { start: start.max(least), number: if comes { u32::MAX } else { member.number.into() } }
    }

    /// The turn of the member at `standing` for a request of `cost` behind `before` of its own.
    pub(crate) fn turn(&self, standing: Standing, weight: Weight, before: f64, cost: f64) -> Turn {
        let weight = weight.get() as f64;
        let owed = standing.start + before / weight;
        Turn { owed, at: owed, largest: self.largest.max(cost), weight, number: standing.number }
    }

    fn since(&self, time: u128) -> f64 {
        let since = i64::try_from(time.wrapping_sub(self.virtual_time) as i128);
        since.unwrap_or(if time > self.virtual_time { i64::MAX } else { i64::MIN }) as f64 / UNIT as f64
    }
}

// === impl Standing ===

impl Standing {
    /// An unknown member: it comes behind all present ones, and has no credit.
    pub(crate) const UNKNOWN: Self = Self { start: 0.0, number: u32::MAX };
}

// === impl Turn ===

impl Turn {
    pub(crate) fn weight(&self) -> f64 {
        self.weight
    }

    /// The turn as it would be had when the virtual time has advanced by this much.
    pub(crate) fn had_at(self, virtual_time: f64) -> Self {
        Self { at: virtual_time.clamp(self.owed, self.owed + self.largest / self.weight), ..self }
    }

    /// The virtual time at which the member has the turn.
    pub(crate) fn at(&self) -> f64 {
        self.at
    }

    /// The amount that another member of this `weight` receives before this turn, in requests of cost `each`. Counts
    /// turns that are eligible by then and end before this one.
    pub(crate) fn received_before(&self, other: Standing, weight: Weight, each: f64) -> f64 {
        let weight = weight.get() as f64;
        let ends = self.owed + self.largest * (1.0 / self.weight - 1.0 / weight);
        let requests = weight * (self.at.min(ends) - other.start) / each;
        let includes_last = self.at < ends || other.number <= self.number;
        each * if includes_last { requests.floor() + 1.0 } else { requests.ceil() }.max(0.0)
    }

    /// The amount owed to another member before this turn becomes eligible, whenever its turns for it come.
    pub(crate) fn owed_before(&self, other: Standing, weight: Weight, each: f64) -> f64 {
        let requests = self.share_before(other, weight) / each;
        each * (requests.floor() + 1.0).max(0.0)
    }

    /// The exact share of another member until this turn becomes eligible; negative if it has had more already.
    pub(crate) fn share_before(&self, other: Standing, weight: Weight) -> f64 {
        weight.get() as f64 * (self.owed - other.start)
    }
}

// === impl Fair ===

impl Fair {
    pub(crate) fn level(&self) -> Level {
        Level::new(self.virtual_time(), self.largest, self.credit)
    }
}
