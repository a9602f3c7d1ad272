//! Units that one request takes, and the limits of its lane that it takes them from.

use super::Cost;

/// Sequence number of a cost unit, counted through a lane's whole life.
pub type Seq = u64;

/// Units that one request has taken of its lane's limits, until they are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Number of the first unit.
    pub seq: Seq,
    /// Amount of each unit. Units of every kind are numbered from `seq` on.
    pub cost: Cost,
    /// Budgets of the API that the request draws on.
    pub scope: Scope,
}

/// Set of API budgets that a request draws on. Configured limits and limits learned from refusals hold for every
/// request that is not [exempt](Scope::apart).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(u64);

/// Where a limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration.
    Config,
    /// A budget that the API reports; the number is below [`Scope::MOST`].
    Advertised(u8),
    /// The API's refusals.
    Estimated,
}

// === impl Scope ===

impl Scope {
    /// A scope without any reported budget.
    pub const NONE: Self = Self(0);
    /// Largest number of budgets of one API.
    pub const MOST: u8 = 32;
    const APART: u64 = 1 << 63;

    /// The budget with this number alone.
    pub fn only(budget: u8) -> Self {
        debug_assert!(budget < Self::MOST);
        Self(1 << budget)
    }

    /// Returns true if the scope contains nothing.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns true if the scope contains the budget with this number.
    pub fn has(self, budget: u8) -> bool {
        self.0 & Self::only(budget).0 != 0
    }

    /// Returns true if a limit from this source holds for requests of the scope.
    pub fn includes(self, source: Source) -> bool {
        match source {
            Source::Advertised(budget) => self.has(budget),
            Source::Config | Source::Estimated => !self.is_apart(),
        }
    }

    /// This scope for exempt requests: neither configured limits nor limits learned from refusals hold for them.
    pub fn apart(self) -> Self {
        Self(self.0 | Self::APART)
    }

    /// Returns true if the scope belongs to exempt requests.
    pub fn is_apart(self) -> bool {
        self.0 & Self::APART != 0
    }

    /// The union of both scopes.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This scope without the budgets of `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
