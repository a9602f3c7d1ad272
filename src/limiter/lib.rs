//! Simulated rate limiters, as API providers document theirs: each counts by one kind of window and refuses in one
//! dialect. Pure: told the time. `andante mock` serves them over HTTP, and the tests of learning call them directly.

mod counter;
mod dialect;
mod limiter;

pub use self::{
    counter::{CounterDecision, CountingWindow},
    dialect::{Facts, MockDialect},
    limiter::{Limiter, MockCaller},
};
