//! Input of a lane's learning from an answer, and the resulting changes.

use std::time::Duration;

use andante_clock::Instant;
use andante_hint::{Cause, Hint};
use andante_limit::{Charge, LimitSpec};
use smallvec::SmallVec;

use super::{
    Reason, RouteKey, RouteName,
    grounds::{Grounds, OwnGroup, OwnLimit},
};

/// Content of an answer, as far as a lane is concerned.
#[derive(Clone, Copy, Debug)]
pub struct AnswerReport<'a> {
    /// What the answer says about limits.
    pub hint: &'a Hint,
    /// True if the upstream failed (5xx).
    pub failed: bool,
    /// Name of the request's kind, if known.
    pub route: Option<RouteName<'a>>,
}

impl AnswerReport<'_> {
    /// Answer that was served and says nothing about limits.
    pub const SERVED: Self = AnswerReport { hint: &Hint::NOTHING, failed: false, route: None };
}

/// An answer, and the request that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Content of the answer.
    pub heard: AnswerReport<'a>,
    /// Permit that the request took.
    pub charge: Charge,
    /// Kind of the request.
    pub kind: RouteKey,
    /// Sub-limit whose budget the request draws on.
    pub rule: Option<&'a str>,
    /// Number of requests in flight when this one left, itself included.
    pub crowd: u32,
    /// When the request left.
    pub sent: Instant,
    /// When its answer arrived.
    pub at: Instant,
    /// True if other requests are queued.
    pub waiting: bool,
}

impl Observation<'_> {
    /// Returns true if the request was not refused and the upstream has not failed.
    pub(super) fn is_served(&self) -> bool {
        self.heard.hint.cause == Cause::None && !self.heard.failed
    }
}

/// Change caused by an answer, for logs and status.
#[derive(Clone, Debug)]
pub enum LearnedChange {
    /// Another limit holds, with its evidence.
    Limit(LimitSpec, Box<Grounds>),
    /// All requests pause until an answer says otherwise.
    Closed(Reason, Duration),
    /// Requests pause, either all or those of some quotas, because the API has asked another member of the fleet.
    PausedByFleet(Reason, Duration),
    /// An operator has told another member of the fleet to forget what was learned.
    ForgottenByFleet,
    /// The pause is over.
    Opened,
    /// A kind of requests has to pause.
    Route(Duration),
    /// Requests of one kind, or with one credential, are refused while others are served, so they are paced separately.
    Apart(Box<OwnGroup>),
    /// A separately paced group has another limit than before.
    OwnLimit(Box<OwnLimit>),
    /// Learned concurrency limit, with its evidence.
    ConcurrencyLimit(u32, Box<Grounds>),
    /// A request was refused although all configured limits were respected.
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
