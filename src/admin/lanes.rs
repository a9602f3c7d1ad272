//! Metrics that are computed from the lanes at each scrape; each rule shows its most significant lane.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Weak,
};

use prometheus::{
    core::{Collector, Desc},
    proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use super::{
    StatusSource,
    status::{LaneStatus, LimitSource},
};
use crate::{learn::Reason, metrics::Metrics};

const USED: Family = Family {
    name: "andante_slots_used_ratio",
    help: "Used share of the current window, of the fullest limit of the rule's fullest lane.",
    labels: &["rule"],
};
const CLOSED: Family = Family {
    name: "andante_gate_closed",
    help: "Lanes of the rule that pause, by why they do.",
    labels: &["rule", "reason"],
};
const IN_FLIGHT: Family = Family {
    name: "andante_in_flight_limit",
    help: "How many requests may be on their way at once: the least over the rule's lanes.",
    labels: &["rule"],
};
const REMAINING: Family = Family {
    name: "andante_remaining",
    help: "Requests that are left in the current window, as the API says: the least over the rule's lanes.",
    labels: &["rule"],
};
const HTTPS: Family = Family {
    name: "andante_https_lanes",
    help: "Lanes of the rule, by what becomes of HTTPS to their hosts: intercept, turns, tunnel or refuse.",
    labels: &["rule", "https"],
};
/// The registry merges these with the metrics of configured limits, so both need the same description.
const PACE: Family = Family { name: Metrics::PACE[0], help: Metrics::PACE[1], labels: &["rule", "source"] };

const TOKENS: Family = Family {
    name: "andante_tokens",
    help: "Units of a limit shared with the fleet that are here, by where they are.",
    labels: &["rule", "limit", "place"],
};
const DUE: Family = Family {
    name: "andante_tokens_due",
    help: "Units of a limit shared with the fleet that are due to this andante.",
    labels: &["rule", "limit"],
};

/// A metric of andante.
struct Family {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
}

/// Reads the source whenever metrics are read.
pub(super) struct OfLanes {
    descs: Vec<Desc>,
    // Weak, because the source may own the metrics, which own this collector.
    source: Weak<dyn StatusSource>,
}

/// The numbers of one rule, taken from its lanes.
#[derive(Default)]
struct Rule {
    used: Option<f64>,
    closed: [u32; Reason::ALL.len()],
    remaining: Option<f64>,
    in_flight: Option<u32>,
    pace: Option<f64>,
    shares: BTreeMap<String, Tokens>,
    https: BTreeMap<String, u32>,
}

/// Tokens of a shared limit, over the rule's lanes.
#[derive(Default)]
struct Tokens {
    free: u32,
    spent: u32,
    due: f64,
}

// === impl OfLanes ===

impl OfLanes {
    pub(super) fn new(source: Weak<dyn StatusSource>) -> Self {
        let descs = [USED, CLOSED, IN_FLIGHT, REMAINING, TOKENS, DUE, HTTPS].map(|family| {
            let labels = family.labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(family.name.into(), family.help.into(), labels, HashMap::new()).expect("names are valid")
        });
        Self { descs: descs.into(), source }
    }
}

impl Collector for OfLanes {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let lanes = self.source.upgrade().map(|source| source.status().lanes).unwrap_or_default();
        let mut rules: BTreeMap<&str, Rule> = BTreeMap::new();
        for lane in &lanes {
            rules.entry(&lane.label).or_default().add(lane);
        }
        let (mut used, mut closed, mut remaining, mut pace) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut tokens, mut due, mut in_flight, mut https) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (name, rule) in rules {
            used.extend(rule.used.map(|used| USED.metric(&[name], used)));
            for (reason, lanes) in Reason::ALL.iter().zip(rule.closed) {
                closed.push(CLOSED.metric(&[name, reason.as_str()], lanes.into()));
            }
            https.extend(rule.https.iter().map(|(way, lanes)| HTTPS.metric(&[name, way], (*lanes).into())));
            in_flight.extend(rule.in_flight.map(|most| IN_FLIGHT.metric(&[name], most.into())));
            remaining.extend(rule.remaining.map(|left| REMAINING.metric(&[name], left)));
            for (limit, share) in &rule.shares {
                tokens.push(TOKENS.metric(&[name, limit, "free"], share.free.into()));
                tokens.push(TOKENS.metric(&[name, limit, "spent"], share.spent.into()));
                due.push(DUE.metric(&[name, limit], share.due));
            }
            pace.extend(rule.pace.map(|pace| PACE.metric(&[name, "learned"], pace)));
        }
        let lanes = [USED.of(used), CLOSED.of(closed), IN_FLIGHT.of(in_flight), REMAINING.of(remaining), PACE.of(pace)];
        lanes.into_iter().chain([TOKENS.of(tokens), DUE.of(due), HTTPS.of(https)]).collect()
    }
}

// === impl Rule ===

impl Rule {
    fn add(&mut self, lane: &LaneStatus) {
        self.used = self.used.into_iter().chain(lane.used_ratio()).reduce(f64::max);
        let reason = lane.gate.as_ref().and_then(|gate| Reason::ALL.iter().position(|one| one.as_str() == gate.reason));
        if let Some(reason) = reason {
            self.closed[reason] += 1;
        }
        let left = lane.budgets.iter().filter(|budget| budget.requests).filter_map(|budget| budget.left);
        self.remaining = self.remaining.into_iter().chain(left).reduce(f64::min);
        let windows = lane.limits.iter().filter_map(|limit| Some((limit.limit.clone(), limit.share.as_ref()?)));
        let in_flight = lane.in_flight_limit.zip(lane.in_flight_share.as_ref());
        for (limit, share) in windows.chain(in_flight.map(|(count, share)| (format!("in-flight {count}"), share))) {
            let tokens = self.shares.entry(limit).or_default();
            tokens.free += share.free;
            tokens.spent += (share.held + share.own).saturating_sub(share.free);
            tokens.due += share.target + f64::from(share.own);
        }
        if !lane.https.is_empty() {
            *self.https.entry(lane.https.clone()).or_default() += 1;
        }
        self.in_flight = self.in_flight.into_iter().chain(lane.in_flight_limit).min();
        let learned = lane.limits.iter().filter(|limit| limit.source == LimitSource::Learned);
        self.pace = self.pace.into_iter().chain(learned.map(|limit| limit.per_second)).reduce(f64::min);
    }
}

// === impl Family ===

impl Family {
    fn metric(&self, labels: &[&str], value: f64) -> Metric {
        let pair = |(name, value): (&&str, &&str)| {
            let mut label = LabelPair::default();
            label.set_name((*name).into());
            label.set_value((*value).into());
            label
        };
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = Metric::from_gauge(gauge);
        metric.set_label(self.labels.iter().zip(labels).map(pair).collect());
        metric
    }

    fn of(&self, metrics: Vec<Metric>) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.name.into());
        family.set_help(self.help.into());
        family.set_field_type(MetricType::GAUGE);
        family.set_metric(metrics);
        family
    }
}
