//! andante: an HTTP forward proxy that keeps a fleet of workers inside the rate limits of the APIs they call.
//!
//! Workers set `HTTP_PROXY` and change nothing else; each request waits in a lane until the API's limits let it leave.
//! The way of a request, with the items that do the work:
//!
//! 1. [`app`] accepts a connection ([`listen`]) and gives it to a thread, where [`proxy::serve`] detects its protocol.
//! 2. The request is read. [`policy::Rules`] select the rule for its host, and [`lane::Lanes`] the [`lane::Lane`].
//! 3. [`lane::Lane::admit`] gives it a [`lane::Permit`], or a place in the queue ([`lane::order`]), or refuses. A lane
//!    asks its [`limit::Budget`], which keeps all of its limits, and [`learn::Learned`], which keeps lessons of answers.
//! 4. With a permit the request is sent on a connection of the thread's [`proxy::Pool`]; [`dial`] and [`tls`] make new
//!    ones.
//! 5. [`hint::read`] reads the limits that the answer reports, and [`lane::Permit::answered`] teaches the lane.
//!    A refused request may be sent again, with a permit of its own.
//! 6. The answer streams back. The end of the answer settles the permit, and may free a slot for the next request.
//!
//! [`error::Error`] covers every failure on that way; [`admin`] and [`metrics`] show it all. [`mock`] is an API that
//! really enforces its limit. The map of the modules is in `docs/architecture.md`.

pub use andante_clock as clock;
pub use andante_fleet as fleet;
pub use andante_hint as hint;
pub use andante_lane as lane;
pub use andante_learn as learn;
pub use andante_limit as limit;
pub use andante_metrics as metrics;
pub use andante_policy as policy;
pub use andante_trace as trace;

pub mod admin;
pub mod app;
pub mod batch;
pub mod ca;
pub mod cli;
pub mod config;
pub mod dial;
pub mod error;
pub mod listen;
pub mod memory;
pub mod mock;
pub mod otlp;
pub mod plan;
pub mod proxy;
pub mod store;
pub mod tls;
