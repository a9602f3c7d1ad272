//! Signs that something is wrong which pacing cannot mend: clients that give up, and refusals although we keep our limits.

use super::{Departures, Lane, unexplained::UnexplainedRefusals};
use crate::clock::Instant;

/// The signs that one lane shows.
#[derive(Debug)]
pub(super) struct Symptoms {
    departures: Departures,
    pub(super) refusals: UnexplainedRefusals,
}

impl Symptoms {
    /// None yet, in a lane that begins at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { departures: Departures::default(), refusals: UnexplainedRefusals::new(now) }
    }
}

impl Lane {
    /// The requests whose clients left before an answer.
    pub fn departures(&self) -> &Departures {
        &self.symptoms.departures
    }

    /// The API refused, at `now`, what was sent at `sent` within our limits.
    pub(super) fn refused_without_reason(&self, sent: Instant, now: Instant) {
        let window = self.policy().limits.iter().map(|limit| limit.rate.per).min();
        if let Some(window) = window {
            self.symptoms.refusals.record(sent, now, window);
        }
    }
}
