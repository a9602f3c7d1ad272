//! Log lines about a collector that is down: one every few minutes, and one when it is back.

use std::time::Duration;

use tracing::{info, warn};

use crate::clock::{Clock, Instant};

/// Interval of log lines while a collector is down.
const TELL_EVERY: Duration = Duration::from_secs(300);

/// Outage log of one signal: the other signal may go elsewhere, or be accepted by the same collector.
pub(super) struct Outage {
    clock: Clock,
    /// `traces` or `metrics`.
    signal: &'static str,
    /// When the outage was logged last; `None` while exports are accepted.
    logged: Option<Instant>,
}

// === impl Outage ===

impl Outage {
    pub(super) fn new(clock: Clock, signal: &'static str) -> Self {
        Self { clock, signal, logged: None }
    }

    /// Records that an export to `collector` has failed.
    pub(super) fn on_failure(&mut self, collector: &str, error: &str) {
        let now = self.clock.now();
        if self.logged.is_some_and(|logged| now.since(logged) < TELL_EVERY) {
            return;
        }
        self.logged = Some(now);
        warn!(
            collector,
            error,
            hint = "see that an OpenTelemetry collector takes OTLP over HTTP there, or export nothing: --otlp off",
            "{} cannot be exported; requests are not affected",
            self.signal
        );
    }

    /// Records that an export to `collector` was accepted.
    pub(super) fn on_success(&mut self, collector: &str) {
        if self.logged.take().is_some() {
            info!(collector, "{} are exported again", self.signal);
        }
    }
}
