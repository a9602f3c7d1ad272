//! What an API allows, and when the next request fits into it. Pure: told the time, never reads it.

mod spec;

pub use spec::{LimitSpec, Limits, Rate, SpecError};
