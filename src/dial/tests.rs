//! Tests of the dialer with real sockets.

mod largest_answers;
mod name_server;
mod parents;
mod racing;
mod resolving;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::net::TcpListener;

use super::*;
use crate::policy::Scheme;

const SECOND: Duration = Duration::from_secs(1);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn origin(scheme: Scheme, host: &str, port: u16) -> Origin {
    Origin { scheme, host: host.into(), port }
}

/// Returns a listener on a free port, and the port.
async fn upstream() -> (TcpListener, u16) {
    let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn a_pin_needs_no_look_up_and_no_permission() {
    let (_upstream, port) = upstream().await;
    let nobody = Dns::Servers(vec![SocketAddr::new(LOCAL, 9)]);
    let dialer = Dialer::new(SECOND, true, Vec::new(), nobody);
    let pinned = Egress { resolve: vec![LOCAL], ..Egress::default() };
    for host in ["api.example.com", "10.0.0.1", "localhost"] {
        let stream = dialer.connect(&origin(Scheme::Http, host, port), &pinned, false).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), SocketAddr::new(LOCAL, port), "{host}");
    }
}

#[tokio::test]
async fn every_pin_is_tried() {
    let (_upstream, port) = upstream().await;
    let dialer = Dialer::new(SECOND, false, Vec::new(), Dns::System);
    let dead = IpAddr::from([127, 0, 0, 77]);
    let pinned = Egress { resolve: vec![dead, LOCAL], ..Egress::default() };
    assert!(dialer.connect(&origin(Scheme::Http, "a.example", port), &pinned, false).await.is_ok());
}

#[tokio::test]
async fn connections_leave_from_the_source_that_is_named() {
    let (upstream, port) = upstream().await;
    let dialer = Dialer::new(SECOND, false, Vec::new(), Dns::Cached);
    let source = IpAddr::from([127, 0, 0, 2]);
    let from = Egress { source: Some(source), ..Egress::default() };
    let _stream = dialer.connect(&origin(Scheme::Http, "127.0.0.1", port), &from, false).await.unwrap();
    assert_eq!(upstream.accept().await.unwrap().1.ip(), source);
}

#[tokio::test]
async fn r52_private_hosts_are_refused_without_asking_anybody() {
    let dialer = Dialer::new(SECOND, true, Vec::new(), Dns::Servers(Vec::new()));
    for host in ["127.0.0.1", "169.254.169.254", "::1", "localhost", "a.localhost"] {
        let outcome = dialer.connect(&origin(Scheme::Http, host, 80), &Egress::default(), false).await;
        assert!(matches!(outcome, Err(Error::Forbidden { .. })), "{host}: {outcome:?}");
    }
}

#[tokio::test]
async fn r53_our_own_ports_are_not_reached_by_any_name() {
    let (own, port) = upstream().await;
    let dialer = Dialer::new(SECOND, false, vec![own.local_addr().unwrap()], Dns::Cached);
    for host in ["127.0.0.1", "localhost"] {
        let outcome = dialer.connect(&origin(Scheme::Http, host, port), &Egress::default(), false).await;
        assert!(matches!(outcome, Err(Error::SelfTarget { .. })), "{host}: {outcome:?}");
    }
}

#[tokio::test]
async fn nobody_there_is_told_from_no_such_name() {
    let dialer = Dialer::new(SECOND, false, Vec::new(), Dns::Cached);
    let (upstream, port) = upstream().await;
    drop(upstream);
    let outcome = dialer.connect(&origin(Scheme::Http, "localhost", port), &Egress::default(), false).await;
    assert_eq!(outcome.unwrap_err().proxy_status(), "connection_refused");
}
