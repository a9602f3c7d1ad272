//! A rule with all its settings.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use andante_limit::{Amount, CalendarLimit, Cost, InFlightLimit, LONGEST_PACE, LimitSpec, MarginSpec, Unit, lesser};

use super::{
    added::{Added, KeyPart},
    answers::{CachePolicy, RetryPolicy, Spend, Trust},
    cost::{MaxCost, RuleCost},
    egress::Egress,
    host_pattern::HostPattern,
    refused::RefusedAnswer,
    turns::Turns,
    usage::UsageSource,
};

/// Handling of a CONNECT.
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

    /// Returns whether andante reads the requests inside.
    pub fn is_seen(self) -> bool {
        self == Self::Intercept
    }
}

/// A limit whose whole window is smaller than a request's cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooSmall {
    /// The limit, in its notation.
    pub limit: String,
    /// Cost of the request in the limit's unit: `11`, or `5000 tokens`.
    pub cost: String,
}

/// A rule: its hosts, and the settings for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Names the rule in metrics, logs and `/status`.
    pub name: Arc<str>,
    /// Hosts that the rule matches; each one has a lane of its own.
    pub hosts: Vec<HostPattern>,
    /// Requests of these hosts that an added rule matches; `None` for the hosts' own rule.
    pub added: Option<Added>,
    /// Limits, which all hold.
    pub limits: Vec<LimitSpec>,
    /// Calendar limits, which hold as well.
    pub calendar: Vec<CalendarLimit>,
    /// Cost of a request that states none itself.
    pub cost: Option<RuleCost>,
    /// Largest cost that a request may state itself; a tenth of the smallest limit of a unit that it does not name.
    pub max_cost: Option<MaxCost>,
    /// Body bytes that are read before a request is queued, to find its cost.
    pub read_body: Option<usize>,
    /// Places where answers report what their requests used.
    pub usage: Vec<UsageSource>,
    /// Answers that are refusals, whatever else they look like.
    pub refused: Vec<RefusedAnswer>,
    /// Units that the limits count, if none of them counts requests. A request costs 1 of each of these units unless
    /// something states its cost.
    pub uncosted: Vec<Unit>,
    /// Limit on requests in flight.
    pub in_flight: Option<InFlightLimit>,
    /// Longest wait: a request that cannot be sent within this time is refused on arrival.
    pub max_wait: Duration,
    /// Requests that may wait in one lane.
    pub max_waiting: usize,
    /// Refuses requests whose expected wait is longer than clients of this rule stay.
    pub learns_patience: bool,
    /// Permissions for urgent requests, and weights of clients and flows.
    pub turns: Turns,
    /// The margin for jitter.
    pub margin: MarginSpec,
    /// Allows private, loopback and link-local targets although andante listens beyond loopback.
    pub allow_private: bool,
    /// Handling of a CONNECT to the rule's hosts, if the rule states one.
    pub https: Option<Https>,
    /// Way to reach the hosts.
    pub egress: Egress,
    /// Way of spending a quota that the API reports.
    pub spend: Spend,
    /// Trust in the limits that the API reports.
    pub trust: Trust,
    /// Bounds on sending failed requests again; `None` passes every answer through.
    pub retry: Option<RetryPolicy>,
    /// Pauses a failing upstream for a while.
    pub breaker: bool,
    /// Settings for storing answers; `None` stores nothing.
    pub cache: Option<CachePolicy>,
    /// Refunds the slot of a request that is answered 304, because the API does not count it.
    pub free_not_modified: bool,
    /// Lets identical requests share one call.
    pub coalesce: bool,
    /// Time for which the answer to a request with an `Idempotency-Key` is kept for later requests with that key;
    /// `None` leaves the key to the API.
    pub idempotency_keys: Option<Duration>,
    /// Time for which the answer to a request also serves later equal requests; zero switches this off.
    pub deduplicate: Option<Duration>,
    /// Asks streams of completions to report their usage.
    pub include_usage: bool,
}

// === impl Policy ===

impl Policy {
    /// Returns whether the fleet's store shares this limit of the rule.
    pub fn shares(&self, limit: &LimitSpec) -> bool {
        self.added.is_none() && limit.rate.per <= LONGEST_PACE
    }

    /// The in-flight limit that a store in common shares. Limits that each andante learns for itself are not shared.
    pub fn shared_in_flight(&self) -> Option<Amount> {
        self.in_flight.and_then(InFlightLimit::fixed).filter(|_| self.added.is_none())
    }

    /// Name in logs and `/status` for hosts without a rule.
    pub const UNRULED: &str = "default";
    /// Default of `max_wait`.
    pub const MAX_WAIT: Duration = Duration::from_secs(2 * 3600);
    /// Default of `max_waiting`.
    pub const MAX_WAITING: usize = 100_000;

    /// Returns whether andante reads bodies of answers, which must then not be compressed.
    pub fn reads_bodies(&self) -> bool {
        self.usage.iter().any(UsageSource::is_in_body) || self.refused.iter().any(RefusedAnswer::is_in_body)
    }

