//! Reports andante's state to a service manager, if there is one (sd_notify(3)).

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        net::{SocketAddr, UnixDatagram},
    },
};

use tracing::warn;

use crate::clock;

/// Reports that andante accepts requests.
pub(super) fn ready() {
    tell("READY=1");
}

/// Reports that the configuration is loaded again; [`ready`] follows.
pub(super) fn reloading() {
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock::monotonic().as_micros()));
}

/// Reports that andante finishes present requests and accepts no new ones.
pub(super) fn stopping() {
    tell("STOPPING=1");
}

fn tell(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    let told = address(&socket).and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = told {
        warn!(%error, ?socket, state, "could not tell the service manager");
    }
}

/// Address of the socket: a path, or a name in the abstract namespace, which begins with `@`.
fn address(socket: &OsString) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(OsStr::new(socket))
}
