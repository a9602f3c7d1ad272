//! Number of live asynchronous tasks in all threads: leaked tasks show here.

use prometheus::{
    IntGauge,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::runtime::Handle;

/// Reads the runtimes whenever metrics are read.
pub(super) struct Tasks {
    runtimes: Vec<Handle>,
    alive: IntGauge,
}

// === impl Tasks ===

impl Tasks {
    pub(super) fn of(runtimes: Vec<Handle>) -> Self {
        let alive = IntGauge::new("andante_tasks", "Asynchronous tasks that are alive, over all threads.");
        Self { runtimes, alive: alive.expect("the name is valid") }
    }
}

impl Collector for Tasks {
    fn desc(&self) -> Vec<&Desc> {
        self.alive.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let alive: usize = self.runtimes.iter().map(|runtime| runtime.metrics().num_alive_tasks()).sum();
        self.alive.set(alive as i64);
        self.alive.collect()
    }
}
