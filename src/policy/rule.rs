//! One rule, its single values put together.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use super::{
    answers::{Retry, Spend, Trust},
    egress::Egress,
    host_pattern::HostPattern,
    turns::Turns,
};
use crate::limit::{CalendarLimit, LimitSpec, MarginSpec};

/// What becomes of a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Https {
    /// A blind tunnel: one permit, however many requests are inside.
    Tunnel,
    /// andante speaks TLS to both sides, and each request inside takes a permit of its own.
    Intercept,
    /// 403.
    Refuse,
}

/// One rule: its hosts, and what holds for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Names the rule in metrics, logs and `/status`.
    pub name: Arc<str>,
    /// The hosts it is for; each host that matches has a lane of its own.
    pub hosts: Vec<HostPattern>,
    /// All of these must hold.
    pub limits: Vec<LimitSpec>,
    /// These as well.
    pub calendar: Vec<CalendarLimit>,
    /// How many requests may be on their way at once.
    pub in_flight: Option<NonZeroU32>,
    /// A ticket that cannot be served within this is refused on arrival.
    pub max_wait: Duration,
    /// How many may wait in one lane.
    pub max_waiting: usize,
    /// Who may be urgent, and who gets more than others.
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
    pub retry: Option<Retry>,
    /// Whether a failing upstream is left alone for a while.
    pub breaker: bool,
}

// === impl Policy ===

impl Policy {
    /// What logs and `/status` have in the place of a rule's name, for hosts without one.
    pub const UNRULED: &str = "default";
    /// How long a ticket waits at most unless a rule says otherwise.
    pub const MAX_WAIT: Duration = Duration::from_secs(2 * 3600);
    /// How many wait in one lane at most unless a rule says otherwise.
    pub const MAX_WAITING: usize = 100_000;

    /// Whether it makes anybody wait.
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty() || !self.calendar.is_empty() || self.in_flight.is_some()
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
            limits: Vec::new(),
            calendar: Vec::new(),
            in_flight: None,
            max_wait: Self::MAX_WAIT,
            max_waiting: Self::MAX_WAITING,
            turns: Turns::default(),
            margin: MarginSpec::Auto,
            allow_private: false,
            https: None,
            egress: Egress::default(),
            spend: Spend::default(),
            trust: Trust::default(),
            retry: Some(Retry::default()),
            breaker: true,
        }
    }
}
