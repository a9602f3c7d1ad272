//! One rule, its single values put together.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    added::{Added, KeyPart},
    answers::{CachePolicy, RetryPolicy, Spend, Trust},
    cost::RuleCost,
    egress::Egress,
    host_pattern::HostPattern,
    refused::RefusedAnswer,
    turns::Turns,
    usage::UsageSource,
};
use crate::limit::{Afterwards, Amount, CalendarLimit, Cost, InFlightLimit, LONGEST_PACE, LimitSpec, MarginSpec, Unit};

/// What becomes of a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Https {
    /// A blind tunnel: one permit, however many requests are inside.
    Tunnel,
    /// A blind tunnel that takes a permit for each turn of the client, which in HTTP/1.1 is a request.
    Turns,
    /// andante speaks TLS to both sides, and each request inside takes a permit of its own.
    Intercept,
    /// 403.
    Refuse,
}

// === impl Https ===

impl Https {
    /// The value in a rule.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Turns => "turns",
            Self::Intercept => "intercept",
            Self::Refuse => "refuse",
        }
    }

    /// A description of its effect on the requests inside.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnelled: each tunnel takes one slot, requests inside are not paced",
            Self::Turns => "paced by turns (refusals, paths, costs are not seen)",
            Self::Intercept => "intercepted",
            Self::Refuse => "refused",
        }
    }

    /// Whether andante reads the requests inside.
    pub fn is_seen(self) -> bool {
        self == Self::Intercept
    }
}

/// A limit whose whole window is less than a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooSmall {
    /// The limit, as it would be written.
    pub limit: String,
    /// How much of its unit the request costs: `11`, or `5000 tokens`.
    pub cost: String,
}

/// One rule: its hosts, and what holds for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Names the rule in metrics, logs and `/status`.
    pub name: Arc<str>,
    /// The hosts it is for; each host that matches has a lane of its own.
    pub hosts: Vec<HostPattern>,
    /// Which of their requests it is for, beside their own rule; `None` makes it their own rule.
    pub added: Option<Added>,
    /// All of these must hold.
    pub limits: Vec<LimitSpec>,
    /// These as well.
    pub calendar: Vec<CalendarLimit>,
    /// What will hold later in the place of all these, if that is known.
    pub afterwards: Option<Afterwards>,
    /// What a request costs that does not say so itself.
    pub cost: Option<RuleCost>,
    /// How many bytes of a request's body are read before its turn, to see what it costs.
    pub read_body: Option<usize>,
    /// Where its answers say what their requests used.
    pub usage: Vec<UsageSource>,
    /// Answers that are refusals, whatever else they look like.
    pub refused: Vec<RefusedAnswer>,
    /// The units that its limits count, if none of them counts requests: 1 of each is what a request takes of which nobody says it.
    pub uncosted: Vec<Unit>,
    /// How many requests may be on their way at once.
    pub in_flight: Option<InFlightLimit>,
    /// A ticket that cannot be served within this is refused on arrival.
    pub max_wait: Duration,
    /// How many may wait in one lane.
    pub max_waiting: usize,
    /// Whether a request is refused that would wait for longer than clients here stay.
    pub learns_patience: bool,
    /// Which clients may be urgent, and which clients and flows get more than others.
    pub turns: Turns,
    /// The margin for jitter.
    pub margin: MarginSpec,
    /// Whether private, loopback and link-local targets are allowed although andante listens beyond loopback.
    pub allow_private: bool,
    /// What becomes of a CONNECT to its hosts, if the rule says.
    pub https: Option<Https>,
    /// How its hosts are reached.
    pub egress: Egress,
    /// How andante spends an allowance that the API reports.
    pub spend: Spend,
    /// How far andante trusts the limits that the API reports.
    pub trust: Trust,
    /// What is sent again if it fails; `None` passes every answer through.
    pub retry: Option<RetryPolicy>,
    /// Whether a failing upstream is left alone for a while.
    pub breaker: bool,
    /// What is stored of its answers; `None` stores nothing.
    pub cache: Option<CachePolicy>,
    /// Whether a 304 gives the slot of its request back, because the API does not count it.
    pub free_not_modified: bool,
    /// Whether identical requests share one call.
    pub coalesce: bool,
    /// For how long the answer to a request with an `Idempotency-Key` is kept for further ones with it; `None` leaves the
    /// key to the API.
    pub idempotency_keys: Option<Duration>,
    /// For how long the answer to a request is that of further ones that equal it; zero switches it off.
    pub deduplicate: Option<Duration>,
    /// Whether streams of completions are asked to report their usage.
    pub include_usage: bool,
}

// === impl Policy ===

impl Policy {
    /// Whether a store in common shares this limit, which is one of its own.
    pub fn shares(&self, limit: &LimitSpec) -> bool {
        self.added.is_none() && limit.rate.per <= LONGEST_PACE
    }

