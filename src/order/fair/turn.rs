//! When a member's turn comes, from its start and those of the others: for estimates, without serving any member.

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
    /// Virtual time, counted from now, at which the turn is due to the member.
    due: f64,
    /// Virtual time at which the member has the turn: at the latest when the turn ends.
    at: f64,
    weight: f64,
    /// The largest cost.
    largest: f64,
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
        let since = i64::try_from(member.start.wrapping_sub(self.virtual_time) as i128);
        let since = since.unwrap_or(if member.start > self.virtual_time { i64::MAX } else { i64::MIN });
        let least = match (member.active, comes) {
            (true, _) => f64::NEG_INFINITY,
            (false, true) => 0.0,
            (false, false) => -self.credit * self.largest / member.weight.get() as f64,
        };
        let start = (since as f64 / UNIT as f64).max(least);
        Standing { start, number: if comes { u32::MAX } else { member.number.into() } }
    }

    /// The turn of the member at `standing` for a request of `cost` behind `before` of its own.
    pub(crate) fn turn(&self, standing: Standing, weight: Weight, before: f64, cost: f64) -> Turn {
        let (weight, largest) = (weight.get() as f64, self.largest.max(cost));
        let due = standing.start + before / weight;
        Turn { due, at: due, weight, largest, number: standing.number }
    }
}

// === impl Standing ===

impl Standing {
    /// An unknown member: it comes behind all present ones, and has no credit.
    pub(crate) const UNKNOWN: Self = Self { start: 0.0, number: u32::MAX };
}

// === impl Turn ===

impl Turn {
    /// The turn as it is had once `served` units have been shared out among this member and others of these `weights`.
    pub(crate) fn had_after(self, served: f64, weights: f64) -> Self {
        let at = served / (self.weight + weights);
        Self { at: at.clamp(self.due, self.due + self.largest / self.weight), ..self }
    }

    /// The amount that another member of this `weight` receives before this turn, in requests of cost `each`: the turns
    /// that are due to it by then and end earlier. Of turns that end together, the first is that of the member that has
    /// waited longest.
    pub(crate) fn received_before(&self, other: Standing, weight: Weight, each: f64) -> f64 {
        let weight = weight.get() as f64;
        let latest = self.due + self.largest * (1.0 / self.weight - 1.0 / weight);
        let requests = weight * (self.at.min(latest) - other.start) / each;
        let includes_last = self.at < latest || other.number <= self.number;
        each * if includes_last { requests.floor() + 1.0 } else { requests.ceil() }.max(0.0)
    }

    /// The exact share of another member until this turn is due; negative if it has had more already.
    pub(crate) fn share_before(&self, other: Standing, weight: Weight) -> f64 {
        weight.get() as f64 * (self.due - other.start)
    }
}

// === impl Fair ===

impl Fair {
    pub(crate) fn level(&self) -> Level {
        Level::new(self.virtual_time(), self.largest, self.credit)
    }
}
