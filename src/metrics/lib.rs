//! andante's metrics, and the form in which Prometheus reads them. Owns a registry of its own, and reads no clock.
//!
//! The code on the way of a request holds a [`RuleMetrics`] with resolved handles: counting is an atomic addition,
//! never a look-up.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use prometheus::{
    Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder, core::Collector as _,
};

pub mod access_log;
mod durations;
mod exemplars;
mod families;
mod in_flight;
mod openmetrics;
#[cfg(target_os = "linux")]
mod process;
mod reuse;
mod rule;
mod turn_outcome;

pub use self::{
    durations::Durations,
    reuse::Reuse,
    rule::{CallOutcome, RetryReason, RuleMetrics, Saving, TunnelContent},
    turn_outcome::TurnOutcome,
};
use self::{
    families::{Families, registered},
    reuse::BothSides,
};

/// Names and help texts, named like Prometheus' own metrics.
const CONFIG: [[&str; 2]; 2] = [
    ["andante_config_last_reload_successful", "Whether the configuration that was loaded last holds."],
    [
        "andante_config_last_reload_success_timestamp_seconds",
        "When the configuration that holds was loaded, in seconds since 1970.",
    ],
];

/// All metrics of andante. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    shared: Arc<MetricsState>,
    /// Open connections from workers.
    pub client_connections: IntGauge,
    /// Open connections to upstreams.
    pub upstream_connections: IntGauge,
    /// Requests of workers by their connection.
    pub client_reuse: Reuse,
    /// Attempts by their connection to the API.
    pub upstream_reuse: Reuse,
    /// Requests to the admin API with a wrong token.
    pub wrong_tokens: IntCounter,
    /// Success of the last load of a configuration, and the time of the last successful load.
    config: [Gauge; 2],
    /// 1 while the state is persisted, else 0.
    state: Gauge,
}

#[derive(Debug)]
struct MetricsState {
    registry: Registry,
    families: Families,
    rules: Mutex<Known>,
}

/// The labels given out so far.
#[derive(Debug, Default)]
struct Known {
    rules: HashMap<String, Arc<RuleMetrics>>,
    unruled: HashSet<String>,
}

// === impl Metrics ===

impl Metrics {
    /// Number of hosts without a rule that get a label of their own.
    pub const UNRULED_HOSTS: usize = 100;
    /// The label that all further hosts without a rule share.
    pub const OTHER: &str = "other";
    /// Name and help text of the pace of a limit: learned limits are added to configured ones.
    pub const PACE: [&str; 2] = families::PACE;

    /// New metrics, all at zero, with `andante_build_info` and the process' own metrics.
    pub fn new() -> Self {
        let registry = Registry::new();
        let families = Families::register(&registry);
        registered(&registry, Ok(access_log::LOST.clone()));
        let connections: IntGaugeVec = registered(
            &registry,
            IntGaugeVec::new(Opts::new("andante_connections", "Open connections, by the side they are on."), &["side"]),
        );
        let build: IntGaugeVec = registered(
            &registry,
            IntGaugeVec::new(Opts::new("andante_build_info", "Always 1; the labels say what runs."), &["version"]),
        );
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let BothSides { client: client_reuse, upstream: upstream_reuse } = BothSides::register(&registry);
        let metrics = Self {
            client_reuse,
            upstream_reuse,
            client_connections: connections.with_label_values(&["client"]),
            upstream_connections: connections.with_label_values(&["upstream"]),
            wrong_tokens: registered(
                &registry,
                IntCounter::new("andante_admin_wrong_tokens_total", "Requests to the admin API with a wrong token."),
            ),
            config: CONFIG.map(|[name, help]| registered(&registry, Gauge::new(name, help))),
            state: Gauge::new(
                "andante_state_written",
                "Whether what is sent is written down for a restart, if it is kept.",
            )
            .expect("the name is valid"),
            shared: Arc::new(MetricsState { registry, families, rules: Mutex::default() }),
        };
        #[cfg(target_os = "linux")]
        metrics.register(Box::new(process::ProcessMetrics::new()));
        metrics
    }

    /// The numbers of the rule called `name`; always the same ones for the same name.
    pub fn rule(&self, name: &str) -> Arc<RuleMetrics> {
        self.shared.rules.lock().rule(name, &self.shared.families)
    }

    /// The numbers of a `host` without a rule. The first [`Self::UNRULED_HOSTS`] hosts have numbers of their own,
    /// all others share those of [`Self::OTHER`]. So a worker that crawls the web cannot grow `/metrics` without
    /// bound.
    pub fn unruled(&self, host: &str) -> Arc<RuleMetrics> {
        let mut known = self.shared.rules.lock();
        let label = if known.unruled.contains(host) {
            host
        } else if known.unruled.len() < Self::UNRULED_HOSTS {
            known.unruled.insert(host.to_owned());
            host
        } else {
            Self::OTHER
        };
        known.rule(label, &self.shared.families)
    }

