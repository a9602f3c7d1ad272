//! Knowledge from refusals, as it is stored: the estimates without their evidence.

use andante_clock::Instant;
use serde::{Deserialize, Serialize};

use super::{RateEstimator, belief::Belief, configured::is_raised, crowd::Crowd, grounds::Held, seconds};

/// The estimator, as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EstimatorRecord {
    rate: Option<RateRecord>,
    /// Concurrency limit, if it is certain.
    at_once: Option<u32>,
    /// Configured rate under which both were learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    configured: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct RateRecord {
    /// Requests per second.
    rate: f64,
    span: f64,
    count: f64,
    rising: bool,
    held: Held,
}

impl RateEstimator {
    /// Record of the estimates at `now`.
    pub(crate) fn record(&self, now: Instant) -> EstimatorRecord {
        // An estimate that was never logged is only the configured rate, or faster than matters.
        let belief = self.belief.as_ref().filter(|_| self.told.is_some());
        let rate = belief.map(|belief| RateRecord {
            rate: belief.rate(seconds(now)),
            span: belief.span,
            count: belief.count,
            rising: belief.is_rising(),
            held: self.held,
        });
        let at_once = self.crowd.cap().filter(|_| self.crowd.is_certain());
        let knows = rate.is_some() || at_once.is_some();
        let configured = self.configured.filter(|rate| knows && rate.is_finite());
        EstimatorRecord { rate, at_once, configured }
    }

    /// Applies the estimates of `record` from `now` on, unless the configured rate was raised since.
    pub(crate) fn restore(&mut self, record: &EstimatorRecord, now: Instant) {
        self.seen = seconds(now);
        if is_raised(record.configured, self.configured.filter(|rate| rate.is_finite())) {
            return;
        }
        let valid = |rate: &RateRecord| [rate.rate, rate.span].iter().all(|value| value.is_finite() && *value > 0.0);
        if let Some(RateRecord { rate, span, count, rising, held }) = record.rate.filter(valid) {
            let begin = if rising { Belief::at_least } else { Belief::of_window };
            (self.belief, self.held) = (Some(begin(rate, span, count, seconds(now))), held);
            (self.refused, self.crowd) = (true, Crowd::unlimited());
        }
        if let Some(most) = record.at_once {
            (self.refused, self.crowd) = (true, Crowd::known(most));
        }
    }
}
