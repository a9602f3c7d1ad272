//! Data of the live page besides `/status`: one opened lane, and recent events.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    str::FromStr,
    sync::Arc,
};

use serde::Serialize;

use super::status::{LaneStatus, Requests};
use crate::lane::LaneActivity;

/// Name of a lane: a rule's name and a host. Written with a space between them, which no host has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneName {
    /// The rule's name, as in [`LaneStatus::rule`].
    pub rule: Arc<str>,
    /// The host.
    pub host: Arc<str>,
}

/// Counts of all lanes at one instant.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Each lane.
    pub lanes: Vec<(LaneName, LaneActivity)>,
    /// Waits for a slot of each rule's requests so far, the shortest waits first.
    pub waits: HashMap<Arc<str>, Vec<WaitBucket>>,
    /// Requests that ended so far.
    pub requests: Requests,
}

/// A lane, with the counts of its rule.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LaneDetail {
    /// The lane.
    pub lane: LaneStatus,
    /// Answers to requests of its rule so far, by status code.
    pub answers: BTreeMap<String, u64>,
}

/// Requests with waits in one range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitBucket {
    /// Upper bound of the wait in seconds; `None` in the last bucket, which has no bound.
    pub at_most_s: Option<f64>,
    /// Requests in this bucket and in no shorter one.
    pub count: u64,
}

/// An event in a lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct News {
    /// Number of the event, counted from 1.
    pub number: u64,
    /// Time in seconds since the start.
    pub at_s: f64,
    /// The rule's name.
    pub rule: String,
    /// The host.
    pub host: String,
    /// Description of the event in a sentence.
    pub text: String,
}

// === impl LaneName ===

impl LaneName {
    /// The name of `lane`.
    pub fn of(lane: &LaneStatus) -> Self {
        Self { rule: lane.rule.as_str().into(), host: lane.host.as_str().into() }
    }
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rule, self.host)
    }
}

impl FromStr for LaneName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (rule, host) = text.rsplit_once(' ').ok_or(())?;
        Ok(Self { rule: rule.into(), host: host.into() })
    }
}
