//! Diagnostics of problems that pacing cannot solve: clients that give up, and refusals although we keep our limits.

use andante_clock::Instant;
use parking_lot::Mutex;

use super::Lane;
use crate::{
    departures::Departures,
    unexplained::{Episodes, UnexpectedRefusals},
};

/// The diagnostics of one lane.
#[derive(Debug)]
pub(super) struct Diagnostics {
    departures: Departures,
    pub(super) refusals: UnexpectedRefusals,
    last_failure: Mutex<Option<UpstreamFailure>>,
}

/// A failed request to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFailure {
    /// Description of the failure.
    pub what: String,
    /// The instant of the failure.
    pub at: Instant,
}

impl Diagnostics {
    /// Empty diagnostics of a lane that begins at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            departures: Departures::default(),
            refusals: UnexpectedRefusals::new(now),
            last_failure: Mutex::default(),
        }
    }
}

impl Lane {
    /// Clients that left before an answer.
    pub fn departures(&self) -> &Departures {
        &self.shared.diagnostics.departures
    }

    /// Records that a request, or an attempt, has failed: `what` describes the upstream's failure.
    pub fn failed(&self, what: String) {
        *self.shared.diagnostics.last_failure.lock() = Some(UpstreamFailure { what, at: self.now() });
    }

    /// The last failure, if there was one.
    pub fn last_failure(&self) -> Option<UpstreamFailure> {
        self.shared.diagnostics.last_failure.lock().clone()
    }

    /// Records that the API refused, at `now`, a request sent at `sent` within our limits. Returns the episodes to be
    /// logged.
    pub(super) fn refused_without_reason(&self, sent: Instant, now: Instant) -> Option<Episodes> {
        let window = self.policy().limits.iter().map(|limit| limit.rate.per).min()?;
        self.shared.diagnostics.refusals.record(sent, now, window)
    }
}
