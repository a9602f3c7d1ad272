//! Durations in buckets, like [`prometheus::Histogram`]. Prometheus' histogram adds four times for each observation, so
//! that its count always matches its buckets. Here the count is the sum of the buckets. A duration of zero, the wait of
//! most requests, needs one addition. The sum may be a moment behind the count.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use andante_trace::TraceContext;
use prometheus::{
    Opts, Result,
    core::{Atomic as _, AtomicF64, Metric, MetricVec, MetricVecBuilder},
    proto::{self, Bucket, LabelPair, MetricType},
};

use super::exemplars::{Exemplar, Exemplars};

/// A histogram of durations.
#[derive(Clone, Debug)]
pub struct Durations(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    /// The rule of the requests.
    rule: LabelPair,
    /// The longest time of each bucket but the last, in seconds.
    bounds: &'static [f64],
    buckets: Box<[AtomicU64]>,
    /// Sum of all durations, in seconds.
    sum: AtomicF64,
    exemplars: Exemplars,
}

/// Histograms of all rules.
pub(super) type DurationsVec = MetricVec<OfRule>;

/// Builds a rule's histogram with these bounds, in seconds.
#[derive(Clone, Debug)]
pub(super) struct OfRule(&'static [f64]);

// === impl Durations ===

impl Durations {
    pub(super) fn of_rules(name: &str, help: &str, bounds: &'static [f64]) -> Result<DurationsVec> {
        let opts = Opts::new(name, help).variable_label("rule");
        MetricVec::create(MetricType::HISTOGRAM, OfRule(bounds), opts)
    }

    /// Counts a duration.
    pub fn observe(&self, took: Duration) {
        let Counted { buckets, sum, .. } = &*self.0;
        if took.is_zero() {
            buckets[0].fetch_add(1, Relaxed);
            return;
        }
        let seconds = took.as_secs_f64();
        let bucket = self.bucket(seconds);
        buckets[bucket].fetch_add(1, Relaxed);
        sum.inc_by(seconds);
    }

    fn bucket(&self, seconds: f64) -> usize {
        let bounds = self.0.bounds;
        bounds.iter().position(|bound| seconds <= *bound).unwrap_or(bounds.len())
    }

    /// Keeps the request with this `context` as an example of the duration `took`; `at` is its time since 1970.
    pub fn exemplify(&self, took: Duration, context: TraceContext, at: Duration) {
        let value = took.as_secs_f64();
        self.0.exemplars.set(self.bucket(value), Exemplar { context, value, at });
    }

    /// Last example of the bucket with this number.
    pub(super) fn exemplar(&self, bucket: usize) -> Option<Exemplar> {
        self.0.exemplars.of(bucket)
    }

    /// Upper bounds in seconds with their counts, the shortest first. Each count excludes shorter durations. The last
    /// one, without a bound, has all longer durations.
    pub fn counts(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = self.0.bounds.iter().map(|bound| Some(*bound)).chain([None]);
        bounds.zip(self.0.buckets.iter().map(|bucket| bucket.load(Relaxed)))
    }

    /// Number of durations.
    pub(super) fn count(&self) -> u64 {
        self.counts().map(|(_, beside)| beside).sum()
    }

    /// The rule of the requests.
    pub(super) fn rule(&self) -> &LabelPair {
        &self.0.rule
    }
}

impl Metric for Durations {
    fn metric(&self) -> proto::Metric {
        let (mut count, mut buckets) = (0, Vec::new());
        for (bound, beside) in self.counts() {
            count += beside;
            if let Some(bound) = bound {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(count);
                buckets.push(bucket);
            }
        }
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(count);
        histogram.set_sample_sum(self.0.sum.get());
        let mut metric = proto::Metric::from_label(vec![self.0.rule.clone()]);
        metric.set_histogram(histogram);
        metric
    }
}

// === impl OfRule ===

impl MetricVecBuilder for OfRule {
    type M = Durations;
    type P = Opts;

    fn build<V: AsRef<str>>(&self, _: &Opts, labels: &[V]) -> Result<Durations> {
        let mut rule = LabelPair::default();
        rule.set_name("rule".to_owned());
        rule.set_value(labels.iter().map(AsRef::as_ref).collect());
        let buckets = (0..=self.0.len()).map(|_| AtomicU64::new(0)).collect();
        Ok(Durations(Arc::new(Counted {
            rule,
            bounds: self.0,
            buckets,
            sum: AtomicF64::new(0.0),
            exemplars: Exemplars::default(),
        })))
    }
}
