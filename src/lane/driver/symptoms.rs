//! Signs that something is wrong which pacing cannot mend: clients that give up, and refusals although we keep our limits.

use parking_lot::Mutex;

use super::Lane;
use crate::{
    clock::Instant,
    lane::{
        departures::Departures,
        unexplained::{Episodes, UnexplainedRefusals},
    },
};

/// The signs that one lane shows.
#[derive(Debug)]
pub(super) struct Symptoms {
    departures: Departures,
    pub(super) refusals: UnexplainedRefusals,
    last_failure: Mutex<Option<UpstreamFailure>>,
}

/// How a request to the upstream failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFailure {
    /// What happened.
    pub what: String,
    /// When.
    pub at: Instant,
}

impl Symptoms {
    /// None yet, in a lane that begins at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            departures: Departures::default(),
            refusals: UnexplainedRefusals::new(now),
            last_failure: Mutex::default(),
        }
    }
}

impl Lane {
    /// The requests whose clients left before an answer.
    pub fn departures(&self) -> &Departures {
        &self.shared.symptoms.departures
    }

    /// A request, or a try of it, has failed: `what` the upstream did.
    pub fn failed(&self, what: String) {
        *self.shared.symptoms.last_failure.lock() = Some(UpstreamFailure { what, at: self.now() });
    }

    /// The last failure, if there was one.
    pub fn last_failure(&self) -> Option<UpstreamFailure> {
        self.shared.symptoms.last_failure.lock().clone()
    }

    /// The API refused, at `now`, what was sent at `sent` within our limits. Returns what is to be logged of such
    /// refusals.
    pub(super) fn refused_without_reason(&self, sent: Instant, now: Instant) -> Option<Episodes> {
        let window = self.policy().limits.iter().map(|limit| limit.rate.per).min()?;
        self.shared.symptoms.refusals.record(sent, now, window)
    }
}
