//! Constraints on a connection to an upstream: by a tunnel's client, and by a request.

use std::sync::Arc;

use crate::policy::Origin;

/// Constraints of a tunnel's client on the connection to an upstream.
#[derive(Clone, Default)]
pub(crate) struct Way {
    /// The client speaks HTTP/2 in the clear.
    pub(crate) h2c: bool,
    /// The address to connect to instead of the name's.
    pub(crate) pin: Option<Arc<Pin>>,
}

/// The address in a CONNECT whose client names the host only in its TLS handshake.
pub(crate) struct Pin {
    /// The address, as a target.
    pub(crate) target: Origin,
    /// True if the rule for the address allows a private one. The name's rule must not decide: the client chooses the
    /// address.
    pub(crate) allow_private: bool,
}

/// A request's needs of the connection that carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionNeeds {
    /// HTTP/1 is needed, because the request asks for another protocol.
    pub(crate) http1: bool,
    /// A connection of the session's own is needed, because the request may log it in.
    pub(crate) own: bool,
    /// A new connection is needed, because a used one broke under the request: others may be as stale.
    pub(crate) fresh: bool,
}

// === impl ConnectionNeeds ===

impl ConnectionNeeds {
    /// Any connection is suitable.
    pub(super) const ANY: Self = Self { http1: false, own: false, fresh: false };
}
