//! The way to an upstream: as a tunnel's client has chosen it, and as a request needs it.

use std::sync::Arc;

use crate::policy::Origin;

/// How a tunnel's client has chosen the way to an upstream.
#[derive(Clone, Default)]
pub(crate) struct Way {
    /// It speaks HTTP/2 in the clear.
    pub(crate) h2c: bool,
    /// The address to connect to instead of the name's.
    pub(crate) pin: Option<Arc<Pin>>,
}

/// The address in a CONNECT whose client names the host only in its TLS handshake.
pub(crate) struct Pin {
    /// The address, as a target.
    pub(crate) target: Origin,
    /// Whether the rule for the address allows a private one. The name's rule must not: the client chooses the address.
    pub(crate) allow_private: bool,
}

/// What a request needs of the connection that carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionNeeds {
    /// HTTP/1: it asks for another protocol.
    pub(crate) http1: bool,
    /// One of the session's own: it may log in its connection.
    pub(crate) own: bool,
}

// === impl ConnectionNeeds ===

impl ConnectionNeeds {
    /// Any connection will do.
    pub(super) const ANY: Self = Self { http1: false, own: false };
}
