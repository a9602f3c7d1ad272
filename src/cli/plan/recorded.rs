//! What would have become of the requests of an access log under other limits.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
    time::{Duration, SystemTime},
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::forecast::{self, PlannedBurst};
use crate::{
    cli::{failure::Failure, wording},
    limit::{Cost, Limits},
};

/// The requests of one host, as an access log has them.
pub(super) struct RecordedRequests {
    host: String,
    /// The first one first.
    requests: Vec<RecordedRequest>,
}

/// A request that wanted a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RecordedRequest {
    /// In time since 1970.
    arrived: Duration,
    waited: Duration,
    /// How long the API took.
    upstream: Duration,
}

/// What would have become of them.
pub(super) struct RecordedPlan<'a> {
    recorded: &'a RecordedRequests,
    limits: &'a Limits,
    /// How long each would have waited.
    waits: Vec<Duration>,
    latency: Duration,
    longest_queue: usize,
}

/// The members of a line that matter here.
#[derive(Deserialize)]
struct LogLine {
    timestamp: String,
    target: Option<String>,
    host: Option<String>,
    outcome: Option<String>,
    waited_s: Option<f64>,
    upstream_s: Option<f64>,
    took_s: Option<f64>,
}

/// So many other hosts are named where one is to be chosen.
const NAMED: usize = 5;

// === impl RecordedRequests ===

impl RecordedRequests {
    /// Those to `host` in `file`; without a host, those to the only one.
    ///
    /// # Errors
    /// If the file cannot be read, or has no such requests.
    pub(super) fn read(file: &Path, host: Option<&str>) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("could not read {}", file.display())).because(error);
        let mut hosts = BTreeMap::<String, Vec<_>>::new();
        for line in BufReader::new(File::open(file).map_err(failed)?).split(b'\n') {
            let line = line.map_err(failed)?;
            if let Some((host, request)) =
                LogLine::read(&String::from_utf8_lossy(&line)).and_then(|line| line.request())
            {
                hosts.entry(host).or_default().push(request);
            }
        }
        let found = match host {
            Some(host) => hosts.remove_entry(host),
            None if hosts.len() == 1 => hosts.pop_first(),
            None => None,
        };
        let Some((host, mut requests)) = found else { return Err(not_found(file, host, hosts)) };
        requests.sort_unstable_by_key(|request| request.arrived);
        Ok(Self { host, requests })
    }

    fn arrivals(&self) -> Vec<Duration> {
        let first = self.requests[0].arrived;
        self.requests.iter().map(|request| request.arrived - first).collect()
    }
}

fn not_found(file: &Path, host: Option<&str>, hosts: BTreeMap<String, Vec<RecordedRequest>>) -> Failure {
    if hosts.is_empty() {
        let failure = Failure::new(format!("{} has no requests that waited for a slot or took one", file.display()));
        return failure.hinting("name a file that andante has written with --access-log");
    }
    let mut hosts: Vec<_> = hosts.into_iter().map(|(host, requests)| (requests.len(), host)).collect();
    hosts.sort_unstable_by(|one, other| other.cmp(one));
    let named: Vec<_> =
        hosts.iter().take(NAMED).map(|(count, host)| format!("{host} ({})", wording::count(*count as u64))).collect();
    let more = if hosts.len() > NAMED { " and others" } else { "" };
    let what = match host {
        Some(host) => format!("{} has no requests to {host}", file.display()),
        None => format!("{} has requests to {} hosts", file.display(), wording::count(hosts.len() as u64)),
    };
    Failure::new(what).hinting(format!("choose one by --host: {}{more}", named.join(", ")))
}

// === impl LogLine ===

