//! Metrics in OTLP. They have the same names as in `/metrics`, so that one dashboard shows both.

use std::time::Duration;

use prometheus::proto::{self, MetricFamily, MetricType};
use prost::Message as _;

use super::{
    messages::{
        ExportMetrics, Gauge, Histogram, HistogramPoint, KeyValue, Metric, MetricData, NumberPoint, Resource,
        ResourceMetrics, ScopeMetrics, Sum,
    },
    resource::scope,
};
use crate::clock::nanos;

const CUMULATIVE: i32 = 2;

/// When counting began, and when the numbers were read, since 1970.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    pub(super) since: Duration,
    pub(super) until: Duration,
}

/// Body of a request that exports `families`.
pub(super) fn encode(resource: &Resource, counted: Counted, families: &[MetricFamily]) -> Vec<u8> {
    let metrics = families.iter().map(|family| metric(counted, family)).collect();
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics }];
    ExportMetrics { resource_metrics: vec![ResourceMetrics { resource: Some(resource.clone()), scope_metrics }] }
        .encode_to_vec()
}

fn metric(counted: Counted, family: &MetricFamily) -> Metric {
    let metrics = family.get_metric().iter();
    let number =
        |value: fn(&proto::Metric) -> f64| metrics.clone().map(|one| point(counted, one, value(one))).collect();
    let data = match family.get_field_type() {
        MetricType::COUNTER => MetricData::Sum(Sum {
            data_points: number(|metric| metric.get_counter().get_value()),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        MetricType::HISTOGRAM => MetricData::Histogram(Histogram {
            data_points: metrics.map(|metric| histogram_point(counted, metric)).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
        _ => MetricData::Gauge(Gauge { data_points: number(|metric| metric.get_gauge().get_value()) }),
    };
    let name = family.name().to_owned();
    Metric { unit: unit(&name).to_owned(), description: family.help().to_owned(), name, data: Some(data) }
}

/// Unit in a metric's name, in UCUM notation.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    if name.ends_with("_seconds") {
        "s"
    } else if name.ends_with("_bytes") {
        "By"
    } else {
        "1"
    }
}

fn point(counted: Counted, metric: &proto::Metric, value: f64) -> NumberPoint {
    NumberPoint {
        start_time_unix_nano: nanos(counted.since),
        time_unix_nano: nanos(counted.until),
        as_double: Some(value),
        attributes: attributes(metric),
    }
}

/// Converts a histogram: Prometheus' buckets are cumulative; OTLP's count each value once, and one bucket has no upper
/// bound.
fn histogram_point(counted: Counted, metric: &proto::Metric) -> HistogramPoint {
    let histogram = metric.get_histogram();
    let buckets = || histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
    let up_to = buckets().map(|bucket| bucket.cumulative_count()).chain([histogram.get_sample_count()]);
    let mut before = 0;
    let bucket_counts = up_to.map(|count| count.saturating_sub(std::mem::replace(&mut before, count))).collect();
    HistogramPoint {
        start_time_unix_nano: nanos(counted.since),
        time_unix_nano: nanos(counted.until),
        count: histogram.get_sample_count(),
        sum: Some(histogram.get_sample_sum()),
        bucket_counts,
        explicit_bounds: buckets().map(|bucket| bucket.upper_bound()).collect(),
        attributes: attributes(metric),
    }
}

fn attributes(metric: &proto::Metric) -> Vec<KeyValue> {
    metric.get_label().iter().map(|label| KeyValue::text(label.name(), label.value())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn a_histogram_counts_each_value_in_one_bucket() {
        let metrics = Metrics::new();
        let rule = metrics.rule("api");
        for ms in [0, 2, 2, 700, 999_999_999] {
            rule.wait_seconds.observe(Duration::from_millis(ms));
        }
        let families = metrics.gather();
        let family = families.iter().find(|family| family.name() == "andante_wait_seconds").unwrap();
        let counted = Counted { since: Duration::from_secs(1), until: Duration::from_secs(2) };
        let metric = metric(counted, family);
        let Some(MetricData::Histogram(histogram)) = metric.data else { panic!("{metric:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((metric.unit.as_str(), point.count, point.bucket_counts.iter().sum::<u64>()), ("s", 5, 5));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!((point.bucket_counts[0], point.bucket_counts.last()), (1, Some(&1)));
        assert_eq!(point.attributes, [KeyValue::text("rule", "api")]);
    }
}
