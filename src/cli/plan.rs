//! `andante plan`: predicts the duration of a burst, or the waits of an access log's requests.

mod recorded;
mod text;

use std::{
    io::{self, Write as _},
    num::NonZeroU32,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use self::recorded::{RecordedPlan, RecordedRequests};
use super::failure::Failure;
use crate::{
    config::duration,
    limit::{self, Cost, Limits},
    plan::{self, BurstPlan, FlowsPlan, PlanError, PlannedBurst, PlannedFlow, USUAL_LATENCY},
};

/// Predicts the duration of a burst before it is sent, or the waits of an access log's requests.
///
/// All limits hold at once, as in andante: even spacing (or bursts, where a limit allows them), at most N in any
/// window, and `in-flight`. The margin for jitter is not included.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The limits, all of which hold: 500/min, 10/s burst 20, 2/s strict, in-flight 20; a host before them is no matter.
    #[arg(long, value_name = "[HOST=]LIMITS", value_parser = plan::limits)]
    limit: Limits,
    /// How many requests arrive at once; up to 10,000,000.
    #[arg(long, value_name = "N", value_parser = plan::requests, required_unless_present_any = ["log", "flow"])]
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
    /// What each request costs, where limits count more than requests: input-tokens=1200,output-tokens=500.
    #[arg(long, value_name = "COST", value_parser = plan::cost, default_value = "1", hide_default_value = true)]
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

/// Prints the plan.
///
/// # Errors
/// If the plan would take centuries, or cannot be printed.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { limit: mut limits, requests, flow: flows, log, host, latency, cost, json } = args;
    limit::settle(&mut limits.limits);
    let cost = plan::costs(&limits, cost)?;
    let (now, usual) = (SystemTime::now(), latency.unwrap_or(USUAL_LATENCY));
    let arrives = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let text = match (log, requests) {
        (Some(file), _) => {
            let recorded = RecordedRequests::read(&file, host.as_deref())?;
            let plan = RecordedPlan::new(&recorded, &limits, cost, latency);
            if plan.never_ends() {
                return Err(PlanError::too_slow(file.display(), &limits).into());
            }
            if json { plan.json().to_string() } else { plan.text() }
        }
        (None, None) => {
            let plan = FlowsPlan::new(&limits, flows, cost, usual, arrives)?;
            if plan.never_ends() {
                return Err(PlanError::too_slow(text::requests_of_flows(&plan), &limits).into());
            }
            if json { plan.json().to_string() } else { text::of_flows(&plan) }
        }
        (None, Some(requests)) => {
            let plan = BurstPlan::new(limits, PlannedBurst { requests, cost, latency: usual, arrives });
            if plan.never_ends() {
                return Err(PlanError::too_slow(text::requests_of_burst(&plan), &plan.limits).into());
            }
            if json { plan.json(now).to_string() } else { text::of_burst(&plan, now) }
        }
    };
    writeln!(io::stdout().lock(), "{text}").map_err(Failure::writing)
}

// === impl Failure ===

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::new(error.to_string()).hinting(error.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn centuries_are_refused() {
        let args = Args {
            limit: plan::limits("1/3650d").unwrap(),
            requests: Some(plan::requests("100").unwrap()),
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
