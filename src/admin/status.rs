//! The content of `/status`, which is a contract. Times are in seconds unless a name says otherwise.

mod fleet;
mod limits;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    fleet::{FleetStatus, ShareStatus},
    limits::{AddedRuleStatus, AtOnceStatus, BudgetStatus, LimitSource, LimitStatus, OwnLimitStatus},
};
use crate::metrics::{CallOutcome, Metrics, TunnelContent, TurnOutcome};

/// andante at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// andante's version.
    pub version: String,
    /// Name of this andante: the machine's name, and the address for workers.
    #[serde(default)]
    pub instance: String,
    /// Time since the start.
    pub uptime_s: f64,
    /// andante finishes present requests and accepts no new ones.
    pub draining: bool,
    /// The configuration, and the result of its last reload.
    pub config: ConfigStatus,
    /// Persisted state, and the success of writing it; `None` if nothing is persisted.
    pub state: Option<StateStatus>,
    /// State of the access log; `None` if there is none.
    #[serde(default)]
    pub access_log: Option<AccessLogStatus>,
    /// Sharing of budgets with other andantes; `None` if budgets are not shared.
    #[serde(default)]
    pub fleet: Option<FleetStatus>,
    /// Open connections.
    pub connections: Connections,
    /// Open `CONNECT` tunnels.
    pub tunnels: i64,
    /// Certificates made for intercepted hosts.
    pub certificates: u64,
    /// Requests that ended so far, by outcome.
    pub requests: Requests,
    /// Answers of APIs that reached workers so far, by status code.
    pub answers: BTreeMap<String, u64>,
    /// Intercepted tunnels so far, by content.
    pub interceptions: Interceptions,
    /// Turns inside tunnels that are paced by turns so far, by outcome.
    #[serde(default)]
    pub turns: Turns,
    /// Number of retries so far.
    pub retries_total: u64,
    /// Requests that needed no slot so far, because they shared the answer to another one.
    #[serde(default)]
    pub slots_saved_total: u64,
    /// Problems so far, the most frequent first.
    pub incidents: Vec<IncidentStatus>,
    /// The names of the rules that no request has matched so far.
    pub unmatched_rules: Vec<String>,
    /// Number of lanes, listed below or not.
    pub lanes_total: u64,
    /// The lanes.
    pub lanes: Vec<LaneStatus>,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// The file with the configuration, if there is one.
    pub file: Option<String>,
    /// Number of successful reloads.
    pub reloads_total: u64,
    /// The last load succeeded. Otherwise the earlier configuration stays in force.
    pub last_reload_successful: bool,
    /// Time since the present configuration was loaded.
    pub loaded_s: f64,
    /// Reasons why the last load failed.
    pub problems: Vec<String>,
}

/// State that outlives this andante.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StateStatus {
    /// The file with the state.
    pub file: String,
    /// Number of commits, over all processes.
    pub commits_total: u64,
    /// Reason why the state cannot be written at the moment, if so.
    pub problem: Option<String>,
}

/// The access log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessLogStatus {
    /// Lines that were lost so far.
    pub lost_total: u64,
    /// Reason why the log cannot be written at the moment, if so.
    pub problem: Option<String>,
}

/// Open connections, by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// From workers.
    pub client: i64,
    /// To upstreams.
    pub upstream: i64,
}

/// Requests that ended so far, by [`CallOutcome`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// The upstream answered.
    pub answered: u64,
    /// andante had no slot in time.
    pub refused: u64,
    /// The upstream could not be reached or broke off.
    pub failed: u64,
    /// The worker went away first.
    pub left: u64,
    /// A tunnel ended.
    pub tunnelled: u64,
    /// A bad request or a denied target.
    pub rejected: u64,
}

/// Tunnels that were intercepted so far, by [`TunnelContent`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interceptions {
    /// TLS, with a certificate of andante's that the worker accepted.
    pub tls: u64,
    /// HTTP in the clear.
    pub plain: u64,
    /// TLS, but the worker did not trust andante's certificate.
    pub untrusted: u64,
    /// TLS that failed for another reason.
    pub failed: u64,
    /// Neither TLS nor HTTP.
    pub stranger: u64,
}

