//! What a request makes of its connection.

use std::{sync::Arc, time::Duration};

use hyper::upgrade::OnUpgrade;
use tokio::net::TcpStream;

use crate::{
    lane::{AdmitRequest, Permit, order::Claim},
    proxy::{message::request_body::BoxedRequest, outbound::route::Route},
};

/// What a connection is to be used for once the answer to its last request is written. The step that decides so leaves
/// it with the [`Exchange`](super::exchange::Exchange); the connection's own task serves it.
pub(crate) enum Takeover {
    /// A CONNECT to an intercepted host: nothing is connected yet, each request inside takes its slot first.
    Intercept { request: BoxedRequest, route: Arc<Route> },
    /// A CONNECT, and the connection that was made for it.
    Tunnel { request: BoxedRequest, route: Arc<Route>, upstream: TcpStream, terms: Box<TunnelTerms> },
    /// Both sides switch to another protocol (RFC 9110 §7.8).
    Upgrade { worker: OnUpgrade, upstream: OnUpgrade, permit: Permit },
}

/// How a tunnel is paced, and what its client has asked for with the CONNECT.
pub(crate) struct TunnelTerms {
    pub(crate) pace: TunnelPace,
    pub(crate) claim: Claim,
    /// How long a turn inside may wait.
    pub(crate) patience: Duration,
    /// Only plain HTTP may be inside, which the client might as well send in absolute form. No rule opens the port for
    /// other tunnels.
    pub(crate) plain_http_only: bool,
}

/// How a tunnel is paced.
pub(crate) enum TunnelPace {
    /// Its host has no limits.
    Unpaced,
    /// By one slot, which is not spent yet: what comes first decides.
    Slot(Permit),
    /// By a slot for each turn, for which this is asked.
    Turns(AdmitRequest),
}

// === impl TunnelPace ===

impl TunnelPace {
    /// Gives back an unspent slot: requests or turns inside take their own.
    pub(crate) fn give_back(self) {
        if let Self::Slot(mut permit) = self {
            permit.not_connected();
        }
    }
}
