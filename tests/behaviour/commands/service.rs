//! `andante serve` under a service manager: passed sockets, and notifications.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
};

use rustix::process::Signal;

use super::outcome;
use crate::support::{Andante, Client, PATIENCE, Upstream};

/// Opens a socket for each name, as systemd does: descriptors from 3 on, for the process that it becomes.
const OPEN: &str = "
import os, socket, sys
names, kind = sys.argv[1].split(':'), sys.argv[2]
sockets = [socket.socket(type=socket.SOCK_DGRAM if kind == 'datagram' else socket.SOCK_STREAM) for _ in names]
for at, opened in enumerate(sockets):
    opened.bind(('127.0.0.2', 0))
    if kind == 'listening':
        opened.listen()
kept = [os.dup2(opened.fileno(), 100 + at) for at, opened in enumerate(sockets)]
for at, descriptor in enumerate(kept):
    os.dup2(descriptor, 3 + at, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=sys.argv[1])
os.execv(sys.argv[3], sys.argv[3:])
";

#[test]
fn sockets_that_are_given_are_used_in_the_place_of_addresses() {
    let upstream = Upstream::ok();
    let andante = Andante::started_by(&["python3", "-c", OPEN, "workers:admin:workers", "listening"]);
    let [first, second] = andante.listen() else { panic!("{:?}", andante.listen()) };
    for address in [*first, *second, andante.admin()] {
        assert_eq!(address.ip().to_string(), "127.0.0.2");
    }
    for proxy in [*first, *second] {
        assert_eq!(Client::get(proxy, &upstream.url("/")).text(), "ok");
    }
    assert_eq!(andante.page("/readyz").status(), 200);
}

#[test]
fn without_one_for_the_admin_pages_they_are_where_they_were_told_to_be() {
    let andante = Andante::started_by(&["python3", "-c", OPEN, "andante.socket", "listening"]);
    assert_eq!(andante.proxy().ip().to_string(), "127.0.0.2");
    assert_eq!(andante.admin().ip().to_string(), "127.0.0.1");
}

#[test]
fn sockets_of_another_process_are_left_alone() {
    let andante = Andante::started_by(&["env", "LISTEN_FDS=1", "LISTEN_PID=1"]);
    assert_eq!(andante.proxy().ip().to_string(), "127.0.0.1");
}

#[test]
fn a_socket_that_does_not_listen_is_refused() {
    for (names, kind) in [("workers", "datagram"), ("workers", "stream"), ("admin:admin", "listening")] {
        let mut command = process::Command::new("python3");
        command.args(["-c", OPEN, names, kind, env!("CARGO_BIN_EXE_andante"), "serve"]);
        command.stdout(process::Stdio::piped()).stderr(process::Stdio::piped());
        let (code, stdout, stderr) = outcome(command);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{kind}: {stderr}");
        assert!(stderr.starts_with("error: cannot use the sockets that LISTEN_FDS names\ncaused by: "), "{stderr}");
        assert!(stderr.contains("\nhint: "), "{stderr}");
    }
}

#[test]
fn whoever_asks_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let name = format!("andante-test-{}", process::id());
    let hidden = SocketAddr::from_abstract_name(&name).unwrap();
    for (socket, named) in [
        (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
        (UnixDatagram::bind_addr(&hidden).unwrap(), format!("@{name}")),
    ] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let told = || {
            let mut text = [0; 100];
            let length = socket.recv(&mut text).unwrap();
            String::from_utf8(text[..length].to_vec()).unwrap()
        };
        let mut andante = Andante::with_environment("NOTIFY_SOCKET", &named);
        assert_eq!(told(), "READY=1");
        andante.signal(Signal::TERM);
        assert_eq!(told(), "STOPPING=1");
        assert!(andante.ended().success());
    }
    // A missing notification socket is no reason to stop.
    let andante = Andante::with_environment("NOTIFY_SOCKET", "/nonexistent/notify");
    assert_eq!(andante.page("/readyz").status(), 200);
    assert!(andante.stderr().contains("could not tell the service manager"));
}
