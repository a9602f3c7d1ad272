//! The lanes of a running andante as rows of a table: their columns, order and widths. Pure.

use crate::{
    admin::status::{AddedRuleStatus, LaneStatus, LimitStatus, Status},
    cli::wording,
};

/// A lane as a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaneRow {
    pub(super) rule: String,
    pub(super) host: String,
    pub(super) waiting: u64,
    /// Requests sent per second, over the last ten seconds.
    pub(super) pace: f64,
    /// Used part of the fullest limit, from 0 to 1.
    pub(super) used: Option<f64>,
    /// Reason why no request leaves, and the remaining time if it is known.
    pub(super) gate: Option<(String, Option<f64>)>,
    /// Requests in flight, and the present limit on them, if there is one.
    pub(super) in_flight: Option<(u64, u32)>,
    /// Time until all requests that wait now are sent.
    pub(super) eta_s: Option<f64>,
    /// Wait of the oldest request.
    pub(super) oldest_s: Option<f64>,
    /// Time until an operator's temporary limits end.
    pub(super) limits_end_s: Option<f64>,
    /// Handling of HTTPS to the host; empty if it is unknown.
    pub(super) https: &'static str,
    /// The added rules for which requests wait, one line each.
    rules: Vec<String>,
}

/// Order of the lanes: largest values first, names from A on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SortBy {
    #[default]
    Waiting,
    Pace,
    Used,
    Eta,
    Oldest,
    Lane,
}

/// Titles of the columns. The first column is as wide as the longest name.
const TITLES: [&str; 10] = ["LANE", "WAITING", "PACE", "USED", IN_FLIGHT, "ETA", "OLDEST", LIMITS_END, HTTPS, "PAUSED"];
/// Title of a column that is shown only if a lane has an in-flight limit.
const IN_FLIGHT: &str = "IN FLIGHT";
/// Title of a column that is shown only while an operator's limits hold.
const LIMITS_END: &str = "LIMITS END";
/// Title of a column that is shown only if andante handles HTTPS of a lane.
const HTTPS: &str = "HTTPS";
/// Longest name that is shown uncut.
const LONGEST_NAME: usize = 48;

/// The lanes of `status` whose name contains `filter`, in this order.
pub(super) fn rows(status: &Status, filter: &str, by: SortBy) -> Vec<LaneRow> {
    let wanted = filter.to_ascii_lowercase();
    let rows = status.lanes.iter().map(LaneRow::of);
    let mut rows: Vec<_> = rows.filter(|row| row.name().to_ascii_lowercase().contains(&wanted)).collect();
    let most = |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
    rows.sort_by(|a, b| {
        let order = match by {
            SortBy::Waiting => b.waiting.cmp(&a.waiting),
            SortBy::Pace => b.pace.total_cmp(&a.pace),
            SortBy::Used => most(a.used, b.used),
            SortBy::Eta => most(a.eta_s, b.eta_s),
            SortBy::Oldest => most(a.oldest_s, b.oldest_s),
            SortBy::Lane => std::cmp::Ordering::Equal,
        };
        order.then_with(|| a.name().cmp(&b.name()))
    });
    rows
}

/// The title, one line for each row, and below each row the lines of its narrower rules.
pub(super) fn lines_with_rules(rows: &[LaneRow]) -> Vec<String> {
    let rules = [[].as_slice()].into_iter().chain(rows.iter().map(|row| &*row.rules));
    lines(rows)
        .into_iter()
        .zip(rules)
        .flat_map(|(line, rules)| [line].into_iter().chain(rules.iter().cloned()))
        .collect()
}

