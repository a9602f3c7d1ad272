//! An explanation for people.

use std::fmt::Write as _;

use crate::{
    admin::{
        explanation::{DecisionExplanation, Explanation, OutcomeExplanation, Question, RuleExplanation},
        status::{LaneStatus, LimitSource, LimitStatus, ShareStatus},
    },
    cli::wording,
    policy::RefusedAnswer,
};

/// Describes the decision on the request of `question`, either by the running andante or by the
/// configuration alone.
pub(super) fn of(explanation: &Explanation, question: &Question, by_running: bool) -> String {
    let url = question.url.split(['?', '#']).next().unwrap_or_default();
    let mut text = format!("{} {url}\n", question.method);
    if !explanation.seen.is_empty() {
        row(&mut text, "seen as", &explanation.seen);
    }
    if let Some(https) = &explanation.https {
        let seen = match (https.seen, https.handling.as_str()) {
            (true, _) => "seen inside",
            (false, "turns") => "not seen inside, paced by turns (refusals, paths, costs are not seen)",
            (false, "tunnel") => "not seen inside: each tunnel takes one slot, requests inside are not paced",
            (false, _) => "not seen inside",
        };
        row(&mut text, "HTTPS", &format!("{}, {seen}: {}", https.handling, https.because));
    }
    if let Some(lane) = &explanation.lane {
        let ruled = if explanation.ruled { "" } else { " (no rule is for this host)" };
        row(&mut text, "rule", &format!("{}{ruled}", lane.rule));
        let open = match (by_running, explanation.open) {
            (true, true) => "",
            (true, false) => " (no request has come to it yet)",
            (false, _) => " (by the configuration: --admin asks an andante that runs)",
        };
        row(&mut text, "lane", &format!("{} {}{open}", lane.rule, lane.host));
        of_lane(&mut text, lane);
        for rule in &explanation.rules {
            of_rule(&mut text, rule);
        }
        let turn = &explanation.turn;
        if !explanation.cost.is_empty() {
            let by = explanation.rule_cost.as_ref().map_or_else(String::new, |cost| format!(" (by its rule: {cost})"));
            row(&mut text, "cost", &format!("{}{by}", explanation.cost));
        }
        let mut name = "refused";
        for answer in &explanation.refused {
            let is_in_body = answer.parse().is_ok_and(|answer: RefusedAnswer| answer.is_in_body());
            let note = if is_in_body { " (not in streams of events)" } else { "" };
            row(&mut text, std::mem::take(&mut name), &format!("{answer}{note}"));
        }
        let flow =
            turn.flow.as_ref().map_or_else(String::new, |flow| format!(", flow #{flow}{}", weight(turn.flow_weight)));
        let client = format!("client {}{}", turn.client, weight(turn.client_weight));
        row(&mut text, "queue", &format!("urgency {}, {client}{flow}", turn.urgency));
        row(&mut text, "waits", &format!("{} at most", wording::seconds(explanation.max_wait_s)));
    }
    outcome(&mut text, &explanation.now);
    text
}

fn of_lane(text: &mut String, lane: &LaneStatus) {
    let mut name = "limits";
    for limit in &lane.limits {
        row(text, std::mem::take(&mut name), &of_limit(limit));
    }
    if lane.limits.is_empty() {
        row(text, name, "none");
    }
    if let Some(most) = lane.in_flight_limit {
        let found =
            lane.in_flight_evidence.as_ref().map_or_else(String::new, |evidence| format!("; learned: {evidence}"));
        let held = |share: &ShareStatus| format!(", {} of the fleet's are here", share.held + share.own);
        let held = lane.in_flight_share.as_ref().map(held).unwrap_or_default();
        row(text, "in-flight", &format!("{most}, {} in flight{held}{found}", lane.in_flight));
    }
    if let Some(at_once) = &lane.at_once {
        row(text, "at once", &format!("{}, learned: {}", at_once.most, at_once.evidence));
    }
    for own in &lane.own_limits {
        let pace = own.per_second.map_or_else(|| "paused".to_owned(), wording::pace);
        row(text, "learned", &format!("{}: {pace}, {}", own.requests, own.evidence));
    }
    if let Some(gate) = &lane.gate {
        let opens = gate.opens_in_s.map_or_else(String::new, |opens| format!(" for {} more", wording::seconds(opens)));
        row(text, "paused", &format!("{}{opens}", gate.reason));
    }
    if lane.waiting > 0 {
        row(text, "waiting", &wording::several(lane.waiting, "request"));
    }
}