    /// Returns whether the rule can make a request wait.
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty() || !self.calendar.is_empty() || self.in_flight.is_some()
    }

    /// Keys of the rule that need the requests themselves, and so do not apply inside tunnels.
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

    /// The limit that never has room for a request of this cost, if there is one.
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

    /// Smallest amount among the limits of `unit`.
    pub fn least_of(&self, unit: Unit) -> Option<Amount> {
        let limits = self.limits.iter().map(|limit| (limit.unit, limit.rate.count));
        let calendar = self.calendar.iter().map(|limit| (limit.unit, limit.count));
        limits.chain(calendar).filter(|(of, _)| *of == unit).map(|(_, count)| count).min()
    }

    /// Returns whether answers report the usage of `unit`.
    pub fn reports(&self, unit: Unit) -> bool {
        self.usage.iter().any(|source| source.unit == unit)
    }

    /// Returns whether only the answer to a request of this cost shows its full cost.
    pub fn leaves_open(&self, cost: &Cost) -> bool {
        self.usage.iter().any(|source| !cost.says(source.unit))
    }

    /// Units that the limits count; some of them more than once.
    pub fn counted(&self) -> impl Iterator<Item = Unit> {
        self.limits.iter().map(|limit| limit.unit).chain(self.calendar.iter().map(|limit| limit.unit))
    }

    /// Counted units other than requests.
    pub fn units(&self) -> impl Iterator<Item = Unit> {
        self.counted().filter(|unit| *unit != Unit::REQUESTS)
    }

    /// All limits, in their notation.
    pub fn written_limits(&self) -> Vec<String> {
        let limits = self.limits.iter().map(ToString::to_string);
        limits.chain(self.calendar.iter().map(ToString::to_string)).collect()
    }

    /// Policy for hosts without a rule, by default.
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
            cost: None,
            max_cost: None,
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

    /// Rule for requests that are not urgent, in addition to this rule, if this rule has a reserve.
    pub fn besides_reserve(&self) -> Option<Arc<Self>> {
        let reserve = self.turns.reserve.filter(|_| self.added.is_none())?;
        let rest = |limit: &LimitSpec| {
            let mut rest = *limit;
            rest.rate.count = match self.shares(limit) {
                true => reserve.part(limit.rate.count).unwrap_or(NonZeroU32::MIN),
                false => reserve.rest(limit.rate.count),
            };
            rest.burst = limit.burst.map(|burst| lesser(reserve.rest(burst), rest.rate.count));
            rest
        };
        let mut policy = Self::new(&format!("{}, all but the reserve", self.name), self.hosts.clone());
        policy.added = Some(Added { patient: true, ..Added::default() });
        let rest_of_calendar = |limit: &CalendarLimit| {
            let mut rest = limit.clone();
            rest.count = reserve.rest(limit.count);
            rest
        };
        policy.limits = self.limits.iter().map(rest).collect();
        policy.calendar = self.calendar.iter().map(rest_of_calendar).collect();
        (policy.margin, policy.max_wait, policy.max_waiting) = (self.margin, self.max_wait, usize::MAX);
        Some(policy.into())
    }

    /// Returns whether this rule stands for the unreserved rest of another rule's limits (see
    /// [`Reserve`](super::Reserve)).
    pub fn is_besides_reserve(&self) -> bool {
        self.added.as_ref().is_some_and(|added| added.patient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reserve;
    use andante_limit::{self as limit, Limits};

    fn policy(limits: &str, percent: u8) -> Policy {
        let mut limits: Limits = limits.parse().unwrap();
        limit::settle(&mut limits.limits);
        let mut policy = Policy::new("api", vec!["api.test".parse().unwrap()]);
        (policy.limits, policy.calendar) = (limits.limits, limits.calendar);
        policy.turns.reserve = Reserve::new(percent);
        policy
    }

    #[test]
    fn each_limit_has_a_rest_in_its_own_unit() {
        let rest =
            policy("10/s burst 5, 500/min strict, 9000 tokens/min, 100/month in UTC", 10).besides_reserve().unwrap();
        // Nine tenths of 500 and of 900. The default bursts shrink alike.
        let limits = ["9/s burst 4", "450/min burst 450 strict", "8100 tokens/min burst 810", "90/month in UTC"];
        assert_eq!(rest.written_limits(), limits);
        assert_eq!(rest.in_flight, None);
        assert!(rest.is_besides_reserve() && rest.besides_reserve().is_none());
        assert!(policy("10/s", 0).besides_reserve().is_none());
    }

    #[test]
    fn what_a_store_shares_is_divided_and_what_it_does_not_was_divided_before() {
        let mut policy = policy("100/s, 100/month in UTC", 10);
        policy.turns.reserve = policy.turns.reserve.map(|reserve| reserve.among(NonZeroU32::new(4).unwrap()));
        // The members share 90 a second; each one gets 22.
        assert_eq!(policy.besides_reserve().unwrap().written_limits(), ["22/s", "90/month in UTC"]);
    }
}
