use std::net::TcpListener as BlockingListener;

use super::*;

/// Returns a listener that never accepts, with a backlog of one connection.
fn unaccepting(address: [u8; 4], port: u16) -> BlockingListener {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((address, port))).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    socket.into()
}

/// Returns a listener with a full backlog, and the connections that fill it. The system drops further SYNs.
async fn filled(address: [u8; 4], port: u16) -> (BlockingListener, Vec<TcpStream>) {
    let (listener, mut held) = (unaccepting(address, port), Vec::new());
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect((IpAddr::from(address), port))).await
    {
        held.push(stream);
        assert!(held.len() < 10, "it does not fill up");
    }
    (listener, held)
}

#[tokio::test]
async fn a_dead_first_address_costs_a_quarter_of_a_second() {
    let (_upstream, port) = upstream().await;
    let _hole = filled([127, 0, 9, 9], port).await;
    let dialer = Dialer::new(Duration::from_secs(10), false, Vec::new(), Dns::System);
    let pinned = Egress { resolve: vec![IpAddr::from([127, 0, 9, 9]), LOCAL], ..Egress::default() };
    let named = origin(Scheme::Http, "a.example", port);
    let connecting = dialer.connect(&named, &pinned, false);
    let outcome = tokio::time::timeout(SECOND, connecting).await;
    assert_eq!(outcome.expect("within a second").unwrap().peer_addr().unwrap().ip(), LOCAL);
}

#[tokio::test]
async fn dead_addresses_in_front_are_all_passed() {
    let (_upstream, port) = upstream().await;
    let _holes = (filled([127, 0, 9, 9], port).await, filled([127, 0, 9, 10], port).await);
    let dialer = Dialer::new(Duration::from_secs(10), false, Vec::new(), Dns::System);
    let refusing = IpAddr::from([127, 0, 0, 77]);
    let dead = [[127, 0, 9, 9], [127, 0, 9, 10]].map(IpAddr::from);
    let pinned = Egress { resolve: vec![dead[0], refusing, dead[1], LOCAL], ..Egress::default() };
    let named = origin(Scheme::Http, "a.example", port);
    let connecting = dialer.connect(&named, &pinned, false);
    let outcome = tokio::time::timeout(SECOND, connecting).await;
    assert_eq!(outcome.expect("within a second").unwrap().peer_addr().unwrap().ip(), LOCAL);
}

#[tokio::test]
async fn a_refusal_by_every_address_is_reported_at_once() {
    let (upstream, port) = upstream().await;
    drop(upstream);
    let dialer = Dialer::new(Duration::from_secs(10), false, Vec::new(), Dns::System);
    let pinned = Egress { resolve: vec![IpAddr::from([127, 0, 0, 77]), LOCAL], ..Egress::default() };
    let outcome = tokio::time::timeout(SECOND, dialer.connect(&origin(Scheme::Http, "a", port), &pinned, false)).await;
    assert_eq!(outcome.expect("at once").unwrap_err().proxy_status(), "connection_refused");
}

#[tokio::test]
async fn addresses_of_another_family_than_the_source_are_left_out() {
    let (_upstream, port) = upstream().await;
    let dialer = Dialer::new(SECOND, false, Vec::new(), Dns::System);
    let pinned =
        Egress { resolve: vec!["2001:db8::1".parse().unwrap(), LOCAL], source: Some(LOCAL), ..Egress::default() };
    assert!(dialer.connect(&origin(Scheme::Http, "a.example", port), &pinned, false).await.is_ok());
    let none = Egress { resolve: vec!["2001:db8::1".parse().unwrap()], source: Some(LOCAL), ..Egress::default() };
    let outcome = dialer.connect(&origin(Scheme::Http, "a.example", port), &none, false).await;
    assert_eq!(outcome.unwrap_err().proxy_status(), "destination_ip_unroutable");
}
