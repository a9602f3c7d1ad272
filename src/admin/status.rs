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
    /// Which andante this is: the machine's name, and where workers connect.
    #[serde(default)]
    pub instance: String,
    /// Time since the start.
    pub uptime_s: f64,
    /// Whether it finishes what it has and takes nothing new.
    pub draining: bool,
    /// The configuration, and how the last reload of it went.
    pub config: ConfigStatus,
    /// What outlives this andante, and how writing it goes; `None` if nothing does.
    pub state: Option<StateStatus>,
    /// How writing the access log goes; `None` if there is none.
    #[serde(default)]
    pub access_log: Option<AccessLogStatus>,
    /// How budgets are shared with other andantes; `None` if they are not.
    #[serde(default)]
    pub fleet: Option<FleetStatus>,
    /// Open connections.
    pub connections: Connections,
    /// Open `CONNECT` tunnels.
    pub tunnels: i64,
    /// Certificates made for intercepted hosts.
    pub certificates: u64,
    /// Requests that ended so far, by how they ended.
    pub requests: Requests,
    /// Answers of APIs that reached workers so far, by status code.
    pub answers: BTreeMap<String, u64>,
    /// Tunnels that were intercepted so far, by what came through them.
    pub interceptions: Interceptions,
    /// Turns inside of tunnels that are paced by turns so far, by what became of them.
    #[serde(default)]
    pub turns: Turns,
    /// How many times a request was sent again so far.
    pub retries_total: u64,
    /// How many requests needed no slot so far, since they shared the answer of another one.
    #[serde(default)]
    pub slots_saved_total: u64,
    /// What went wrong so far, the most frequent first.
    pub incidents: Vec<IncidentStatus>,
    /// The names of the rules that no request has matched so far.
    pub unmatched_rules: Vec<String>,
    /// How many lanes there are, listed below or not.
    pub lanes_total: u64,
    /// The lanes.
    pub lanes: Vec<LaneStatus>,
}

/// The configuration that holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// The file that it was read from, if it was.
    pub file: Option<String>,
    /// How many times it was taken over while andante ran.
    pub reloads_total: u64,
    /// Whether what was loaded last holds. If not, what held before still does.
    pub last_reload_successful: bool,
    /// Time since the configuration that holds was loaded.
    pub loaded_s: f64,
    /// Why what was loaded last does not hold.
    pub problems: Vec<String>,
}

/// What outlives this andante.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StateStatus {
    /// The file that it is in.
    pub file: String,
    /// How many times it was written, ever.
    pub commits_total: u64,
    /// Why it cannot be written at the moment, if so.
    pub problem: Option<String>,
}

/// The access log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessLogStatus {
    /// Lines that were not written so far.
    pub lost_total: u64,
    /// Why it cannot be written at the moment, if so.
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
    /// TLS, with a certificate of ours that the worker took.
    pub tls: u64,
    /// HTTP in the clear.
    pub plain: u64,
    /// TLS, but the worker did not trust our certificate.
    pub untrusted: u64,
    /// TLS that failed for another reason.
    pub failed: u64,
    /// Neither TLS nor HTTP.
    pub stranger: u64,
}

/// Turns inside of tunnels so far, by [`TurnOutcome`]. A turn is what a worker sends before the API answers: with HTTP/1.1 a
/// request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// It had its slot and was sent.
    pub sent: u64,
    /// It could not have a slot in time, and its tunnel was closed.
    pub refused: u64,
    /// One side left while it waited.
    pub left: u64,
    /// The API closed the connection while it waited.
    pub closed: u64,
    /// The API had closed the connection, or closed it with an answer.
    #[serde(default)]
    pub ended: u64,
}

/// One thing that went wrong, however often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IncidentStatus {
    /// What kind of thing: an error type of RFC 9209, or one of [`Incidents`](crate::proxy::Incidents).
    pub kind: String,
    /// What happened, and on which host.
    pub detail: String,
    /// What to do about it.
    pub hint: String,
    /// Who has to do it: `client`, `proxy` or `upstream`.
    pub blame: String,
    /// How many requests it has cost, or tunnels.
    pub total: u64,
    /// Time since it happened last.
    pub last_s: f64,
}

