//! Summary of a run for scripts: a contract. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use super::{diagnosis, progress, summary};
use crate::{
    admin::{Status, status::LaneStatus},
    app::Unmatched,
    limit::{LimitSpec, Unit},
};

/// The summary's text as JSON, with exact numbers.
pub(super) fn summary(status: &Status, elapsed: Duration, exit_code: u8, unmatched: &[Unmatched]) -> Value {
    let lanes = || status.lanes.iter();
    json!({
        "exit_code": exit_code,
        "elapsed_s": elapsed.as_secs_f64(),
        "sent": progress::sent(status),
        "waited_s": lanes().map(|lane| lane.wait_seconds_total).sum::<f64>(),
        "waited_max_s": lanes().map(|lane| lane.wait_seconds_max).fold(0.0, f64::max),
        "answered_429": lanes().map(|lane| lane.answered_429_total).sum::<u64>(),
        "sent_again": status.retries_total,
        "refused": status.requests.refused,
        "failed": diagnosis::failed(status),
        "left": status.requests.left,
        "tunnels": status.requests.tunnelled + u64::try_from(status.tunnels).unwrap_or(0),
        "turns": status.turns,
        "used": !diagnosis::is_unused(status),
        "answers": status.answers,
        "incidents": status.incidents,
        "hosts": lanes().filter(|lane| lane.sent_total > 0).map(host).collect::<Vec<_>>(),
        "unmatched_rules": unmatched.iter().map(rule).collect::<Vec<_>>(),
    })
}

fn host(lane: &LaneStatus) -> Value {
    let shares = summary::shares(lane);
    let tightest =
        shares.iter().find(|share| share.limit.parse().is_ok_and(|limit: LimitSpec| limit.unit == Unit::REQUESTS));
    json!({
        "host": lane.host,
        "rule": lane.rule,
        "sent": lane.sent_total,
        "limit": tightest.map(|share| &share.limit),
        "used_ratio": tightest.map(|share| share.used_ratio),
        "limits": shares,
        "learned": summary::learned(lane),
        "left": lane.left_total,
        "left_after_s": lane.left_after_s,
    })
}

fn rule(unmatched: &Unmatched) -> Value {
    json!({ "rule": &*unmatched.rule, "nearest": unmatched.nearest.as_deref() })
}
