//! Bodies of the requests for changes.

use std::time::Duration;

use http::HeaderMap;
use hyper::body::Incoming;
use serde::Deserialize;

use super::{PageAnswer, bad, read};
use crate::{
    admin::{
        detail::LaneName,
        source::{FlowName, LaneChoice, Steering},
    },
    config::duration,
    limit::Limits,
};

/// The paths of all changes.
pub(super) const PATHS: [&str; 8] = [
    "/api/v1/pause",
    "/api/v1/resume",
    "/api/v1/forget",
    "/api/v1/limit",
    "/api/v1/weights",
    "/api/v1/drop",
    "/api/v1/first",
    "/api/v1/drain",
];

/// A lane; without `rule` all lanes of the host, and without `host` all lanes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaneChange {
    rule: Option<String>,
    host: Option<String>,
    /// Duration, for example `10m`.
    #[serde(rename = "for")]
    length: Option<String>,
}

/// Temporary limits, instead of a rule's own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitChange {
    rule: String,
    limits: String,
    #[serde(rename = "for")]
    length: String,
}

/// Weights, instead of a rule's own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightsChange {
    rule: String,
    weights: Vec<String>,
}

/// The waiting requests of a client, or of one of its flows, in one lane or in all lanes of a host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowChange {
    rule: Option<String>,
    host: String,
    client: String,
    flow: Option<String>,
}

/// A change without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoChange {}

/// The change that a request to `path` asks for, and its lanes.
pub(super) async fn asked(
    path: &str,
    fields: &HeaderMap,
    body: Incoming,
) -> Result<(LaneChoice, Steering), PageAnswer> {
    match path {
        "/api/v1/limit" => {
            let LimitChange { rule, limits, length } = read(fields, body).await?;
            let limits: Limits = limits.parse().map_err(|error| bad(format!("`limits`: {error}")))?;
            Ok((
                LaneChoice::All,
                Steering::Limit { rule: rule.into(), limits, length: read_length(&length).map_err(bad)? },
            ))
        }
        "/api/v1/weights" => {
            let WeightsChange { rule, weights } = read(fields, body).await?;
            let read = |text: &String| text.parse().map_err(|error| format!("`weights`: {text:?}: {error}"));
            let weights = weights.iter().map(read).collect::<Result<_, String>>().map_err(bad)?;
            Ok((LaneChoice::All, Steering::Weights { rule: rule.into(), weights }))
        }
        "/api/v1/drop" | "/api/v1/first" => {
            let FlowChange { rule, host, client, flow } = read(fields, body).await?;
            let (lanes, flow) = (of_host(rule, host), FlowName { client, flow });
            Ok((lanes, if path == "/api/v1/drop" { Steering::Drop(flow) } else { Steering::First(flow) }))
        }
        "/api/v1/drain" => {
            let NoChange {} = read(fields, body).await?;
            Ok((LaneChoice::All, Steering::Drain))
        }
        _ => {
            let LaneChange { rule, host, length } = read(fields, body).await?;
            let lanes = match (rule, host) {
                (None, None) => LaneChoice::All,
                (rule, Some(host)) => of_host(rule, host),
                (Some(_), None) => return Err(bad("a lane has a `rule` and a `host`, and `host` is missing".into())),
            };
            let steering = match (path, length) {
                ("/api/v1/pause", Some(length)) => Steering::Pause(Some(read_length(&length).map_err(bad)?)),
                ("/api/v1/pause", None) => Steering::Pause(None),
                (_, Some(_)) => return Err(bad("`for` is of a pause and of a limit only".into())),
                ("/api/v1/forget", None) => Steering::Forget,
                (_, None) => Steering::Resume,
            };
            Ok((lanes, steering))
        }
    }
}

fn of_host(rule: Option<String>, host: String) -> LaneChoice {
    let host = host.into();
    match rule {
        Some(rule) => LaneChoice::One(LaneName { rule: rule.into(), host }),
        None => LaneChoice::OfHost(host),
    }
}

fn read_length(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|_| format!("`for`: expected a duration, found {text:?}: write \"10m\""))
}
