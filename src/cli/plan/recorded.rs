//! Replays the requests of an access log under other limits.

mod log_line;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
    time::Duration,
};

use serde_json::{Value, json};

use self::log_line::LogLine;
use crate::{
    cli::{failure::Failure, wording},
    clock::Instant,
    lane::{
        SimulatedRequest,
        order::{Claim, FlowId},
        simulate,
    },
    limit::{Cost, Limits},
    plan::{self, MOST_FLOW_REQUESTS, PlannedBurst, at, sorted},
};

/// Requests of one host in an access log.
pub(super) struct RecordedRequests {
    host: String,
    /// The requests, in the order of their arrival.
    requests: Vec<RecordedRequest>,
}

/// A request that wanted a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RecordedRequest {
    /// Arrival, as time since 1970.
    arrived: Duration,
    waited: Duration,
    /// Time that the API took.
    upstream: Duration,
    /// Flow and urgency of the request.
    claim: Claim,
}

/// Result of the replay.
pub(super) struct RecordedPlan<'a> {
    recorded: &'a RecordedRequests,
    limits: &'a Limits,
    /// Waits in the replay, the shortest first.
    waits: Vec<Duration>,
    /// The flows with the most requests, if there are several.
    flows: Vec<RecordedFlow>,
    latency: Duration,
    longest_queue: usize,
}

/// Requests with one flow and urgency.
struct RecordedFlow {
    claim: Claim,
    /// Waits in the replay and in the log, the shortest first.
    waits: Vec<Duration>,
    waited: Vec<Duration>,
}

/// Hosts that a hint lists, and flows that a plan lists.
const NAMED: usize = 5;

// === impl RecordedRequests ===

impl RecordedRequests {
    /// Requests to `host` in `file`; without a host, requests to the only one.
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

// === impl RecordedPlan ===

impl<'a> RecordedPlan<'a> {
    /// Replays the requests. `latency` is the API's; by default the median in the log.
    pub(super) fn new(
        recorded: &'a RecordedRequests,
        limits: &'a Limits,
        cost: Cost,
        latency: Option<Duration>,
    ) -> Self {
        let (arrivals, first) = (recorded.arrivals(), recorded.requests[0].arrived);
        let latency =
            latency.unwrap_or_else(|| at(0.5, &sorted(recorded.requests.iter().map(|request| request.upstream))));
        let requests = &recorded.requests;
        let differ = requests.iter().any(|request| request.claim != requests[0].claim);
        // Beyond what the lane itself is run for, all are taken to be of one flow.
        let leaving = if differ && requests.len() as u64 <= MOST_FLOW_REQUESTS {
            in_order(recorded, limits, cost, latency)
        } else {
            let burst = PlannedBurst { requests: std::num::NonZeroU32::MIN, cost, latency, arrives: first };
            plan::leaving(limits, &burst, &arrivals)
        };
        let mut by_time = leaving.clone();
        by_time.sort_unstable();
        let (mut left, mut longest_queue) = (0, 0);
        for (here, arrival) in arrivals.iter().enumerate() {
            while by_time.get(left).is_some_and(|leaves| leaves <= arrival) {
                left += 1;
            }
            longest_queue = longest_queue.max((here + 1).saturating_sub(left));
        }
        let waits: Vec<_> = arrivals.iter().zip(&leaving).map(|(arrival, leaves)| *leaves - *arrival).collect();
        let flows = if differ { flows(recorded, &waits) } else { Vec::new() };
        Self { recorded, limits, waits: sorted(waits.into_iter()), flows, latency, longest_queue }
    }

    /// Returns whether some requests would wait for centuries.
    pub(super) fn never_ends(&self) -> bool {
        self.waits.last().is_some_and(|longest| *longest > Duration::from_secs(100 * 365 * 86_400))
    }

    fn waited(&self) -> Vec<Duration> {
        sorted(self.recorded.requests.iter().map(|request| request.waited))
    }

    /// Time between the first and the last recorded request.
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
        let text = format!(
            "{what} to {host} in {}, at {}\n\n  would wait     {}\n  has waited     {}\n  longest queue  {}",
            wording::duration(self.lasted()),
            self.limits,
            said(&self.waits),
            said(&self.waited()),
            wording::count(self.longest_queue as u64),
        );
        if self.flows.is_empty() { text } else { format!("{text}\n\n{}", self.flows_text()) }
    }

