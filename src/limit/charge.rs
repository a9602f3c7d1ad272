//! What one request takes of a lane's limits, and of which of them.

use super::Cost;

/// Numbers the cost units that a lane has handed out, through its whole life.
pub type Seq = u64;

/// What one request has taken of its lane's limits, for as long as that has to be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The number of the first of its units.
    pub seq: Seq,
    /// How many of each unit. Units of each sort are numbered from the same number on.
    pub cost: Cost,
    /// The budgets of the API that it draws on.
    pub scope: Scope,
}

/// The budgets of an API that a request draws on, of those that the API reports. What is configured, and what refusals
/// taught, holds for every request that is not [apart](Scope::apart).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(u64);

/// Where a limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration.
    Config,
    /// The API, of its budget with this number, which is below [`Scope::MOST`].
    Advertised(u8),
    /// What it refuses.
    Estimated,
}

// === impl Scope ===

impl Scope {
    /// Nothing that the API reports.
    pub const NONE: Self = Self(0);
    /// As many budgets of one API are told apart.
    pub const MOST: u8 = 32;
    const APART: u64 = 1 << 63;

    /// The budget with this number alone.
    pub fn only(budget: u8) -> Self {
        debug_assert!(budget < Self::MOST);
        Self(1 << budget)
    }

    /// Whether it has nothing in it.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether the budget with this number is in it.
    pub fn has(self, budget: u8) -> bool {
        self.0 & Self::only(budget).0 != 0
    }

    /// Whether a limit of this source holds for its requests.
    pub fn includes(self, source: Source) -> bool {
        match source {
            Source::Advertised(budget) => self.has(budget),
            Source::Config | Source::Estimated => !self.is_apart(),
        }
    }

    /// The same, for requests for which nothing holds that is configured for all, or that refusals taught of all.
    pub fn apart(self) -> Self {
        Self(self.0 | Self::APART)
    }

    /// Whether it is the scope of such requests.
    pub fn is_apart(self) -> bool {
        self.0 & Self::APART != 0
    }

    /// What is in either.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in this one and not in the other.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
