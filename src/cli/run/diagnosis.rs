//! Diagnosis of a run: failures with advice, or the reason why no request came through. Pure.

use std::{ffi::OsStr, fmt::Write as _, os::unix::process::ExitStatusExt as _, process::ExitStatus};

use super::client_hint;
use crate::{
    admin::{
        Status,
        status::{IncidentStatus, LaneStatus, Turns},
    },
    app::Unmatched,
    cli::wording,
    learn::Reason,
    proxy::Incidents,
};

/// Facts besides the proxy's own status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    /// Exit status of the command.
    pub(super) ended: ExitStatus,
    /// The hosts for which the command uses no proxy.
    pub(super) no_proxy: Option<&'a str>,
    /// The program that was run.
    pub(super) command: Option<&'a OsStr>,
    /// Rules that no request has matched.
    pub(super) unmatched: &'a [Unmatched],
}

/// Guide for people.
const GUIDE: &str = "docs/troubleshooting.md";
/// List of clients and their settings.
const CLIENTS: &str = "docs/clients.md";
/// Causes that are listed.
const CAUSES: usize = 10;
/// The most rules that are named one by one.
const RULES: usize = 5;
/// Exit codes of shells for a command that is missing, and for one that is not executable.
const NOT_FOUND: i32 = 127;
const NOT_RUN: i32 = 126;
/// Base of shells' exit codes for a command that a signal ended: this plus the signal's number.
const SIGNALS: i32 = 128;

/// Number of requests and tunnels that failed.
pub(super) fn failed(status: &Status) -> u64 {
    let (requests, tunnels) = (&status.requests, &status.interceptions);
    let unused = status.incidents.iter().filter(|incident| incident.kind == Incidents::UNUSED);
    let unused: u64 = unused.map(|incident| incident.total).sum();
    requests.failed + requests.rejected + tunnels.untrusted + tunnels.failed + tunnels.stranger + unused
}

/// Returns whether no client has used the proxy, as far as it can tell.
pub(super) fn is_unused(status: &Status) -> bool {
    let requests = &status.requests;
    let ended = requests.answered + requests.refused + requests.left + requests.tunnelled;
    let busy = |lane: &LaneStatus| lane.sent_total + lane.waiting + lane.in_flight > 0;
    let tunnels = status.interceptions.tls + status.interceptions.plain;
    let open = status.tunnels + status.connections.client;
    ended + failed(status) + tunnels == 0 && open == 0 && !status.lanes.iter().any(busy)
}

/// Reason why no request came through, as far as it is known: lines, the last one ending with a line feed.
pub(super) fn nothing_came_through(circumstances: &Circumstances<'_>) -> String {
    let Circumstances { ended, no_proxy, .. } = circumstances;
    let cause = match (ended.code(), ended.signal()) {
        (Some(NOT_FOUND), _) => "the command ended with 127, by which shells say that they did not find a command",
        (Some(NOT_RUN), _) => "the command ended with 126, by which shells say that they may not run a command",
        (None, Some(signal)) => return format!("  nothing came through: signal {signal} ended the command before\n"),
        _ => "",
    };
    if !cause.is_empty() {
        return format!("  nothing came through: {cause}\n");
    }
    let mut text = match ended.code() {
        Some(code @ 1..) => {
            format!(
                "  nothing came through: the command ended with exit code {code}, and no request had reached andante\n"
            )
        }
        _ => "  nothing came through: no request reached andante\n".to_owned(),
    };
    text.push_str(
        "  hint: either the command sent none, or it went around the proxy: not every client reads HTTP_PROXY; one with an \
         option for its proxy takes what is in that variable\n",
    );
    if let Some(hosts) = no_proxy.filter(|hosts| !hosts.trim().is_empty()) {
        let _ = writeln!(text, "  hint: NO_PROXY is {hosts:?}: requests to these hosts do not come to andante");
    }
    if let Some(more) = circumstances.command.and_then(client_hint::of) {
        let _ = writeln!(text, "  hint: {more}");
    }
    let _ = writeln!(
        text,
        "  hint: {CLIENTS} names the clients that need more than these variables; {GUIDE} has other causes"
    );
    text
}

/// Failures by cause, each with advice.
pub(super) fn causes(status: &Status) -> String {
    answers(status) + &own_causes(status)
}

