//! `/status` entries for one lane.

use std::{collections::HashMap, sync::Arc};

use crate::{
    admin::status::{
        AddedRuleStatus, AtOnceStatus, BudgetStatus, Failures, FlowStatus, GateStatus, LaneStatus, LastError,
        LimitSource, LimitStatus, OwnLimitStatus, ShareStatus,
    },
    clock::Instant,
    lane::{
        Lane, Snapshot, SubLimitUsage,
        order::{FlowId, WaitingFlow},
    },
    learn::{Grounds, OwnLimit, QuotaSnapshot, Reason},
    limit::{self, CalendarUsage, LimitUsage, ShareUsage},
    policy::Https,
};

/// Entry of a lane. `ends` has the rules with temporary limits, and the end of these limits.
pub(super) fn lane_status(
    lane: &Lane,
    https: Option<Https>,
    ends: &HashMap<Arc<str>, Instant>,
    now: Instant,
) -> LaneStatus {
    let label = lane.metrics().name().to_owned();
    let left = lane.departures().stats();
    let last_error = lane.last_failure();
    let mut lane = lane.snapshot();
    lane.learned.own_limits.sort_by(|one, other| one.group.in_order(&other.group));
    let stats = &lane.stats;
    let limits = lane.limits.iter().zip(&lane.learned.grounds).map(|(usage, grounds)| limit_status(usage, *grounds));
    let own = ends_in_s(ends, &lane.rule, now);
    let total = |limit: LimitStatus, unit| LimitStatus {
        used_total: stats.used.of(unit),
        ends_in_s: own.filter(|_| limit.source == LimitSource::Config),
        ..limit
    };
    let limits = limits.zip(&lane.limits).map(|(limit, usage)| total(limit, usage.spec.unit));
    let calendar = lane.calendar.iter().map(|usage| total(calendar_status(usage), usage.limit.unit));
    LaneStatus {
        rule: lane.rule.to_string(),
        host: lane.host.to_string(),
        label,
        https: https.map(Https::as_str).unwrap_or_default().to_owned(),
        limits: limits.chain(calendar).collect(),
        at_once: lane.learned.at_once.map(|(most, grounds)| AtOnceStatus { most, evidence: grounds.to_string() }),
        own_limits: lane.learned.own_limits.iter().map(own_limit_status).collect(),
        rules: lane.sub_limits.iter().map(|usage| added_rule_status(usage, ends, now)).collect(),
        in_flight: lane.in_flight.count.into(),
        in_flight_limit: lane.in_flight.limit,
        in_flight_evidence: lane.in_flight.evidence.map(|grounds| grounds.to_string()),
        in_flight_share: lane.in_flight.share.map(share_status),
        waiting: lane.queue.waiting as u64,
        flows: lane.queue.flows.iter().map(flow_status).collect(),
        oldest_waiting_s: lane.queue.oldest.map(|oldest| oldest.as_secs_f64()),
        gate: gate_status(&lane),
        budgets: lane.learned.quotas.iter().map(budget_status).collect(),
        failures: lane.learned.failures.map(|(failed, of)| Failures { failed, of }),
        last_error: last_error.map(|last| LastError { detail: last.what, last_s: now.since(last.at).as_secs_f64() }),
        next_slot_s: lane.queue.next_slot.map(|wait| wait.as_secs_f64()),
        drain_eta_s: lane.queue.drain.map(|wait| wait.as_secs_f64()),
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
        pace: stats.lately.per_second(now),
        active_s: stats.active.map_or(0.0, |(first, last)| last.since(first).as_secs_f64()),
    }
}

/// Reason why no request leaves: an operator's pause precedes all others.
fn gate_status(lane: &Snapshot) -> Option<GateStatus> {
    let (reason, opens_in) = match (lane.held, lane.queue.gate) {
        (Some(held), _) => (Reason::Operator, held.remaining),
        (None, Some((reason, opens_in))) => (reason, Some(opens_in)),
        (None, None) => return None,
    };
    Some(GateStatus { reason: reason.as_str().into(), opens_in_s: opens_in.map(|opens_in| opens_in.as_secs_f64()) })
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

/// Seconds until the temporary limits of `rule` end.
fn ends_in_s(ends: &HashMap<Arc<str>, Instant>, rule: &Arc<str>, now: Instant) -> Option<f64> {
    ends.get(rule).map(|until| until.since(now).as_secs_f64())
}

/// Budgets of an added rule. `ends` has the rules with temporary limits, and the end of these limits.
pub(super) fn added_rule_status(
    usage: &SubLimitUsage,
    ends: &HashMap<Arc<str>, Instant>,
    now: Instant,
) -> AddedRuleStatus {
    let ends_in_s = ends_in_s(ends, &usage.rule, now);
    let total = |limit: LimitStatus, unit| LimitStatus { used_total: usage.used.of(unit), ends_in_s, ..limit };
    let limits = usage.limits.iter().map(|usage| total(limit_status(usage, None), usage.spec.unit));
    let calendar = usage.calendar.iter().map(|usage| total(calendar_status(usage), usage.limit.unit));
    AddedRuleStatus {
        rule: usage.rule.to_string(),
        budgets: usage.budgets as u64,
        busy: usage.busy as u64,
        waiting: usage.waiting,
        in_flight: usage.in_flight,
        in_flight_limit: usage.in_flight_limit,
        limits: limits.chain(calendar).collect(),
    }
}

fn flow_status(flow: &WaitingFlow) -> FlowStatus {
    let WaitingFlow { claim, waiting } = *flow;
    FlowStatus {
        client: claim.client.to_string(),
        flow: (claim.flow != FlowId::default()).then(|| claim.flow.shown()),
        urgency: claim.urgency.get(),
        waiting,
    }
}

fn limit_status(usage: &LimitUsage, grounds: Option<Grounds>) -> LimitStatus {
    let [next_free_in_s, all_free_in_s] = usage.freed_in.map(|time| time.map(|time| time.as_secs_f64()));
    LimitStatus {
        limit: usage.spec.to_string(),
        per_second: usage.spec.rate.per_second(),
        used: usage.used.into(),
        used_total: 0,
        ends_in_s: None,
        room: usage.own.saturating_sub(usage.used).into(),
        source: match usage.source {
            limit::Source::Config => LimitSource::Config,
            _ => LimitSource::Learned,
        },
        evidence: grounds.map(|grounds| grounds.to_string()),
        margin_ms: usage.margin.as_secs_f64() * 1e3,
        renewed_in_s: None,
        next_free_in_s,
        all_free_in_s,
        share: usage.share.map(share_status),
        part: usage.part,
    }
}

fn share_status(usage: ShareUsage) -> ShareStatus {
    let ShareUsage { held, free, own, target, wanted, opens_in } = usage;
    ShareStatus { held, free, own, target, wanted, opens_in_s: opens_in.map(|time| time.as_secs_f64()) }
}

fn calendar_status(usage: &CalendarUsage) -> LimitStatus {
    let count = usage.limit.count.get();
    LimitStatus {
        limit: usage.limit.to_string(),
        per_second: f64::from(count) / usage.period.as_secs_f64(),
        used: usage.used.into(),
        used_total: 0,
        ends_in_s: None,
        room: count.saturating_sub(usage.used).into(),
        source: LimitSource::Config,
        evidence: None,
        margin_ms: 0.0,
        renewed_in_s: Some(usage.renewed_in.as_secs_f64()),
        next_free_in_s: None,
        all_free_in_s: None,
        share: None,
        part: None,
    }
}
