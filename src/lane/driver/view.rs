//! A lane's public view.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_metrics::RuleMetrics;
use andante_policy::Policy;

use super::Lane;
use crate::{
    request::{AdmitRequest, Preview},
    snapshot::{LaneActivity, QueueStatus, Snapshot},
    state::Memory,
};

impl Lane {
    /// The decision on a request that asked now. Takes nothing, and leaves no ticket.
    pub fn preview(&self, ask: &AdmitRequest) -> Preview {
        let now = self.clock.now();
        self.shared.state.lock().preview(now, ask)
    }

    /// Returns whether the circuit breaker is open because the upstream fails.
    pub fn is_broken(&self) -> bool {
        self.shared.state.lock().learned().is_broken()
    }

    /// Returns whether the API serves requests, so that a 503 refuses one request and does not indicate an outage.
    pub fn is_alive(&self) -> bool {
        self.shared.state.lock().learned().is_alive()
    }

    /// Known remaining time in which nothing leaves.
    pub fn closed_for(&self) -> Duration {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        let learned = state.learned();
        learned.closed(now, learned.usual_scope()).map_or(Duration::ZERO, |(until, _)| until.since(now))
    }

    /// Returns whether one more request may be retried although the upstream is in trouble; counts it if so.
    pub fn may_retry(&self) -> bool {
        self.shared.state.lock().learned().may_retry()
    }

    /// Number of answers that were no refusals.
    pub fn served(&self) -> u64 {
        let state = self.shared.state.lock();
        state.stats().answered - state.stats().refused_by_api
    }

    /// The lane's policy.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The metrics of this lane.
    pub fn metrics(&self) -> &Arc<RuleMetrics> {
        &self.metrics
    }

    /// The host whose budget this is.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// Number of waiting requests, and the time of the next slot.
    pub fn queue_status(&self) -> QueueStatus {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        QueueStatus { waiting: state.waiting(), next_slot: state.next_slot(now) }
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiting()
    }

    /// The counts that are sampled every few seconds: far cheaper than [`Self::snapshot`].
    pub fn activity(&self) -> LaneActivity {
        let now = self.clock.now();
        self.shared.state.lock().activity(now)
    }

    /// The lane as it stands.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        self.shared.state.lock().snapshot(now, self.host.clone())
    }

    /// Returns whether a request waits although a slot has matured.
    #[cfg(test)]
    pub(crate) fn loses_slots(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        state.waiting() > 0 && state.next_slot(now) <= now
    }

    /// Number of waiting tickets moved from class to class one by one.
    #[cfg(test)]
    pub(crate) fn moved(&self) -> usize {
        self.shared.state.lock().moved()
    }

    /// State that would be lost if this lane were forgotten.
    pub(crate) fn memory(&self, paused: Option<Instant>) -> Memory {
        let now = self.clock.now();
        self.shared.state.lock().memory(now, paused)
    }
}
