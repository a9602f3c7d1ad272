//! Waits of several flows that share limits. No formula computes them: the lane itself runs ahead of time, with its
//! order and its limits.

use std::{num::NonZeroU16, str::FromStr, time::Duration};

use serde_json::{Value, json};

use super::{
    MOST_FLOW_REQUESTS,
    error::PlanError,
    lane::policy,
    quantile::{at, queue_of, sorted},
};
use crate::{
    clock::Instant,
    lane::{
        SimulatedRequest,
        order::{Claim, FlowId, Urgency, Weight},
        simulate,
    },
    limit::{Cost, Limits},
};

/// A flow whose requests all arrive at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFlow {
    /// Name, unique among the flows of a plan.
    pub name: String,
    /// Number of requests.
    pub requests: u32,
    /// Weight relative to the other flows of the same urgency.
    pub weight: NonZeroU16,
    /// Urgency (RFC 9218), from 0, the most urgent, to 7.
    pub urgency: Urgency,
}

/// Forecast of several flows.
pub struct FlowsPlan<'a> {
    /// Limits of the plan, all enforced at once.
    pub limits: &'a Limits,
    latency: Duration,
    flows: Vec<(PlannedFlow, Vec<Duration>)>,
}

/// Longest wait that a plan accepts: 100 years, beyond which a request counts as never sent.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

impl FromStr for PlannedFlow {
    type Err = String;

    /// Parses `batch=20000`, `live=100@10`, `alarm=5,u=0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |hint: &str| format!("expected a flow, found {text:?}; {hint}");
        let example = "write NAME=REQUESTS, as in live=100, live=100@10 for a weight, live=100,u=1 for an urgency";
        let (name, rest) = text.split_once('=').ok_or_else(|| wrong(example))?;
        let (rest, urgency) = match rest.split_once(',') {
            Some((rest, urgency)) => (rest, urgency.trim().strip_prefix("u=").ok_or_else(|| wrong(example))?),
            None => (rest, "3"),
        };
        let (requests, weight) = rest.split_once('@').unwrap_or((rest, "1"));
        let requests = requests.trim().replace('_', "").parse().map_err(|_| wrong(example))?;
        let weight = weight.trim().parse().map_err(|_| wrong("a weight is a number from 1 to 65535"))?;
        let urgency = urgency.parse().ok().and_then(Urgency::new).ok_or_else(|| wrong("an urgency is from 0 to 7"))?;
        if name.is_empty() || requests == 0 {
            return Err(wrong(example));
        }
        Ok(Self { name: name.to_owned(), requests, weight, urgency })
    }
}

// === impl FlowsPlan ===

impl<'a> FlowsPlan<'a> {
    /// Simulates flows of one client whose requests have this `cost`, and all arrive at `arrives` since 1970.
    ///
    /// # Errors
    /// Fails if the flows have more than [`MOST_FLOW_REQUESTS`] requests, or if two flows have the same name.
    pub fn new(
        limits: &'a Limits,
        flows: Vec<PlannedFlow>,
        cost: Cost,
        latency: Duration,
        arrives: Duration,
    ) -> Result<Self, PlanError> {
        let all: u64 = flows.iter().map(|flow| u64::from(flow.requests)).sum();
        if all > MOST_FLOW_REQUESTS {
            return Err(PlanError::new(
                format!("{all} requests in all flows are more than can be planned"),
                "1,000,000 are the most of several flows, and 10,000,000 of one burst",
            ));
        }
        let twice = |flow: &PlannedFlow| flows.iter().filter(|other| other.name == flow.name).count() > 1;
        if let Some(flow) = flows.iter().find(|flow| twice(flow)) {
            return Err(PlanError::new(format!("the flow {} is there twice", flow.name), "write each flow once"));
        }
        let cost = cost.shared(&limits.limits);
        let (numbers, requests): (Vec<usize>, Vec<SimulatedRequest>) = (0..)
            .zip(&flows)
            .flat_map(|(number, flow)| {
                let (flow_weight, urgency) = (Weight(flow.weight), flow.urgency);
                let claim = Claim { urgency, flow: FlowId(number as u64 + 1), flow_weight, ..Claim::USUAL };
                let request = SimulatedRequest { arrives: Duration::ZERO, claim, cost };
                std::iter::repeat_n((number, request), flow.requests as usize)
            })
            .unzip();
        let left = simulate(policy(limits).into(), arrives, latency, &requests);
        let mut flows: Vec<_> = flows.into_iter().map(|flow| (flow, Vec::new())).collect();
        for (flow, left) in numbers.iter().zip(left) {
            let waited = if left == Instant::FAR { Duration::MAX } else { left.since(Instant::START) };
            flows[*flow].1.push(waited);
        }
        let flows = flows.into_iter().map(|(flow, waits)| (flow, sorted(waits.into_iter()))).collect();
        Ok(Self { limits, latency, flows })
    }

    /// Returns true if some requests would wait for more than 100 years.
    pub fn never_ends(&self) -> bool {
        self.flows.iter().any(|(_, waits)| waits.last().is_some_and(|longest| *longest > FOREVER))
    }

    /// Flows with the median, the 95th percentile and the maximum of their requests' waits.
    pub fn flows(&self) -> impl Iterator<Item = (&PlannedFlow, [Duration; 3])> {
        self.flows.iter().map(|(flow, waits)| (flow, [0.5, 0.95, 1.0].map(|share| at(share, waits))))
    }

