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
    /// A narrower budget.
    ForBudget,
    /// A narrower budget, and other units too.
    ForBoth,
}

/// What requests take turns for, and as how much each of them counts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contest {
    /// The lane's slots: as so many requests.
    Slots,
    /// Units other than requests, among those that take of them: by the scarcest.
    Units,
    /// All that is counted: by the scarcest.
    All,
}

/// What waits of a flow, of a client, or of all.
#[derive(Debug, Default)]
pub(super) struct Waiting([Amounts; Waits::EACH.len()]);

/// How much waits for one thing.
#[derive(Debug, Default)]
struct Amounts {
    /// How much it counts by the scarcest unit.
    share: u64,
    units: Sum,
}

/// What waits for something beside its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// How much it counts where that is shared out: by the scarcest unit, or as so many requests.
    pub(super) size: f64,
    pub(super) requests: f64,
}

/// A part of what waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Portion {
    /// How much it counts in its contest.
    pub(super) size: f64,
    requests: f64,
    others: SmallVec<[UnitPortion; 2]>,
    /// How many costs it is of.
    costs: f64,
}

/// How much of one unit a part takes, and how many costs say something of it.
#[derive(Clone, Copy, Debug)]
struct UnitPortion {
    unit: Unit,
    amount: f64,
    costs: f64,
}

// === impl Waits ===

impl Waits {
    pub(super) const EACH: [Self; 4] = [Self::ForAll, Self::ForUnits, Self::ForBudget, Self::ForBoth];

    /// What a request of this cost waits for.
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
    /// Those that take part.
    fn members(self) -> &'static [Waits] {
        match self {
            Self::Slots | Self::All => &Waits::EACH,
            Self::Units => &[Waits::ForUnits, Waits::ForBoth],
        }
    }

    /// As how much a request of this cost counts.
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

    /// How much it counts in `contest`.
    pub(super) fn size(&self, contest: Contest) -> u64 {
        let members = contest.members().iter().map(|waits| &self.0[*waits as usize]);
        match contest {
            Contest::Slots => members.map(|amounts| amounts.units.of(Unit::REQUESTS)).sum(),
            Contest::Units | Contest::All => members.map(|amounts| amounts.share).sum(),
        }
    }

    /// How many requests that take part in `contest` wait.
    pub(super) fn costs(&self, contest: Contest) -> u64 {
        contest.members().iter().map(|waits| self.0[*waits as usize].units.costs()).sum()
    }

    /// What waits like this, as it counts where it is shared out.
    pub(super) fn held(&self, waits: Waits) -> Held {
        let share = self.0[waits as usize].share;
        let requests = self.requests(waits);
        Held { size: if waits == Waits::ForUnits { share as f64 } else { requests }, requests }
    }

    /// How many requests wait like this.
    pub(super) fn requests(&self, waits: Waits) -> f64 {
        self.0[waits as usize].units.of(Unit::REQUESTS) as f64
    }

    /// How much of `unit` it takes: what waits like this, where each takes `unsaid` of it that does not say.
    pub(super) fn units(&self, waits: Waits, unit: Unit, unsaid: f64) -> f64 {
        let units = &self.0[waits as usize].units;
        units.of(unit) as f64 + units.unsaid(unit) as f64 * unsaid
    }
}

// === impl Portion ===

impl Portion {
    /// Adds this part of what takes part in `contest`.
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

    /// How much of `unit` it is, where each takes `unsaid` of it that does not say.
    pub(super) fn of(&self, unit: Unit, unsaid: f64) -> f64 {
        if unit == Unit::REQUESTS {
            return self.requests;
        }
        let said = self.others.iter().find(|other| other.unit == unit).map_or((0.0, 0.0), |of| (of.amount, of.costs));
        said.0 + (self.costs - said.1).max(0.0) * unsaid
    }
}
