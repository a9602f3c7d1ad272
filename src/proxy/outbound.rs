//! Connections to upstreams: which one carries a request, and how one is made.

pub(crate) mod h1;
pub(crate) mod h2;
mod h2_executor;
pub(crate) mod host_pool;
pub(crate) mod known_origins;
mod piecewise_io;
pub(crate) mod pool;
pub(crate) mod response_body;
pub(crate) mod route;
pub(crate) mod sensor_io;

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    dial::Dialer,
    metrics::Metrics,
    proxy::{drain::Drain, outbound::known_origins::KnownOrigins},
    tls::Tls,
};

/// What connections to upstreams are made with.
pub(crate) struct Outbound {
    pub(crate) clock: Clock,
    pub(crate) dialer: Dialer,
    pub(crate) tls: Tls,
    pub(crate) metrics: Metrics,
    /// How long it may take to make one.
    pub(crate) connect: Duration,
    pub(crate) known: KnownOrigins,
    pub(crate) drain: Arc<Drain>,
}
