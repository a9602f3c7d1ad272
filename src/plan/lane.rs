//! Lane in which plans run ahead of time.

use std::time::Duration;

use crate::{
    limit::{InFlightLimit, Limits, MarginSpec},
    policy::{Policy, Trust},
};

/// Policy of a lane that enforces `limits` exactly: without a margin, bounds on the queue, or learned concurrency.
pub fn policy(limits: &Limits) -> Policy {
    let mut policy = Policy::new("plan", Vec::new());
    (policy.limits, policy.calendar) = (limits.limits.clone(), limits.calendar.clone());
    policy.in_flight = limits.fixed_in_flight().map(InFlightLimit::Fixed);
    (policy.max_wait, policy.max_waiting) = (Duration::MAX, usize::MAX);
    (policy.margin, policy.trust) = (MarginSpec::Fixed(Duration::ZERO), Trust::Waits);
    policy
}
