//! `andante plan`: predicts the duration of a burst, or the waits of an access log's requests.

mod costs;
mod flows;
mod forecast;
mod lane;
mod recorded;

use std::{
    io::{self, Write as _},
    num::NonZeroU32,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde_json::json;

use self::{
    costs::costs,
    flows::{FlowsPlan, PlannedFlow},
    forecast::{Brake, BurstForecast, PlannedBurst},
    recorded::{RecordedPlan, RecordedRequests},
};
use super::{failure::Failure, wording};
use crate::{
    config::duration,
    limit::{self, Amount, Cost, InFlightLimit, LimitSpec, Limits, SpecError},
};

/// Predicts the duration of a burst before it is sent, or the waits of an access log's requests.
///
/// All limits hold at once, as in andante: even spacing (or bursts, where a limit allows them), at most N in any
/// window, and `in-flight`. The margin for jitter is not included.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The limits, which all hold: 500/min, 10/s burst 20, 2/s strict, in-flight 20; a host before them is ignored.
    #[arg(long, value_name = "[HOST=]LIMITS", value_parser = limits)]
    limit: Limits,
    /// Number of requests that arrive at once; up to 10,000,000.
    #[arg(long, value_name = "N", value_parser = requests, required_unless_present_any = ["log", "flow"])]
    requests: Option<NonZeroU32>,
    /// A flow with this number of requests, which arrives at once with the others; up to 1,000,000 requests in all.
    /// Default weight 1 and urgency 3; live=100@10,u=1 sets both. Several times for several flows.
    #[arg(long, value_name = "NAME=REQUESTS[@WEIGHT][,u=URGENCY]", conflicts_with_all = ["requests", "log"])]
    flow: Vec<PlannedFlow>,
    /// An access log of andante: its requests arrive at the recorded times.
    #[arg(long, value_name = "FILE", conflicts_with = "requests")]
    log: Option<PathBuf>,
    /// Host whose requests to take from the log, if it has several hosts.
    #[arg(long, value_name = "HOST", requires = "log")]
    host: Option<String>,
    /// Time that the API takes to answer; matters for in-flight and strict. [default: 200ms; with --log the median of
    /// FILE]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    latency: Option<Duration>,
    /// Cost of each request, where limits count more than requests: input-tokens=1200,output-tokens=500.
    #[arg(long, value_name = "COST", value_parser = cost, default_value = "1", hide_default_value = true)]
    cost: Cost,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  andante plan --limit 500/min --requests 30000
      one limit, evenly spaced

  andante plan --limit '10/s burst 10, 5000/h burst 100' --requests 20000
      several limits, all of which hold

  andante plan --limit '50/s, in-flight 4' --requests 1000 --latency 1s --json
      answers slow enough for in-flight to matter; for scripts

  andante plan --limit '500/min, 90000 tokens/min' --cost tokens=1200 --requests 1000
      requests that cost something else as well

  andante plan --limit 10/s --flow batch=20000 --flow live=500@10 --flow alarm=5,u=0
      flows that share the limit: how long the requests of each wait

  andante plan --limit 80/s --log access.log
      how long requests would have waited that came before";

/// Largest burst: more requests would take the command minutes.
const MOST_REQUESTS: u32 = 10_000_000;
/// Assumed time until an unknown API answers.
const LATENCY: Duration = Duration::from_millis(200);
/// Least share of the time that an alternative must gain to be shown.
const WORTH_TELLING: f64 = 0.05;

/// Prints the plan.
///
/// # Errors
/// If the plan would take centuries, or cannot be printed.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { limit: mut limits, requests, flow: flows, log, host, latency, cost, json } = args;
    limit::settle(&mut limits.limits);
    let cost = costs(&limits, cost)?;
    let text = match (log, requests) {
        (Some(file), _) => {
            let recorded = RecordedRequests::read(&file, host.as_deref())?;
            let plan = RecordedPlan::new(&recorded, &limits, cost, latency);
            if plan.never_ends() {
                return Err(too_slow(&file.display().to_string(), &limits));
            }
            if json { plan.json().to_string() } else { plan.text() }
        }
        (None, None) => {
            let plan = FlowsPlan::new(&limits, flows, cost, latency.unwrap_or(LATENCY), since_1970(SystemTime::now()))?;
            if plan.never_ends() {
                return Err(too_slow(&plan.what(), &limits));
            }
            if json { plan.json().to_string() } else { plan.text() }
        }
        (None, requests) => {
            let now = SystemTime::now();
            let arrives = since_1970(now);
            let (requests, latency) = (requests.unwrap_or(NonZeroU32::MIN), latency.unwrap_or(LATENCY));
            let plan = Plan::new(limits, PlannedBurst { requests, cost, latency, arrives });
            if plan.forecast.last_leaves == BurstForecast::NEVER {
                return Err(too_slow(&plan.what(), &plan.limits));
            }
            if json { plan.json(now).to_string() } else { plan.text(now) }
        }
    };
    writeln!(io::stdout().lock(), "{text}").map_err(Failure::writing)
}