    /// Number of requests that ended with `outcome` so far, over all rules and hosts.
    pub fn counted(&self, outcome: CallOutcome) -> u64 {
        self.shared.rules.lock().rules.values().map(|rule| rule.counted(outcome)).sum()
    }

    /// Shows the numbers of `name` from the start, at zero, so that dashboards can compute the first increase.
    pub fn expect(&self, name: &str) {
        drop(self.rule(name));
    }

    /// Intercepted tunnels so far, over all rules and hosts, by outcome.
    pub fn interceptions(&self) -> BTreeMap<String, u64> {
        sums(&self.shared.families.tunnels.interceptions, "outcome")
    }

    /// Turns inside tunnels so far, over all rules and hosts, by [`TurnOutcome`].
    pub fn turns(&self) -> BTreeMap<String, u64> {
        sums(&self.shared.families.tunnels.turns, "outcome")
    }

    /// Answers of upstreams that reached workers so far, over all rules and hosts, by status code.
    pub fn answers(&self) -> BTreeMap<String, u64> {
        sums(&self.shared.families.answers, "code")
    }

    /// Number of retries so far, over all rules and hosts.
    pub fn retried(&self) -> u64 {
        sums(&self.shared.families.retries.count, "reason").into_values().sum()
    }

    /// Number of requests that needed no slot so far, over all rules and hosts.
    pub fn saved(&self) -> u64 {
        sums(&self.shared.families.savings, "by").into_values().sum()
    }

    /// Adds metrics that are computed at each scrape. Logs those that cannot be added, for example because a name is
    /// taken.
    pub fn register(&self, collector: Box<dyn prometheus::core::Collector>) {
        if let Err(error) = self.shared.registry.register(collector) {
            tracing::error!(%error, "a metric is missing");
        }
    }

    /// Records that a configuration was loaded at `at`, since 1970; `good` tells that it was valid.
    pub fn config_loaded(&self, good: bool, at: Duration) {
        let [successful, timestamp] = &self.config;
        successful.set(f64::from(u8::from(good)));
        if good {
            timestamp.set(at.as_secs_f64());
        }
    }

    /// Records whether the state is persisted, until the next call.
    pub fn state_written(&self, written: bool) {
        self.state.set(f64::from(u8::from(written)));
    }

    /// Shows the metric of [`state_written`](Self::state_written).
    pub fn show_state(&self) {
        self.register(Box::new(self.state.clone()));
    }

    /// Present values of all metrics.
    pub fn gather(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.shared.registry.gather()
    }

    /// All metrics, in the [text exposition format 0.0.4][format].
    ///
    /// [format]: https://prometheus.io/docs/instrumenting/exposition_formats/
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(16 * 1024);
        if let Err(error) = TextEncoder::new().encode_utf8(&self.shared.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics are incomplete");
        }
        text
    }
}

