//! `/api/v1/plan`: what `andante plan` computes, for the page's simulator. One plan at a time, off the thread that hands out slots.

use std::{num::NonZeroU32, sync::Arc, time::SystemTime};

use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{PageAnswer, bad, json, problem};
use crate::{
    config::duration,
    limit::{self, Cost},
    plan::{self, BurstPlan, FlowsPlan, PlanError, PlannedBurst, PlannedFlow, USUAL_LATENCY},
};

/// Requests of one burst at most: they take some tenths of a second to compute.
const MOST_BURST_REQUESTS: u32 = 1_000_000;
/// Requests of all flows at most, for the same time: each runs through a lane.
const MOST_FLOW_REQUESTS: u64 = 100_000;
/// Points of a curve at most: about as many as a chart has room for.
const STEPS: u32 = 60;

/// Computes plans, one at a time.
pub(in crate::admin) struct Planner(Arc<Semaphore>);

/// Requests that are planned: a burst, or several flows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanQuestion {
    /// As in a rule: `10/s burst 20, 500/min`.
    limits: String,
    /// Number of requests that arrive at once, without flows.
    requests: Option<NonZeroU32>,
    /// Flows that arrive at once, each as in `live=100@10,u=1`.
    #[serde(default)]
    flows: Vec<String>,
    /// Response time of the API, for example `200ms`.
    latency: Option<String>,
    /// The cost of each request, for example `tokens=1200`.
    cost: Option<String>,
}

/// The plan of `andante plan --json`, with curves to draw.
#[derive(Serialize)]
struct PlanAnswer {
    #[serde(flatten)]
    plan: Value,
    /// A curve each flow, or one of the burst.
    queues: Vec<Queue>,
}

/// Waiting requests at one second.
type Queue = Vec<(f64, u32)>;

// === impl Planner ===

impl Planner {
    pub(in crate::admin) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// The answer to `question`.
    pub(super) async fn answer(&self, question: PlanQuestion) -> PageAnswer {
        // Held until the plan is computed, whether or not its reader waits for it.
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            let detail = "another plan is being computed: ask again in a second".to_owned();
            let mut answer = problem(StatusCode::SERVICE_UNAVAILABLE, "busy", detail);
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return answer;
        };
        let planned = tokio::task::spawn_blocking(move || {
            let planned = question.plan();
            drop(permit);
            planned
        });
        match planned.await {
            Ok(Ok(plan)) => json(StatusCode::OK, &plan),
            Ok(Err(detail)) => bad(detail),
            Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "no plan", "the plan could not be computed".into()),
        }
    }
}

// === impl PlanQuestion ===

impl PlanQuestion {
    fn plan(&self) -> Result<PlanAnswer, String> {
        let mut limits = plan::limits(&self.limits).map_err(|error| format!("`limits`: {error}"))?;
        limit::settle(&mut limits.limits);
        let cost =
            self.cost.as_deref().map_or(Ok(Cost::MIN), plan::cost).map_err(|error| format!("`cost`: {error}"))?;
        let cost = plan::costs(&limits, cost).map_err(hinted)?;
        let latency = self.latency.as_deref().map_or(Ok(USUAL_LATENCY), duration::parse);
        let latency = latency.map_err(|error| format!("`latency`: {error}"))?;
        let now = SystemTime::now();
        let arrives = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let flows: Vec<PlannedFlow> = self.flows.iter().map(|flow| flow.parse()).collect::<Result<_, String>>()?;
        match (flows.is_empty(), self.requests) {
            (true, Some(requests)) if requests.get() <= MOST_BURST_REQUESTS => {
                let plan = BurstPlan::new(limits, PlannedBurst { requests, cost, latency, arrives });
                if plan.never_ends() {
                    return Err(hinted(PlanError::too_slow(format!("{requests} requests"), &plan.limits)));
                }
                Ok(PlanAnswer { queues: vec![plan.queue(STEPS)], plan: plan.json(now) })
            }
            (false, None) => {
                let all: u64 = flows.iter().map(|flow| u64::from(flow.requests)).sum();
                if all > MOST_FLOW_REQUESTS {
                    return Err(format!("`flows`: {all} requests; {MOST_FLOW_REQUESTS} at most are planned here"));
                }
                let plan = FlowsPlan::new(&limits, flows, cost, latency, arrives).map_err(hinted)?;
                if plan.never_ends() {
                    return Err(hinted(PlanError::too_slow(format!("{all} requests"), &limits)));
                }
                Ok(PlanAnswer { queues: plan.queues(STEPS), plan: plan.json() })
            }
            (true, _) => Err(format!("`requests`: write a number from 1 to {MOST_BURST_REQUESTS}, or name `flows`")),
            (false, Some(_)) => Err("`requests` and `flows` exclude each other: leave one out".into()),
        }
    }
}

fn hinted(error: PlanError) -> String {
    format!("{error}; {}", error.hint())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(question: &str) -> Result<Value, String> {
        let question: PlanQuestion = serde_json::from_str(question).unwrap();
        question.plan().map(|answer| serde_json::to_value(answer).unwrap())
    }

    #[test]
    fn burst_leaves_at_the_pace_of_its_limit() {
        // 30,000 at 500/min: the last one 29,999 × 120 ms after the first.
        let answer = plan(r#"{"limits": "500/min", "requests": 30000}"#).unwrap();
        assert_eq!((&answer["seconds"], &answer["held_back_by"]), (&3599.88.into(), &"500/min".into()));
        let queue = answer["queues"][0].as_array().unwrap();
        assert_eq!((queue.len(), &queue[0], &queue[60]), (61, &json!([0.0, 29_999]), &json!([3599.88, 0])));
    }

    #[test]
    fn flows_have_a_queue_each() {
        let answer = plan(r#"{"limits": "10/s", "flows": ["batch=1000", "live=100@10"], "latency": "1s"}"#).unwrap();
        // Of eleven slots ten are those of live: its 100 are through after 110, or 10.9 s.
        let longest = answer["flows"][1]["would_wait_seconds"]["longest"].as_f64().unwrap();
        assert!((longest - 10.9).abs() < 0.3, "{longest}");
        let queues = answer["queues"].as_array().unwrap();
        assert!(queues.len() == 2 && queues.iter().all(|queue| queue.as_array().unwrap().last().unwrap()[1] == 0));
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for (question, expected) in [
            (r#"{"limits": "10 per s", "requests": 1}"#, "`limits`: "),
            (r#"{"limits": "10/s"}"#, "`requests`: write a number"),
            (r#"{"limits": "10/s", "requests": 1000001}"#, "`requests`: write a number"),
            (r#"{"limits": "10/s", "requests": 1, "flows": ["a=1"]}"#, "exclude each other"),
            (r#"{"limits": "10/s", "flows": ["a=100001"]}"#, "100000 at most"),
            (r#"{"limits": "10/s", "flows": ["a"]}"#, "NAME=REQUESTS"),
            (r#"{"limits": "10/s", "requests": 1, "latency": "soon"}"#, "`latency`: "),
            (r#"{"limits": "1/3650d", "requests": 100}"#, "for centuries"),
            (r#"{"limits": "500/min, 90000 tokens/min", "requests": 1, "cost": "words=5"}"#, "the limits count"),
        ] {
            let error = plan(question).unwrap_err();
            assert!(error.contains(expected), "{question}: {error}");
        }
    }
}
