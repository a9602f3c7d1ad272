//! Present content of the live pages, and its changes since the previous turn. Knows of no page and reads no clock.

use std::collections::{HashMap, VecDeque};

use hyper::body::Bytes;
use serde::Serialize;

use super::{history::LaneSeries, stream::event};
use crate::admin::{
    detail::{LaneDetail, LaneName, News},
    status::{FlowStatus, LaneStatus, LimitSource, Status},
};

/// Lanes that pages list at most: the ones with the most waiting requests.
const LANES: usize = 1000;
/// Number of recent events that a new page gets.
const NEWS: usize = 100;

/// Content of the pages.
#[derive(Default)]
pub(super) struct Board {
    /// Number of turns.
    number: u64,
    /// Number of the newest event.
    newest: u64,
    lanes: HashMap<LaneName, ShownLane>,
    news: VecDeque<News>,
    /// Everything but the lanes, as JSON.
    status: String,
}

/// A lane in the form of the pages.
#[derive(Default)]
struct ShownLane {
    /// Row of the lane, as JSON.
    row: String,
    /// Requests per second.
    pace: f64,
    /// Turn in which the lane was listed last.
    seen: u64,
}

/// A row of the page's table. Instants are in seconds since the start, so that an idle lane does not change.
#[derive(Serialize)]
struct LaneRow<'a> {
    rule: &'a str,
    host: &'a str,
    /// Handling of HTTPS to the host, if a limit must hold for it.
    https: Option<&'a str>,
    waiting: u64,
    oldest_at_s: Option<f64>,
    in_flight: u64,
    in_flight_limit: Option<u32>,
    /// Requests per second.
    pace: f64,
    sent: u64,
    answered_429: u64,
    refused: u64,
    left: u64,
    limits: Vec<LimitCell<'a>>,
    gate: Option<GateCell<'a>>,
    drained_at_s: Option<f64>,
    /// The flow with the most waiting requests.
    flow: Option<&'a FlowStatus>,
    error: Option<ErrorCell<'a>>,
}

#[derive(Serialize)]
struct LimitCell<'a> {
    limit: &'a str,
    used: u64,
    of: u64,
    learned: bool,
}

#[derive(Serialize)]
struct GateCell<'a> {
    reason: &'a str,
    until_s: Option<f64>,
}

#[derive(Serialize)]
struct ErrorCell<'a> {
    detail: &'a str,
    at_s: f64,
}

/// Data about the lane that a page has opened.
#[derive(Serialize)]
struct OpenedLane<'a> {
    name: String,
    /// `None` if there is no such lane.
    detail: Option<LaneDetail>,
    pace: f64,
    /// The last quarter of an hour.
    history: LaneSeries,
    news: Vec<&'a News>,
}

// === impl Board ===

impl Board {
    /// The number of the newest known event.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Forgets everything but the numbers, while no page is open.
    pub(super) fn clear(&mut self) {
        let (number, newest) = (self.number, 0);
        *self = Self { number, newest, ..Self::default() };
    }

    /// Takes the present status and the events since the last turn. Returns the number of this turn, and the changes.
    pub(super) fn update(&mut self, status: Status, news: Vec<News>) -> (u64, Bytes) {
        self.number += 1;
        let mut status = status.waiting_first(LANES);
        let now = status.uptime_s;
        let mut changed = Vec::new();
        for lane in std::mem::take(&mut status.lanes) {
            let shown = self.lanes.entry(LaneName::of(&lane)).or_default();
            shown.seen = self.number;
            shown.pace = rounded(lane.pace);
            let row = json(&LaneRow::new(&lane, now, shown.pace));
            if row != shown.row {
                shown.row = row;
                changed.push(shown.row.clone());
            }
        }
        let number = self.number;
        let mut gone = Vec::new();
        self.lanes.retain(|name, shown| {
            let stays = shown.seen == number;
            if !stays {
                gone.push(name.to_string());
            }
            stays
        });
        self.status = json(&status);
        self.newest = news.last().map_or(self.newest, |news| news.number);
        let fresh: Vec<News> = news.iter().skip(news.len().saturating_sub(NEWS)).cloned().collect();
        self.news.extend(news);
        self.news.drain(..self.news.len().saturating_sub(NEWS));
        (number, turn(false, &self.status, &changed, &gone, &fresh))
    }

    /// The complete content, and the number of its turn.
    pub(super) fn whole(&self) -> (u64, Bytes) {
        let rows: Vec<_> = self.lanes.values().map(|shown| shown.row.as_str()).collect();
        (self.number, turn(true, &self.status, &rows, &[], &self.news))
    }

    /// Data about the lane called `name`.
    pub(super) fn lane(&self, name: &LaneName, detail: Option<LaneDetail>, history: LaneSeries) -> Bytes {
        let pace = self.lanes.get(name).map_or(0.0, |shown| shown.pace);
        let news = super::of_lane(self.news.iter(), name);
        let opened = OpenedLane { name: name.to_string(), detail, pace, history, news };
        event("lane", &json(&opened))
    }
}

