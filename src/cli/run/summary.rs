//! Summary of a run. Pure.

use std::{cmp::Reverse, fmt::Write as _, time::Duration};

use super::{
    diagnosis::{self, Circumstances},
    progress,
};
use crate::cli::wording;
use crate::{
    admin::{
        Status,
        status::{LaneStatus, LimitSource, LimitStatus, Turns},
    },
    limit::{LimitSpec, Unit},
    policy::Https,
};

/// Used share of a limit.
#[derive(Debug, PartialEq, serde::Serialize)]
pub(super) struct LimitShare {
    /// The limit, in its notation.
    pub(super) limit: String,
    /// 1 is all of the limit.
    pub(super) used_ratio: f64,
}

/// Number of lanes that are listed.
const LANES: usize = 10;

/// Lines on what happened in the `elapsed` time and why, the last one ending with a line feed.
pub(super) fn render(status: &Status, elapsed: Duration, circumstances: &Circumstances<'_>) -> String {
    let sent = progress::sent(status);
    let mut text = format!("andante: {} sent in {}\n", wording::several(sent, "request"), wording::short(elapsed));
    if diagnosis::is_unused(status) {
        return text + &diagnosis::nothing_came_through(circumstances);
    }
    text += &queue(status, "given up by the client");
    let tunnels = status.requests.tunnelled + u64::try_from(status.tunnels).unwrap_or(0);
    if tunnels > 0 {
        let _ = writeln!(text, "  {}{}", wording::several(tunnels, "tunnel"), pacing_inside(status));
    }
    text + &diagnosis::turns(status)
        + &diagnosis::departures(status, circumstances.ended)
        + &diagnosis::causes(status)
        + &open_connections(status)
        + &lanes(status)
        + &diagnosis::unmatched(circumstances.unmatched)
}

/// Connections that outlive the command: their API was not connected to yet, or a background process still runs.
fn open_connections(status: &Status) -> String {
    match u64::try_from(status.connections.client) {
        Ok(open @ 1..) => format!(
            "  {} still open at the end: an API has not accepted it or not answered, or the command has left something running\n",
            wording::several(open, "connection")
        ),
        _ => String::new(),
    }
}

/// Description of what andante has seen and paced inside tunnels.
fn pacing_inside(status: &Status) -> &'static str {
    let by_turns = |lane: &LaneStatus| lane.https == Https::Turns.as_str();
    match status.turns == Turns::default() {
        true => "; the requests inside are not seen",
        false if status.lanes.iter().all(by_turns) => ", paced by turns: their answers are not seen",
        false => ", some of them paced by turns: the answers inside are not seen",
    }
}

/// Waits of requests, and their outcomes; `left` describes requests that the client gave up.
pub(in crate::cli) fn queue(status: &Status, left: &str) -> String {
    let sum = |of: fn(&LaneStatus) -> u64| wording::count(status.lanes.iter().map(of).sum());
    let mut text = String::new();
    let waited: f64 = status.lanes.iter().map(|lane| lane.wait_seconds_total).sum();
    let longest = status.lanes.iter().map(|lane| lane.wait_seconds_max).fold(0.0, f64::max);
    if progress::sent(status) > 0 {
        let _ = writeln!(text, "  waited {} together, {} at most", wording::seconds(waited), wording::seconds(longest));
    }
    let _ = writeln!(
        text,
        "  answered with 429: {}, tried again: {}, refused by andante: {}, failed: {}, {left}: {}",
        sum(|lane| lane.answered_429_total),
        wording::count(status.retries_total),
        wording::count(status.requests.refused),
        wording::count(diagnosis::failed(status)),
        wording::count(status.requests.left),
    );
    text
}

/// The lanes that sent most.
pub(in crate::cli) fn lanes(status: &Status) -> String {
    let mut lanes: Vec<&LaneStatus> = status.lanes.iter().filter(|lane| lane.sent_total > 0).collect();
    lanes.sort_by_key(|lane| (Reverse(lane.sent_total), &lane.host));
    let mut text = String::new();
    for lane in lanes.iter().take(LANES) {
        let _ = write!(text, "  {}: {} sent", lane.host, wording::count(lane.sent_total));
        for LimitShare { limit, used_ratio } in shares(lane) {
            let _ = write!(text, ", {:.1}% of {limit}", used_ratio * 100.0);
        }
        match (slowest_learned(lane), learned(lane)) {
            (Some(limit), Some(pace)) if in_words(limit).is_none() => {
                let _ = write!(text, ", paced at {pace} after refusals, not learned yet");
            }
            (_, Some(learned)) => {
                let _ = write!(text, ", learned {learned}");
            }
            (_, None) => {}
        }
        text.push('\n');
    }
    if let Some(more) = lanes.len().checked_sub(LANES).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {}", wording::several(more as u64, "further host"));
    }
    text
}