/// The title, and one line for each row.
pub(super) fn lines(rows: &[LaneRow]) -> Vec<String> {
    let cells: Vec<[String; TITLES.len()]> = rows.iter().map(LaneRow::cells).collect();
    let is_there = |title: &str| match title {
        IN_FLIGHT => rows.iter().any(|row| row.in_flight.is_some()),
        LIMITS_END => rows.iter().any(|row| row.limits_end_s.is_some()),
        HTTPS => rows.iter().any(|row| !row.https.is_empty()),
        _ => true,
    };
    let there = TITLES.map(is_there);
    let mut widths = TITLES.map(str::len);
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String; TITLES.len()]| {
        let mut line = format!("{:<1$}", cells[0], widths[0]);
        for ((cell, width), _) in cells.iter().zip(widths).zip(there).skip(1).take(8).filter(|(_, there)| *there) {
            line += &format!("  {cell:>width$}");
        }
        format!("{line}  {}", cells[9]).trim_end().to_owned()
    };
    [line(&TITLES.map(str::to_owned))].into_iter().chain(cells.iter().map(line)).collect()
}

/// Headline: `andante 0.1.0, up 3h 2m: 12 lanes, 1,204 waiting`.
pub(super) fn headline(status: &Status) -> String {
    let waiting = status.lanes.iter().map(|lane| lane.waiting).sum();
    let draining = if status.draining { ", draining" } else { "" };
    let (up, lanes) = (wording::seconds(status.uptime_s), wording::several(status.lanes_total, "lane"));
    let text = format!("andante {}, up {up}{draining}: {lanes}, {} waiting", status.version, wording::count(waiting));
    plain(&text)
}

/// Line of a rule: `  search: 40 waiting, 5/s 100% used, 2 of 2 in flight`.
fn of_rule(rule: &AddedRuleStatus) -> String {
    let used = |limit: &LimitStatus| limit.used_ratio().unwrap_or_default();
    let fullest = rule.limits.iter().max_by(|one, other| used(one).total_cmp(&used(other)));
    let fullest =
        fullest.map_or_else(String::new, |limit| format!(", {} {:.0}% used", limit.limit, used(limit) * 100.0));
    let flying =
        rule.in_flight_limit.map_or_else(String::new, |most| format!(", {} of {most} in flight", rule.in_flight));
    plain(&format!("  {}: {} waiting{fullest}{flying}", rule.rule, wording::count(rule.waiting)))
}

/// Handling of HTTPS to a host, in a word: a blind tunnel is not paced.
pub(super) fn https(way: &str) -> &'static str {
    match way {
        "intercept" => "intercepted",
        "turns" => "turns",
        "tunnel" => "blind",
        "refuse" => "refused",
        _ => "",
    }
}

/// Foreign text without the characters that control a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

// === impl LaneRow ===

impl LaneRow {
    fn of(lane: &LaneStatus) -> Self {
        Self {
            rule: plain(&lane.rule),
            host: plain(&lane.host),
            waiting: lane.waiting,
            pace: lane.pace,
            used: lane.used_ratio(),
            gate: lane.gate.as_ref().map(|gate| (plain(&gate.reason), gate.opens_in_s)),
            in_flight: lane.in_flight_limit.map(|most| (lane.in_flight, most)),
            eta_s: lane.drain_eta_s.filter(|_| lane.waiting > 0),
            oldest_s: lane.oldest_waiting_s,
            limits_end_s: lane.limits_end_in_s(),
            https: https(&lane.https),
            rules: lane.rules.iter().filter(|rule| rule.waiting > 0).map(of_rule).collect(),
        }
    }

    /// The host, preceded by the rule's name if it differs.
    pub(super) fn name(&self) -> String {
        if self.rule == self.host { self.host.clone() } else { format!("{} {}", self.rule, self.host) }
    }