impl LogLine {
    /// A line of the access log, written as text or as JSON. `None` if it is something else.
    fn read(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            return serde_json::from_str::<Self>(line).ok().filter(|line| line.target.as_deref() == Some("access"));
        }
        let (start, members) = line.split_once(" access: request ")?;
        let mut said = BTreeMap::new();
        for member in members_of(members) {
            let (name, value) = member.split_once('=')?;
            said.insert(name, value.trim_matches('"'));
        }
        let text = |name: &str| said.get(name).map(|value| (*value).to_owned());
        let number = |name: &str| said.get(name).and_then(|value| value.parse().ok());
        Some(Self {
            timestamp: start.split(' ').next()?.to_owned(),
            target: None,
            host: text("host"),
            outcome: text("outcome"),
            waited_s: number("waited_s"),
            upstream_s: number("upstream_s"),
            took_s: number("took_s"),
        })
    }

    /// Its host and its request; `None` if it wanted no slot.
    fn request(self) -> Option<(String, RecordedRequest)> {
        let wanted_one = self.outcome.is_some_and(|outcome| outcome != "rejected");
        let written = humantime::parse_rfc3339(&self.timestamp).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let seconds = |of: Option<f64>| of.and_then(|of| Duration::try_from_secs_f64(of).ok());
        let request = RecordedRequest {
            arrived: written.checked_sub(seconds(self.took_s)?)?,
            waited: seconds(self.waited_s)?,
            upstream: seconds(self.upstream_s)?,
        };
        wanted_one.then_some((self.host?, request))
    }
}

/// What stands between spaces, those in quotes left out.
fn members_of(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |letter| {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        letter == ' ' && !quoted
    })
}

// === impl RecordedPlan ===

impl<'a> RecordedPlan<'a> {
    /// `latency` is that of the API; without it, the median of what was recorded.
    pub(super) fn new(
        recorded: &'a RecordedRequests,
        limits: &'a Limits,
        cost: Cost,
        latency: Option<Duration>,
    ) -> Self {
        let (arrivals, first) = (recorded.arrivals(), recorded.requests[0].arrived);
        let latency =
            latency.unwrap_or_else(|| at(0.5, &sorted(recorded.requests.iter().map(|request| request.upstream))));
        let burst = PlannedBurst { requests: std::num::NonZeroU32::MIN, cost, latency, arrives: first };
        let leaving = forecast::leaving(limits, &burst, &arrivals);
        let mut left = 0;
        let mut longest_queue = 0;
        for (here, arrival) in arrivals.iter().enumerate() {
            while leaving.get(left).is_some_and(|leaves| leaves <= arrival) {
                left += 1;
            }
            longest_queue = longest_queue.max((here + 1).saturating_sub(left));
        }
        let waits = sorted(arrivals.iter().zip(&leaving).map(|(arrival, leaves)| *leaves - *arrival));
        Self { recorded, limits, waits, latency, longest_queue }
    }

    /// Whether some of them would wait for centuries.
    pub(super) fn never_ends(&self) -> bool {
        self.waits.last().is_some_and(|longest| *longest > Duration::from_secs(100 * 365 * 86_400))
    }

    fn waited(&self) -> Vec<Duration> {
        sorted(self.recorded.requests.iter().map(|request| request.waited))
    }

    /// What was recorded, from the first to the last.
    fn lasted(&self) -> Duration {
        let requests = &self.recorded.requests;
        requests[requests.len() - 1].arrived - requests[0].arrived
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let RecordedRequests { host, requests } = self.recorded;
        let said = |waits: &[Duration]| {
            let [median, p95, longest] = [0.5, 0.95, 1.0].map(|share| wording::duration(at(share, waits)));
            format!("median {median}, p95 {p95}, at most {longest}")
        };
        let what = wording::several(requests.len() as u64, "request");
        format!(
            "{what} to {host} in {}, at {}\n\n  would wait     {}\n  has waited     {}\n  longest queue  {}",
            wording::duration(self.lasted()),
            self.limits,
            said(&self.waits),
            said(&self.waited()),
            wording::count(self.longest_queue as u64),
        )
    }

    /// For scripts: seconds.
    pub(super) fn json(&self) -> Value {
        let said = |waits: &[Duration]| {
            let [median, p95, longest] = [0.5, 0.95, 1.0].map(|share| at(share, waits).as_secs_f64());
            json!({ "median": median, "p95": p95, "longest": longest })
        };
        json!({
            "host": self.recorded.host,
            "requests": self.recorded.requests.len(),
            "seconds": self.lasted().as_secs_f64(),
            "limits": self.limits.to_string(),
            "latency_seconds": self.latency.as_secs_f64(),
            "would_wait_seconds": said(&self.waits),
            "waited_seconds": said(&self.waited()),
            "longest_queue": self.longest_queue,
        })
    }
}

