//! Metrics of the calls to the store.

use std::time::Duration;

use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use super::standing::Standing;
use crate::admin::status::FleetStatus;

/// Metrics of the calls to the store, and gauges that are set whenever metrics are read.
#[derive(Debug)]
pub(super) struct FleetMetrics {
    calls: IntCounterVec,
    took: Histogram,
    modes: IntGaugeVec,
    members: IntGauge,
    epoch: IntGauge,
    lease: Gauge,
}

/// Buckets for the times of calls, in seconds: from a store on the same machine to the time after which a
/// call is given up.
const BUCKETS: &[f64] = &[0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

// === impl FleetMetrics ===

impl FleetMetrics {
    pub(super) fn new() -> Self {
        const NAMED: &str = "names and labels are constants";
        let calls = Opts::new("andante_store_calls_total", "Calls of the store, by whether they were answered.");
        let calls = IntCounterVec::new(calls, &["outcome"]).expect(NAMED);
        // Shown from the start, so that the first increase can be computed.
        for outcome in ["answered", "failed"] {
            drop(calls.with_label_values(&[outcome]));
        }
        let took = HistogramOpts::new("andante_store_call_seconds", "From a call of the store to its answer.");
        let modes = Opts::new("andante_fleet_mode", "1 for how this andante stands with the store, 0 for other modes.");
        let (members, epoch) = (
            IntGauge::new("andante_fleet_members", "Members of the fleet, as the store said last."),
            IntGauge::new("andante_fleet_epoch", "Restarts of the store, or losses of its memory."),
        );
        Self {
            calls,
            took: Histogram::with_opts(took.buckets(BUCKETS.to_vec())).expect(NAMED),
            modes: IntGaugeVec::new(modes, &["mode"]).expect(NAMED),
            members: members.expect(NAMED),
            epoch: epoch.expect(NAMED),
            lease: Gauge::new("andante_fleet_lease_seconds", "Time that is left of the lease.").expect(NAMED),
        }
    }

    /// Records a call that the store answered after this time.
    pub(super) fn answered(&self, took: Duration) {
        self.calls.with_label_values(&["answered"]).inc();
        self.took.observe(took.as_secs_f64());
    }

    /// Records a call that the store did not answer.
    pub(super) fn failed(&self) {
        self.calls.with_label_values(&["failed"]).inc();
    }

    /// Number of calls with this outcome: `answered` or `failed`.
    pub(super) fn calls(&self, outcome: &str) -> u64 {
        self.calls.with_label_values(&[outcome]).get()
    }

    /// Descriptions of all metrics.
    pub(super) fn descs(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    /// Values of all metrics for this `status`.
    pub(super) fn read(&self, status: &FleetStatus) -> Vec<MetricFamily> {
        for standing in Standing::ALL {
            let mode = standing.as_str();
            self.modes.with_label_values(&[mode]).set((mode == status.standing).into());
        }
        self.members.set(status.members.into());
        self.epoch.set(status.epoch as i64);
        self.lease.set(status.lease_left_s);
        self.all().into_iter().flat_map(Collector::collect).collect()
    }

    fn all(&self) -> [&dyn Collector; 6] {
        [&self.calls, &self.took, &self.modes, &self.members, &self.epoch, &self.lease]
    }
}
