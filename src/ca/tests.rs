//! Tests of the CA from the viewpoint of clients that trust it.

use std::{
    net::IpAddr,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, SystemTime},
};

use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig, ServerConnection,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName},
};

use super::*;
use crate::policy::HostPattern;

mod disk;
mod fields;

const DAY: Duration = Duration::from_secs(86_400);

fn hosts(patterns: &[&str]) -> Vec<HostPattern> {
    patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()
}

fn ca() -> Ca {
    Ca::generate(&[], SystemTime::now()).unwrap()
}

/// Returns the configuration of a client that trusts `ca` alone.
fn client(ca: &Ca) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate().der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let mut config =
        config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Performs a handshake until the client has a session ticket. Returns the first error of either side.
fn handshake(
    client: &Arc<ClientConfig>,
    host: &str,
    server: Arc<ServerConfig>,
) -> Result<ClientConnection, rustls::Error> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    for _ in 0..4 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(client)
}

/// Returns the certificate that a client receives for `host`.
fn leaf(ca: &Ca, host: &str, now: SystemTime) -> CertificateDer<'static> {
    let config = ca.server_config(host, Alpn::Http2First, now).unwrap();
    handshake(&client(ca), host, config).unwrap().peer_certificates().unwrap()[0].clone().into_owned()
}

#[test]
fn a_client_that_trusts_the_ca_talks_to_a_name_and_to_addresses() {
    let ca = ca();
    let now = SystemTime::now();
    let long = format!("{0}.{0}.{0}.example", "a".repeat(60));
    for host in ["api.example.com", "10.0.0.5", "2001:db8::5", "xn--bcher-kva.example", "a_b.example", "x", &long] {
        let done = handshake(&client(&ca), host, ca.server_config(host, Alpn::Http2First, now).unwrap()).unwrap();
        assert_eq!(done.protocol_version(), Some(ProtocolVersion::TLSv1_3), "{host}");
        assert_eq!(done.alpn_protocol(), Some(&b"h2"[..]), "{host}");
        assert_eq!(done.peer_certificates().unwrap().len(), 1, "{host}");
        let http1 = handshake(&client(&ca), host, ca.server_config(host, Alpn::Http1First, now).unwrap()).unwrap();
        assert_eq!(http1.alpn_protocol(), Some(&b"http/1.1"[..]), "{host}");
    }
}

#[test]
fn a_certificate_is_for_no_other_host_and_no_other_ca_s() {
    let (ca, other) = (ca(), ca());
    let now = SystemTime::now();
    let config = ca.server_config("api.example.com", Alpn::Http2First, now).unwrap();
    assert!(handshake(&client(&ca), "www.example.com", config.clone()).is_err());
    assert!(handshake(&client(&ca), "10.0.0.5", config.clone()).is_err());
    assert!(handshake(&client(&other), "api.example.com", config.clone()).is_err());
    assert!(handshake(&client(&ca), "api.example.com", config).is_ok());
}

#[test]
fn what_no_certificate_can_name_is_an_error_and_no_panic() {
    let ca = ca();
    let long = "a".repeat(64);
    let longer = format!("{}example", "a.".repeat(125));
    for host in
        ["", ".", "a..b", "*.example.com", "a b", "a.example.", "bücher.example", "[::1]", "a\0b", &long, &longer]
    {
        let error = ca.server_config(host, Alpn::Http2First, SystemTime::now()).unwrap_err();
        assert!(matches!(error, CaError::Host { .. }), "{host:?}: {error}");
    }
    assert_eq!(ca.minted(), 0);
}

#[test]
fn a_session_is_resumed_although_the_certificate_has_left_the_cache() {
    let ca = ca();
    let client = client(&ca);
    let now = SystemTime::now();
    let again =
        || handshake(&client, "api.example.com", ca.server_config("api.example.com", Alpn::Http2First, now).unwrap());
    assert_eq!(again().unwrap().handshake_kind(), Some(HandshakeKind::Full));
    (0..2000).for_each(|n| drop(ca.server_config(&format!("h{n}.example"), Alpn::Http2First, now).unwrap()));
    assert_eq!(again().unwrap().handshake_kind(), Some(HandshakeKind::Resumed));
    assert_eq!(ca.minted(), 2002);
}

