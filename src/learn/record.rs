//! What answers have taught, as it is written down.
//!
//! Budgets that an API tells of are not: its next answer tells again. A pause for one of them is.

use serde::{Deserialize, Serialize};

use super::{Learned, Reason, rate_estimator::EstimatorRecord};
use crate::clock::Instant;

/// What was learned, as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedRecord {
    /// Until when nothing leaves, and why.
    closed: Option<(Instant, Reason)>,
    found: EstimatorRecord,
}

impl LearnedRecord {
    /// Whether it says nothing at `now`.
    pub fn is_over(&self, now: Instant) -> bool {
        self.found == EstimatorRecord::default() && self.closed.is_none_or(|(until, _)| until <= now)
    }
}

impl Learned {
    /// What is known at `now`.
    pub fn record(&self, now: Instant) -> LearnedRecord {
        // Whether an upstream still fails is tried at once.
        let closed =
            self.closed(now, self.usual_scope()).filter(|(until, why)| *until > now && *why != Reason::Breaker);
        LearnedRecord { closed, found: self.estimator.record(now) }
    }

    /// Goes on from `record` at `now`.
    pub fn restore(&mut self, record: &LearnedRecord, now: Instant) {
        self.absorb(record, now);
        self.estimator.restore(&record.found, now);
    }

    /// What is paused at `now` as is written down is so here, too; for longer, if it is already.
    pub fn absorb(&mut self, record: &LearnedRecord, now: Instant) {
        if let Some((until, reason)) = record.closed.filter(|(until, _)| *until > now) {
            self.gate.close(now, until, reason);
        }
    }
}
