//! `/status` fields about limits.

use serde::{Deserialize, Serialize};

use super::fleet::ShareStatus;

/// A limit at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitStatus {
    /// Notation of the configuration: `500/min burst 20`.
    pub limit: String,
    /// Pace of the limit in requests per second.
    pub per_second: f64,
    /// Cost units that count in the current window.
    pub used: u64,
    /// Cost units that still fit into the window.
    pub room: u64,
    /// Cost units that requests of the lane, or of the added rule, have taken so far.
    #[serde(default)]
    pub used_total: u64,
    /// Source of the limit.
    pub source: LimitSource,
    /// Time until the rule's own limits hold again; `null` unless an operator has set this limit temporarily.
    #[serde(default)]
    pub ends_in_s: Option<f64>,
    /// Evidence for a learned limit, in a line for people; `null` if the limit is configured.
    #[serde(default)]
    pub evidence: Option<String>,
    /// The margin for jitter in force, in milliseconds.
    pub margin_ms: f64,
    /// Time until a calendar renews it; `null` if its window rolls.
    #[serde(default)]
    pub renewed_in_s: Option<f64>,
    /// Time until the first of the units that count leaves the window; `null` if none counts, if that depends on an answer, or
    /// if a calendar renews it.
    #[serde(default)]
    pub next_free_in_s: Option<f64>,
    /// Time until the window is empty if nothing more is sent; `null` as above.
    #[serde(default)]
    pub all_free_in_s: Option<f64>,
    /// What this andante holds of it; `null` if it is not shared with others.
    #[serde(default)]
    pub share: Option<ShareStatus>,
    /// Part of a reported quota that this andante may use, from 0 to 1, where the API reports it to several; `null`
    /// if all of it.
    #[serde(default)]
    pub part: Option<f64>,
}

impl LimitStatus {
    /// Used part of the window, from 0 to 1; `None` if nothing fits into it.
    pub fn used_ratio(&self) -> Option<f64> {
        let all = self.used + self.room;
        (all > 0).then(|| self.used as f64 / all as f64)
    }
}

/// Concurrency that an API was found to allow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AtOnceStatus {
    /// Most requests at once.
    pub most: u32,
    /// Evidence, in a line for people.
    pub evidence: String,
}

/// A group of requests with a limit of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnLimitStatus {
    /// Name of the group: a method and a path (`GET /users/*`), or `credential 1`, whose value is nowhere.
    pub requests: String,
    /// Pace of the group, if it is known.
    pub per_second: Option<f64>,
    /// Most requests of the group in flight, if that is limited.
    pub at_once: Option<u32>,
    /// Evidence, in a line for people.
    pub evidence: String,
    /// Time until the next request of the group may leave under this limit.
    pub next_slot_s: f64,
}

/// A rule for some of a lane's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddedRuleStatus {
    /// The rule's name.
    pub rule: String,
    /// Budgets of the rule that remember something.
    pub budgets: u64,
    /// Budgets of the rule for which requests wait.
    pub busy: u64,
    /// Requests that wait for these budgets.
    pub waiting: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// In-flight limit of the budget for which most requests wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_limit: Option<u32>,
    /// Limits of the budget for which most requests wait.
    pub limits: Vec<LimitStatus>,
}

/// Source of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitSource {
    /// The configuration, including flags.
    #[default]
    Config,
    /// The API's answers.
    Learned,
}

/// A budget of an API, according to its answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// Name in the API, if there is one.
    pub name: Option<String>,
    /// Remaining amount, if the API reports it.
    pub left: Option<f64>,
    /// Amount per window, if the API reports it.
    pub limit: Option<f64>,
    /// Time until the reset, if the API reports it.
    pub reset_s: Option<f64>,
    /// The budget counts requests, and not tokens or the like.
    pub requests: bool,
}
