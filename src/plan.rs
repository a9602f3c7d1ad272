//! Forecasts of the time that requests take under limits: for `andante plan`, and for `/api/v1/plan` and the page.
//!
//! Owns the forecast of a burst, the simulation of several flows, and both as JSON. Formats no text for a terminal.

mod burst;
mod costs;
mod error;
mod flows;
mod forecast;
mod lane;
mod quantile;
mod text;

use std::time::Duration;

pub use self::{
    burst::BurstPlan,
    costs::costs,
    error::PlanError,
    flows::{FlowsPlan, PlannedFlow},
    forecast::{Brake, BurstForecast, PlannedBurst, leaving},
    lane::policy,
    quantile::{at, sorted},
    text::{cost, limits, requests},
};

/// Assumed response time of an unknown API.
pub const USUAL_LATENCY: Duration = Duration::from_millis(200);
/// Requests of one burst at most: more would take minutes to compute.
pub const MOST_BURST_REQUESTS: u32 = 10_000_000;
/// Requests of all flows at most: each runs through a lane, so they take ten times as long as those of a burst.
pub const MOST_FLOW_REQUESTS: u64 = 1_000_000;