/// Causes of failures and of refusals that waiting does not help, each with a hint.
pub(in crate::cli) fn own_causes(status: &Status) -> String {
    let mut text = breakers(status);
    for incident in status.incidents.iter().take(CAUSES) {
        let IncidentStatus { detail, total, .. } = incident;
        let _ = writeln!(text, "  {} × {detail}", wording::count(*total));
        let _ = writeln!(text, "    hint: {}", advice(incident));
    }
    if let Some(more) = status.incidents.len().checked_sub(CAUSES).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {}", wording::several(more as u64, "further cause"));
    }
    text
}

/// Advice for an andante that `run` started, which has already set all variables.
fn advice(incident: &IncidentStatus) -> String {
    const ALONE: &str = "--intercept none, or a rule with https = \"turns\" for the host (keeps its limit)";
    match &*incident.kind {
        Incidents::UNTRUSTED => format!(
            "make the client read SSL_CERT_FILE, which names andante's CA besides the system's (docs/clients.md says which \
             client reads what); one that accepts no certificate but the API's own needs {ALONE}"
        ),
        Incidents::UNUSED => format!("it may accept no certificate but the API's own (pinning): then it needs {ALONE}"),
        Incidents::NOT_INTERCEPTED | Incidents::NOT_HTTP => {
            "to let it pass unseen and unpaced: --intercept none, or a rule with https = \"tunnel\" for the host"
                .to_owned()
        }
        kind if kind.starts_with("tls_") => format!("{}; or leave it to the client: {ALONE}", incident.hint),
        _ => incident.hint.clone(),
    }
}

/// Error answers of APIs.
fn answers(status: &Status) -> String {
    let errors = status.answers.iter().filter(|(code, _)| code.as_str() >= "400");
    let errors: Vec<String> = errors.map(|(code, count)| format!("{} × {code}", wording::count(*count))).collect();
    if errors.is_empty() {
        return String::new();
    }
    format!("  the API itself answered {}\n", errors.join(", "))
}

/// Breakers that are open at the end: requests that waited for a breaker have not failed by themselves.
fn breakers(status: &Status) -> String {
    let mut text = String::new();
    let is_open = |lane: &&LaneStatus| lane.gate.as_ref().is_some_and(|gate| gate.reason == Reason::Breaker.as_str());
    for lane in status.lanes.iter().filter(is_open).take(CAUSES) {
        let last = lane.last_error.as_ref().map_or_else(String::new, |last| format!(", the last one: {}", last.detail));
        let _ = writeln!(text, "  {}: its breaker holds requests back: too many failed{last}", lane.host);
        let _ = writeln!(text, "    hint: see to the API; with breaker = \"off\" in its rule all requests try it");
    }
    text
}

/// Requests inside of tunnels that failed before they had a slot: a client gave up, or found its connection closed.
pub(super) fn turns(status: &Status) -> String {
    let Turns { refused, left, closed, .. } = status.turns;
    let failed = refused + left + closed;
    if failed == 0 {
        return String::new();
    }
    let usual = status.lanes.iter().filter(|lane| lane.left_after_s.is_some()).max_by_key(|lane| lane.left_total);
    let usual = usual.filter(|_| left > 0).and_then(|lane| lane.left_after_s);
    let usual = usual.map_or_else(String::new, |usual| format!(" (most after {})", wording::seconds(usual)));
    format!(
        "  {} in tunnels failed: {} given up by the client{usual}, {} refused (max-wait), {} closed by the API\n    \
         hint: raise the client's time-out or max-wait, or send fewer requests at once; intercepted, they need no \
         connection while they wait, and a refusal is an answer\n",
        wording::several(failed, "request"),
        wording::count(left),
        wording::count(refused),
        wording::count(closed),
    )
}

/// Clients that gave up.
pub(super) fn departures(status: &Status, ended: ExitStatus) -> String {
    if status.requests.left == 0 {
        return String::new();
    }
    let lanes = status.lanes.iter();
    let queued: u64 = lanes.clone().map(|lane| lane.left_queued_total).sum();
    // Lanes count turns too, always as queued.
    let queued = queued.saturating_sub(status.turns.left);
    let longest = lanes.clone().map(|lane| lane.left_seconds_max).fold(0.0, f64::max);
    // A user who ends a program needs no advice on its time-outs.
    let stopped = ended.signal().is_some() || ended.code().is_some_and(|code| code > SIGNALS);
    let usual = lanes.filter(|lane| lane.left_after_s.is_some()).max_by_key(|lane| lane.left_total);
    let mut text = format!("  {} left before the answer", wording::several(status.requests.left, "client"));
    if queued > 0 {
        let _ = write!(text, ", {} of them in the queue", wording::count(queued));
    }
    match usual.and_then(|lane| lane.left_after_s) {
        _ if stopped => text.push_str(": the command was ended by a signal\n"),
        Some(usual) => {
            let _ = writeln!(text, ", most after {}", wording::seconds(usual));
            let _ =
                writeln!(text, "    hint: that is a time-out of the client: raise it ({GUIDE} names the usual ones)");
        }
        None => {
            let _ = writeln!(text, ", after {} at most", wording::seconds(longest));
            let _ = writeln!(text, "    hint: a client that has a time-out needs one that is longer than the queue");
        }
    }
    text
}

