//! Reports a member's relation to the store, for people.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus::{
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tracing::warn;

use super::{metrics::FleetMetrics, standing::Standing};
use crate::{
    admin::status::FleetStatus,
    clock::{Clock, Instant},
    fleet::{Entry, Lease, MemberId, PoolGrant},
};

/// Problem that `/status` shows if there is no worse one.
const LOWER: &str = "another andante of the fleet has a lower limit";

/// State of the calls to the store, for people.
#[derive(Debug)]
pub(in crate::app) struct FleetReport {
    pub(super) store: String,
    lease: Lease,
    clock: Clock,
    pub(super) last: Mutex<LastCall>,
    /// Pools for which another member has a lower limit, with that limit.
    lower: Mutex<HashMap<Arc<str>, u32>>,
    pub(super) metrics: FleetMetrics,
}

/// State of the last call.
#[derive(Clone, Debug, Default)]
pub(super) struct LastCall {
    pub(super) id: Option<MemberId>,
    pub(super) standing: Standing,
    /// Standing that was logged last, and the time since when.
    pub(super) logged: Standing,
    pub(super) logged_at: Option<Instant>,
    pub(super) members: u32,
    pub(super) epoch: u64,
    pub(super) took: Duration,
    pub(super) problem: Option<String>,
    /// Remedy for the problem.
    pub(super) hint: Option<&'static str>,
    /// There are more members than floors.
    pub(super) crowded: bool,
    /// Number of members with another fleet size or floor.
    pub(super) differing: u32,
}

/// Reads the report whenever metrics are read.
pub(super) struct OfFleet(pub(super) Arc<FleetReport>);

// === impl OfFleet ===

impl Collector for OfFleet {
    fn desc(&self) -> Vec<&Desc> {
        self.0.metrics.descs()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.metrics.read(&self.0.status())
    }
}

// === impl FleetReport ===

impl FleetReport {
    pub(super) fn new(store: String, lease: Lease, clock: Clock) -> Self {
        let (last, lower) = Default::default();
        Self { store, lease, clock, last, lower, metrics: FleetMetrics::new() }
    }

    pub(in crate::app) fn status(&self) -> FleetStatus {
        let (last, now) = (self.last.lock().clone(), self.clock.now());
        FleetStatus {
            store: self.store.clone(),
            standing: last.standing.as_str().to_owned(),
            member: last.id.map(|id| id.to_string()),
            members: last.members,
            epoch: last.epoch,
            lease_left_s: self.lease.until().since(now).as_secs_f64(),
            calls_total: self.metrics.calls("answered"),
            failed_calls_total: self.metrics.calls("failed"),
            last_call_ms: last.took.as_secs_f64() * 1e3,
            learns_for_s: self.learns_for(now).map(|time| time.as_secs_f64()),
            hint: last.hint.map(str::to_owned),
            problem: last.problem.or_else(|| (!self.lower.lock().is_empty()).then(|| LOWER.to_owned())),
        }
    }

    /// Compares the limit of `host` that this member reported with the limit that the store holds. Warns once if
    /// another member has a lower limit, which then holds for all.
    pub(super) fn told_of_limit(&self, host: &str, said: &Entry, holds: &PoolGrant) {
        let mut lower = self.lower.lock();
        // A limit that has ended is not compared.
        if said.ends.is_some() || holds.limit >= said.limit {
            if !lower.is_empty() {
                lower.remove(&said.pool);
            }
            return;
        }
        if lower.insert(said.pool.clone(), holds.limit) != Some(holds.limit) {
            let (limit, lower, store) = (said.limit, holds.limit, &self.store);
            warn!(store, host, limit, lower, "{LOWER}, which holds for all: write the same for all");
        }
    }

    /// Problem that exists although requests can leave.
    pub(in crate::app) fn caveat(&self) -> Option<String> {
        match self.last.lock().standing {
            Standing::Floor => {
                Some("but the store is unreachable: this andante sends at its floor of each shared limit".to_owned())
            }
            Standing::Open => Some("but the store is unreachable: shared limits may be exceeded".to_owned()),
            Standing::Learning => {
                let learns = self.learns_for(self.clock.now()).unwrap_or_default().as_secs_f64();
                Some(format!(
                    "but the store is new, or has lost its data: tokens that no andante reports are given out in \
                     {learns:.1} s and a window"
                ))
            }
            _ => None,
        }
    }

    /// Remaining time in which the store asks members what they hold, if it does.
    fn learns_for(&self, now: Instant) -> Option<Duration> {
        self.lease.learns_until(now).map(|until| until.since(now))
    }

    /// Returns whether requests can leave.
    pub(in crate::app) fn is_ready(&self) -> bool {
        self.lease.holds(self.clock.now()) || self.lease.goes_on()
    }
}