impl Metrics {
    /// All metrics, in the [OpenMetrics text format 1.0][format].
    ///
    /// [format]: https://prometheus.io/docs/specs/om/open_metrics_spec/
    pub fn render_openmetrics(&self) -> String {
        let families = self.gather();
        // Cloned: requests need the lock while the text is written.
        let rules = self.shared.rules.lock().rules.clone();
        openmetrics::encode(&families, &|family, rule, bucket| {
            let rule = rules.get(rule)?;
            match family {
                "andante_wait_seconds" => rule.wait_seconds.exemplar(bucket),
                "andante_upstream_seconds" => rule.upstream_seconds.exemplar(bucket),
                _ => None,
            }
        })
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Known ===

impl Known {
    fn rule(&mut self, name: &str, families: &Families) -> Arc<RuleMetrics> {
        let make = || Arc::new(RuleMetrics::new(name, families));
        Arc::clone(self.rules.entry(name.to_owned()).or_insert_with(make))
    }
}

/// The counters of a family, added up by the values of `label`.
fn sums(family: &IntCounterVec, label: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for metric in family.collect().iter().flat_map(|family| family.get_metric()) {
        let value = metric.get_label().iter().find(|pair| pair.name() == label).map(|pair| pair.value().to_owned());
        *sums.entry(value.unwrap_or_default()).or_default() += metric.get_counter().get_value() as u64;
    }
    sums.retain(|_, sum| *sum > 0);
    sums
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn the_same_name_is_the_same_numbers() {
        let metrics = Metrics::new();
        metrics.rule("api").count(CallOutcome::Answered);
        metrics.clone().rule("api").count(CallOutcome::Answered);
        assert!(Arc::ptr_eq(&metrics.rule("api"), &metrics.rule("api")));
        assert!(metrics.render().contains("andante_requests_total{outcome=\"answered\",rule=\"api\"} 2\n"));
        metrics.unruled("elsewhere").count(CallOutcome::Answered);
        assert_eq!((metrics.counted(CallOutcome::Answered), metrics.counted(CallOutcome::ClientLeft)), (3, 0));
    }

    #[test]
    fn the_contract_names_are_all_there() {
        let metrics = Metrics::new();
        let rule = metrics.rule("api");
        rule.answered(StatusCode::OK);
        rule.answered(StatusCode::from_u16(999).unwrap());
        rule.set_limit_per_second(Some(2.5));
        rule.wait_seconds.observe(Duration::from_millis(300));
        rule.in_flight.ended();
        rule.hinted("github");
        rule.retried(RetryReason::Refused);
        assert_eq!(metrics.retried(), 1);
        assert_eq!(metrics.answers(), [("200".into(), 1), ("other".into(), 1)].into());
        rule.intercepted(TunnelContent::Untrusted);
        metrics.rule("other api").intercepted(TunnelContent::Untrusted);
        assert_eq!(metrics.interceptions(), [("untrusted".into(), 2)].into());
        metrics.client_connections.inc();
        let text = metrics.render();
        for line in [
            "andante_requests_total{outcome=\"refused\",rule=\"api\"} 0",
            "andante_answers_total{code=\"200\",rule=\"api\"} 1",
            "andante_answers_total{code=\"other\",rule=\"api\"} 1",
            "andante_hints_total{dialect=\"github\",rule=\"api\"} 1",
            "andante_retries_total{reason=\"refused\",rule=\"api\"} 1",
            "andante_waiting{rule=\"api\"} 0",
            "andante_in_flight{rule=\"api\"} 0",
            "andante_wait_seconds_bucket{rule=\"api\",le=\"0.25\"} 0",
            "andante_wait_seconds_bucket{rule=\"api\",le=\"0.5\"} 1",
            "andante_wait_seconds_bucket{rule=\"api\",le=\"+Inf\"} 1",
            "andante_wait_seconds_sum{rule=\"api\"} 0.3",
            "andante_wait_seconds_count{rule=\"api\"} 1",
            "andante_upstream_seconds_bucket{rule=\"api\",le=\"600\"} 0",
            "andante_limit_per_second{rule=\"api\",source=\"config\"} 2.5",
            "andante_connections{side=\"client\"} 1",
            "andante_connections{side=\"upstream\"} 0",
            concat!("andante_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "no {line:?} in:\n{text}");
        }
        #[cfg(target_os = "linux")]
        assert!(text.contains("process_open_fds "));
    }

    #[test]
    fn what_was_never_set_is_not_shown() {
        let metrics = Metrics::new();
        metrics.rule("api");
        let text = metrics.render();
        assert!(!text.contains("andante_limit_per_second"));
        assert!(!text.contains("andante_hints_total"));
        assert!(!text.contains("code=\"404\""));
    }

    #[test]
    fn counters_are_there_before_anything_is_counted() {
        let metrics = Metrics::new();
        metrics.expect("api");
        let text = metrics.render();
        for line in [
            "andante_requests_total{outcome=\"answered\",rule=\"api\"} 0",
            "andante_requests_total{outcome=\"left\",rule=\"api\"} 0",
            "andante_answers_total{code=\"200\",rule=\"api\"} 0",
            "andante_answers_total{code=\"429\",rule=\"api\"} 0",
            "andante_answers_total{code=\"503\",rule=\"api\"} 0",
            "andante_retries_total{reason=\"refused\",rule=\"api\"} 0",
            "andante_retries_total{reason=\"unreached\",rule=\"api\"} 0",
            "andante_back_off_seconds_total{reason=\"failed\",rule=\"api\"} 0",
            "andante_connections_total{reused=\"true\",side=\"upstream\"} 0",
            "andante_interceptions_total{outcome=\"untrusted\",rule=\"api\"} 0",
            "andante_wait_seconds_count{rule=\"api\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line:?} in:\n{text}");
        }
        assert_eq!((metrics.retried(), metrics.answers(), metrics.interceptions()), Default::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processor_time_moves_by_less_than_a_second() {
        let metrics = Metrics::new();
        let used = || {
            let text = metrics.render();
            let line = text.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
            line.unwrap().parse::<f64>().unwrap()
        };
        let before = used();
        // Rendering takes processor time itself.
        let after = (0..1000).map(|_| used()).find(|after| *after > before).unwrap();
        assert!(before > 0.0 && after - before < 1.0, "{before} {after}");
    }

    #[test]
    fn hosts_past_the_cap_share_one_label() {
        let metrics = Metrics::new();
        for n in 0..2 * Metrics::UNRULED_HOSTS {
            metrics.unruled(&format!("host-{n}"));
        }
        assert_eq!(metrics.unruled("host-0").name(), "host-0");
        assert_eq!(metrics.unruled("host-150").name(), Metrics::OTHER);
        assert_eq!(metrics.shared.rules.lock().rules.len(), Metrics::UNRULED_HOSTS + 1);
    }

    #[test]
    fn a_name_cannot_break_out_of_its_label() {
        let metrics = Metrics::new();
        metrics.unruled("a\"} 1\nevil 2\\");
        assert!(metrics.render().contains("andante_waiting{rule=\"a\\\"} 1\\nevil 2\\\\\"} 0\n"));
    }
}