    /// Waiting requests of each flow over time, in at most `steps` steps.
    pub fn queues(&self, steps: u32) -> Vec<Vec<(f64, u32)>> {
        self.flows.iter().map(|(_, waits)| queue_of(waits, steps)).collect()
    }

    /// JSON of the plan for scripts, with durations in seconds.
    pub fn json(&self) -> Value {
        let flow = |(flow, waits): (&PlannedFlow, [Duration; 3])| {
            let [median, p95, longest] = waits.map(|wait| wait.as_secs_f64());
            json!({
                "flow": flow.name,
                "requests": flow.requests,
                "weight": flow.weight,
                "urgency": flow.urgency.get(),
                "would_wait_seconds": { "median": median, "p95": p95, "longest": longest },
            })
        };
        json!({
            "limits": self.limits.to_string(),
            "latency_seconds": self.latency.as_secs_f64(),
            "flows": self.flows().map(flow).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::forecast::{BurstForecast, PlannedBurst};
    use super::*;

    const LATENCY: Duration = Duration::from_millis(200);

    fn plan(limits: &str, flows: &[&str]) -> Vec<[f64; 3]> {
        let mut limits: Limits = limits.parse().unwrap();
        crate::limit::settle(&mut limits.limits);
        let flows = flows.iter().map(|flow| flow.parse().unwrap()).collect();
        let plan = FlowsPlan::new(&limits, flows, Cost::MIN, LATENCY, Duration::ZERO).unwrap();
        let waits =
            |(_, waits): &(PlannedFlow, Vec<Duration>)| [0.5, 0.95, 1.0].map(|share| at(share, waits).as_secs_f64());
        plan.flows.iter().map(waits).collect()
    }

    fn last(limits: &str, flows: &[&str]) -> Vec<f64> {
        plan(limits, flows).iter().map(|[_, _, longest]| *longest).collect()
    }

    #[test]
    fn one_flow_waits_as_long_as_a_burst_does() {
        for (text, requests) in [("10/s", 200), ("10/s burst 5, 100/min", 300), ("in-flight 2", 9), ("7/s strict", 50)]
        {
            let mut limits: Limits = text.parse().unwrap();
            crate::limit::settle(&mut limits.limits);
            let requests = std::num::NonZeroU32::new(requests).unwrap();
            let burst = PlannedBurst { requests, cost: Cost::MIN, latency: LATENCY, arrives: Duration::ZERO };
            let expected = BurstForecast::last_leaves(&limits, &burst).as_secs_f64();
            let found = last(text, &[&format!("a={requests}")])[0];
            assert!((found - expected).abs() < 0.01, "{text}: {found} s in the place of {expected} s");
        }
    }

    #[test]
    fn flows_share_by_their_weights() {
        // The flow `live` gets ten of eleven slots: its 100 requests leave within 110 slots, or 10.9 s. All other slots
        // belong to the flow `batch`.
        let [batch, live] = last("10/s", &["batch=1000", "live=100@10"])[..] else { panic!("two flows") };
        assert!((live - 10.9).abs() <= 0.2 && (batch - 109.9).abs() < 1e-3, "{live} {batch}");
        let equal = last("10/s", &["a=100", "b=100", "c=100"]);
        assert!(equal.iter().all(|last| (29.6..=29.9001).contains(last)), "{equal:?}");
    }

    #[test]
    fn the_urgent_go_first_and_the_least_urgent_get_their_share() {
        let [batch, alarm] = plan("10/s", &["batch=2100", "alarm=5,u=0"])[..] else { panic!("two flows") };
        assert!(alarm[2] <= 0.5 && (batch[2] - 210.4).abs() < 1e-3, "{alarm:?} {batch:?}");
        // The less urgent flow gets one of 21 slots, so that its first requests leave before the other flow has ended.
        let [low, high] = plan("10/s", &["low=50,u=7", "high=2000,u=3"])[..] else { panic!("two flows") };
        assert!(low[2] <= 106.0 && low[0] >= 45.0, "{low:?} {high:?}");
    }

    #[test]
    fn what_is_no_flow_is_not_taken_for_one() {
        let flow = |text: &str| text.parse::<PlannedFlow>();
        let live = flow("live=1_000@10,u=1").unwrap();
        assert_eq!((live.requests, live.weight.get(), live.urgency.get()), (1000, 10, 1));
        for text in ["", "live", "=5", "live=0", "live=x", "live=5@0", "live=5,u=8", "live=5,1"] {
            assert!(flow(text).unwrap_err().contains("expected a flow"), "{text}");
        }
        let twice = vec![live.clone(), live];
        assert!(FlowsPlan::new(&Limits::default(), twice, Cost::MIN, LATENCY, Duration::ZERO).is_err());
    }

    #[test]
    fn queue_of_each_flow_shrinks_to_nothing() {
        let limits: Limits = "10/s".parse().unwrap();
        let flows = vec!["a=100".parse().unwrap(), "b=100".parse().unwrap()];
        let plan = FlowsPlan::new(&limits, flows, Cost::MIN, LATENCY, Duration::ZERO).unwrap();
        for queue in plan.queues(10) {
            // Two equal flows share the rate: ten requests of each leave every 2 s.
            let left: Vec<_> = queue.iter().map(|(_, left)| *left).collect();
            assert_eq!(left, [99, 90, 80, 70, 60, 50, 40, 30, 20, 10, 0]);
            assert!(queue.iter().skip(1).zip(1..).all(|((at, _), n)| (at - f64::from(2 * n)).abs() < 0.5), "{queue:?}");
        }
    }
}
