//! An API that really enforces its limit, for trying andante without a real API.
//!
//! [`Limiter`] decides and is pure; [`Api`] serves its decisions over HTTP, in the [`MockDialect`] of a real provider.
//! Control pages below `/__mock/` report its counts, and change its behaviour while it runs.

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
