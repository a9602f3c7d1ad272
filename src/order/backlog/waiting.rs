//! Waiting amounts, by what the requests wait for in addition to their turn.

use andante_limit::{Cost, Sum, Unit};
use smallvec::SmallVec;

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
pub enum Contest {
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

/// Requests that wait for something in addition to their turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// The total in the measure of the blocking resource: the scarcest unit, or requests.
    pub(super) size: f64,
    pub(super) requests: f64,
}

/// A part of a backlog.
#[derive(Clone, Debug, Default)]
pub(super) struct Portion {
    /// The part's size in the measure of its contest.
    pub(super) size: f64,
    requests: f64,
    others: SmallVec<[UnitPortion; 2]>,
    /// Number of costs in it.
    costs: f64,
}

/// The amount of one unit in a part, and the number of costs that declare it.
#[derive(Clone, Copy, Debug)]
struct UnitPortion {
    unit: Unit,
    amount: f64,
    costs: f64,
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

    /// The requests that wait like this, in the measure of their blocking resource.
    pub(super) fn held(&self, waits: Waits) -> Held {
        let share = self.0[waits as usize].share;
        let requests = self.requests(waits);
        Held { size: if waits == Waits::ForUnits { share as f64 } else { requests }, requests }
    }

    /// Number of requests that wait like this.
    pub(super) fn requests(&self, waits: Waits) -> f64 {
        self.0[waits as usize].units.of(Unit::REQUESTS) as f64
    }

    /// Total of `unit` over the requests that wait like this; a request that does not declare its amount counts as
    /// `unsaid`.
    pub(super) fn units(&self, waits: Waits, unit: Unit, unsaid: f64) -> f64 {
        let units = &self.0[waits as usize].units;
        units.of(unit) as f64 + units.unsaid(unit) as f64 * unsaid
    }
}

// === impl Portion ===

impl Portion {
    /// Adds this part of the requests that take part in `contest`.
    pub(super) fn add(&mut self, waiting: &Waiting, contest: Contest, part: f64) {
        self.size += part * waiting.size(contest) as f64;
        for waits in contest.members() {
            let units = &waiting.0[*waits as usize].units;
            if units.costs() == 0 {
                continue;
            }
            self.requests += part * units.of(Unit::REQUESTS) as f64;
            self.costs += part * units.costs() as f64;
            for (unit, amount) in units.others() {
                let costs = (units.costs() - units.unsaid(unit)) as f64;
                self.add_units(UnitPortion { unit, amount: part * amount as f64, costs: part * costs });
            }
        }
    }

    fn add_units(&mut self, more: UnitPortion) {
        match self.others.iter_mut().find(|other| other.unit == more.unit) {
            Some(sum) => (sum.amount, sum.costs) = (sum.amount + more.amount, sum.costs + more.costs),
            None => self.others.push(more),
        }
    }

    /// The amount of `unit` in it; a request that does not declare its amount counts as `unsaid`.
    pub(super) fn of(&self, unit: Unit, unsaid: f64) -> f64 {
        if unit == Unit::REQUESTS {
            return self.requests;
        }
        let said = self.others.iter().find(|other| other.unit == unit).map_or((0.0, 0.0), |of| (of.amount, of.costs));
        said.0 + (self.costs - said.1).max(0.0) * unsaid
    }
}