/// Turns inside tunnels so far, by [`TurnOutcome`]. A turn is everything that a worker sends before the API answers:
/// with HTTP/1.1 a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// The turn had its slot and was sent.
    pub sent: u64,
    /// The turn got no slot in time, and its tunnel was closed.
    pub refused: u64,
    /// Either side left while the turn waited.
    pub left: u64,
    /// The API closed the connection while the turn waited.
    pub closed: u64,
    /// The API had closed the connection, or closed it with an answer.
    #[serde(default)]
    pub ended: u64,
}

/// A kind of problem, with its number of occurrences.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IncidentStatus {
    /// Type of the problem: an error type of RFC 9209, or one of [`Incidents`](crate::proxy::Incidents).
    pub kind: String,
    /// Description of the problem, with the host.
    pub detail: String,
    /// Advice about the problem.
    pub hint: String,
    /// Party that has to act: `client`, `proxy` or `upstream`.
    pub blame: String,
    /// Number of requests or tunnels that failed because of it.
    pub total: u64,
    /// Time since the last occurrence.
    pub last_s: f64,
}

/// A lane at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// The rule's name; `default` for a host without one.
    pub rule: String,
    /// The host.
    pub host: String,
    /// Label of its rule in metrics.
    #[serde(skip)]
    pub label: String,
    /// Handling of HTTPS to the host: `intercept`, `turns`, `tunnel` or `refuse`. In turns and tunnels andante sees no
    /// requests: turns are paced, tunnels are not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub https: String,
    /// Limits, which all hold.
    pub limits: Vec<LimitStatus>,
    /// Concurrency that the API was found to allow, if that is limited.
    #[serde(default)]
    pub at_once: Option<AtOnceStatus>,
    /// Groups of requests with learned limits of their own, besides the lane's.
    #[serde(default)]
    pub own_limits: Vec<OwnLimitStatus>,
    /// Budgets of added rules, one row for each rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AddedRuleStatus>,
    /// Requests in flight.
    pub in_flight: u64,
    /// Limit on requests in flight.
    pub in_flight_limit: Option<u32>,
    /// Evidence for a learned in-flight limit (`in-flight = "auto"`), in a line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_evidence: Option<String>,
    /// This andante's share of the in-flight limit, if a fleet shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_share: Option<ShareStatus>,
    /// Requests that wait for a slot.
    pub waiting: u64,
    /// The flows with the most waiting requests, the longest queue first.
    #[serde(default)]
    pub flows: Vec<FlowStatus>,
    /// Wait of the oldest request in the queue.
    pub oldest_waiting_s: Option<f64>,
    /// Reason why no request leaves at the moment, if so.
    pub gate: Option<GateStatus>,
    /// Budgets that the API reports.
    pub budgets: Vec<BudgetStatus>,
    /// Failures among the last requests; `null` if a failing upstream is never paused.
    pub failures: Option<Failures>,
    /// Last failure of a request, or of one attempt.
    pub last_error: Option<LastError>,
    /// Time until the next slot; `null` if that depends on an answer.
    pub next_slot_s: Option<f64>,
    /// Time until all requests that wait now are sent.
    pub drain_eta_s: Option<f64>,
    /// Requests sent per second over the last ten seconds, or since the first one if that is more recent.
    #[serde(default)]
    pub pace: f64,
    /// Requests sent so far.
    pub sent_total: u64,
    /// Requests that andante refused so far.
    pub refused_total: u64,
    /// Answers of 429 from the API so far.
    pub answered_429_total: u64,
    /// Requests whose clients left before an answer so far.
    pub left_total: u64,
    /// Requests among these that were waiting for a slot.
    pub left_queued_total: u64,
    /// Sum of their times from arrival to departure.
    pub left_seconds_total: f64,
    /// Longest of these times.
    pub left_seconds_max: f64,
    /// The time after which most of the last ones left, if there is such a time: usually their own time-out.
    pub left_after_s: Option<f64>,
    /// Sum of all waits so far.
    pub wait_seconds_total: f64,
    /// Longest of these waits.
    pub wait_seconds_max: f64,
    /// Time from the first request sent to the last one, for computing the average pace.
    pub active_s: f64,
}