pub(super) fn sorted(of: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut sorted: Vec<_> = of.collect();
    sorted.sort_unstable();
    sorted
}

/// What this share of `sorted`, which is not empty, does not exceed.
pub(super) fn at(share: f64, sorted: &[Duration]) -> Duration {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"2026-11-23T17:38:52.500000Z  INFO access: request client=127.0.0.1 method="GET" host="127.0.0.1" path="/a" status=200 outcome="answered" rule="a \" rule" waited_s=0.25 upstream_s=0.125 took_s=0.5 attempts=1 request_id=5ea4fe0b-2"#;
    const JSON: &str = r#"{"timestamp":"2026-11-23T17:38:52.500000Z","level":"INFO","message":"request","client":"127.0.0.1","method":"GET","host":"127.0.0.1","path":"/a","status":200,"outcome":"answered","rule":"a","waited_s":0.25,"upstream_s":0.125,"took_s":0.5,"attempts":1,"request_id":"691086ff-1","target":"access"}"#;

    fn recorded(arrivals: impl Iterator<Item = u64>) -> RecordedRequests {
        let request = |at| RecordedRequest {
            arrived: Duration::from_millis(at),
            waited: Duration::ZERO,
            upstream: Duration::from_millis(100),
        };
        RecordedRequests { host: "a".into(), requests: arrivals.map(request).collect() }
    }

    fn plan(recorded: &RecordedRequests, limits: &str) -> Value {
        RecordedPlan::new(recorded, &limits.parse().unwrap(), Cost::MIN, None).json()
    }

    #[test]
    fn lines_of_both_formats_say_the_same() {
        // `date -u -d 2026-11-23T17:38:52 +%s`, less the half second that it took.
        let arrived = Duration::from_millis(1_795_455_532_000);
        let (waited, upstream) = (Duration::from_millis(250), Duration::from_millis(125));
        let expected = ("127.0.0.1".to_owned(), RecordedRequest { arrived, waited, upstream });
        for line in [TEXT, JSON] {
            assert_eq!(LogLine::read(line).unwrap().request().unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_no_requests() {
        for line in
            ["", "{}", "2026-11-23T17:38:52Z  INFO andante: ready", "{\"timestamp\":\"x\",\"target\":\"andante\"}"]
        {
            assert!(LogLine::read(line).is_none(), "{line}");
        }
        assert!(LogLine::read(&TEXT.replace("answered", "rejected")).unwrap().request().is_none());
    }

    #[test]
    fn what_comes_faster_than_the_limit_waits_for_the_difference() {
        // 1,000 in 10 s at 80/s: the last one arrives at 9.99 s, and leaves at 999 / 80 = 12.4875 s.
        let recorded = recorded((0..1000).map(|number| number * 10));
        let said = plan(&recorded, "80/s");
        assert_eq!((&said["requests"], &said["seconds"]), (&1000.into(), &9.99.into()));
        assert_eq!(said["would_wait_seconds"]["longest"].as_f64(), Some(2.4975));
        // Request k waits k · 2.5 ms: 949 of them no longer than 2.3725 s.
        assert_eq!(said["would_wait_seconds"]["p95"].as_f64(), Some(2.3725));
        // 9.99 s · 80/s are 799.2: with the first one 800 have left by then.
        assert_eq!(said["longest_queue"], 200);
        assert_eq!(plan(&recorded, "100/s")["would_wait_seconds"]["longest"].as_f64(), Some(0.0));
    }

    #[test]
    fn in_flight_takes_the_latency_that_was_recorded() {
        // One at a time of 0.1 s each, four at once.
        let said = plan(&recorded([0; 4].into_iter()), "in-flight 1");
        assert_eq!(said["would_wait_seconds"], json!({ "median": 0.1, "p95": 0.3, "longest": 0.3 }));
        assert_eq!((&said["latency_seconds"], &said["longest_queue"]), (&0.1.into(), &3.into()));
    }
}