/// Used shares of a lane's limits between its first and its last request. Includes the tightest limit of each unit, and
/// all calendar limits. Empty where there is nothing to compare.
///
/// The bound is that of even spacing after a burst, `burst + rate × time`: 1 means full use. A limit that could not
/// have been reached in the time does not count against the lane.
pub(super) fn shares(lane: &LaneStatus) -> Vec<LimitShare> {
    if lane.sent_total < 2 || lane.active_s <= 0.0 {
        return Vec::new();
    }
    // Learned limits applied for a part of the time only.
    let configured = || lane.limits.iter().filter(|limit| limit.source == LimitSource::Config);
    let allowed = |limit: &LimitSpec| f64::from(limit.burst().get()) + limit.rate.per_second() * lane.active_s;
    let mut tightest: Vec<(LimitSpec, u64)> = Vec::new();
    for status in configured().filter(|limit| limit.renewed_in_s.is_none()) {
        let Ok(limit) = status.limit.parse::<LimitSpec>() else { continue };
        match tightest.iter_mut().find(|(other, _)| other.unit == limit.unit) {
            Some((other, _)) if allowed(other) <= allowed(&limit) => {}
            Some(other) => *other = (limit, status.used_total),
            None => tightest.push((limit, status.used_total)),
        }
    }
    let rolling = tightest.into_iter().map(|(limit, used)| {
        let used_ratio = used as f64 / allowed(&limit);
        // Requests that waited for the first connection are written closer together than they were released, without
        // exceeding a limit. The cost in answers may be more than was reserved.
        let used_ratio = if limit.unit == Unit::REQUESTS { used_ratio.min(1.0) } else { used_ratio };
        // Limits of costs have a default burst that is not in the configuration.
        let burst = limit.burst.filter(|_| limit.unit == Unit::REQUESTS);
        LimitShare { used_ratio, limit: LimitSpec { burst, ..limit }.to_string() }
    });
    // Calendar limits count from the beginning of their month or day, for all senders.
    let renewed = configured().filter(|limit| limit.renewed_in_s.is_some() && limit.used + limit.room > 0);
    let renewed = renewed.map(|status| LimitShare {
        limit: status.limit.clone(),
        used_ratio: status.used as f64 / (status.used + status.room) as f64,
    });
    rolling.chain(renewed).collect()
}

/// The slowest limit that a lane has learned: the one that the API reports, or else the estimated pace.
pub(super) fn learned(lane: &LaneStatus) -> Option<String> {
    let slowest = slowest_learned(lane)?;
    Some(in_words(slowest).map_or_else(|| wording::measured_pace(slowest.per_second), str::to_owned))
}

fn slowest_learned(lane: &LaneStatus) -> Option<&LimitStatus> {
    let learned = lane.limits.iter().filter(|limit| limit.source == LimitSource::Learned);
    learned.min_by(|a, b| a.per_second.total_cmp(&b.per_second))
}