    /// Rows for people, one for each flow.
    fn flows_text(&self) -> String {
        let times = |waits: &[Duration]| [0.5, 0.95].map(|share| wording::duration(at(share, waits)));
        let rows = self.flows.iter().map(|RecordedFlow { claim, waits, waited }| {
            let ([median, p95], [has, has_p95]) = (times(waits), times(waited));
            let flow = if claim.flow == FlowId::default() { "-".to_owned() } else { claim.flow.shown() };
            let (client, requests) = (claim.client.to_string(), wording::count(waits.len() as u64));
            [client, flow, claim.urgency.get().to_string(), requests, median, p95, has, has_p95]
        });
        let head = ["client", "flow", "urgency", "requests", "would wait (median)", "p95", "has waited", "p95"];
        wording::columns(&[head.map(str::to_owned)].into_iter().chain(rows).collect::<Vec<_>>())
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
            "flows": self.flows.iter().map(|RecordedFlow { claim, waits, waited }| json!({
                "client": claim.client.to_string(),
                "flow": (claim.flow != FlowId::default()).then(|| claim.flow.shown()),
                "urgency": claim.urgency.get(),
                "requests": waits.len(),
                "would_wait_seconds": said(waits),
                "waited_seconds": said(waited),
            })).collect::<Vec<_>>(),
        })
    }
}

/// Departure of each request, in the order of the lane itself.
fn in_order(recorded: &RecordedRequests, limits: &Limits, cost: Cost, latency: Duration) -> Vec<Duration> {
    let (cost, first) = (cost.shared(&limits.limits), recorded.requests[0].arrived);
    let requests = recorded.requests.iter();
    let requests: Vec<_> = requests
        .map(|&RecordedRequest { arrived, claim, .. }| SimulatedRequest { arrives: arrived - first, claim, cost })
        .collect();
    let left = simulate(plan::policy(limits).into(), first, latency, &requests);
    left.iter().map(|at| if *at == Instant::FAR { Duration::MAX } else { at.since(Instant::START) }).collect()
}

/// The flows with the most requests, with the waits of their requests.
fn flows(recorded: &RecordedRequests, waits: &[Duration]) -> Vec<RecordedFlow> {
    let mut flows = BTreeMap::<_, RecordedFlow>::new();
    for (request, wait) in recorded.requests.iter().zip(waits) {
        let Claim { urgency, client, flow, .. } = request.claim;
        let flow = flows.entry((urgency, client, flow)).or_insert_with(|| RecordedFlow {
            claim: request.claim,
            waits: Vec::new(),
            waited: Vec::new(),
        });
        flow.waits.push(*wait);
        flow.waited.push(request.waited);
    }
    let mut flows: Vec<_> = flows.into_values().collect();
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.waits.len()));
    flows.truncate(NAMED);
    for RecordedFlow { waits, waited, .. } in &mut flows {
        waits.sort_unstable();
        waited.sort_unstable();
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::order::{ClientId, Urgency};

    fn recorded(arrivals: impl Iterator<Item = u64>) -> RecordedRequests {
        let request = |at| RecordedRequest {
            arrived: Duration::from_millis(at),
            waited: Duration::ZERO,
            upstream: Duration::from_millis(100),
            claim: Claim::USUAL,
        };
        RecordedRequests { host: "a".into(), requests: arrivals.map(request).collect() }
    }

    fn plan(recorded: &RecordedRequests, limits: &str) -> Value {
        RecordedPlan::new(recorded, &limits.parse().unwrap(), Cost::MIN, None).json()
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
    fn flows_and_urgencies_wait_in_the_order_of_the_lane() {
        let mut recorded = recorded([0; 200].into_iter());
        for (number, request) in recorded.requests.iter_mut().enumerate() {
            let flow = FlowId(u64::from(number >= 180) + 1);
            request.claim = Claim { client: ClientId::of([10, 0, 0, 1].into()), flow, ..Claim::USUAL };
        }
        recorded.requests[199].claim.urgency = Urgency::MOST;
        let said = plan(&recorded, "10/s");
        let of = |at: usize| {
            let flow = &said["flows"][at];
            (flow["requests"].as_u64().unwrap(), flow["would_wait_seconds"]["longest"].as_f64().unwrap())
        };
        // 180 of one flow, 19 of another, and an urgent one: the 19 have every other slot.
        assert_eq!(of(0), (180, 19.9), "{said}");
        let (requests, longest) = of(1);
        assert!(requests == 19 && (3.7..=4.0).contains(&longest), "{said}");
        assert!(of(2).1 <= 0.1, "{said}");
        assert_eq!(said["would_wait_seconds"]["longest"].as_f64(), Some(19.9));
        let text = RecordedPlan::new(&recorded, &"10/s".parse().unwrap(), Cost::MIN, None).text();
        assert!(text.contains("  10.0.0.1  00000002  3        19        "), "{text}");
        assert_eq!(
            plan(&self::recorded([0; 3].into_iter()), "10/s")["flows"],
            json!([]),
            "of one flow alone nothing is told"
        );
    }

    #[test]
    fn in_flight_takes_the_latency_that_was_recorded() {
        // At most one request at a time, 0.1 s each; four arrive at once.
        let said = plan(&recorded([0; 4].into_iter()), "in-flight 1");
        assert_eq!(said["would_wait_seconds"], json!({ "median": 0.1, "p95": 0.3, "longest": 0.3 }));
        assert_eq!((&said["latency_seconds"], &said["longest_queue"]), (&0.1.into(), &3.into()));
    }
}