#[test]
fn r45_the_cache_is_bounded() {
    let ca = ca();
    let now = SystemTime::now();
    for n in 0..10_000 {
        ca.server_config(&format!("h{n}.example"), Alpn::Http2First, now).unwrap();
    }
    assert_eq!((ca.minted(), ca.leaf_cache.kept()), (10_000, 1024));
    ca.server_config("h9999.example", Alpn::Http1First, now).unwrap();
    assert_eq!(ca.minted(), 10_000);
}

#[test]
fn r45_many_who_ask_for_one_name_at_once_cost_one_minting() {
    let ca = ca();
    let now = SystemTime::now();
    let start = Barrier::new(16);
    thread::scope(|scope| {
        for n in 0..16 {
            let (ca, start) = (&ca, &start);
            scope.spawn(move || {
                start.wait();
                let alpn = if n % 2 == 0 { Alpn::Http2First } else { Alpn::Http1First };
                ca.server_config("api.example.com", alpn, now).unwrap();
            });
        }
    });
    assert_eq!(ca.minted(), 1);
}

#[test]
fn a_certificate_is_renewed_thirty_days_before_its_end() {
    let ca = ca();
    let now = SystemTime::now();
    let ask = |after: Duration| ca.server_config("api.example.com", Alpn::Http2First, now + after).map(|_| ca.minted());
    assert_eq!(ask(Duration::ZERO).unwrap(), 1);
    assert_eq!(ask(DAY * 58).unwrap(), 1);
    assert_eq!(ask(DAY * 59).unwrap(), 2);
    // In the CA's last month, certificates end with the CA, and connections still share one.
    let end = ca.certificate().not_after().duration_since(now).unwrap();
    assert_eq!(ask(end - DAY).unwrap(), 3);
    assert_eq!(ask(end - DAY).unwrap(), 3);
    let error = ask(end).unwrap_err();
    assert!(matches!(error, CaError::Expired { .. }) && error.hint().is_some(), "{error}");
}

#[test]
fn r47_a_bounded_ca_speaks_for_its_hosts_alone() {
    let now = SystemTime::now();
    let ca = Ca::generate(&hosts(&["*.example.com", "10.0.0.5:8443"]), now).unwrap();
    for host in ["example.com", "a.b.example.com", "10.0.0.5"] {
        handshake(&client(&ca), host, ca.server_config(host, Alpn::Http2First, now).unwrap()).unwrap();
    }
    for host in ["example.org", "notexample.com", "10.0.0.6", "::1"] {
        let error = ca.server_config(host, Alpn::Http2First, now).unwrap_err();
        assert!(matches!(error, CaError::Outside { .. }), "{host}: {error}");
    }
    assert_eq!(ca.certificate().constraints().to_string(), "example.com and below, 10.0.0.5");
    let any = Ca::generate(&hosts(&["a.example", "*"]), now).unwrap_err();
    assert_eq!(any.to_string(), "a CA cannot be bound to *");
}

#[test]
fn r47_clients_refuse_what_a_bounded_ca_may_not_sign() {
    let now = SystemTime::now();
    for (bounds, fine, wrong) in [
        (&["example.com"][..], &["example.com", "a.example.com"][..], &["example.org", "10.0.0.5", "2001:db8::5"][..]),
        (&["10.0.0.5"], &["10.0.0.5"], &["10.0.0.6", "2001:db8::5", "example.com"]),
        (&["[2001:db8::5]"], &["2001:db8::5"], &["2001:db8::6", "10.0.0.5", "example.com"]),
    ] {
        // An unconstrained certificate bypasses our own check, so only the client's check is left.
        let bounded = Ca::generate(&hosts(bounds), now).unwrap();
        let unchecked = |host: &str| {
            let free = self::ca();
            bounded.leaf_cache.server_config(host, Alpn::Http2First, now, free.certificate()).unwrap()
        };
        for host in fine {
            assert!(handshake(&client(&bounded), host, unchecked(host)).is_ok(), "{bounds:?}: {host}");
        }
        for host in wrong {
            assert!(handshake(&client(&bounded), host, unchecked(host)).is_err(), "{bounds:?}: {host}");
        }
    }
}

#[test]
fn nothing_that_is_printed_shows_a_key() {
    let ca = ca();
    let id = ca.certificate().subject().strip_prefix("andante CA ").unwrap();
    assert!(id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!(format!("{ca:?}"), format!("Ca {{ subject: \"andante CA {id}\", .. }}"));
    assert!(!ca.certificate_pem().contains("PRIVATE"));
}
