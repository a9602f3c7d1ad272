//! andante: an HTTP forward proxy that keeps a fleet of workers inside the rate limits of the APIs they call.
//!
//! The map of the modules is in `docs/architecture.md`; `src/proxy/stack.rs` shows the way of a request.

pub mod admin;
pub mod app;
pub mod ca;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dial;
pub mod error;
pub mod hint;
pub mod lane;
pub mod learn;
pub mod limit;
pub mod listen;
pub mod metrics;
pub mod mock;
pub mod policy;
pub mod proxy;
pub mod tls;
