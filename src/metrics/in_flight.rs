//! Number of requests in flight: requests that got a slot, minus requests that have ended. The histogram of waits
//! already counts slots, so a request that leaves needs one addition.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus::{
    Opts, Result,
    core::{Metric, MetricVec, MetricVecBuilder},
    proto::{self, MetricType},
};

use super::durations::{Durations, DurationsVec};

/// Number of requests of one rule in flight.
#[derive(Clone, Debug)]
pub struct InFlight(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    /// Waits of the requests that got a slot.
    waits: Durations,
    ended: AtomicU64,
}

/// Numbers of all rules.
pub(super) type InFlightVec = MetricVec<OfWaits>;

/// Builds a rule's number from its waits.
#[derive(Clone, Debug)]
pub(super) struct OfWaits(DurationsVec);

// === impl InFlight ===

impl InFlight {
    pub(super) fn of_rules(name: &str, help: &str, waits: &DurationsVec) -> Result<InFlightVec> {
        let opts = Opts::new(name, help).variable_label("rule");
        MetricVec::create(MetricType::GAUGE, OfWaits(waits.clone()), opts)
    }

    /// Records the end of a request that was counted when it got its slot.
    pub fn ended(&self) {
        self.0.ended.fetch_add(1, Relaxed);
    }

    /// Present number.
    pub fn count(&self) -> u64 {
        // The order matters: each request is counted before it ends.
        let ended = self.0.ended.load(Relaxed);
        self.0.waits.count().saturating_sub(ended)
    }
}

impl Metric for InFlight {
    fn metric(&self) -> proto::Metric {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(self.count() as f64);
        let mut metric = proto::Metric::from_label(vec![self.0.waits.rule().clone()]);
        metric.set_gauge(gauge);
        metric
    }
}

// === impl OfWaits ===

impl MetricVecBuilder for OfWaits {
    type M = InFlight;
    type P = Opts;

    fn build<V: AsRef<str>>(&self, _: &Opts, labels: &[V]) -> Result<InFlight> {
        let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
        let waits = self.0.get_metric_with_label_values(&labels)?;
        Ok(InFlight(Arc::new(Ends { waits, ended: AtomicU64::new(0) })))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::Metrics;

    #[test]
    fn what_got_a_slot_is_under_way_until_it_ends() {
        let metrics = Metrics::new();
        let (rule, other) = (metrics.rule("one"), metrics.rule("other"));
        for waited in [0, 7, 0] {
            rule.wait_seconds.observe(Duration::from_secs(waited));
        }
        rule.in_flight.ended();
        assert_eq!((rule.in_flight.count(), other.in_flight.count()), (2, 0));
        let text = metrics.render();
        for line in [
            "# TYPE andante_in_flight gauge",
            "andante_in_flight{rule=\"one\"} 2",
            "andante_in_flight{rule=\"other\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