// === impl LaneRow ===

impl<'a> LaneRow<'a> {
    fn new(lane: &'a LaneStatus, now: f64, pace: f64) -> Self {
        Self {
            rule: &lane.rule,
            host: &lane.host,
            https: (!lane.limits.is_empty() || lane.in_flight_limit.is_some()).then_some(lane.https.as_str()),
            waiting: lane.waiting,
            oldest_at_s: lane.oldest_waiting_s.map(|oldest| tenths(now - oldest)),
            in_flight: lane.in_flight,
            in_flight_limit: lane.in_flight_limit,
            pace,
            sent: lane.sent_total,
            answered_429: lane.answered_429_total,
            refused: lane.refused_total,
            left: lane.left_total,
            limits: lane
                .limits
                .iter()
                .map(|limit| LimitCell {
                    limit: &limit.limit,
                    used: limit.used,
                    of: limit.used.saturating_add(limit.room),
                    learned: limit.source == LimitSource::Learned,
                })
                .collect(),
            gate: lane.gate.as_ref().map(|gate| GateCell {
                reason: &gate.reason,
                until_s: gate.opens_in_s.map(|opens| tenths(now + opens)),
            }),
            drained_at_s: lane.drain_eta_s.filter(|_| lane.waiting > 0).map(|eta| (now + eta).round()),
            flow: lane.flows.first(),
            error: lane
                .last_error
                .as_ref()
                .map(|error| ErrorCell { detail: &error.detail, at_s: tenths(now - error.last_s) }),
        }
    }
}

/// A pace with its significant digits: every change sends the row again.
fn rounded(pace: f64) -> f64 {
    if pace < 1.0 { (pace * 100.0).round() / 100.0 } else { tenths(pace) }
}

fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// `value` on one line, without maps whose keys are not strings.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

fn turn(
    whole: bool,
    status: &str,
    rows: &[impl AsRef<str>],
    gone: &[String],
    news: &(impl Serialize + ?Sized),
) -> Bytes {
    let rows: Vec<&str> = rows.iter().map(AsRef::as_ref).collect();
    let (rows, gone, news) = (rows.join(","), json(&gone), json(&news));
    event("turn", &format!(r#"{{"whole":{whole},"status":{status},"lanes":[{rows}],"gone":{gone},"news":{news}}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::status::{GateStatus, LastError};

    fn status(uptime_s: f64, lanes: Vec<LaneStatus>) -> Status {
        Status { uptime_s, lanes, ..Status::default() }
    }

    fn told(bytes: &Bytes) -> serde_json::Value {
        let text = str::from_utf8(bytes).unwrap();
        let json = text.strip_prefix("event: turn\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_lane_in_which_time_alone_goes_on_is_not_told_again() {
        let mut board = Board::default();
        let lane = |now: f64| {
            // A pause until 100 s, and an error at 10 s.
            let gate = Some(GateStatus { reason: "retry-after".into(), opens_in_s: Some(100.0 - now) });
            let last_error = Some(LastError { detail: "broke".into(), last_s: now - 10.0 });
            let (rule, host) = ("api".into(), "a".into());
            LaneStatus { rule, host, gate, last_error, oldest_waiting_s: Some(now - 5.0), ..LaneStatus::default() }
        };
        let (_, first) = board.update(status(20.03, vec![lane(20.03)]), Vec::new());
        let row = &told(&first)["lanes"][0];
        assert_eq!((&row["gate"]["until_s"], &row["error"]["at_s"]), (&100.0.into(), &10.0.into()));
        assert_eq!(row["oldest_at_s"], 5.0);
        for now in [21.04, 22.01, 23.07] {
            let (_, next) = board.update(status(now, vec![lane(now)]), Vec::new());
            assert_eq!(told(&next)["lanes"], serde_json::json!([]), "at {now}");
        }
    }

    #[test]
    fn the_pace_is_that_of_the_status() {
        let mut board = Board::default();
        let lane = LaneStatus { rule: "api".into(), host: "a".into(), pace: 8.333_333, ..LaneStatus::default() };
        let (_, changes) = board.update(status(1.0, vec![lane]), Vec::new());
        assert_eq!(told(&changes)["lanes"][0]["pace"], 8.3);
    }

    #[test]
    fn who_comes_late_is_shown_what_the_others_have_seen() {
        let mut board = Board::default();
        let lane = |host: &str| LaneStatus { rule: "api".into(), host: host.into(), ..LaneStatus::default() };
        board.update(status(1.0, vec![lane("a"), lane("b")]), Vec::new());
        let (turn, changes) = board.update(status(2.0, vec![lane("b")]), Vec::new());
        assert_eq!((turn, &told(&changes)["gone"]), (2, &serde_json::json!(["api a"])));
        let (turn, whole) = board.whole();
        let whole = told(&whole);
        assert_eq!((turn, whole["whole"].as_bool()), (2, Some(true)));
        assert_eq!(whole["lanes"].as_array().unwrap().iter().map(|row| &row["host"]).collect::<Vec<_>>(), ["b"]);
    }
}
