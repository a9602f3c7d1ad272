//! `andante_slots_used_ratio`: worked out from the lanes when somebody asks.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Weak,
};

use prometheus::{
    core::{Collector, Desc},
    proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use super::Source;

const NAME: &str = "andante_slots_used_ratio";
const HELP: &str = "Used share of the current window, of the fullest limit of the rule's fullest lane.";

/// Asks the source whenever metrics are read.
pub(super) struct SlotsUsed {
    desc: Desc,
    // The source is free to own the metrics that own this.
    source: Weak<dyn Source>,
}

// === impl SlotsUsed ===

impl SlotsUsed {
    pub(super) fn new(source: Weak<dyn Source>) -> Self {
        let desc = Desc::new(NAME.into(), HELP.into(), vec!["rule".into()], HashMap::new());
        Self { desc: desc.expect("name and label are valid"), source }
    }
}

impl Collector for SlotsUsed {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let lanes = self.source.upgrade().map(|source| source.status().lanes).unwrap_or_default();
        let mut rules: BTreeMap<&str, f64> = BTreeMap::new();
        for lane in &lanes {
            if let Some(used) = lane.used_ratio() {
                let fullest = rules.entry(&lane.rule).or_default();
                *fullest = fullest.max(used);
            }
        }
        let mut family = MetricFamily::default();
        family.set_name(NAME.into());
        family.set_help(HELP.into());
        family.set_field_type(MetricType::GAUGE);
        family.set_metric(rules.into_iter().map(|(rule, used)| metric(rule, used)).collect());
        vec![family]
    }
}

fn metric(rule: &str, used: f64) -> Metric {
    let mut label = LabelPair::default();
    label.set_name("rule".into());
    label.set_value(rule.into());
    let mut gauge = Gauge::default();
    gauge.set_value(used);
    let mut metric = Metric::from_gauge(gauge);
    metric.set_label(vec![label]);
    metric
}
