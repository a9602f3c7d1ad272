//! HTTP/2 towards workers and towards upstreams (R11, R34, R36 to R39, R56, R58, R62).

mod floods;
mod idle_timeouts;
mod malformed;
mod shared;
mod stream_and_connection_ends;
pub(crate) mod streams;
mod translation;
mod upstreams;