/// One lane at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// The rule's name; `default` for a host without one.
    pub rule: String,
    /// The host.
    pub host: String,
    /// What metrics call its rule.
    #[serde(skip)]
    pub label: String,
    /// Handling of HTTPS to the host: `intercept`, `turns`, `tunnel` or `refuse`. Inside of turns and tunnels andante sees no
    /// requests: turns are paced, tunnels are not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub https: String,
    /// The limits, all of which hold.
    pub limits: Vec<LimitStatus>,
    /// How many requests the API was found to allow at once, if that is limited.
    #[serde(default)]
    pub at_once: Option<AtOnceStatus>,
    /// The groups of requests that were found to have limits of their own, beside those of the lane.
    #[serde(default)]
    pub own_limits: Vec<OwnLimitStatus>,
    /// The budgets of rules for some of its requests, a row each rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AddedRuleStatus>,
    /// Requests on their way or being answered.
    pub in_flight: u64,
    /// How many of them there may be.
    pub in_flight_limit: Option<u32>,
    /// What that rests on, in a line for people, if it is found out (`in-flight = "auto"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_evidence: Option<String>,
    /// This andante's share of that, if a fleet shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_share: Option<ShareStatus>,
    /// Requests that wait for a slot.
    pub waiting: u64,
    /// The flows of which most wait, the longest first.
    #[serde(default)]
    pub flows: Vec<FlowStatus>,
    /// How long the oldest of them has been waiting for it.
    pub oldest_waiting_s: Option<f64>,
    /// Why nothing leaves at the moment, if so.
    pub gate: Option<GateStatus>,
    /// What the API says is left.
    pub budgets: Vec<BudgetStatus>,
    /// How many of the last requests failed; `null` if a failing upstream is not left alone.
    pub failures: Option<Failures>,
    /// How a request, or a try of it, failed last.
    pub last_error: Option<LastError>,
    /// Time until the next slot; `null` if that depends on an answer.
    pub next_slot_s: Option<f64>,
    /// Time until all that wait now are sent.
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
    /// Those of them that were waiting for a slot.
    pub left_queued_total: u64,
    /// From their arrival to their departure, together.
    pub left_seconds_total: f64,
    /// The longest of these times.
    pub left_seconds_max: f64,
    /// The time after which most of the last ones left, if there is such a time: mostly a time-out of their own.
    pub left_after_s: Option<f64>,
    /// How long requests waited so far, together.
    pub wait_seconds_total: f64,
    /// The longest of these waits.
    pub wait_seconds_max: f64,
    /// From the first request sent to the last one: the time by which a pace is judged.
    pub active_s: f64,
}

/// A flow that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Whose it is: an address, or an IPv6 /64.
    pub client: String,
    /// What tells it from the client's other flows, for as long as this process lives; `null` for requests that name none.
    pub flow: Option<String>,
    /// How urgent it is, from 0 to 7.
    pub urgency: u8,
    /// How many of its requests wait.
    pub waiting: u32,
}

/// What became of the last requests to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// So many failed.
    pub failed: u32,
    /// Of so many.
    pub of: u32,
}

/// The last failure of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LastError {
    /// What happened.
    pub detail: String,
    /// Time since.
    pub last_s: f64,
}

/// A pause of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateStatus {
    /// Why.
    pub reason: String,
    /// Time until it ends; `null` if only an operator ends it.
    pub opens_in_s: Option<f64>,
}

// === impl Status ===

impl Status {
    /// The same with `limit` lanes at most: those where most wait, then the rest by name. Sets [`Self::lanes_total`].
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
    /// What `metrics` counted, over all rules.
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
    /// What `metrics` counted, over all rules.
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
    /// What `metrics` counted, over all rules.
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
    /// How far the fullest limit's window is used, from 0 to 1; `None` without limits.
    pub fn used_ratio(&self) -> Option<f64> {
        self.limits.iter().filter_map(LimitStatus::used_ratio).reduce(f64::max)
    }

    /// Until the first of the limits that an operator has set for a while is over, those of rules for some requests
    /// included.
    pub fn limits_end_in_s(&self) -> Option<f64> {
        let limits = self.limits.iter().chain(self.rules.iter().flat_map(|rule| &rule.limits));
        limits.filter_map(|limit| limit.ends_in_s).reduce(f64::min)
    }
}
