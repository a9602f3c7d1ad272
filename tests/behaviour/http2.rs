//! HTTP/2 towards workers and towards upstreams.

mod early_answers;
mod floods;
mod idle_timeouts;
mod malformed;
mod policies;
mod shared;
mod stream_and_connection_ends;
pub(crate) mod streams;
mod translation;
mod uploads;
mod upstreams;
