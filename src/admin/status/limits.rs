//! What `/status` shows of limits.

use serde::{Deserialize, Serialize};

use super::fleet::ShareStatus;

/// One limit at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitStatus {
    /// As it would be written in the configuration: `500/min burst 20`.
    pub limit: String,
    /// Its pace: requests per second.
    pub per_second: f64,
    /// Cost units that count in the current window.
    pub used: u64,
    /// Cost units that still fit into it.
    pub room: u64,
    /// Cost units that the lane's requests have taken so far, or the narrower rule's.
    #[serde(default)]
    pub used_total: u64,
    /// Who asked for it.
    pub source: LimitSource,
    /// Time until the rule's own limits hold again; `null` if an operator has not set this one for a while.
    #[serde(default)]
    pub ends_in_s: Option<f64>,
    /// What it rests on, in a line for people; `null` if it is configured.
    #[serde(default)]
    pub evidence: Option<String>,
    /// The margin for jitter in force, in milliseconds.
    pub margin_ms: f64,
    /// Until a calendar renews it; `null` if its window rolls.
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
    /// Which part of it is this andante's, from 0 to 1, where an API reports it to several; `null` if all of it is.
    #[serde(default)]
    pub part: Option<f64>,
}

impl LimitStatus {
    /// How far its window is used, from 0 to 1; `None` if nothing fits into it.
    pub fn used_ratio(&self) -> Option<f64> {
        let all = self.used + self.room;
        (all > 0).then(|| self.used as f64 / all as f64)
    }
}

/// How many requests an API was found to allow at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AtOnceStatus {
    /// So many.
    pub most: u32,
    /// What that rests on, in a line for people.
    pub evidence: String,
}

/// A group of requests that has a limit of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnLimitStatus {
    /// Which: a method and a path (`GET /users/*`), or `credential 1`, whose value is nowhere.
    pub requests: String,
    /// Its pace, if that is known.
    pub per_second: Option<f64>,
    /// How many of them may be under way at once, if that is limited.
    pub at_once: Option<u32>,
    /// What that rests on, in a line for people.
    pub evidence: String,
    /// Time until the next of them may leave, as far as this limit is concerned.
    pub next_slot_s: f64,
}

/// A rule for some of a lane's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddedRuleStatus {
    /// Its name.
    pub rule: String,
    /// How many budgets of it remember something.
    pub budgets: u64,
    /// How many of them some requests wait for, and how many requests.
    pub busy: u64,
    /// See there.
    pub waiting: u64,
    /// Requests on their way or being answered.
    pub in_flight: u64,
    /// How many there may be of the budget that most wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_limit: Option<u32>,
    /// How far the budget is used that most wait for.
    pub limits: Vec<LimitStatus>,
}

/// Who asked for a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitSource {
    /// The configuration, flags included.
    #[default]
    Config,
    /// The API's answers.
    Learned,
}

/// One budget of an API, as its answers tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// What the API calls it, if it has a name.
    pub name: Option<String>,
    /// How much is left, if the API says so.
    pub left: Option<f64>,
    /// How much fits into a window, if the API says so.
    pub limit: Option<f64>,
    /// Time until it is reset, if the API says so.
    pub reset_s: Option<f64>,
    /// Whether it counts requests, and not tokens or the like.
    pub requests: bool,
}
