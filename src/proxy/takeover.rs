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
    /// A CONNECT, and the connection that was made for it. `spent` says that its slot is: otherwise what comes first
    /// decides.
    Tunnel { request: BoxedRequest, route: Arc<Route>, upstream: TcpStream, permit: Permit, spent: bool },
    /// Both sides switch to another protocol (RFC 9110 §7.8).
    Upgrade { worker: OnUpgrade, upstream: OnUpgrade, permit: Permit },
}
