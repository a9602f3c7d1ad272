//! What a request makes of its connection.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use tokio::net::TcpStream;

use crate::{
    lane::Permit,
    proxy::{message::request_body::BoxedRequest, outbound::route::Route},
};

/// What a connection is to be used for once the answer to its last request is written. The step that decides so leaves
/// it with the [`Exchange`](super::exchange::Exchange); the connection's own task serves it.
pub(crate) enum Takeover {
    /// A CONNECT to an intercepted host: nothing is connected yet, each request inside takes its slot first.
    Intercept { request: BoxedRequest, route: Arc<Route> },
    /// A CONNECT, and the connection that was made for it.
    Tunnel { request: BoxedRequest, route: Arc<Route>, upstream: TcpStream, permit: Permit, use_of: TunnelUse },
    /// Both sides switch to another protocol (RFC 9110 §7.8).
    Upgrade { worker: OnUpgrade, upstream: OnUpgrade, permit: Permit },
}

/// Content that a tunnel may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TunnelUse {
    /// Anything, unseen; its slot is spent.
    Blind,
    /// Plain HTTP, each request of which takes a slot; anything else for the slot of the tunnel.
    Limited,
    /// Plain HTTP only, as the absolute form of the same requests may be sent: its port is none for other tunnels.
    PlainHttp,
}