fn since_1970(now: SystemTime) -> Duration {
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn too_slow(what: &str, limits: &Limits) -> Failure {
    Failure::new(format!("{what} would leave at {limits} for centuries"))
        .hinting("check the window of the limits, or allow a burst, as in \"100/d burst 100\"")
}

/// A burst with its forecast, and forecasts for other limits.
struct Plan {
    limits: Limits,
    burst: PlannedBurst,
    forecast: BurstForecast,
    faster: Vec<(Limits, Duration)>,
}

// === impl Plan ===

impl Plan {
    fn new(limits: Limits, burst: PlannedBurst) -> Self {
        let forecast = BurstForecast::new(&limits, &burst);
        let bound = forecast.last_leaves.mul_f64(1.0 - WORTH_TELLING);
        let mut faster: Vec<_> = alternatives(&limits, &forecast, &burst)
            .into_iter()
            .map(|limits| (BurstForecast::last_leaves(&limits, &burst), limits))
            .filter(|(last_leaves, _)| *last_leaves < bound)
            .map(|(last_leaves, limits)| (limits, last_leaves))
            .collect();
        faster.sort_by_key(|(_, last_leaves)| *last_leaves);
        Self { limits, burst, forecast, faster }
    }

    /// `30,000 requests`.
    fn what(&self) -> String {
        let plural = if self.burst.requests.get() == 1 { "" } else { "s" };
        format!("{} request{plural}", wording::count(u64::from(self.burst.requests.get())))
    }

    /// The limit that delays requests, in its notation.
    fn brake(&self) -> Option<String> {
        Some(match self.forecast.binds? {
            Brake::Limit(index) => self.limits.limits[index].to_string(),
            Brake::Calendar(index) => self.limits.calendar[index].to_string(),
            Brake::InFlight => self.limits.in_flight.map(|count| format!("in-flight {count}"))?,
        })
    }

    /// For people; `now` is the burst's arrival.
    fn text(&self, now: SystemTime) -> String {
        let last_leaves = self.forecast.last_leaves;
        let mut text = format!("{} at {}: {}\n", self.what(), self.limits, wording::duration(last_leaves));
        let mut line = |label: &str, value: &str| text.push_str(&format!("\n  {label:<14}{value}"));
        match self.brake() {
            Some(brake) => {
                line("last leaves", &time_of_day(now, last_leaves));
                line("answered by", &time_of_day(now, last_leaves + self.burst.latency));
                line("steady pace", &wording::pace(self.forecast.per_second));
                line("held back by", &brake);
            }
            None => line("held back by", "nothing: all of them leave at once"),
        }
        if !self.faster.is_empty() {
            text.push_str("\n\nfaster, if the API allows it:\n");
        }
        let width = self.faster.iter().map(|(limits, _)| limits.to_string().len()).max().unwrap_or(0);
        for (limits, last_leaves) in &self.faster {
            text.push_str(&format!("\n  {:<width$}  {}", limits.to_string(), wording::duration(*last_leaves)));
        }
        text
    }

    /// For scripts: seconds, and times as RFC 3339.
    fn json(&self, now: SystemTime) -> serde_json::Value {
        let last_leaves = self.forecast.last_leaves;
        let faster: Vec<_> = self
            .faster
            .iter()
            .map(|(limits, seconds)| json!({ "limits": limits.to_string(), "seconds": seconds.as_secs_f64() }))
            .collect();
        json!({
            "requests": self.burst.requests,
            "limits": self.limits.to_string(),
            "seconds": last_leaves.as_secs_f64(),
            "answered_seconds": (last_leaves + self.burst.latency).as_secs_f64(),
            "last_leaves": rfc3339(now, last_leaves),
            // Absent (null) if nothing limits the pace: JSON has no infinity.
            "per_second": self.forecast.per_second,
            "held_back_by": self.brake(),
            "faster": faster,
        })
    }
}

/// `5`, or `input-tokens=1200,output-tokens=500`.
fn cost(text: &str) -> Result<Cost, String> {
    text.parse().map_err(|wrong: SpecError| format!("{wrong}; {}", wrong.hint()))
}

/// Limits under which the burst might leave sooner; each changes one property of the delaying limit.
fn alternatives(limits: &Limits, forecast: &BurstForecast, burst: &PlannedBurst) -> Vec<Limits> {
    let &PlannedBurst { requests, cost, latency, .. } = burst;
    match forecast.binds {
        // A calendar quota was bought, and is no setting.
        None | Some(Brake::Calendar(_)) => Vec::new(),
        Some(Brake::Limit(index)) => {
            let limit = limits.limits[index];
            let LimitSpec { rate, burst, strict, .. } = limit;
            let doubled =
                crate::limit::Rate { count: rate.count.saturating_mul(NonZeroU32::MIN.saturating_add(1)), ..rate };
            let amount = cost.of(limit.unit).unwrap_or(Amount::MIN);
            let whole_window = rate.count.min(requests.saturating_mul(amount));
            let replaced = |limit: LimitSpec| {
                let mut other = limits.clone();
                other.limits[index] = limit;
                other
            };
            let mut others = vec![replaced(LimitSpec { rate: doubled, ..limit })];
            if burst.is_none_or(|burst| whole_window > burst) {
                others.push(replaced(LimitSpec { burst: Some(whole_window), ..limit }));
            }
            if strict {
                others.push(replaced(LimitSpec { strict: false, ..limit }));
            }
            others
        }
        Some(Brake::InFlight) => {
            let per_second = limits.limits.iter().map(|limit| limit.rate.per_second()).fold(f64::INFINITY, f64::min);
            // Little's law: the number in flight is the pace times the duration of each request.
            let enough = if per_second.is_finite() {
                NonZeroU32::new((per_second * latency.as_secs_f64()).ceil() as u32)
            } else {
                limits.fixed_in_flight().map(|count| count.saturating_mul(NonZeroU32::MIN.saturating_add(1)))
            };
            vec![Limits { in_flight: enough.map(InFlightLimit::Fixed), ..limits.clone() }]
        }
    }
}

/// `09:31:12 UTC`, with the date if it is not today's.
fn time_of_day(now: SystemTime, after: Duration) -> String {
    let (today, then) = (rfc3339(now, Duration::ZERO), rfc3339(now, after));
    match (today.split_once('T'), then.split_once('T')) {
        (Some((today, _)), Some((date, time))) if today == date => format!("{} UTC", time.trim_end_matches('Z')),
        (_, Some((date, time))) => format!("{date} {} UTC", time.trim_end_matches('Z')),
        _ => then,
    }
}

fn rfc3339(now: SystemTime, after: Duration) -> String {
    humantime::format_rfc3339_seconds(now + after).to_string()
}

fn limits(text: &str) -> Result<Limits, String> {
    // Parses the form of `serve`. A plan is the same for every host.
    let text =
        text.split_once('=').filter(|(host, _)| !host.contains(['/', ',', ' '])).map_or(text, |(_, limits)| limits);
    let limits: Limits = text.parse().map_err(|error: SpecError| format!("{error}; {}", error.hint()))?;
    if limits.in_flight == Some(InFlightLimit::Auto) {
        return Err("cannot plan with \"in-flight auto\": its value is learned from the API; write a number, as in \
                    \"in-flight 20\""
            .into());
    }
    Ok(limits)
}

fn requests(text: &str) -> Result<NonZeroU32, String> {
    let digits: String = text.trim().chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    match digits.replace(['k', 'K'], "000").parse::<NonZeroU32>() {
        Ok(requests) if requests.get() <= MOST_REQUESTS => Ok(requests),
        _ => Err(format!("expected a number of requests from 1 to 10,000,000, found {text:?}; write \"30000\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(limits: &str, count: u32) -> Plan {
        let latency = Duration::from_millis(200);
        let requests = count.try_into().unwrap();
        let burst = PlannedBurst { requests, cost: Cost::MIN, latency, arrives: ARRIVES };
        Plan::new(super::limits(limits).unwrap(), burst)
    }

    const ARRIVES: Duration = Duration::from_millis(1_785_745_872_500);

    /// 2026-08-03 08:31:12.5 UTC.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + ARRIVES
    }

    #[test]
    fn the_text_says_when_and_why_and_what_else() {
        let expected = "\
30,000 requests at 500/min: 59 min 59.8 s

  last leaves   09:31:12 UTC
  answered by   09:31:12 UTC
  steady pace   8.33/s
  held back by  500/min

faster, if the API allows it:

  1000/min  29 min 59.9 s";
        assert_eq!(plan("500/min", 30_000).text(now()), expected);
    }

    #[test]
    fn another_day_is_named() {
        assert!(plan("1/h", 49).text(now()).contains("2026-08-05 08:31:12 UTC"));
    }

    #[test]
    fn what_leaves_at_once_needs_no_more_words() {
        let text = plan("10/s burst 10", 10).text(now());
        assert_eq!(text, "10 requests at 10/s burst 10: 0 s\n\n  held back by  nothing: all of them leave at once");
    }

    #[test]
    fn each_alternative_changes_what_holds_back() {
        let told = |limits, count| {
            plan(limits, count).faster.into_iter().map(|(limits, _)| limits.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(told("10/s, 500/min", 400), ["10/s, 1000/min", "10/s, 500/min burst 400"]);
        // The window binds, not its spacing.
        assert_eq!(told("10/s, 500/min burst 500", 30_000), ["10/s, 1000/min burst 500"]);
        assert_eq!(told("2/s strict", 100), ["4/s strict", "2/s"]);
        assert_eq!(told("50/s, in-flight 2", 100), ["50/s, in-flight 10"]);
        assert_eq!(told("in-flight 2", 100), ["in-flight 4"]);
        assert!(told("10/s burst 10", 10).is_empty());
    }

    #[test]
    fn scripts_get_seconds() {
        let json = plan("10/s", 101).json(now());
        assert_eq!((json["seconds"].as_f64(), json["answered_seconds"].as_f64()), (Some(10.0), Some(10.2)));
        assert_eq!((&json["held_back_by"], &json["last_leaves"]), (&json!("10/s"), &json!("2026-08-03T08:31:22Z")));
        assert_eq!(plan("in-flight 5", 5).json(now())["held_back_by"], json!(null));
    }

    #[test]
    fn what_is_wrong_comes_with_what_to_write() {
        assert_eq!(requests("30_000").map(NonZeroU32::get), Ok(30_000));
        for text in ["0", "-1", "many", "10000001", ""] {
            assert!(requests(text).unwrap_err().contains("write \"30000\""), "{text}");
        }
        assert!(limits("10 per s").unwrap_err().contains("write \"10/s\""));
    }

    #[test]
    fn limits_are_read_with_their_host_too_as_serve_takes_them() {
        for text in ["500/min, 10/s", "api.example.com=500/min, 10/s", "[::1]:8080=500/min,10/s"] {
            assert_eq!(limits(text), "500/min, 10/s".parse().map_err(|_| String::new()), "{text}");
        }
    }

    #[test]
    fn centuries_are_refused() {
        let args = Args {
            limit: limits("1/3650d").unwrap(),
            requests: Some(requests("100").unwrap()),
            flow: Vec::new(),
            log: None,
            host: None,
            latency: Some(Duration::ZERO),
            cost: Cost::MIN,
            json: false,
        };
        let failure = run(args).unwrap_err();
        assert!(failure.to_string().ends_with("for centuries") && failure.hint().is_some());
    }
}
