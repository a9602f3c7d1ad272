//! `andante ctl`: changes a running andante by its admin API.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{admin_client::AdminArgs, terminal, wording};
use crate::config::duration;

/// Changes a running andante
///
/// Needs the token of its `admin-token`. Each change is logged with its author.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    change: SteeringCommand,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum SteeringCommand {
    /// Stops sending; queued requests keep their places
    Pause {
        #[command(flatten)]
        lane: LaneArgs,
        /// Duration of the pause, as in 10m; without it until `resume`
        #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
        length: Option<Duration>,
    },
    /// Ends pauses of `pause`
    Resume {
        #[command(flatten)]
        lane: LaneArgs,
    },
    /// Sets the limits of a rule for a while; then the rule's own limits hold again
    Limit {
        /// Name of the rule in `/status`
        #[arg(value_name = "RULE")]
        rule: String,
        /// Limits for that time, as in 100/min,in-flight 5
        #[arg(value_name = "LIMITS")]
        limits: String,
        /// Duration, as in 10m; 0s ends earlier temporary limits
        #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
        length: Duration,
    },
    /// Sets the weights of a rule until the configuration is loaded again
    Weights {
        /// Name of the rule in `/status`
        #[arg(value_name = "RULE")]
        rule: String,
        /// A flow or a network of clients, with its weight, as in batch=2 or 10.1.0.0/16=5
        #[arg(value_name = "NAME=WEIGHT", required = true)]
        weights: Vec<String>,
    },
    /// Forgets what answers have taught; requests already sent still count
    Forget {
        #[command(flatten)]
        lane: LaneArgs,
    },
    /// Refuses waiting requests of a client, or of one of its flows
    Drop(FlowArgs),
    /// Moves the oldest waiting request of a client, or of one of its flows, before all others in its
    /// lane
    First(FlowArgs),
    /// Finishes present requests and accepts no new ones, as at SIGTERM
    Drain,
}

/// Owner of the requests, as listed in `/status` under `flows`.
#[derive(Clone, Debug, clap::Args)]
struct FlowArgs {
    /// The host of the lane
    #[arg(value_name = "HOST")]
    host: String,
    /// Rule of the lane, by its name in `/status`; without it all lanes of the host
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// The client
    #[arg(long, value_name = "IP")]
    client: String,
    /// Hash of the flow; without it all requests of the client
    #[arg(long, value_name = "HASH")]
    flow: Option<String>,
}

/// Effect of a change.
#[derive(Deserialize)]
struct Done {
    lanes: u64,
    requests: u64,
}

