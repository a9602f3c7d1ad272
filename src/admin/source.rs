//! Interface between the pages and andante.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use http::Request;
use serde::Serialize;

use super::{
    detail::{LaneDetail, LaneName, News, Sample},
    explanation::Explanation,
    status::Status,
};
use crate::{
    limit::{Limits, Unit},
    memory::Memory,
    policy::AssignedWeight,
};

/// Command of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Pauses for this time, or until an operator resumes.
    Pause(Option<Duration>),
    /// Ends such a pause.
    Resume,
    /// Forgets all learned state.
    Forget,
    /// Replaces the rule's limits for a time.
    Limit {
        /// The rule's name.
        rule: Arc<str>,
        /// Limits for that time.
        limits: Limits,
        /// Duration.
        length: Duration,
    },
    /// Replaces the rule's weights until the next reload.
    Weights {
        /// The rule's name.
        rule: Arc<str>,
        /// New weights.
        weights: Vec<AssignedWeight>,
    },
    /// Refuses the waiting requests.
    Drop(FlowName),
    /// Moves the oldest waiting request before all others.
    First(FlowName),
    /// Finishes present requests and accepts no new ones, as at SIGTERM.
    Drain,
}

/// Owner of requests, in the notation of `/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowName {
    /// The client.
    pub client: String,
    /// The hash of the flow; `None` means all requests of the client.
    pub flow: Option<String>,
}

/// Lanes that a change affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneChoice {
    /// All lanes.
    All,
    /// All lanes of a host, whatever their rules.
    OfHost(Arc<str>),
    /// A single lane.
    One(LaneName),
}

/// Effect of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Steered {
    /// Number of affected lanes.
    pub lanes: usize,
    /// Number of affected waiting requests.
    pub requests: usize,
}

/// Provides the state of andante. All methods are called often, and from any thread.
pub trait StatusSource: Send + Sync {
    /// The memory account of the pages, if there is one.
    fn memory(&self) -> Option<Arc<Memory>> {
        None
    }

    /// The present status, with all lanes in any order.
    fn status(&self) -> Status;
    /// Counts to be sampled every few seconds: far cheaper than all of [`Self::status`].
    fn sample(&self) -> Sample;
    /// All there is to say of one lane; `None` if there is none of this name.
    fn lane(&self, name: &LaneName) -> Option<LaneDetail>;
    /// Events after the one with number `after`, the oldest first, as far as they are remembered.
    fn news(&self, after: u64) -> Vec<News>;
    /// Explains `request`, as if the client at `client` sent it now.
    fn explain(&self, request: &Request<()>, client: IpAddr) -> Explanation;
    /// The units other than requests that the limits of this rule count in the configuration.
    fn units(&self, rule: &str) -> Vec<Unit>;
    /// Applies `steering` to these lanes. `None` if there are none of this name.
    fn steer(&self, lanes: &LaneChoice, steering: &Steering) -> Option<Steered>;
    /// Returns whether andante accepts requests.
    fn ready(&self) -> bool;
    /// Problem that exists although andante accepts requests.
    fn caveat(&self) -> Option<String> {
        None
    }
    /// Reason why andante accepts no requests, in a few words.
    fn unready(&self) -> &'static str {
        "draining"
    }
}

// === impl LaneChoice ===

impl fmt::Display for LaneChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("every lane"),
            Self::OfHost(host) => f.write_str(host),
            Self::One(lane) => lane.fmt(f),
        }
    }
}

// === impl Steering ===

impl Steering {
    /// Form for the log.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Pause(_) => "pause",
            Self::Resume => "resume",
            Self::Forget => "forget",
            Self::Limit { .. } => "limit",
            Self::Weights { .. } => "weights",
            Self::Drop(_) => "drop",
            Self::First(_) => "first",
            Self::Drain => "drain",
        }
    }

    /// Duration of the change.
    pub fn length(&self) -> Option<Duration> {
        match self {
            Self::Pause(length) => *length,
            Self::Limit { length, .. } => Some(*length),
            _ => None,
        }
    }

    /// Parameters of the command, for the log.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Limit { limits, .. } => Some(limits.written().join(", ")),
            Self::Weights { weights, .. } => {
                Some(weights.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            Self::Drop(FlowName { client, flow }) | Self::First(FlowName { client, flow }) => {
                Some(flow.as_ref().map_or_else(|| client.clone(), |flow| format!("{client} {flow}")))
            }
            _ => None,
        }
    }

    /// The rule that the change is for, unless it is for lanes.
    pub fn rule(&self) -> Option<&Arc<str>> {
        match self {
            Self::Limit { rule, .. } | Self::Weights { rule, .. } => Some(rule),
            _ => None,
        }
    }
}
