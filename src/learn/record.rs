//! Learned state, as it is stored.
//!
//! Quotas that an API reports are not stored, because its next answer reports them again. A pause for a quota is
//! stored.

use andante_clock::Instant;
use serde::{Deserialize, Serialize};

use super::{Learned, Reason, rate_estimator::EstimatorRecord};

/// Learned state, as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedRecord {
    /// End and reason of the lane's pause.
    closed: Option<(Instant, Reason)>,
    found: EstimatorRecord,
}

impl LearnedRecord {
    /// Returns true if the record has no content at `now`.
    pub fn is_over(&self, now: Instant) -> bool {
        self.found == EstimatorRecord::default() && self.closed.is_none_or(|(until, _)| until <= now)
    }
}

impl Learned {
    /// Record of what is known at `now`.
    pub fn record(&self, now: Instant) -> LearnedRecord {
        // After a restart, a failing upstream is tried at once.
        let closed =
            self.closed(now, self.usual_scope()).filter(|(until, why)| *until > now && *why != Reason::Breaker);
        LearnedRecord { closed, found: self.estimator.record(now) }
    }

    /// Continues from `record` at `now`.
    pub fn restore(&mut self, record: &LearnedRecord, now: Instant) {
        self.absorb(record, now);
        self.estimator.restore(&record.found, now);
    }

    /// Applies the pause in `record`, if it still lasts at `now`. A longer pause stays.
    pub fn absorb(&mut self, record: &LearnedRecord, now: Instant) {
        if let Some((until, reason)) = record.closed.filter(|(until, _)| *until > now) {
            self.gate.close(now, until, reason);
        }
    }
}
