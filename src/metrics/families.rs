//! The families of metrics that have a `rule` label.

use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::{
    durations::{Durations, DurationsVec},
    in_flight::{InFlight, InFlightVec},
};

/// Waits, in seconds: from a timer's lateness to the longest wait that a rule allows by default.
const WAIT_BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 600.0,
    1200.0, 1800.0, 3600.0, 7200.0,
];

/// Times to an answer's head, in seconds: from a neighbour's to the longest that upstreams get by default.
const UPSTREAM_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Name and help of the pace of a limit.
pub(super) const PACE: [&str; 2] = ["andante_limit_per_second", "The pace that is kept, by who asked for it."];

/// The families that have a `rule` label.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) requests: IntCounterVec,
    pub(super) answers: IntCounterVec,
    pub(super) draws: IntCounterVec,
    pub(super) hints: IntCounterVec,
    pub(super) retries: RetryFamilies,
    pub(super) tunnels: TunnelFamilies,
    pub(super) savings: IntCounterVec,
    pub(super) waiting: IntGaugeVec,
    pub(super) in_flight: InFlightVec,
    pub(super) wait: DurationsVec,
    pub(super) upstream: DurationsVec,
    pub(super) limit: GaugeVec,
}

/// The families about requests that are sent again.
#[derive(Debug)]
pub(super) struct RetryFamilies {
    pub(super) count: IntCounterVec,
    pub(super) back_off: CounterVec,
}

/// The families about tunnels.
#[derive(Debug)]
pub(super) struct TunnelFamilies {
    pub(super) interceptions: IntCounterVec,
    pub(super) turns: IntCounterVec,
    pub(super) http2_offers: IntCounterVec,
}

// === impl Families ===

impl Families {
    pub(super) fn register(registry: &Registry) -> Self {
        let rule = &["rule"];
        let counter = |name, help, labels| counter(registry, name, help, labels);
        let durations = |name, help, buckets| registered(registry, Durations::of_rules(name, help, buckets));
        let wait = durations("andante_wait_seconds", "How long requests waited for a slot.", WAIT_BUCKETS);
        let upstream =
            durations("andante_upstream_seconds", "From sending a request to its answer's head.", UPSTREAM_BUCKETS);
        let in_flight =
            InFlight::of_rules("andante_in_flight", "Requests that are on their way to an upstream.", &wait);
        let waiting = Opts::new("andante_waiting", "Requests that wait for a slot.");
        Self {
            requests: counter(
                "andante_requests_total",
                "Requests that ended, by how they ended.",
                &["rule", "outcome"],
            ),
            answers: counter(
                "andante_answers_total",
                "Answers of upstreams that reached workers, by status code.",
                &["rule", "code"],
            ),
            draws: counter(
                "andante_draws_total",
                "Requests that asked for a part of a rule's budget beside their host's.",
                rule,
            ),
            hints: counter(
                "andante_hints_total",
                "Answers that spoke of limits, by the dialect they spoke.",
                &["rule", "dialect"],
            ),
            retries: RetryFamilies::register(registry),
            tunnels: TunnelFamilies::register(registry),
            savings: counter(
                "andante_slots_saved_total",
                "Requests that needed no slot, by what they got instead.",
                &["rule", "by"],
            ),
            waiting: registered(registry, IntGaugeVec::new(waiting, rule)),
            in_flight: registered(registry, in_flight),
            wait,
            upstream,
            limit: registered(registry, GaugeVec::new(Opts::new(PACE[0], PACE[1]), &["rule", "source"])),
        }
    }
}

// === impl RetryFamilies ===

impl RetryFamilies {
    fn register(registry: &Registry) -> Self {
        let back_off = Opts::new(
            "andante_back_off_seconds_total",
            "Time that requests waited between two tries, by what had become of the first.",
        );
        Self {
            count: counter(
                registry,
                "andante_retries_total",
                "Requests that were sent again, by what had become of them.",
                &["rule", "reason"],
            ),
            back_off: registered(registry, CounterVec::new(back_off, &["rule", "reason"])),
        }
    }
}

// === impl TunnelFamilies ===

impl TunnelFamilies {
    fn register(registry: &Registry) -> Self {
        Self {
            interceptions: counter(
                registry,
                "andante_interceptions_total",
                "Intercepted tunnels, by what came through them.",
                &["rule", "outcome"],
            ),
            turns: counter(
                registry,
                "andante_turns_total",
                "Turns of clients inside of blind tunnels, by what became of them.",
                &["rule", "outcome"],
            ),
            http2_offers: counter(
                registry,
                "andante_http2_offers_total",
                "Tunnels paced by turns whose client offered HTTP/2, whose requests turns do not tell apart.",
                &["rule"],
            ),
        }
    }
}

fn counter(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

/// Registers a metric of andante, whose name, labels and buckets are constants.
pub(super) fn registered<C>(registry: &Registry, metric: prometheus::Result<C>) -> C
where
    C: prometheus::core::Collector + Clone + 'static,
{
    let metric = metric.expect("names, labels and buckets are valid");
    registry.register(Box::new(metric.clone())).expect("names are unique");
    metric
}
