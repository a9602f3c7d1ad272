//! Pools of connections for a route: the pool that all workers share, and the session's own.
//!
//! NTLM and Negotiate log in a connection: the server attributes every later request on it to that worker. Once such a
//! scheme is seen, the session's requests to the origin use a pool of their own. No other session can reach that pool,
//! and it ends with the session. See docs/decisions/connection-auth.md.

use std::sync::{Arc, OnceLock};

use super::host_pool::HostPool;

/// Pools of one route.
pub(crate) struct RoutePools {
    shared: Arc<HostPool>,
    /// Connections of the session alone, once it has seen a login that is bound to a connection.
    own: OnceLock<Arc<HostPool>>,
}

// === impl RoutePools ===

impl RoutePools {
    /// Creates the pools of a route, whose connections come from `shared` at first.
    pub(crate) fn new(shared: Arc<HostPool>) -> Self {
        Self { shared, own: OnceLock::new() }
    }

    /// The connections of all workers.
    pub(crate) fn shared(&self) -> &Arc<HostPool> {
        &self.shared
    }

    /// The connections of the session, which uses no others from now on.
    pub(crate) fn own(&self) -> &Arc<HostPool> {
        self.own.get_or_init(|| Arc::new(self.shared.exclusive()))
    }

    /// Returns whether the session uses connections of its own.
    pub(crate) fn is_bound(&self) -> bool {
        self.own.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, config::Timeouts, proxy::outbound::lifespan::ReuseLimits};

    #[test]
    fn complaint_about_pings_holds_for_connections_of_the_session_and_of_all() {
        let limits = ReuseLimits::of(&Timeouts::default());
        let pools = RoutePools::new(Arc::new(HostPool::new(Clock::start(), limits, Arc::default())));
        assert!(Arc::ptr_eq(&pools.own().no_pings, &pools.shared().no_pings));
    }
}
