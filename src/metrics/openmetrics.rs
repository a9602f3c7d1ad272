//! The [OpenMetrics 1.0 text format](https://prometheus.io/docs/specs/om/open_metrics_spec/) of `/metrics`, for readers
//! that ask for it. Buckets have exemplars where requests are traced.

use std::{collections::HashSet, fmt::Write as _};

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use super::exemplars::Exemplar;

/// Finds the example of the bucket with this number, of the family with this name and the rule with this one.
pub(super) type FindExemplar<'a> = &'a dyn Fn(&str, &str, usize) -> Option<Exemplar>;

/// `families` as text.
pub(super) fn encode(families: &[MetricFamily], exemplar: FindExemplar<'_>) -> String {
    let names: HashSet<&str> = families.iter().map(MetricFamily::name).collect();
    let mut text = String::with_capacity(16 * 1024);
    for family in families {
        // A counter's family goes without the suffix of its samples. If the base is another family's name, as for some
        // gauges, the type is unknown: two families must not share a name.
        let counts = family.name().strip_suffix("_total").filter(|base| !names.contains(base));
        let (name, kind) = match family.get_field_type() {
            MetricType::COUNTER => counts.map_or((family.name(), "unknown"), |base| (base, "counter")),
            MetricType::HISTOGRAM => (family.name(), "histogram"),
            _ => (family.name(), "gauge"),
        };
        // Writing into a text does not fail.
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if let Some(unit) = ["seconds", "bytes", "ratio"].into_iter().find(|unit| has_unit(name, unit)) {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {}", escaped(family.help()));
        for metric in family.get_metric() {
            match family.get_field_type() {
                MetricType::HISTOGRAM => histogram(&mut text, name, metric, exemplar),
                MetricType::COUNTER => sample(&mut text, family.name(), metric, metric.get_counter().get_value()),
                _ => sample(&mut text, name, metric, metric.get_gauge().get_value()),
            }
        }
    }
    text.push_str("# EOF\n");
    text
}

fn has_unit(name: &str, unit: &str) -> bool {
    name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'))
}

fn sample(text: &mut String, name: &str, metric: &Metric, value: f64) {
    let _ = writeln!(text, "{name}{} {}", labels(metric.get_label(), None), number(value));
}

fn histogram(text: &mut String, name: &str, metric: &Metric, exemplar: FindExemplar<'_>) {
    let (histogram, own) = (metric.get_histogram(), metric.get_label());
    let rule = own.iter().find(|label| label.name() == "rule").map_or("", LabelPair::value);
    let finite = histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    let all = finite.filter(|(bound, _)| bound.is_finite()).chain([(f64::INFINITY, histogram.get_sample_count())]);
    for (number_of, (bound, count)) in all.enumerate() {
        let _ = write!(text, "{name}_bucket{} {count}", labels(own, Some(bound)));
        if let Some(Exemplar { context, value, at }) = exemplar(name, rule, number_of) {
            let ids = format!("trace_id=\"{}\",span_id=\"{}\"", context.trace, context.span);
            let _ = write!(text, " # {{{ids}}} {} {:.3}", number(value), at.as_secs_f64());
        }
        text.push('\n');
    }
    let own = labels(own, None);
    let _ = writeln!(text, "{name}_count{own} {}", histogram.get_sample_count());
    let _ = writeln!(text, "{name}_sum{own} {}", number(histogram.get_sample_sum()));
}

fn labels(own: &[LabelPair], bound: Option<f64>) -> String {
    let own = own.iter().map(|label| format!("{}=\"{}\"", label.name(), escaped(label.value())));
    let all: Vec<String> = own.chain(bound.map(|bound| format!("le=\"{}\"", number(bound)))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

/// A number that is a float everywhere: `1.0`, the form that bounds of buckets need.
fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ if value.is_nan() => "NaN".to_owned(),
        _ => format!("{value:?}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{CallOutcome, Metrics};
    use andante_trace::TraceContext;

    #[test]
    fn counters_lose_their_suffix_and_bounds_are_floats() {
        let metrics = Metrics::new();
        metrics.rule("a \"b\"").count(CallOutcome::Answered);
        let text = metrics.render_openmetrics();
        for line in [
            "# TYPE andante_requests counter",
            "andante_requests_total{outcome=\"answered\",rule=\"a \\\"b\\\"\"} 1.0",
            "# TYPE andante_connections gauge",
            "# TYPE andante_connections_total unknown",
            "# TYPE andante_wait_seconds histogram",
            "# UNIT andante_wait_seconds seconds",
            "andante_wait_seconds_bucket{rule=\"a \\\"b\\\"\",le=\"1.0\"} 0",
            "andante_wait_seconds_bucket{rule=\"a \\\"b\\\"\",le=\"+Inf\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line:?} in:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_bucket_shows_its_last_example() {
        let metrics = Metrics::new();
        let (rule, at) = (metrics.rule("api"), Duration::from_millis(1_700_000_000_500));
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(parent.as_bytes()).unwrap();
        rule.wait_seconds.observe(Duration::from_millis(700));
        for ms in [600, 700] {
            rule.wait_seconds.exemplify(Duration::from_millis(ms), context, at);
        }
        let line = "andante_wait_seconds_bucket{rule=\"api\",le=\"1.0\"} 1 # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\",\
                    span_id=\"00f067aa0ba902b7\"} 0.7 1700000000.500";
        let text = metrics.render_openmetrics();
        assert!(text.lines().any(|found| found == line), "{text}");
        assert_eq!(text.matches(" # {").count(), 1);
    }
}
