//! What `/status` shows, read off the running parts.

use std::sync::Arc;

use super::{reload::ReloadReports, unmatched};
use crate::{
    admin::status::{
        AtOnceStatus, BudgetStatus, Connections, Failures, FlowStatus, GateStatus, IncidentStatus, Interceptions,
        LaneStatus, LastError, LimitSource, LimitStatus, OwnLimitStatus, Requests, Status, StatusSource,
    },
    clock::Instant,
    lane::{
        Lane,
        order::{FlowId, WaitingFlow},
    },
    learn::{Grounds, OwnLimit, QuotaSnapshot},
    limit::{self, CalendarUsage, Usage},
    proxy::{Incident, Proxy},
};

/// The view of a running proxy.
pub(super) struct View {
    proxy: Arc<Proxy>,
    reports: Arc<ReloadReports>,
}

// === impl View ===

impl View {
    pub(super) fn new(proxy: Arc<Proxy>, reports: Arc<ReloadReports>) -> Self {
        Self { proxy, reports }
    }
}

impl StatusSource for View {
    fn status(&self) -> Status {
        let (proxy, now) = (&self.proxy, self.proxy.clock.now());
        // Before the lanes: the requests of a closed connection are counted in its lanes by then.
        let connections = Connections {
            client: proxy.metrics.client_connections.get(),
            upstream: proxy.metrics.upstream_connections.get(),
        };
        let lanes: Vec<_> = proxy.lanes.all().iter().map(|lane| lane_status(lane, now)).collect();
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: now.since(Instant::START).as_secs_f64(),
            draining: proxy.is_draining(),
            config: self.reports.status(),
            connections,
            tunnels: proxy.tunnels() as i64,
            certificates: proxy.certificates(),
            requests: Requests::counted(&proxy.metrics),
            answers: proxy.metrics.answers(),
            interceptions: Interceptions::counted(&proxy.metrics),
            incidents: proxy.incidents().all().into_iter().map(|incident| incident_status(incident, now)).collect(),
            unmatched_rules: unmatched::rules(proxy).iter().map(|rule| rule.name.to_string()).collect(),
            retries_total: proxy.metrics.retried(),
            lanes_total: lanes.len() as u64,
            lanes,
        }
    }

    fn ready(&self) -> bool {
        !self.proxy.is_draining()
    }
}

fn incident_status(incident: Incident, now: Instant) -> IncidentStatus {
    let Incident { kind, detail, hint, blame, total, last } = incident;
    let (kind, blame) = (kind.to_owned(), blame.to_owned());
    IncidentStatus { kind, detail, hint, blame, total, last_s: now.since(last).as_secs_f64() }
}

fn lane_status(lane: &Lane, now: Instant) -> LaneStatus {
    let label = lane.metrics().name().to_owned();
    let left = lane.departures().stats();
    let last_error = lane.last_failure();
    let mut lane = lane.snapshot();
    lane.own_limits.sort_by(|one, other| one.group.in_order(&other.group));
    let stats = &lane.stats;
    let limits = lane.limits.iter().zip(&lane.grounds).map(|(usage, grounds)| limit_status(usage, *grounds));
    LaneStatus {
        rule: lane.rule.to_string(),
        host: lane.host.to_string(),
        label,
        limits: limits.chain(lane.calendar.iter().map(calendar_status)).collect(),
        at_once: lane.at_once.map(|(most, grounds)| AtOnceStatus { most, evidence: grounds.to_string() }),
        own_limits: lane.own_limits.iter().map(own_limit_status).collect(),
        in_flight: lane.in_flight.into(),
        in_flight_limit: lane.in_flight_limit,
        waiting: lane.waiting as u64,
        flows: lane.flows.iter().map(flow_status).collect(),
        oldest_waiting_s: lane.oldest.map(|oldest| oldest.as_secs_f64()),
        gate: lane.gate.map(|(reason, opens_in)| GateStatus {
            reason: reason.as_str().into(),
            opens_in_s: Some(opens_in.as_secs_f64()),
        }),
        budgets: lane.budgets.iter().map(budget_status).collect(),
        failures: lane.failures.map(|(failed, of)| Failures { failed, of }),
        last_error: last_error.map(|last| LastError { detail: last.what, last_s: now.since(last.at).as_secs_f64() }),
        next_slot_s: lane.next_slot.map(|wait| wait.as_secs_f64()),
        drain_eta_s: lane.drain.map(|wait| wait.as_secs_f64()),
        sent_total: stats.sent,
        refused_total: stats.refused,
        answered_429_total: stats.refused_by_api,
        left_total: left.total,
        left_queued_total: left.queued,
        left_seconds_total: left.waited.as_secs_f64(),
        left_seconds_max: left.longest.as_secs_f64(),
        left_after_s: left.usual.map(|usual| usual.as_secs_f64()),
        wait_seconds_total: stats.waited.as_secs_f64(),
        wait_seconds_max: stats.waited_most.as_secs_f64(),
        active_s: stats.active.map_or(0.0, |(first, last)| last.since(first).as_secs_f64()),
    }
}

fn budget_status(budget: &QuotaSnapshot) -> BudgetStatus {
    BudgetStatus {
        name: budget.name.as_deref().map(Into::into),
        left: Some(budget.left).filter(|left| left.is_finite()),
        limit: budget.limit,
        reset_s: budget.reset.map(|reset| reset.as_secs_f64()),
        requests: budget.requests,
    }
}

fn own_limit_status(own: &OwnLimit) -> OwnLimitStatus {
    OwnLimitStatus {
        requests: own.group.to_string(),
        per_second: own.per_second,
        at_once: own.at_once,
        evidence: own.evidence(),
        next_slot_s: own.next_slot.as_secs_f64(),
    }
}

fn flow_status(flow: &WaitingFlow) -> FlowStatus {
    let WaitingFlow { claim, waiting } = *flow;
    FlowStatus {
        client: claim.client.to_string(),
        flow: (claim.flow != FlowId::default()).then(|| format!("{:08x}", claim.flow.0 as u32)),
        urgency: claim.urgency.get(),
        waiting,
    }
}

fn limit_status(usage: &Usage, grounds: Option<Grounds>) -> LimitStatus {
    LimitStatus {
        limit: usage.spec.to_string(),
        per_second: usage.spec.rate.per_second(),
        used: usage.used.into(),
        room: usage.spec.rate.count.get().saturating_sub(usage.used).into(),
        source: match usage.source {
            limit::Source::Config => LimitSource::Config,
            _ => LimitSource::Learned,
        },
        evidence: grounds.map(|grounds| grounds.to_string()),
        margin_ms: usage.margin.as_secs_f64() * 1e3,
        renewed_in_s: None,
    }
}

fn calendar_status(usage: &CalendarUsage) -> LimitStatus {
    let count = usage.limit.count.get();
    LimitStatus {
        limit: usage.limit.to_string(),
        per_second: f64::from(count) / usage.period.as_secs_f64(),
        used: usage.used.into(),
        room: count.saturating_sub(usage.used).into(),
        source: LimitSource::Config,
        evidence: None,
        margin_ms: 0.0,
        renewed_in_s: Some(usage.renewed_in.as_secs_f64()),
    }
}
