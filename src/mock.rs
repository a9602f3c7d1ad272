//! An API that really enforces its limit, for trying andante without a real API.
//!
//! [`Limiter`] decides and is pure; [`Api`] serves its decisions over HTTP, in the [`MockDialect`] of a real provider.
//! Control pages below `/__mock/` report its counts, and change its behaviour while it runs.

mod api;
mod control;
mod intervals;
mod options;
mod pages;
mod requests;
mod server;
mod shared;
mod socket;
mod stats;
mod timeline;

pub use andante_limiter::{CounterDecision, CountingWindow, Facts, Limiter, MockCaller, MockDialect};

pub use self::{
    api::Api,
    intervals::Intervals,
    options::{Options, Percent},
    socket::listen,
    stats::Stats,
    timeline::Second,
};
