//! What the pages ask andante for.

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

/// What an operator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Nothing leaves for so long, or until somebody resumes it.
    Pause(Option<Duration>),
    /// Ends such a pause.
    Resume,
    /// What was learned from answers is forgotten.
    Forget,
    /// These limits hold in the place of the rule's own, for so long.
    Limit {
        /// The rule's name.
        rule: Arc<str>,
        /// What holds meanwhile.
        limits: Limits,
        /// For how long.
        length: Duration,
    },
    /// These weights hold in the place of the rule's own, until the next reload.
    Weights {
        /// The rule's name.
        rule: Arc<str>,
        /// What holds from now on.
        weights: Vec<AssignedWeight>,
    },
    /// The requests that wait are refused.
    Drop(FlowName),
    /// The oldest request that waits goes before all others.
    First(FlowName),
    /// What is here is finished, and nothing new is taken, as at SIGTERM.
    Drain,
}

/// Whose requests, as `/status` says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowName {
    /// The client.
    pub client: String,
    /// The hash of the flow; `None` is all requests of the client.
    pub flow: Option<String>,
}

/// Which lanes a change is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneChoice {
    /// Every one.
    All,
    /// All of a host, whatever their rules.
    OfHost(Arc<str>),
    /// One.
    One(LaneName),
}

/// What a change has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Steered {
    /// How many lanes it concerns.
    pub lanes: usize,
    /// How many requests that waited it concerns.
    pub requests: usize,
}

/// Provides the state of andante. All methods are called often, and from any thread.
pub trait StatusSource: Send + Sync {
    /// The account that pages draw on, if there is one.
    fn memory(&self) -> Option<Arc<Memory>> {
        None
    }

    /// andante now, with all its lanes in any order.
    fn status(&self) -> Status;
    /// Counts to be sampled every few seconds: far cheaper than all of [`Self::status`].
    fn sample(&self) -> Sample;
    /// All there is to say of one lane; `None` if there is none of this name.
    fn lane(&self, name: &LaneName) -> Option<LaneDetail>;
    /// What happened after the event of number `after`, the oldest first, as far as it is remembered.
    fn news(&self, after: u64) -> Vec<News>;
    /// What would become of `request`, if the client at `client` sent it now.
    fn explain(&self, request: &Request<()>, client: IpAddr) -> Explanation;
    /// The units other than requests that the limits of this rule count, as it is configured.
    fn units(&self, rule: &str) -> Vec<Unit>;
    /// Does this to these lanes. `None` if there are none of this name.
    fn steer(&self, lanes: &LaneChoice, steering: &Steering) -> Option<Steered>;
    /// Whether requests are welcome.
    fn ready(&self) -> bool;
    /// What is not as it should be although requests are welcome.
    fn caveat(&self) -> Option<&'static str> {
        None
    }
    /// Why they are not, in a few words.
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
    /// As the log says it.
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

    /// For how long.
    pub fn length(&self) -> Option<Duration> {
        match self {
            Self::Pause(length) => *length,
            Self::Limit { length, .. } => Some(*length),
            _ => None,
        }
    }

    /// What else there is to say of it.
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

    /// The rule that it is of, if it is of a rule and not of lanes.
    pub fn rule(&self) -> Option<&Arc<str>> {
        match self {
            Self::Limit { rule, .. } | Self::Weights { rule, .. } => Some(rule),
            _ => None,
        }
    }
}
