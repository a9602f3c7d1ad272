//! A port without a listener.

use std::{
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

use super::{Upstream, eventually};

/// A port of loopback at which connections are refused. The port is held, so that the system does not assign it
/// meanwhile.
pub(crate) struct DeadPort {
    held: OwnedFd,
}

impl DeadPort {
    /// A free port.
    pub(crate) fn reserve() -> Self {
        Self { held: held((Ipv4Addr::LOCALHOST, 0).into(), false).expect("a free port") }
    }

    /// The port of `upstream`, which ends.
    pub(crate) fn after(upstream: Upstream) -> Self {
        let address = upstream.address();
        drop(upstream);
        Self { held: eventually("the port to be free", || held(address, true)) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        getsockname(&self.held).unwrap().try_into().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address())
    }
}

/// A socket that is bound to `address` and does not listen; `again` if connections to it may be closing still.
fn held(address: SocketAddr, again: bool) -> Option<OwnedFd> {
    let held = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&held, again).unwrap();
    bind(&held, &address).ok().map(|()| held)
}
