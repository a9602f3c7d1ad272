//! What a lane is told of an answer, and what it concludes.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    Reason, RouteKey, RouteName,
    grounds::{Grounds, OwnGroup, OwnLimit},
};
use crate::{
    clock::Instant,
    hint::{Cause, Hint},
    limit::{Charge, LimitSpec},
};

/// What an answer says, as far as a lane is concerned.
#[derive(Clone, Copy, Debug)]
pub struct AnswerReport<'a> {
    /// What it says about limits.
    pub hint: &'a Hint,
    /// Whether the upstream failed (5xx).
    pub failed: bool,
    /// What the kind of the request is called, if that is known.
    pub route: Option<RouteName<'a>>,
}

impl AnswerReport<'_> {
    /// Served, and nothing was said.
    pub const SERVED: Self = AnswerReport { hint: &Hint::NOTHING, failed: false, route: None };
}

/// An answer, and the request that it is for.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// What the answer says.
    pub heard: AnswerReport<'a>,
    /// What the request took.
    pub charge: Charge,
    /// Its kind.
    pub kind: RouteKey,
    /// The narrower rule whose budget it draws on.
    pub rule: Option<&'a str>,
    /// How many were under way when it left, itself included.
    pub crowd: u32,
    /// When it left.
    pub sent: Instant,
    /// When its answer came.
    pub at: Instant,
    /// Whether others wait for a slot.
    pub waiting: bool,
}

impl Observation<'_> {
    /// Whether the request was neither refused, nor has the upstream failed.
    pub(super) fn is_served(&self) -> bool {
        self.heard.hint.cause == Cause::None && !self.heard.failed
    }
}

/// What has changed by an answer, for people to be told.
#[derive(Clone, Debug)]
pub enum LearnedChange {
    /// Another limit holds, and this is why.
    Limit(LimitSpec, Box<Grounds>),
    /// Nothing leaves until an answer says otherwise.
    Closed(Reason, Duration),
    /// Nothing leaves, or nothing of some budgets: the API has told another member of the fleet.
    PausedByFleet(Reason, Duration),
    /// What was learned is forgotten: an operator has said so to another member of the fleet.
    ForgottenByFleet,
    /// The pause is over.
    Opened,
    /// A kind of requests has to pause.
    Route(Duration),
    /// Requests of one kind, or with one credential, are refused while others are served: they are paced by themselves.
    Apart(Box<OwnGroup>),
    /// Such a group has another limit than was known.
    OwnLimit(Box<OwnLimit>),
    /// Only this many requests may be under way at once, and why.
    ConcurrencyLimit(u32, Box<Grounds>),
    /// A request was refused although what is configured was kept.
    Unexplained {
        /// When the request left.
        sent: Instant,
        /// When its answer came.
        at: Instant,
    },
}

impl LearnedChange {
    /// Whether a pause of the lane begins.
    pub fn is_pause(&self) -> bool {
        matches!(self, Self::Closed(..) | Self::PausedByFleet(..))
    }
}

/// What an answer has changed: mostly nothing.
pub type Changes = SmallVec<[LearnedChange; 1]>;
