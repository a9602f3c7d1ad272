//! Lines about an opened lane.

use crate::{
    admin::status::{LaneStatus, LimitSource, LimitStatus},
    cli::{lane_table, wording},
};

/// Width of a bar.
const BAR: usize = 20;

/// Everything about `lane`.
pub(super) fn lines(lane: &LaneStatus) -> Vec<String> {
    let mut lines = vec![format!("{} {}", lane.rule, lane.host)];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<10} {value}"));
    row("waiting", wording::count(lane.waiting));
    if let Some(oldest) = lane.oldest_waiting_s {
        let eta = lane.drain_eta_s.map(|eta| format!("all sent in {}", wording::seconds(eta)));
        let eta = eta.as_deref().unwrap_or("end of the queue unknown");
        row("oldest", format!("{}, {eta}", wording::seconds(oldest)));
    }
    row("pace", wording::measured_pace(lane.pace));
    let https = lane_table::https(&lane.https);
    if !https.is_empty() {
        row("HTTPS", https.to_owned());
    }
    let most = lane.in_flight_limit.map_or_else(String::new, |most| format!(" of {most}"));
    row("in flight", format!("{}{most}", lane.in_flight));
    if let Some(gate) = &lane.gate {
        let opens = gate.opens_in_s.map_or_else(String::new, |opens| format!(", {} more", wording::seconds(opens)));
        row("paused", format!("{}{opens}", gate.reason));
    }
    for limit in &lane.limits {
        row("limit", of_limit(limit));
    }
    for rule in &lane.rules {
        let set = rule.limits.iter().find_map(|limit| limit.ends_in_s).map_or_else(String::new, for_a_while);
        row(
            "rule",
            format!("{}: {} waiting for {}{set}", rule.rule, rule.waiting, wording::several(rule.busy, "budget")),
        );
    }
    for own in &lane.own_limits {
        row("learned", format!("{}: {}", own.requests, own.evidence));
    }
    for budget in lane.budgets.iter().filter(|budget| budget.left.is_some()) {
        let name = budget.name.as_deref().unwrap_or("the API");
        let left = budget.left.unwrap_or_default();
        let reset = budget.reset_s.map_or_else(String::new, |reset| format!(", reset in {}", wording::seconds(reset)));
        row("API says", format!("{name}: {left} left{reset}"));
    }
    for flow in &lane.flows {
        let name = flow.flow.as_ref().map_or_else(String::new, |flow| format!(" flow #{flow}"));
        row("waits", format!("{} of {}{name}, urgency {}", flow.waiting, flow.client, flow.urgency));
    }
    if let Some(error) = &lane.last_error {
        row("failed", format!("{} ago: {}", wording::seconds(error.last_s), error.detail));
    }
    let counts = [(lane.sent_total, "sent"), (lane.answered_429_total, "429"), (lane.refused_total, "refused")];
    row("so far", counts.map(|(count, what)| format!("{} {what}", wording::count(count))).join(", "));
    lines.iter().map(|line| lane_table::plain(line)).collect()
}

/// Line of a limit: `[#########-----------] 500/min, 226 used, learned: …`.
fn of_limit(limit: &LimitStatus) -> String {
    let all = limit.used + limit.room;
    let full = if all > 0 { (limit.used as f64 / all as f64 * BAR as f64).round() as usize } else { 0 }.min(BAR);
    let bar = format!("[{}{}]", "#".repeat(full), "-".repeat(BAR - full));
    let source = match (limit.source, &limit.evidence) {
        (LimitSource::Learned, Some(evidence)) => format!(", learned: {evidence}"),
        (LimitSource::Learned, None) => ", learned".to_owned(),
        (LimitSource::Config, _) => limit.ends_in_s.map_or_else(String::new, for_a_while),
    };
    format!("{bar} {}, {} used{source}", limit.limit, wording::count(limit.used))
}

/// Says that an operator has set a limit, and how long it still holds.
fn for_a_while(ends_in_s: f64) -> String {
    format!(", set by an operator for {} more", wording::seconds(ends_in_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::status::AddedRuleStatus;

    #[test]
    fn a_bar_is_as_full_as_its_limit() {
        let bar = |used, room| {
            let limit = LimitStatus { limit: "4/s".into(), used, room, ..LimitStatus::default() };
            of_limit(&limit)
        };
        assert_eq!(bar(1, 3), "[#####---------------] 4/s, 1 used");
        assert_eq!(bar(4, 0), "[####################] 4/s, 4 used");
        // A newly learned limit may already have been exceeded.
        assert_eq!(bar(0, 0), "[--------------------] 4/s, 0 used");
    }

    #[test]
    fn a_limit_of_an_operator_says_until_when_it_holds() {
        let limit = LimitStatus { limit: "4/s".into(), room: 4, ends_in_s: Some(1800.0), ..LimitStatus::default() };
        assert_eq!(of_limit(&limit), "[--------------------] 4/s, 0 used, set by an operator for 30m 0s more");
        let rule = AddedRuleStatus { rule: "search".into(), limits: vec![limit], ..AddedRuleStatus::default() };
        let lane = LaneStatus { rules: vec![rule], ..LaneStatus::default() };
        let lines = lines(&lane);
        let wanted = "  rule       search: 0 waiting for 0 budgets, set by an operator for 30m 0s more";
        assert!(lines.iter().any(|line| line == wanted), "{lines:#?}");
    }
}