    fn cells(&self) -> [String; TITLES.len()] {
        let seconds = |of: Option<f64>| of.map_or_else(|| "-".to_owned(), wording::seconds);
        let name = self.name();
        let name = match name.char_indices().nth(LONGEST_NAME) {
            Some(_) => name.chars().take(LONGEST_NAME - 1).chain(['…']).collect(),
            None => name,
        };
        let paused = self.gate.as_ref().map_or_else(String::new, |(reason, opens)| match opens {
            Some(opens) => format!("{reason}, {}", wording::seconds(*opens)),
            None => reason.clone(),
        });
        [
            name,
            wording::count(self.waiting),
            if self.pace > 0.0 { wording::measured_pace(self.pace) } else { "-".to_owned() },
            self.used.map_or_else(|| "-".to_owned(), |used| format!("{:.0}%", used * 100.0)),
            self.in_flight.map_or_else(|| "-".to_owned(), |(now, most)| format!("{now} of {most}")),
            seconds(self.eta_s),
            seconds(self.oldest_s),
            self.limits_end_s.map_or_else(|| "-".to_owned(), |ends| format!("in {}", wording::seconds(ends))),
            if self.https.is_empty() { "-".to_owned() } else { self.https.to_owned() },
            paused,
        ]
    }
}

// === impl SortBy ===

