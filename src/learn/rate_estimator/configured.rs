//! Changes of the configured rate.

use std::mem;

use super::RateEstimator;

/// Returns true if an operator has raised the configured rate from `before` to `now`, or configured the first one.
pub(super) fn is_raised(before: Option<f64>, now: Option<f64>) -> bool {
    now.is_some_and(|now| before.is_none_or(|before| now > before))
}

impl RateEstimator {
    /// Applies another configured rate. If it is raised, the operator knows that the API allows more than refusals have
    /// taught, and the estimate restarts. Otherwise only the former configured rate is dropped.
    pub(crate) fn reconfigure(&mut self, configured: Option<f64>) {
        if self.configured == configured {
            return;
        }
        if is_raised(self.configured, configured) {
            let Self { way, history, before, seen, told, .. } = mem::take(self);
            *self = Self { way, history, before, seen, told, ..Self::new(configured) };
            return;
        }
        self.configured = configured;
        if self.is_blank() {
            let Self { belief, crowd, .. } = Self::new(configured);
            (self.belief, self.crowd) = (belief, crowd);
        }
    }
}