/// A learned limit as an operator would write it, without its burst. `None` while no usual window fits the refusals: the
/// pace may still change.
fn in_words(limit: &LimitStatus) -> Option<&str> {
    limit.limit.split(' ').next().filter(|said| !said.ends_with("ms"))
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;
    use crate::admin::status::Requests;

    fn render(status: &Status, elapsed: Duration) -> String {
        let well = Circumstances { ended: ExitStatus::default(), no_proxy: None, command: None, unmatched: &[] };
        super::render(status, elapsed, &well)
    }

    fn lane(host: &str, limits: &[&str], sent: u64, active_s: f64) -> LaneStatus {
        let limit = |text: &&str| LimitStatus { limit: (*text).into(), used_total: sent, ..LimitStatus::default() };
        LaneStatus {
            host: host.into(),
            limits: limits.iter().map(limit).collect(),
            sent_total: sent,
            active_s,
            ..LaneStatus::default()
        }
    }

    #[test]
    fn the_summary_tells_what_was_asked_for() {
        let mut api = lane("api.example.com", &["10/s", "500/min"], 1234, 148.0);
        (api.wait_seconds_total, api.wait_seconds_max) = (90_000.0, 147.9);
        let free = LaneStatus { answered_429_total: 1, ..lane("www.example.com", &[], 2, 1.0) };
        let status = Status {
            lanes: vec![free, api],
            requests: Requests { refused: 3, failed: 4, tunnelled: 1, ..Requests::default() },
            retries_total: 5,
            ..Status::default()
        };
        let expected = "\
andante: 1,236 requests sent in 2m 30s
  waited 1d 1h together, 2m 28s at most
  answered with 429: 1, tried again: 5, refused by andante: 3, failed: 4, given up by the client: 0
  1 tunnel; the requests inside are not seen
  api.example.com: 1,234 sent, 100.0% of 500/min
  www.example.com: 2 sent
";
        assert_eq!(render(&status, Duration::from_secs(150)), expected);
    }

    #[test]
    fn tunnels_that_were_paced_by_turns_are_told_from_blind_ones() {
        let status = |turns, ways: &[&str]| Status {
            tunnels: 8,
            turns,
            lanes: ways.iter().map(|https| LaneStatus { https: (*https).into(), ..lane("a", &[], 1, 0.0) }).collect(),
            ..Status::default()
        };
        let sent = || Turns { sent: 10, ..Turns::default() };
        for (status, line) in [
            (status(Turns::default(), &["tunnel"]), "  8 tunnels; the requests inside are not seen\n"),
            (status(sent(), &["turns"]), "  8 tunnels, paced by turns: their answers are not seen\n"),
            (status(sent(), &["turns", "tunnel"]), "  8 tunnels, some of them paced by turns: "),
        ] {
            let text = render(&status, Duration::ZERO);
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_proxy_that_nobody_used_says_so() {
        let text = render(&Status::default(), Duration::from_millis(1234));
        assert!(text.starts_with("andante: 0 requests sent in 1.2 s\n  nothing came through"), "{text}");
    }

    #[test]
    fn the_share_is_that_of_the_limit_which_held_the_lane_back() {
        let share = |limits: &[&str], sent, active_s| {
            let shares = shares(&lane("a", limits, sent, active_s)).into_iter();
            shares.map(|share| (share.used_ratio, share.limit)).collect::<Vec<_>>()
        };
        let [(half, limit)] = &share(&["10/s", "500/min"], 42, 9.96)[..] else { panic!("one unit has one share") };
        assert!((half - 0.5).abs() < 0.001, "{half}");
        assert_eq!(limit, "500/min");
        assert_eq!(share(&["10/s", "1000/min burst 500"], 101, 10.0)[0].0, 1.0);
        assert_eq!(share(&["20/s"], 22, 0.78)[0].0, 1.0, "the first ones have waited for a connection");
        assert!(share(&["10/s"], 1, 0.0).is_empty() && share(&[], 100, 9.0).is_empty());
    }

    #[test]
    fn each_unit_and_each_calendar_has_its_share() {
        let limit = |text: &str, used_total| LimitStatus { limit: text.into(), used_total, ..LimitStatus::default() };
        let mut lane = lane("api", &["600/min"], 51, 10.0);
        // 60,000 a minute are 10,000 in 10 s, and the burst is a tenth of 60,000: 4,000 of 16,000 are a quarter.
        lane.limits.extend([limit("1000000 tokens/h burst 1000000", 4000), limit("60000 tokens/min burst 6000", 4000)]);
        let month = LimitStatus { used: 51, room: 949, renewed_in_s: Some(60.0), ..limit("1000/month in UTC", 51) };
        lane.limits.push(month);
        let text = lanes(&Status { lanes: vec![lane], ..Status::default() });
        assert_eq!(text, "  api: 51 sent, 50.5% of 600/min, 25.0% of 60000 tokens/min, 5.1% of 1000/month in UTC\n");
    }

    #[test]
    fn what_was_learned_is_told_beside_what_was_asked_for() {
        let learned = |limit: &str, per_second| LimitStatus {
            limit: limit.into(),
            per_second,
            source: LimitSource::Learned,
            ..LimitStatus::default()
        };
        let mut lane = lane("a", &["10/s"], 42, 4.1);
        lane.limits.extend([learned("5000/h burst 4500", 1.4), learned("50/s burst 45", 50.0)]);
        let told = |lane: &LaneStatus| lanes(&Status { lanes: vec![lane.clone()], ..Status::default() });
        assert_eq!(told(&lane), "  a: 42 sent, 100.0% of 10/s, learned 5000/h\n");
        lane.limits = vec![learned("497/10013ms", 49.6)];
        assert_eq!(told(&lane), "  a: 42 sent, paced at 50/s after refusals, not learned yet\n");
    }

    #[test]
    fn a_crawl_does_not_flood_the_terminal() {
        let lanes = (0..25).map(|n| lane(&format!("h{n}"), &[], 1, 0.0)).collect();
        let text = render(&Status { lanes, ..Status::default() }, Duration::ZERO);
        assert_eq!(text.lines().count(), 3 + LANES + 1);
        assert!(text.ends_with("  and 15 further hosts\n"));
    }
}
