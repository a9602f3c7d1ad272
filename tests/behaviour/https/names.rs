//! Where names lead: pins, name servers, our own address; and where they must not lead.

use std::net::{Ipv4Addr, SocketAddr};

use super::{secure, server};
use crate::support::{
    Andante, Client, Name, NameServer, Upstream, rejected,
    tls::{Interceptor, Server, TRUSTED},
};

#[test]
fn a_pinned_name_is_asked_for_nowhere() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["api.test"]), &["http/1.1"]));
    let names = NameServer::start(|_| Name::Unknown);
    let toml = format!("dns = [\"{}\"]\n[[rule]]\nhost = \"*.test\"\nresolve = \"127.0.0.1\"\n", names.address());
    let interceptor = Interceptor::with_config(&toml, &["--intercept", "*.test"]);
    assert_eq!(interceptor.get(&format!("api.test:{}", upstream.port()), "/").text(), "ok");
    assert_eq!(upstream.hello().sni.as_deref(), Some("api.test"));
    assert_eq!(names.asked(), [""; 0]);
}

#[test]
fn connections_come_from_the_address_that_a_rule_says() {
    let tls = server(&["http/1.1"]);
    let upstream = Upstream::secure(tls, |mut connection| {
        let peer = connection.peer().ip().to_string();
        while connection.request().is_some() {
            connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{peer}", peer.len()));
        }
    });
    let rule = "[[rule]]\nhost = \"a.localhost\"\nsource = \"127.0.0.2\"\n";
    let interceptor = Interceptor::with_config(rule, &["--intercept", "*"]);
    assert_eq!(interceptor.get(&format!("a.localhost:{}", upstream.port()), "/").text(), "127.0.0.2");
    assert_eq!(interceptor.get(&format!("b.localhost:{}", upstream.port()), "/").text(), "127.0.0.1");
}

/// andante with a server that knows `here.test`, no `nowhere.test`, and says nothing of others.
fn asking(known: impl Fn(&str) -> Name + Send + 'static, toml: &str) -> (NameServer, Interceptor) {
    let names = NameServer::start(known);
    let toml = format!("dns = [\"{}\"]\n{toml}", names.address());
    // Each thread asks for itself.
    let interceptor = Interceptor::with_config(&toml, &["--intercept", "*", "--threads", "1"]);
    (names, interceptor)
}

#[test]
fn what_a_name_server_says_becomes_of_a_request() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["here.test"]), &["http/1.1"]));
    let known = |name: &str| match name {
        "here.test" => Name::At(vec![Ipv4Addr::LOCALHOST]),
        "nowhere.test" => Name::Unknown,
        _ => Name::Silence,
    };
    let (names, interceptor) = asking(known, "[timeouts]\nconnect = \"400ms\"\n");
    for _ in 0..3 {
        assert_eq!(interceptor.get(&format!("here.test:{}", upstream.port()), "/").text(), "ok");
    }
    let asked = |wanted: &str| names.asked().iter().filter(|name| *name == wanted).count();
    assert!((1..=2).contains(&asked("here.test")), "not kept: {:?}", names.asked());

    let proxy = interceptor.andante.proxy();
    let unknown = [Client::get(proxy, "http://nowhere.test/"), interceptor.get("nowhere.test:443", "/")];
    for answer in unknown {
        rejected(&answer, 502, "dns_error", "NXDOMAIN");
        assert!(answer.text().contains("could not resolve nowhere.test"), "{answer:?}");
    }
    let answer = Client::get(proxy, "http://silence.test/");
    rejected(&answer, 504, "dns_timeout", "silence");
    assert!(answer.text().contains("silence.test"), "{answer:?}");
}

#[test]
fn an_ipv4_address_is_used_although_the_server_knows_no_such_name_for_ipv6() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["v4.test"]), &["http/1.1"]));
    let plain = Upstream::always("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    let (_names, interceptor) = asking(|_| Name::Briefly(vec![Ipv4Addr::LOCALHOST]), "retry = \"off\"\n");
    for _ in 0..10 {
        assert_eq!(interceptor.get(&format!("v4.test:{}", upstream.port()), "/").text(), "ok");
        let url = format!("http://v4.test:{}/", plain.port());
        assert_eq!(Client::get(interceptor.andante.proxy(), &url).text(), "ok");
    }
}

#[test]
fn a_name_that_leads_inside_is_refused_to_workers_on_other_machines() {
    let upstream = secure();
    let known = |name: &str| match name {
        "inside.test" => Name::At(vec![Ipv4Addr::LOCALHOST]),
        // A rebinding begins with a public address beside the private one. 192.0.2.0/24 is for documentation only (RFC
        // 5737).
        "both.test" => Name::At(vec![Ipv4Addr::new(93, 184, 216, 34), Ipv4Addr::LOCALHOST]),
        "metadata.test" => Name::At(vec![Ipv4Addr::new(169, 254, 169, 254)]),
        _ => Name::Unknown,
    };
    let names = NameServer::start(known);
    let toml = format!("dns = [\"{}\"]\nclients = [\"10.0.0.0/8\"]\n", names.address());
    let interceptor = Interceptor::with_config(&toml, &["--listen", "0.0.0.0:0", "--intercept", "*"]);
    let proxy = SocketAddr::from(([127, 0, 0, 1], interceptor.andante.proxy().port()));
    for name in ["inside.test", "both.test", "metadata.test"] {
        let answer = Client::get(proxy, &format!("http://{name}:{}/", upstream.port()));
        rejected(&answer, 403, "destination_ip_prohibited", name);
        let mut tunnel = Client::connect(proxy);
        tunnel.send(format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n"));
        tunnel.opened();
        let mut worker = interceptor.trusting(&format!("{name}:443")).secure(tunnel).expect("a handshake");
        worker.send(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"));
        rejected(&worker.answer(), 403, "destination_ip_prohibited", name);
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn an_intercepted_tunnel_leads_to_no_page_of_ours() {
    let interceptor = Interceptor::serve(&["--intercept", "*"]);
    let andante: &Andante = &interceptor.andante;
    for own in [andante.admin(), andante.proxy()] {
        let answer = interceptor.get(&format!("localhost:{}", own.port()), "/status");
        rejected(&answer, 403, "proxy_loop_detected", "one of our own ports");
        // In the clear inside of the tunnel, too.
        let mut client = interceptor.tunnel(&own.to_string());
        client.send(format!("GET /status HTTP/1.1\r\nHost: {own}\r\n\r\n"));
        rejected(&client.answer(), 403, "proxy_loop_detected", "one of our own ports");
    }
}
