//! Exemplars of a histogram: for each bucket the last request whose trace is recorded.

use std::{collections::BTreeMap, time::Duration};

use andante_trace::TraceContext;
use parking_lot::Mutex;

/// The last example of each bucket.
#[derive(Debug, Default)]
pub(super) struct Exemplars(Mutex<BTreeMap<usize, Exemplar>>);

/// A request that a bucket counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exemplar {
    /// Span of the request.
    pub context: TraceContext,
    /// The observed value, in seconds.
    pub value: f64,
    /// Time of the observation, since 1970.
    pub at: Duration,
}

// === impl Exemplars ===

impl Exemplars {
    /// Replaces the example of `bucket`.
    pub(super) fn set(&self, bucket: usize, exemplar: Exemplar) {
        self.0.lock().insert(bucket, exemplar);
    }

    /// The example of `bucket`, if there is one.
    pub(super) fn of(&self, bucket: usize) -> Option<Exemplar> {
        self.0.lock().get(&bucket).copied()
    }
}