fn of_limit(limit: &LimitStatus) -> String {
    let source = match (limit.source, &limit.evidence) {
        (LimitSource::Config, _) => limit.ends_in_s.map_or_else(
            || "configured".to_owned(),
            |ends| format!("set by an operator for {} more", wording::seconds(ends)),
        ),
        (LimitSource::Learned, Some(evidence)) => format!("learned: {evidence}"),
        (LimitSource::Learned, None) => "learned".to_owned(),
    };
    format!("{} ({source}; {} used, {} left)", limit.limit, wording::count(limit.used), wording::count(limit.room))
}

fn of_rule(text: &mut String, rule: &RuleExplanation) {
    if let Some(mismatch) = &rule.mismatch {
        return row(text, "not", &format!("{}: {mismatch}", rule.rule));
    }
    let key: Vec<_> = rule
        .key
        .iter()
        .map(|part| {
            let value = part.hash.as_ref().map_or_else(|| "nothing".to_owned(), |hash| format!("#{hash}"));
            format!("{} {value}", part.part)
        })
        .collect();
    row(text, "and", &format!("{}: {}", rule.rule, rule.is_for));
    if !key.is_empty() {
        row(text, "", &key.join(", "));
    }
    for limit in &rule.limits {
        row(text, "", &of_limit(limit));
    }
    if rule.waiting > 0 {
        row(text, "", &format!("{} for this budget", wording::several(rule.waiting, "waiting request")));
    }
}

fn weight(weight: u16) -> String {
    if weight == 1 { String::new() } else { format!(" of weight {weight}") }
}

fn outcome(text: &mut String, now: &OutcomeExplanation) {
    let detail = now.detail.as_deref().unwrap_or_default();
    let status = now.status.map_or_else(String::new, |status| format!(" with {status}"));
    let said = match (now.decision, now.leaves_in_s) {
        (DecisionExplanation::Sent, _) => "it would leave at once".to_owned(),
        (DecisionExplanation::Waits, leaves) => {
            let until = match (leaves, &now.because) {
                (Some(leaves), _) => format!("for {}", wording::seconds(leaves)),
                (None, Some(_)) => "for as long as that lasts".to_owned(),
                (None, None) => "until the pause is ended or an answer makes room".to_owned(),
            };
            let behind = match now.ahead.unwrap_or(0) {
                0 => "as the next one".to_owned(),
                ahead => format!("behind {}", wording::several(ahead.into(), "other")),
            };
            format!("it would wait {until}, {behind}")
        }
        (DecisionExplanation::Refused, _) => {
            let again =
                now.retry_after_s.map_or_else(String::new, |after| format!("; again in {}", wording::seconds(after)));
            format!("andante would refuse it{status}: {detail}{again}")
        }
        (DecisionExplanation::Rejected, _) => format!("andante would answer it itself{status}: {detail}"),
    };
    if let Some(because) = &now.because {
        row(text, "because", because);
    }
    row(text, "now", &said);
    if let Some(hint) = &now.hint {
        row(text, "hint", hint);
    }
}

fn row(text: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail. Text of a running andante may come from anywhere.
    let value: String = value.chars().filter(|c| !c.is_control()).collect();
    let _ = writeln!(text, "  {name:<11} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_are_before_it_is_said_in_words() {
        for (ahead, said) in [(0, "as the next one"), (1, "behind 1 other"), (1200, "behind 1,200 others")] {
            let now = OutcomeExplanation {
                decision: DecisionExplanation::Waits,
                leaves_in_s: Some(2.0),
                ahead: Some(ahead),
                ..OutcomeExplanation::default()
            };
            let mut text = String::new();
            outcome(&mut text, &now);
            assert_eq!(text, format!("  now         it would wait for 2.0 s, {said}\n"));
        }
    }
}