/// Choice of lanes; all lanes by default.
#[derive(Clone, Debug, clap::Args)]
struct LaneArgs {
    /// Host of the lane; without it all lanes
    #[arg(value_name = "HOST")]
    host: Option<String>,
    /// Rule of the lane, by its name in `/status`; without it all lanes of the host
    #[arg(long, value_name = "NAME", requires = "host")]
    rule: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  andante ctl --token token pause --for 10m
  andante ctl --token token pause api.example.com
  andante ctl --token token resume
  andante ctl --token token limit api.example.com 100/min --for 10m
  andante ctl --token token drop api.example.com --client 10.0.0.7

Exit codes: 0 done, 1 not done, 2 wrong usage.";

/// Sends the change, and prints the number of changed lanes.
pub async fn run(args: &Args) -> ExitCode {
    let client = match args.admin.client("ctl").await {
        Ok(client) => client,
        Err(code) => return code,
    };
    let (path, change) = args.change.request();
    match client.change::<Done>(path, &Value::Object(change)).await {
        Ok(Done { lanes, requests }) => {
            let done = match args.change {
                // The change also applies to future lanes.
                SteeringCommand::Pause { .. } | SteeringCommand::Limit { .. } | SteeringCommand::Weights { .. }
                    if lanes == 0 =>
                {
                    "done: applies to future lanes, since no request has arrived yet".to_owned()
                }
                SteeringCommand::Drop(_) | SteeringCommand::First(_) if requests == 0 => {
                    "0 requests: none of that client waits there".to_owned()
                }
                SteeringCommand::Drop(_) | SteeringCommand::First(_) => wording::several(requests, "request"),
                SteeringCommand::Drain => format!("draining, with {} waiting", wording::several(requests, "request")),
                _ => wording::several(lanes, "lane"),
            };
            let _ = writeln!(io::stdout(), "{done}");
            ExitCode::SUCCESS
        }
        Err(failure) => terminal::failure(&failure),
    }
}

// === impl SteeringCommand ===

impl SteeringCommand {
    /// Path and parameters of the request.
    fn request(&self) -> (&'static str, Map<String, Value>) {
        match self {
            Self::Pause { lane, length } => {
                let mut change = lane.change();
                change.extend(length.map(|length| ("for".to_owned(), written(length))));
                ("/api/v1/pause", change)
            }
            Self::Resume { lane } => ("/api/v1/resume", lane.change()),
            Self::Forget { lane } => ("/api/v1/forget", lane.change()),
            Self::Limit { rule, limits, length } => {
                let said = [("rule", rule.as_str().into()), ("limits", limits.as_str().into())];
                ("/api/v1/limit", object(said.into_iter().chain([("for", written(*length))])))
            }
            Self::Weights { rule, weights } => {
                ("/api/v1/weights", object([("rule", rule.as_str().into()), ("weights", weights.as_slice().into())]))
            }
            Self::Drop(flow) => ("/api/v1/drop", flow.change()),
            Self::First(flow) => ("/api/v1/first", flow.change()),
            Self::Drain => ("/api/v1/drain", Map::new()),
        }
    }
}

// === impl LaneArgs ===

impl LaneArgs {
    fn change(&self) -> Map<String, Value> {
        lane(self.host.as_deref(), self.rule.as_deref())
    }
}

// === impl FlowArgs ===

impl FlowArgs {
    fn change(&self) -> Map<String, Value> {
        let Self { host, rule, client, flow } = self;
        let mut change = lane(Some(host), rule.as_deref());
        let flow = flow.iter().map(|flow| ("flow", flow.as_str().into()));
        change.extend(object([("client", client.as_str().into())].into_iter().chain(flow)));
        change
    }
}

fn lane(host: Option<&str>, rule: Option<&str>) -> Map<String, Value> {
    let members = [("rule", rule), ("host", host)].into_iter();
    object(members.filter_map(|(name, value)| Some((name, value?.into()))))
}

fn object(members: impl IntoIterator<Item = (&'static str, Value)>) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Form of the admin API: seconds and milliseconds are separate, so that every length can be written.
fn written(length: Duration) -> Value {
    match (length.as_secs(), length.subsec_millis()) {
        (seconds, 0) => format!("{seconds}s").into(),
        (seconds, millis) => format!("{seconds}s{millis}ms").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lanes_of_a_host_are_meant_unless_a_rule_is_named() {
        let lane = |rule: Option<&str>| LaneArgs { host: Some("a".into()), rule: rule.map(Into::into) };
        let said = |change: SteeringCommand| Value::Object(change.request().1).to_string();
        let length = Some(Duration::from_secs(90));
        assert_eq!(said(SteeringCommand::Pause { lane: lane(None), length }), r#"{"for":"90s","host":"a"}"#);
        assert_eq!(said(SteeringCommand::Resume { lane: lane(Some("b")) }), r#"{"host":"a","rule":"b"}"#);
        assert_eq!(said(SteeringCommand::Resume { lane: LaneArgs { host: None, rule: None } }), "{}");
        let limit =
            SteeringCommand::Limit { rule: "r".into(), limits: "1/s".into(), length: Duration::from_millis(1500) };
        assert_eq!(said(limit), r#"{"for":"1s500ms","limits":"1/s","rule":"r"}"#);
        let flow = FlowArgs { host: "a".into(), rule: None, client: "::1".into(), flow: Some("1f".into()) };
        assert_eq!(said(SteeringCommand::Drop(flow)), r#"{"client":"::1","flow":"1f","host":"a"}"#);
    }
}
