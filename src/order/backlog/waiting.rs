//! Waiting amounts, by what the requests wait for in addition to their turn.

use andante_limit::{Cost, Sum, Unit};

/// Resources that a request waits for in addition to its turn at the common limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing.
    ForAll,
    /// Units other than requests.
    ForUnits,
    /// A sub-limit.
    ForBudget,
    /// A sub-limit, and other units too.
    ForBoth,
}

/// The resource for which requests take turns, and the measure of a request there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contest {
    /// The lane's slots, measured in requests.
    Slots,
    /// Units other than requests, among requests that take them; measured in the scarcest unit.
    Units,
    /// Everything that is counted, measured in the scarcest unit.
    All,
}

/// The backlog of a flow, of a client, or of all.
#[derive(Debug, Default)]
pub(super) struct Waiting([Amounts; Waits::EACH.len()]);

/// Waiting amounts for one resource.
#[derive(Debug, Default)]
struct Amounts {
    /// The total in the scarcest unit.
    share: u64,
    units: Sum,
}

/// The fractions of blocked requests admitted within some time: those that wait for other units, and those that
/// wait for sub-limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passing {
    /// Of requests that wait for units.
    pub units: f64,
    /// Of requests that wait for sub-limits.
    pub budgets: f64,
}

// === impl Waits ===

impl Waits {
    pub(super) const EACH: [Self; 4] = [Self::ForAll, Self::ForUnits, Self::ForBudget, Self::ForBoth];

    /// Returns the resources that a request of this cost waits for.
    pub fn of(cost: &Cost, draws_on_narrow_budgets: bool) -> Self {
        match (draws_on_narrow_budgets, cost.is_metered()) {
            (true, true) => Self::ForBoth,
            (true, false) => Self::ForBudget,
            (false, true) => Self::ForUnits,
            (false, false) => Self::ForAll,
        }
    }
}

// === impl Contest ===

impl Contest {
    /// The kinds of requests that take part.
    fn members(self) -> &'static [Waits] {
        match self {
            Self::Slots | Self::All => &Waits::EACH,
            Self::Units => &[Waits::ForUnits, Waits::ForBoth],
        }
    }

    /// The size of a request of this cost.
    pub(super) fn size_of(self, cost: &Cost) -> u64 {
        match self {
            Self::Slots => cost.requests().into(),
            Self::Units | Self::All => cost.share(),
        }
    }
}

// === impl Passing ===

impl Passing {
    /// All blocked requests.
    pub const ALL: Self = Self { units: 1.0, budgets: 1.0 };
    /// None of them.
    pub const NONE: Self = Self { units: 0.0, budgets: 0.0 };
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

    /// The size of the backlog in the measure of `contest`.
    pub(super) fn size(&self, contest: Contest) -> u64 {
        let members = contest.members().iter().map(|waits| &self.0[*waits as usize]);
        match contest {
            Contest::Slots => members.map(|amounts| amounts.units.of(Unit::REQUESTS)).sum(),
            Contest::Units | Contest::All => members.map(|amounts| amounts.share).sum(),
        }
    }

    /// Number of waiting requests that take part in `contest`.
    pub(super) fn costs(&self, contest: Contest) -> u64 {
        contest.members().iter().map(|waits| self.0[*waits as usize].units.costs()).sum()
    }

    /// Number of requests that wait for units, and that wait for sub-limits.
    pub(super) fn blocked(&self) -> [f64; 2] {
        let requests = |waits: Waits| self.0[waits as usize].units.of(Unit::REQUESTS) as f64;
        let both = requests(Waits::ForBoth);
        [requests(Waits::ForUnits) + both, requests(Waits::ForBudget) + both]
    }

    /// The size of the backlog without the blocked requests that are not `passing`.
    pub(super) fn passing(&self, contest: Contest, passing: Passing) -> f64 {
        let size = |waits: &Waits| {
            let Amounts { share, units } = &self.0[*waits as usize];
            let size = if contest == Contest::Slots { units.of(Unit::REQUESTS) } else { *share };
            let part = match waits {
                Waits::ForAll => 1.0,
                Waits::ForUnits => passing.units,
                Waits::ForBudget => passing.budgets,
                Waits::ForBoth => passing.budgets.min(passing.units),
            };
            size as f64 * part
        };
        contest.members().iter().map(size).sum()
    }

    /// Total of `unit` over the requests that wait like this; a request that does not declare its amount counts as
    /// `unsaid`.
    pub(super) fn units(&self, waits: Waits, unit: Unit, unsaid: f64) -> f64 {
        let units = &self.0[waits as usize].units;
        units.of(unit) as f64 + units.unsaid(unit) as f64 * unsaid
    }
}