    /// The in-flight limit that a store in common shares. What each andante finds out for itself is its own.
    pub fn shared_in_flight(&self) -> Option<Amount> {
        self.in_flight.and_then(InFlightLimit::fixed).filter(|_| self.added.is_none())
    }

    /// What logs and `/status` have in the place of a rule's name, for hosts without one.
    pub const UNRULED: &str = "default";
    /// How long a ticket waits at most unless a rule says otherwise.
    pub const MAX_WAIT: Duration = Duration::from_secs(2 * 3600);
    /// How many wait in one lane at most unless a rule says otherwise.
    pub const MAX_WAITING: usize = 100_000;

    /// Whether something is read of the bodies of its answers, so that they must not be compressed.
    pub fn reads_bodies(&self) -> bool {
        self.usage.iter().any(UsageSource::is_in_body) || self.refused.iter().any(RefusedAnswer::is_in_body)
    }

    /// Whether it makes anybody wait.
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty() || !self.calendar.is_empty() || self.in_flight.is_some()
    }

    /// Keys of the rule that ask for what only the requests themselves show, and so do not apply inside of tunnels.
    pub fn keys_unseen(&self) -> Vec<&'static str> {
        let added = self.added.as_ref();
        let keys = [
            ("path", added.is_some_and(|added| added.path.is_some())),
            ("method", added.is_some_and(|added| !added.methods.is_empty())),
            ("header", added.is_some_and(|added| !added.headers.is_empty())),
            ("key", added.is_some_and(|added| added.key.iter().any(|part| *part != KeyPart::Host))),
            ("cost", self.cost.is_some()),
            ("usage", !self.usage.is_empty()),
            ("refused", !self.refused.is_empty()),
            ("read-body", self.read_body.is_some()),
        ];
        keys.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
    }

    /// The limit that never has room for a request of this cost, if one has not.
    pub fn too_small_for(&self, cost: &Cost) -> Option<TooSmall> {
        let limits = self.limits.iter().map(|limit| (limit.unit, limit.rate.count, limit as &dyn fmt::Display));
        let calendar = self.calendar.iter().map(|limit| (limit.unit, limit.count, limit as &dyn fmt::Display));
        let never = limits.chain(calendar).filter_map(|(unit, count, limit)| {
            let amount = cost.of(unit).filter(|amount| *amount > count)?;
            Some((count, unit, amount, limit))
        });
        let (_, unit, amount, limit) = never.min_by_key(|(count, ..)| *count)?;
        let cost = if unit == Unit::REQUESTS { amount.to_string() } else { format!("{amount} {unit}") };
        Some(TooSmall { limit: limit.to_string(), cost })
    }

    /// What the smallest of its limits of `unit` holds.
    pub fn least_of(&self, unit: Unit) -> Option<Amount> {
        let limits = self.limits.iter().map(|limit| (limit.unit, limit.rate.count));
        let calendar = self.calendar.iter().map(|limit| (limit.unit, limit.count));
        limits.chain(calendar).filter(|(of, _)| *of == unit).map(|(_, count)| count).min()
    }

    /// Whether only the answer to a request of this cost says all that it takes.
    pub fn leaves_open(&self, cost: &Cost) -> bool {
        self.usage.iter().any(|source| !cost.says(source.unit))
    }

    /// The units that its limits count; some of them more than once.
    pub fn counted(&self) -> impl Iterator<Item = Unit> {
        self.limits.iter().map(|limit| limit.unit).chain(self.calendar.iter().map(|limit| limit.unit))
    }

    /// Those of them that are no requests.
    pub fn units(&self) -> impl Iterator<Item = Unit> {
        self.counted().filter(|unit| *unit != Unit::REQUESTS)
    }

    /// All limits, as they would be written.
    pub fn written_limits(&self) -> Vec<String> {
        let limits = self.limits.iter().map(ToString::to_string);
        limits.chain(self.calendar.iter().map(ToString::to_string)).collect()
    }

    /// What holds for hosts without a rule, unless anybody says otherwise.
    pub fn unruled() -> Self {
        Self::new(Self::UNRULED, Vec::new())
    }

    /// A policy called `name` for `hosts` that limits nothing yet.
    pub fn new(name: &str, hosts: Vec<HostPattern>) -> Self {
        Self {
            name: name.into(),
            hosts,
            added: None,
            limits: Vec::new(),
            calendar: Vec::new(),
            afterwards: None,
            cost: None,
            read_body: None,
            usage: Vec::new(),
            refused: Vec::new(),
            uncosted: Vec::new(),
            in_flight: None,
            max_wait: Self::MAX_WAIT,
            max_waiting: Self::MAX_WAITING,
            learns_patience: false,
            turns: Turns::default(),
            margin: MarginSpec::Auto,
            allow_private: false,
            https: None,
            egress: Egress::default(),
            spend: Spend::default(),
            trust: Trust::default(),
            retry: Some(RetryPolicy::default()),
            breaker: true,
            cache: None,
            free_not_modified: false,
            coalesce: false,
            idempotency_keys: None,
            deduplicate: None,
            include_usage: false,
        }
    }
}
