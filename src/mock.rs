//! An API that really enforces its limit: what andante is tried against, because a real one must not be.
//!
//! [`Limiter`] decides and is pure; [`Api`] serves its decisions over HTTP, in the [`MockDialect`] of a real provider.
//! Control pages below `/__mock/` tell what it saw, and change its world while it runs.

mod api;
mod control;
mod counter;
mod dialect;
mod intervals;
mod limiter;
mod options;
mod pages;
mod requests;
mod server;
mod shared;
mod socket;
mod stats;
mod timeline;

pub use self::{
    api::Api,
    counter::{CounterDecision, CountingWindow},
    dialect::{Facts, MockDialect},
    intervals::Intervals,
    limiter::{Limiter, MockCaller},
    options::{Options, Percent},
    socket::listen,
    stats::Stats,
    timeline::Second,
};
