//! Tunnels to addresses, by clients that resolve names themselves: the name in the handshake identifies their host.

use std::net::SocketAddr;

use super::server;
use crate::support::{
    Client, Upstream, rejected,
    tls::{Interceptor, Server, TRUSTED},
};

/// An upstream that shows a certificate for `api.test` alone.
fn api() -> Upstream {
    Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["api.test"]), &["http/1.1"]))
}

/// A worker that connects to `address`, and says and expects `name`.
fn by_name(interceptor: &Interceptor, address: SocketAddr, name: &str) -> std::io::Result<Client> {
    interceptor.trusting(name).secure(interceptor.tunnel(&address.to_string()))
}

fn sent(interceptor: &Interceptor, host: &str) -> u64 {
    let status = interceptor.andante.status();
    let lanes = status["lanes"].as_array().unwrap();
    let lane = lanes.iter().find(|lane| lane["host"].as_str().is_some_and(|found| found.starts_with(host)));
    lane.map_or(0, |lane| lane["sent_total"].as_u64().unwrap())
}

#[test]
fn at_an_address_the_handshake_names_certificate_lane_and_upstream() {
    let limited = "[[rule]]\nhost = \"api.test\"\nlimits = [\"100/s\"]\n";
    let intercepted = format!("{limited}https = \"intercept\"\n");
    let address_alone = "[[rule]]\nhost = \"127.0.0.1\"\nhttps = \"intercept\"\n".to_owned() + limited;
    for (toml, args) in [(limited, &["--intercept", "*"][..]), (&intercepted, &[]), (&address_alone, &[])] {
        let (upstream, interceptor) = (api(), Interceptor::with_config(toml, args));
        let port = upstream.port();
        let mut worker = by_name(&interceptor, upstream.address(), "api.test").expect("a certificate for the name");
        for host in [format!("api.test:{port}"), "api.test".to_owned(), format!("API.TEST.:{port}")] {
            worker.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(worker.answer().text(), "ok", "{toml} {host}");
            assert_eq!(upstream.requests().last().unwrap().field("host"), Some(host));
        }
        assert_eq!(sent(&interceptor, "api.test"), 3, "{toml}");
        // A name that no name server knows: the address alone was dialled.
        assert_eq!(upstream.hello().sni.as_deref(), Some("api.test"));
    }
}

#[test]
fn at_an_address_without_a_rule_for_the_name_the_address_counts() {
    let toml = "[[rule]]\nhost = \"127.0.0.1\"\nlimits = [\"100/s\"]\nhttps = \"intercept\"\n";
    let (upstream, interceptor) = (api(), Interceptor::with_config(toml, &[]));
    let mut worker = by_name(&interceptor, upstream.address(), "api.test").expect("a certificate for the name");
    worker.send("GET / HTTP/1.1\r\nHost: api.test\r\n\r\n");
    assert_eq!(worker.answer().text(), "ok");
    assert_eq!(sent(&interceptor, "127.0.0.1"), 1);
}

#[test]
fn at_an_address_without_a_name_the_certificate_is_for_the_address() {
    let upstream = Upstream::secure_ok(server(&["http/1.1"]));
    let interceptor = Interceptor::serve(&["--intercept", "*"]);
    let address = upstream.address().to_string();
    assert_eq!(interceptor.get(&address, "/").text(), "ok");
    assert_eq!(upstream.hello().sni, None);
}

#[test]
fn another_host_than_the_one_that_the_handshake_names_is_refused() {
    let (upstream, interceptor) = (api(), Interceptor::serve(&["--intercept", "*"]));
    for host in ["other.test".to_owned(), upstream.address().to_string(), "api.test:1".to_owned()] {
        let mut worker = by_name(&interceptor, upstream.address(), "api.test").unwrap();
        worker.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        rejected(&worker.answer(), 400, "http_request_error", &host);
    }
    assert!(upstream.requests().is_empty());
}

#[test]
fn an_upstream_at_an_address_must_be_the_host_that_the_handshake_names() {
    let upstream = Upstream::secure_ok(server(&["http/1.1"]));
    let interceptor = Interceptor::serve(&["--intercept", "*"]);
    let mut worker = by_name(&interceptor, upstream.address(), "api.test").unwrap();
    worker.send("GET / HTTP/1.1\r\nHost: api.test\r\n\r\n");
    rejected(&worker.answer(), 502, "tls_certificate_error", "a certificate for other hosts");
    assert!(upstream.requests().is_empty());
}

#[test]
fn a_tunnel_is_closed_whose_handshake_names_a_host_that_refuses_tunnels() {
    let toml = "[[rule]]\nhost = \"secret.test\"\nhttps = \"refuse\"\n";
    let (upstream, interceptor) = (api(), Interceptor::with_config(toml, &["--intercept", "*"]));
    assert!(by_name(&interceptor, upstream.address(), "secret.test").is_err());
    let mut fronted = interceptor.trusting("secret.test");
    fronted.blind = true;
    assert!(fronted.secure(interceptor.tunnel(&format!("localhost:{}", upstream.port()))).is_err());
    assert_eq!(upstream.connections(), 0);
}
