//! Log lines about a collector that is down: one every few minutes, and one when it is back.

use std::time::Duration;

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::clock::{Clock, Instant};

/// How often people are told that a collector is down.
const TELL_EVERY: Duration = Duration::from_secs(300);

/// Logs an outage, once for both signals.
pub(super) struct Outage {
    clock: Clock,
    told: Mutex<Option<Instant>>,
}

// === impl Outage ===

impl Outage {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, told: Mutex::new(None) }
    }

    /// An export to `collector` has failed.
    pub(super) fn on_failure(&self, collector: &str, error: &str) {
        let (now, mut told) = (self.clock.now(), self.told.lock());
        if told.is_some_and(|told| now.since(told) < TELL_EVERY) {
            return;
        }
        *told = Some(now);
        warn!(
            collector,
            error,
            hint = "see that an OpenTelemetry collector takes OTLP over HTTP there, or export nothing: --otlp off",
            "traces and metrics cannot be exported; requests go on, and spans are dropped once their queue is full"
        );
    }

    /// An export to `collector` has been taken.
    pub(super) fn on_success(&self, collector: &str) {
        if self.told.lock().take().is_some() {
            info!(collector, "traces and metrics are exported again");
        }
    }
}
