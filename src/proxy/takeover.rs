//! New uses of a connection after its last request.

use std::sync::Arc;

use http::HeaderMap;
use hyper::upgrade::OnUpgrade;
use tokio::net::TcpStream;

use crate::{
    lane::Permit,
    proxy::{message::request_body::BoxedRequest, outbound::route::Route},
};

/// Use of a connection once the answer to its last request is written. The deciding step leaves it with the
/// [`Exchange`](super::exchange::Exchange); the connection's own task serves it.
pub(crate) enum Takeover {
    /// A CONNECT to an intercepted host: nothing is connected yet, each request inside takes its slot first.
    Intercept { request: BoxedRequest, route: Arc<Route> },
    /// A CONNECT, and the connection that was made for it.
    Tunnel { request: BoxedRequest, route: Arc<Route>, upstream: TcpStream, terms: Box<TunnelTerms> },
    /// Both sides switch to another protocol (RFC 9110 §7.8).
    Upgrade { worker: OnUpgrade, upstream: OnUpgrade, permit: Permit },
}

/// Pace of a tunnel, and the terms that its client has sent with the CONNECT.
pub(crate) struct TunnelTerms {
    pub(crate) pace: TunnelPace,
    /// Fields of the CONNECT that state terms. The rule of each lane reads them.
    pub(crate) stated: HeaderMap,
    /// True if only plain HTTP may be inside, which the client might as well send in absolute form. No rule opens the
    /// port for other tunnels.
    pub(crate) plain_http_only: bool,
}

/// Pace of a tunnel.
pub(crate) enum TunnelPace {
    /// No slot of the tunnel's own host is needed.
    Unpaced,
    /// One slot, which is not spent yet: the first bytes decide.
    Slot(Permit),
    /// A slot for each turn.
    Turns,
}

// === impl TunnelPace ===

impl TunnelPace {
    /// Returns an unspent slot: requests or turns inside take their own.
    pub(crate) fn give_back(self) {
        if let Self::Slot(mut permit) = self {
            permit.not_connected();
        }
    }
}