impl SortBy {
    /// The next order, cyclically.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Waiting => Self::Pace,
            Self::Pace => Self::Used,
            Self::Used => Self::Eta,
            Self::Eta => Self::Oldest,
            Self::Oldest => Self::Lane,
            Self::Lane => Self::Waiting,
        }
    }

    /// Form on the command line.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Pace => "pace",
            Self::Used => "used",
            Self::Eta => "eta",
            Self::Oldest => "oldest",
            Self::Lane => "lane",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::status::{AddedRuleStatus, GateStatus, LimitStatus};

    fn status() -> Status {
        let lane = |rule: &str, host: &str, waiting: u64, used: u64| LaneStatus {
            rule: rule.into(),
            host: host.into(),
            waiting,
            pace: used.saturating_sub(1) as f64 / 2.0,
            limits: vec![LimitStatus { used, room: 100 - used, ..LimitStatus::default() }],
            drain_eta_s: Some(145.0),
            oldest_waiting_s: (waiting > 0).then_some(3.2),
            ..LaneStatus::default()
        };
        let mut paused = lane("batch", "b.test", 1204, 100);
        paused.gate = Some(GateStatus { reason: "refused\x1b[2J".into(), opens_in_s: Some(12.0) });
        let lanes = vec![lane("a.test", "a.test", 0, 41), paused, lane("c.test", "c.test", 7, 0)];
        Status { lanes, lanes_total: 3, version: "1".into(), uptime_s: 61.0, ..Status::default() }
    }

    fn names(filter: &str, by: SortBy) -> Vec<String> {
        rows(&status(), filter, by).iter().map(LaneRow::name).collect()
    }

    #[test]
    fn the_most_come_first_and_names_from_a_on() {
        assert_eq!(names("", SortBy::Waiting), ["batch b.test", "c.test", "a.test"]);
        assert_eq!(names("", SortBy::Used), ["batch b.test", "a.test", "c.test"]);
        assert_eq!(names("", SortBy::Lane), ["a.test", "batch b.test", "c.test"]);
        // An empty queue has no time until it is sent.
        assert_eq!(names("", SortBy::Eta), ["batch b.test", "c.test", "a.test"]);
        assert_eq!(names("BATCH", SortBy::Waiting), ["batch b.test"]);
    }

    #[test]
    fn a_row_says_what_waits_how_fast_it_goes_and_why_not() {
        let lines = lines(&rows(&status(), "", SortBy::Waiting));
        let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["LANE", "WAITING", "PACE", "USED", "ETA", "OLDEST", "PAUSED"]);
        assert_eq!(
            words[1],
            ["batch", "b.test", "1,204", "50/s", "100%", "2m", "25s", "3.2", "s", "refused[2J,", "12", "s"]
        );
        assert_eq!(words[3], ["a.test", "0", "20/s", "41%", "-", "-"]);
        assert_eq!(headline(&status()), "andante 1, up 1m 1s: 3 lanes, 1,211 waiting");
        let long = LaneRow { host: "x".repeat(300), ..rows(&status(), "a.test", SortBy::Lane)[0].clone() };
        assert!(super::lines(&[long])[1].chars().count() < 120);
    }

    #[test]
    fn limits_of_an_operator_show_until_when_they_hold_and_only_then_have_a_column() {
        let mut status = status();
        assert!(!lines(&rows(&status, "", SortBy::Lane))[0].contains("LIMITS END"));
        status.lanes[0].limits[0].ends_in_s = Some(90.4);
        status.lanes[1].rules = vec![AddedRuleStatus {
            limits: vec![LimitStatus { ends_in_s: Some(5.0), ..LimitStatus::default() }],
            ..AddedRuleStatus::default()
        }];
        let lines = lines(&rows(&status, "", SortBy::Lane));
        assert!(lines[0].ends_with("OLDEST  LIMITS END  PAUSED"), "{}", lines[0]);
        assert!(lines[1].ends_with("-   in 1m 30s"), "{}", lines[1]);
        assert!(lines[2].contains("  in 5.0 s  refused"), "{}", lines[2]);
        assert!(lines[3].ends_with(" -"), "{}", lines[3]);
        assert_eq!(lines[1].find("in 1m").map(|at| at + 9), lines[0].find("  PAUSED"), "under its title");
    }

    #[test]
    fn the_rules_that_something_waits_for_are_below_their_lane() {
        let mut status = status();
        let rule = |rule: &str, waiting, used, in_flight_limit| AddedRuleStatus {
            rule: rule.into(),
            waiting,
            limits: [(1, "9/s"), (used, "5/s")]
                .map(|(used, limit)| LimitStatus {
                    limit: limit.into(),
                    used,
                    room: 5 - used,
                    ..LimitStatus::default()
                })
                .into(),
            in_flight: 1,
            in_flight_limit,
            ..AddedRuleStatus::default()
        };
        let crowded = AddedRuleStatus { limits: Vec::new(), ..rule("crowded", 1, 0, Some(2)) };
        status.lanes[1].rules = vec![rule("search", 1203, 4, None), rule("idle", 0, 5, None), crowded];
        let lines = lines_with_rules(&rows(&status, "", SortBy::Waiting));
        assert!(lines[1].starts_with("batch b.test") && lines[4].starts_with("c.test"), "{lines:?}");
        assert_eq!(lines[2..4], ["  search: 1,203 waiting, 5/s 80% used", "  crowded: 1 waiting, 1 of 2 in flight"]);
    }

    #[test]
    fn what_is_on_its_way_shows_with_how_much_may_be_and_only_then_has_a_column() {
        let mut status = status();
        assert!(!lines(&rows(&status, "", SortBy::Lane))[0].contains("IN FLIGHT"));
        (status.lanes[0].in_flight, status.lanes[0].in_flight_limit) = (3, Some(22));
        let lines = lines(&rows(&status, "", SortBy::Lane));
        assert!(lines[0].contains("  USED  IN FLIGHT  "), "{}", lines[0]);
        assert!(lines[1].contains("  41%    3 of 22  "), "{}", lines[1]);
        assert!(lines[3].contains("    0%          -  "), "{}", lines[3]);
    }

    #[test]
    fn how_https_is_handled_shows_in_a_word_and_only_then_has_a_column() {
        let mut status = status();
        assert!(!lines(&rows(&status, "", SortBy::Lane))[0].contains("HTTPS"));
        for (lane, way) in status.lanes.iter_mut().zip(["intercept", "tunnel", "turns"]) {
            lane.https = way.into();
        }
        let lines = lines(&rows(&status, "", SortBy::Lane));
        assert!(lines[0].ends_with("      HTTPS  PAUSED"), "{}", lines[0]);
        assert!(lines[1].ends_with("  intercepted"), "{}", lines[1]);
        assert!(lines[2].contains("        blind  refused"), "{}", lines[2]);
        assert!(lines[3].ends_with("        turns"), "{}", lines[3]);
    }

    #[test]
    fn every_order_comes_round() {
        let mut by = SortBy::default();
        let mut orders = Vec::new();
        for _ in 0..6 {
            orders.push(by.as_str());
            by = by.next();
        }
        assert_eq!((orders.concat().as_str(), by), ("waitingpaceusedetaoldestlane", SortBy::Waiting));
    }
}
