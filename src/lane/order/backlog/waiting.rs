//! How much waits, by what it waits for beside its turn.

use smallvec::SmallVec;

use crate::limit::{Cost, Sum, Unit};

/// What a request waits for beside its turn for what all wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing.
    ForAll,
    /// Units other than requests.
    ForUnits,
    /// A narrower budget, and perhaps other units too.
    ForBudget,
}

/// What waits of a flow, of a client, or of all.
#[derive(Debug, Default)]
pub(super) struct Waiting([Amounts; 3]);

/// How much waits for one thing.
#[derive(Debug, Default)]
struct Amounts {
    /// How much it counts in the order.
    share: u64,
    units: Sum,
}

/// A part of what waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Portion {
    pub(super) share: f64,
    /// By what they wait for.
    pub(super) requests: [f64; 3],
    others: SmallVec<[(Unit, f64); 2]>,
}

// === impl Waits ===

impl Waits {
    /// What a request of this cost waits for.
    pub fn of(cost: &Cost, draws_on_narrow_budgets: bool) -> Self {
        match (draws_on_narrow_budgets, cost.is_metered()) {
            (true, _) => Self::ForBudget,
            (false, true) => Self::ForUnits,
            (false, false) => Self::ForAll,
        }
    }
}

// === impl Waiting ===

impl Waiting {
    pub(super) fn add(&mut self, cost: &Cost, waits: Waits) {
        let Amounts { share, units } = &mut self.0[waits as usize];
        *share += cost.share();
        units.add(cost);
    }

    pub(super) fn subtract(&mut self, cost: &Cost, waits: Waits) {
        let Amounts { share, units } = &mut self.0[waits as usize];
        *share -= cost.share();
        units.subtract(cost);
    }

    /// How much it counts in the order: what waits like `class`, or all.
    pub(super) fn share(&self, class: Option<Waits>) -> u64 {
        self.of(class).iter().map(|amounts| amounts.share).sum()
    }

    /// How much of `unit` it takes: what waits like `class`, or all.
    pub(super) fn units(&self, class: Option<Waits>, unit: Unit) -> u64 {
        self.of(class).iter().map(|amounts| amounts.units.of(unit)).sum()
    }

    fn of(&self, class: Option<Waits>) -> &[Amounts] {
        class.map_or(&self.0[..], |class| std::slice::from_ref(&self.0[class as usize]))
    }
}

// === impl Portion ===

impl Portion {
    /// Adds this part of what waits like `class`, or of all.
    pub(super) fn add(&mut self, waiting: &Waiting, class: Option<Waits>, part: f64) {
        let first = class.map_or(0, |class| class as usize);
        for (at, Amounts { share, units }) in (first..).zip(waiting.of(class)) {
            self.share += part * *share as f64;
            self.requests[at] += part * units.of(Unit::REQUESTS) as f64;
            units.others().for_each(|(unit, amount)| self.add_units(unit, part * amount as f64));
        }
    }

    /// Adds this part of another one.
    pub(super) fn add_portion(&mut self, other: &Self, part: f64) {
        self.share += part * other.share;
        for (requests, of_other) in self.requests.iter_mut().zip(other.requests) {
            *requests += part * of_other;
        }
        other.others.iter().for_each(|(unit, amount)| self.add_units(*unit, part * amount));
    }

    fn add_units(&mut self, unit: Unit, amount: f64) {
        match self.others.iter_mut().find(|(other, _)| *other == unit) {
            Some((_, sum)) => *sum += amount,
            None => self.others.push((unit, amount)),
        }
    }

    /// How much of `unit` it is.
    pub(super) fn of(&self, unit: Unit) -> f64 {
        if unit == Unit::REQUESTS {
            return self.requests.iter().sum();
        }
        self.others.iter().find(|(other, _)| *other == unit).map_or(0.0, |(_, amount)| *amount)
    }
}
