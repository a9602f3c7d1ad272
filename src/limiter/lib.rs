//! Limiters of APIs, as their providers document them: each counts by one kind of window and refuses in one dialect.
//! Pure: told the time. `andante mock` serves them over HTTP, and tests of learning ask them directly.

mod counter;
mod dialect;
mod limiter;

pub use self::{
    counter::{CounterDecision, CountingWindow},
    dialect::{Facts, MockDialect},
    limiter::{Limiter, MockCaller},
};
