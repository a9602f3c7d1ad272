//! The metrics of the process. All but one are as the library has them.

use prometheus::{
    core::{Collector, Desc},
    process_collector::ProcessCollector,
    proto::{Counter, Metric, MetricFamily},
};

use crate::clock;

/// The library counts processor time in whole seconds, and so stands at 0 for minutes where pacing needs little.
const CPU: &str = "process_cpu_seconds_total";

/// The library's collector, with processor time as the system has it.
pub(super) struct ProcessMetrics(ProcessCollector);

impl ProcessMetrics {
    pub(super) fn new() -> Self {
        Self(ProcessCollector::for_self())
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.0.collect();
        if let Some(family) = families.iter_mut().find(|family| family.name() == CPU) {
            let (mut counter, mut metric) = (Counter::default(), Metric::default());
            counter.set_value(clock::cpu_time().as_secs_f64());
            metric.set_counter(counter);
            family.set_metric(vec![metric]);
        }
        families
    }
}