/// Rules that no request matched.
pub(in crate::cli) fn unmatched(rules: &[Unmatched]) -> String {
    let mut text = String::new();
    for Unmatched { rule, nearest, .. } in rules.iter().take(RULES) {
        let _ = write!(text, "  no request was for {rule}");
        if let Some(nearest) = nearest {
            let _ = write!(text, "; the most similar host that was asked for is {nearest}");
        }
        text.push('\n');
    }
    if let Some(more) = rules.len().checked_sub(RULES).filter(|more| *more > 0) {
        let _ = writeln!(text, "  nor for the hosts of {}", wording::several(more as u64, "further rule"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{turns as turns_of, *};
    use crate::admin::status::{GateStatus, Interceptions, LastError, Requests};

    fn ended(raw: i32) -> Circumstances<'static> {
        Circumstances { ended: ExitStatus::from_raw(raw), no_proxy: None, command: None, unmatched: &[] }
    }

    #[test]
    fn why_nothing_came_through_is_told_from_how_the_command_ended() {
        for (raw, said, guess) in [
            (0, "no request reached andante", true),
            (3 << 8, "exit code 3", true),
            (127 << 8, "did not find a command", false),
            (126 << 8, "may not run", false),
            (9, "signal 9", false),
        ] {
            let text = nothing_came_through(&ended(raw));
            assert!(text.starts_with("  nothing came through: ") && text.contains(said), "{text}");
            assert_eq!(text.contains("HTTP_PROXY"), guess, "{text}");
        }
        let spared = Circumstances { no_proxy: Some("localhost,.intra"), ..ended(0) };
        assert!(nothing_came_through(&spared).contains("NO_PROXY is \"localhost,.intra\""));
        assert!(nothing_came_through(&ended(0)).contains("docs/clients.md"));
    }

    #[test]
    fn everything_that_reached_the_proxy_counts_as_use() {
        let used = |change: fn(&mut Status)| {
            let mut status = Status::default();
            change(&mut status);
            !is_unused(&status)
        };
        assert!(!used(|_| {}));
        for change in [
            (|status| status.requests.answered = 1) as fn(&mut Status),
            |status| status.requests.refused = 1,
            |status| status.requests.failed = 1,
            |status| status.requests.left = 1,
            |status| status.requests.tunnelled = 1,
            |status| status.requests.rejected = 1,
            |status| status.tunnels = 1,
            |status| status.connections.client = 1,
            |status| status.interceptions.untrusted = 1,
            |status| status.interceptions.tls = 1,
            |status| status.lanes = vec![LaneStatus { waiting: 1, ..LaneStatus::default() }],
        ] {
            assert!(used(change));
        }
    }

    #[test]
    fn failed_counts_whatever_came_to_nothing() {
        let requests = Requests { answered: 100, refused: 50, left: 25, failed: 1, rejected: 2, ..Requests::default() };
        let interceptions = Interceptions { tls: 1000, plain: 1000, untrusted: 4, failed: 8, stranger: 16 };
        let unused = IncidentStatus { kind: Incidents::UNUSED.into(), total: 32, ..IncidentStatus::default() };
        let other = IncidentStatus { kind: "dns_error".into(), total: 1000, ..IncidentStatus::default() };
        let incidents = vec![unused, other];
        assert_eq!(failed(&Status { requests, interceptions, incidents, ..Status::default() }), 63);
    }

    #[test]
    fn causes_come_with_what_to_do() {
        let incident = |kind: &str, detail: &str, total| IncidentStatus {
            kind: kind.into(),
            detail: detail.into(),
            hint: "check the spelling".into(),
            total,
            ..IncidentStatus::default()
        };
        let incidents = vec![
            incident(Incidents::UNTRUSTED, "a.test: a client does not trust andante's CA", 1234),
            incident("dns_error", "could not resolve b.test", 1),
        ];
        let answers = [("200".into(), 7), ("502".into(), 3), ("other".into(), 1)].into();
        let text = causes(&Status { incidents, answers, ..Status::default() });
        let expected = [
            "  the API itself answered 3 × 502, 1 × other",
            "  1,234 × a.test: a client does not trust andante's CA",
            "    hint: make the client read SSL_CERT_FILE",
            "  1 × could not resolve b.test",
            "    hint: check the spelling",
        ];
        assert_eq!(text.lines().count(), expected.len(), "{text}");
        for (line, expected) in text.lines().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
        assert_eq!(causes(&Status { answers: [("200".into(), 9)].into(), ..Status::default() }), "");
    }

    #[test]
    fn an_open_breaker_is_named_with_what_failed() {
        let lane = |reason: &str| LaneStatus {
            host: "a.test".into(),
            gate: Some(GateStatus { reason: reason.into(), opens_in_s: Some(1.0) }),
            last_error: Some(LastError { detail: "it answered 503".into(), ..LastError::default() }),
            ..LaneStatus::default()
        };
        let causes = |reason| causes(&Status { lanes: vec![lane(reason)], ..Status::default() });
        let said = causes("breaker");
        assert!(said.starts_with(
            "  a.test: its breaker holds requests back: too many failed, the last one: it answered 503\n"
        ));
        assert!(said.contains("breaker = \"off\""), "{said}");
        assert_eq!(causes("retry-after"), "");
    }

    #[test]
    fn clients_that_left_are_told_of_with_the_time_after_which_they_did() {
        let lane = |left_total, left_after_s| LaneStatus {
            left_total,
            left_queued_total: left_total,
            left_seconds_max: 7.3,
            left_after_s,
            ..LaneStatus::default()
        };
        let status = |lanes: Vec<LaneStatus>| {
            let left = lanes.iter().map(|lane| lane.left_total).sum();
            Status { lanes, requests: Requests { left, ..Requests::default() }, ..Status::default() }
        };
        let departures = |lanes| departures(&status(lanes), ExitStatus::default());
        assert_eq!(departures(vec![lane(0, None)]), "");
        let some = departures(vec![lane(1, None)]);
        assert!(some.starts_with("  1 client left before the answer, 1 of them in the queue, after 7.3 s at most\n"));
        let most = departures(vec![lane(3, Some(1.0)), lane(29, Some(5.0))]);
        assert!(most.starts_with("  32 clients left before the answer, 32 of them in the queue, most after 5.0 s\n"));
        for raw in [2, 130 << 8] {
            let stopped = super::departures(&status(vec![lane(29, Some(5.0))]), ExitStatus::from_raw(raw));
            assert!(stopped.ends_with("29 of them in the queue: the command was ended by a signal\n"), "{stopped}");
        }
    }

    #[test]
    fn requests_in_tunnels_that_failed_are_told_of_by_cause() {
        let lane =
            LaneStatus { left_total: 19, left_queued_total: 19, left_after_s: Some(5.0), ..LaneStatus::default() };
        let turns = Turns { sent: 11, left: 19, ..Turns::default() };
        let status = Status { lanes: vec![lane], turns, ..Status::default() };
        let text = turns_of(&status);
        let line = "  19 requests in tunnels failed: 19 given up by the client (most after 5.0 s), 0 refused (max-wait), \
                    0 closed by the API\n    hint: ";
        assert!(text.starts_with(line), "{text}");
        let turns = Turns { refused: 1, ..Turns::default() };
        let text = turns_of(&Status { turns, ..status.clone() });
        assert!(text.starts_with("  1 request in tunnels failed: 0 given up by the client, 1 refused"), "{text}");
        assert_eq!(turns_of(&Status { turns: Turns { sent: 7, ..Turns::default() }, ..status }), "");
    }

    #[test]
    fn rules_that_held_for_nobody_are_told_of() {
        let rule = |rule: &str, nearest: Option<&str>| Unmatched {
            rule: rule.into(),
            nearest: nearest.map(Into::into),
            likeness: 0.9,
        };
        let mut rules = vec![rule("api.tset", Some("api.test")), rule("other", None)];
        assert_eq!(
            unmatched(&rules),
            "  no request was for api.tset; the most similar host that was asked for is api.test\n  no request was for other\n"
        );
        rules.extend((0..20).map(|n| rule(&n.to_string(), None)));
        assert!(unmatched(&rules).ends_with("  nor for the hosts of 17 further rules\n"));
    }
}