/// A flow with waiting requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Owner: an address, or an IPv6 /64.
    pub client: String,
    /// Id of the flow among the client's flows, for the life of this process; `null` for requests without a flow.
    pub flow: Option<String>,
    /// Urgency, from 0 to 7.
    pub urgency: u8,
    /// Waiting requests of the flow.
    pub waiting: u32,
}

/// Outcomes of the last requests to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// Failed requests.
    pub failed: u32,
    /// Counted requests.
    pub of: u32,
}

/// The last failure of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LastError {
    /// Description of the failure.
    pub detail: String,
    /// Time since the failure.
    pub last_s: f64,
}

/// A pause of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateStatus {
    /// Reason for the pause.
    pub reason: String,
    /// Time until the pause ends; `null` if only an operator ends it.
    pub opens_in_s: Option<f64>,
}

// === impl Status ===

impl Status {
    /// The status with at most `limit` lanes: the ones with the most waiting requests, then the rest by name. Sets
    /// [`Self::lanes_total`].
    pub fn waiting_first(mut self, limit: usize) -> Self {
        self.lanes_total = self.lanes.len() as u64;
        self.lanes.sort_unstable_by(|a, b| {
            b.waiting.cmp(&a.waiting).then_with(|| a.rule.cmp(&b.rule)).then_with(|| a.host.cmp(&b.host))
        });
        self.lanes.truncate(limit);
        self
    }
}

// === impl Requests ===

impl Requests {
    /// Counts of `metrics`, over all rules.
    pub fn counted(metrics: &Metrics) -> Self {
        Self {
            answered: metrics.counted(CallOutcome::Answered),
            refused: metrics.counted(CallOutcome::Refused),
            failed: metrics.counted(CallOutcome::Failed),
            left: metrics.counted(CallOutcome::ClientLeft),
            tunnelled: metrics.counted(CallOutcome::Tunnelled),
            rejected: metrics.counted(CallOutcome::Rejected),
        }
    }
}

// === impl Interceptions ===

impl Interceptions {
    /// Counts of `metrics`, over all rules.
    pub fn counted(metrics: &Metrics) -> Self {
        let counted = metrics.interceptions();
        let of = |outcome: TunnelContent| counted.get(outcome.as_str()).copied().unwrap_or(0);
        Self {
            tls: of(TunnelContent::Tls),
            plain: of(TunnelContent::Plain),
            untrusted: of(TunnelContent::Untrusted),
            failed: of(TunnelContent::Failed),
            stranger: of(TunnelContent::NotHttp),
        }
    }
}

// === impl Turns ===

impl Turns {
    /// Counts of `metrics`, over all rules.
    pub fn counted(metrics: &Metrics) -> Self {
        let counted = metrics.turns();
        let of = |outcome: TurnOutcome| counted.get(outcome.as_str()).copied().unwrap_or(0);
        Self {
            sent: of(TurnOutcome::Sent),
            refused: of(TurnOutcome::Refused),
            left: of(TurnOutcome::Left),
            closed: of(TurnOutcome::Closed),
            ended: of(TurnOutcome::Ended),
        }
    }
}

// === impl LaneStatus ===

impl LaneStatus {
    /// Used part of the fullest limit's window, from 0 to 1; `None` without limits.
    pub fn used_ratio(&self) -> Option<f64> {
        self.limits.iter().filter_map(LimitStatus::used_ratio).reduce(f64::max)
    }

    /// Time until the first temporary limit ends, limits of added rules included.
    pub fn limits_end_in_s(&self) -> Option<f64> {
        let limits = self.limits.iter().chain(self.rules.iter().flat_map(|rule| &rule.limits));
        limits.filter_map(|limit| limit.ends_in_s).reduce(f64::min)
    }
}
