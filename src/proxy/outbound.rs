//! Connections to upstreams: chooses the connection that carries a request, and makes new ones.

pub(crate) mod h1;
pub(crate) mod h2;
mod h2_driver;
mod h2_handshake;
pub(crate) mod h2_request;
mod h2_upload;
mod handshake;
pub(crate) mod host_pool;
pub(crate) mod known_origins;
mod lifespan;
mod liveness;
mod piecewise_io;
pub(crate) mod pool;
pub(crate) mod refusal;
pub(crate) mod response_body;
pub(crate) mod route;
mod route_pools;
pub(crate) mod sensor_io;
pub(crate) mod way;

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    dial::Dialer,
    memory::Memory,
    metrics::Metrics,
    proxy::{drain::Drain, message::receive_window::WindowBudget, outbound::known_origins::KnownOrigins},
    tls::Tls,
};

/// Parts needed to connect to upstreams.
pub(crate) struct Outbound {
    pub(crate) clock: Clock,
    pub(crate) dialer: Dialer,
    pub(crate) tls: Tls,
    pub(crate) metrics: Metrics,
    /// Maximum time to make a connection.
    pub(crate) connect: Duration,
    pub(crate) known: Arc<KnownOrigins>,
    pub(crate) drain: Arc<Drain>,
    /// Memory for windows beyond the first size, over all HTTP/2 connections.
    pub(crate) windows: Arc<WindowBudget>,
    /// Account of the process's memory.
    pub(crate) memory: Arc<Memory>,
    /// Distinguishes connections that were made another way from those that may carry a request.
    pub(crate) way: u64,
}

impl Outbound {
    /// Copies `self`, with new means to connect.
    pub(crate) fn with(&self, dialer: Dialer, tls: Tls, connect: Duration, way: u64) -> Self {
        let Self { clock, metrics, known, drain, windows, memory, .. } = self;
        let (metrics, known, memory) = (metrics.clone(), known.clone(), memory.clone());
        let (drain, windows) = (drain.clone(), windows.clone());
        Self { clock: *clock, dialer, tls, metrics, connect, known, drain, windows, memory, way }
    }
}
