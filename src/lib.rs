//! andante: an HTTP forward proxy that keeps a fleet of workers inside the rate limits of the APIs they call.
//!
//! Workers set `HTTP_PROXY` and change nothing else; each request waits in a lane until the API lets it leave. The way of a
//! request, with the items that do the work:
//!
//! 1. [`app`] accepts a connection ([`listen`]) and gives it to a thread, where [`proxy::serve`] finds out what it speaks.
//! 2. The request is read. [`policy::Rules`] say which rule holds for its host, [`lane::Lanes`] which [`lane::Lane`] it is in.
//! 3. [`lane::Lane::admit`] gives it a [`lane::Permit`], or a place in the queue ([`lane::order`]), or refuses. A lane asks
//!    its [`limit::Budget`], which keeps all of its limits, and [`learn::Learned`], what answers have taught.
//! 4. With a permit it is sent on a connection of the thread's [`proxy::Pool`]; [`dial`] and [`tls`] make new ones.
//! 5. [`hint::read`] reads what the answer says about limits, and [`lane::Permit::answered`] teaches the lane. What was
//!    refused may be sent again, with a permit of its own.
//! 6. The answer streams back. Its end settles the permit, and the next request's slot may be free.
//!
//! [`error::Error`] is whatever can go wrong on that way; [`admin`] and [`metrics`] show it all. [`mock`] is an API that
//! really enforces its limit. The map of the modules is in `docs/architecture.md`.

pub mod admin;
pub mod app;
pub mod batch;
pub mod ca;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dial;
pub mod error;
pub mod fleet;
pub mod hint;
pub mod lane;
pub mod learn;
pub mod limit;
pub mod listen;
pub mod memory;
pub mod metrics;
pub mod mock;
pub mod otlp;
pub mod plan;
pub mod policy;
pub mod proxy;
pub mod store;
pub mod tls;
pub mod trace;
