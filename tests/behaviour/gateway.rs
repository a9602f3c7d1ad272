//! Gateway addresses: paths of andante's own that stand for an API.

use crate::support::{
    Andante, Client, DeadPort, Message, Upstream,
    h2::Client2,
    rejected,
    tls::{Interceptor, Leaf, Server, TRUSTED},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// `GET path` of andante itself, with `fields`.
fn get(andante: &Andante, path: &str, fields: &str) -> Message {
    let own = andante.proxy();
    Client::ask(own, format!("GET {path} HTTP/1.1\r\nHost: {own}\r\n{fields}\r\n"))
}

fn routed(upstream: &Upstream, base: &str) -> Andante {
    let to = upstream.url(base);
    Andante::with_config(&format!("[[gateway]]\npath = \"/api\"\nto = \"{to}\"\n"))
}

#[test]
fn the_path_after_the_host_passes_byte_for_byte() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    for (asked, path) in [
        ("", "/"),
        ("/", "/"),
        ("?q=1", "/?q=1"),
        ("/v1/x?y=%2F&z=a+b", "/v1/x?y=%2F&z=a+b"),
        ("/a//b/../c/./%7E;d=1", "/a//b/../c/./%7E;d=1"),
        ("/http://other.test/", "/http://other.test/"),
    ] {
        let answer = get(&andante, &format!("/{}{asked}", upstream.url("")), "");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"), "{asked}");
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.target(), path, "{asked}");
        assert_eq!(request.field("host"), Some(upstream.address().to_string()), "{asked}");
    }
    let slash = get(&andante, &format!("/http:/{}/x", upstream.address()), "");
    assert_eq!((slash.status(), upstream.requests().pop().unwrap().target().as_str()), (200, "/x"), "one slash lost");
}

#[test]
fn a_gateway_path_is_replaced_by_the_path_of_its_api() {
    let upstream = Upstream::ok();
    let andante = routed(&upstream, "/v1");
    for (asked, path) in [("/api", "/v1"), ("/api/", "/v1/"), ("/api/a%2Fb?c", "/v1/a%2Fb?c"), ("/api?q", "/v1?q")] {
        assert_eq!(get(&andante, asked, "").status(), 200, "{asked}");
        assert_eq!(upstream.requests().pop().unwrap().target(), path, "{asked}");
    }
    for other in ["/apix", "/", "/other"] {
        rejected(&get(&andante, other, ""), 400, "http_request_error", other);
    }
    assert_eq!(upstream.requests().len(), 4);
}

#[test]
fn an_answer_keeps_its_client_on_the_gateway() {
    let upstream = Upstream::answering(|request| {
        let host = request.field("host").unwrap();
        format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{host}/v1/next?a=b\r\nContent-Location: /v1/here\r\n\
             Link: <http://{host}/v1/p2>; rel=next, <https://docs.test/>; rel=help\r\n\
             Set-Cookie: a=1; Path=/; Domain={}; Secure\r\nSet-Cookie: b=2; Path=/v1/b\r\nContent-Length: 0\r\n\r\n",
            host.split(':').next().unwrap()
        )
    });
    let (host, andante) = (upstream.address(), routed(&upstream, "/v1"));
    let answer = get(&andante, "/api/x", "");
    assert_eq!(answer.field("location").as_deref(), Some("/api/next?a=b"));
    assert_eq!(answer.field("content-location").as_deref(), Some("/api/here"));
    assert_eq!(answer.field("link").as_deref(), Some("</api/p2>; rel=next, </https://docs.test/>; rel=help"));
    let cookies = answer.all("set-cookie");
    assert_eq!(cookies, ["a=1; Path=/api", "b=2; Path=/api/b"]);

    let written_out = format!("/http://{host}");
    let answer = get(&andante, &format!("{written_out}/x"), "");
    assert_eq!(answer.field("location"), Some(format!("{written_out}/v1/next?a=b")));
    let direct = Client::get(andante.proxy(), &upstream.url("/x"));
    assert_eq!(direct.field("location"), Some(format!("http://{host}/v1/next?a=b")), "by the proxy nothing changes");
    assert_eq!(direct.all("set-cookie").len(), 2);
}

#[test]
fn a_gateway_address_may_be_asked_for_through_the_proxy_itself() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let port = andante.proxy().port();
    for own in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        let answer = Client::get(andante.proxy(), &format!("http://{own}/{}", upstream.url("/absolute")));
        assert_eq!(answer.status(), 200, "{own}: {answer:?}");
        let answer = Client2::connect(andante.proxy()).get(&format!("http://{own}/{}", upstream.url("/2"))).answer();
        assert_eq!(answer.status(), 200, "{own}: {answer:?}");
    }
    let targets: Vec<_> = upstream.requests().iter().map(Message::target).collect();
    assert_eq!(targets, ["/absolute", "/2", "/absolute", "/2"]);
}

#[test]
fn no_tunnel_leads_through_a_gateway() {
    let upstream = Upstream::echo();
    let andante = routed(&upstream, "");
    for target in ["/api".to_owned(), format!("/{}", upstream.url("/")), andante.proxy().to_string()] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {}\r\n\r\n", andante.proxy()));
        let status = client.answer().status();
        assert!([400, 403].contains(&status), "{target}: {status}");
        client.closed();
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn what_is_refused_elsewhere_is_refused_here() {
    let andante = Andante::serve(&[]);
    for (path, status, error) in [
        ("/http://u:secret@127.0.0.1/", 400, "http_request_error"),
        ("/https://u@127.0.0.1/", 400, "http_request_error"),
        ("/http:///x", 400, "http_request_error"),
        ("/http://a b/", 400, "http_request_error"),
        ("/http://127.0.0.1:99999/", 400, "http_request_error"),
        ("/ftp://127.0.0.1/", 400, "http_request_error"),
        (&format!("/http://{}/metrics", andante.admin()), 403, "proxy_loop_detected"),
        (&format!("/http://{}/x", andante.proxy()), 403, "proxy_loop_detected"),
    ] {
        let answer = get(&andante, path, "");
        rejected(&answer, status, error, path);
        assert!(!answer.text().contains("secret"), "{answer:?}");
    }
    let exposed = Andante::serve(&["--listen", "0.0.0.0:0", "--clients", "10.0.0.0/8"]);
    let own = std::net::SocketAddr::from(([127, 0, 0, 1], exposed.proxy().port()));
    let answer = Client::ask(own, format!("GET /http://127.0.0.1:1/ HTTP/1.1\r\nHost: {own}\r\n\r\n"));
    rejected(&answer, 403, "destination_ip_prohibited", "a private address, for others");
}

#[test]
fn requests_of_pages_of_other_sites_are_refused() {
    let upstream = Upstream::ok();
    let andante = routed(&upstream, "");
    let (own, port) = (andante.proxy(), andante.proxy().port());
    for fields in [
        "Origin: https://evil.test\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        "Sec-Fetch-Site: cross-site\r\n".to_owned(),
        format!("Origin: http://127.0.0.1:{}\r\n", port ^ 1),
    ] {
        for path in ["/api/x".to_owned(), format!("/{}", upstream.url("/x"))] {
            rejected(&get(&andante, &path, &fields), 403, "http_request_denied", &fields);
            let absolute = format!("GET http://{own}{path} HTTP/1.1\r\nHost: {own}\r\n{fields}\r\n");
            rejected(&Client::ask(own, absolute), 403, "http_request_denied", &format!("absolute, {fields}"));
        }
    }
    // A name that an attacker has pointed at this machine (DNS rebinding).
    let rebound = format!("GET /api/x HTTP/1.1\r\nHost: evil.test:{port}\r\n\r\n");
    rejected(&Client::ask(own, rebound), 403, "http_request_denied", "another name");
    assert!(upstream.requests().is_empty());
    let fine = format!("Origin: http://{own}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(get(&andante, "/api/x", &fine).status(), 200);
    let local = format!("GET /api/x HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    assert_eq!(Client::ask(own, local).status(), 200);
}

#[test]
fn a_page_on_another_machine_is_lent_no_credentials() {
    let parent = Upstream::ok();
    let via = format!("[[rule]]\nhost = \"api.test\"\nvia = \"http://me:secret@{}\"\n", parent.address());
    let exposed = Andante::with_config_and(&via, &["--listen", "0.0.0.0:0", "--clients", "10.0.0.0/8"]);
    let own = std::net::SocketAddr::from(([127, 0, 0, 1], exposed.proxy().port()));
    let ask = |fields: &str| Client::ask(own, format!("GET /http://api.test/x HTTP/1.1\r\n{fields}\r\n\r\n"));
    for fields in [
        format!("Host: {own}"),
        "Host: evil.example\r\nAndante-Gateway: 1".to_owned(),
        "Host: evil.example\r\nOrigin: http://evil.example\r\nAndante-Gateway: 1".to_owned(),
        format!("Host: {own}\r\nAndante-Gateway: 1\r\nOrigin: http://evil.example"),
    ] {
        let answer = ask(&fields);
        rejected(&answer, 403, "http_request_denied", &fields);
        assert!(answer.json()["hint"].as_str().unwrap().contains("Andante-Gateway: 1") || fields.contains("Origin"));
    }
    assert!(parent.requests().is_empty());
    for host in [own.to_string(), "andante:3128".to_owned(), "andante.default.svc.local".to_owned()] {
        assert_eq!(ask(&format!("Host: {host}\r\nAndante-Gateway: 1")).status(), 200, "{host}");
    }
    assert!(parent.requests().iter().all(|request| !request.has("andante-gateway")));
    // On this machine alone, a browser says where it comes from.
    let alone = Andante::with_config(&via);
    assert_eq!(get(&alone, "/http://api.test/x", "").status(), 200);
}

#[test]
fn a_host_has_one_lane_by_whichever_way_it_is_called() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[gateway]]\npath = \"/api\"\nto = \"{}\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"3/h burst 3\"]\n",
        upstream.url("")
    ));
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    assert_eq!(get(&andante, &format!("/{}", upstream.url("/")), "").status(), 200);
    assert_eq!(get(&andante, "/api/", "").status(), 200);
    let refused = get(&andante, "/api/", "Prefer: wait=0\r\n");
    rejected(&refused, 429, "http_request_denied", "the fourth");
    let status = andante.status();
    assert_eq!((&status["lanes_total"], &status["lanes"][0]["sent_total"]), (&1.into(), &3.into()), "{status:#}");
}

#[test]
fn a_gateway_speaks_tls_to_the_upstream_and_says_what_is_wrong_with_it() {
    let good = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &["http/1.1"]));
    let other = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["other.test"]), &["http/1.1"]));
    let unknown = Upstream::secure_ok(Server::new(&Leaf::self_signed(&["127.0.0.1"]), &["http/1.1"]));
    let plain = Upstream::scripted(|mut connection| {
        let _ = connection.bytes(1);
        connection.send(OK);
    });
    let dead = DeadPort::reserve();
    let andante = Interceptor::serve(&[]);
    let ask = |host: std::net::SocketAddr| get(&andante.andante, &format!("/https://{host}/x"), "");
    assert_eq!(ask(good.address()).text(), "ok");
    assert_eq!(good.request().field("host"), Some(good.address().to_string()));
    for (upstream, error) in [
        (other.address(), "tls_certificate_error"),
        (unknown.address(), "tls_certificate_error"),
        (plain.address(), "tls_protocol_error"),
        (dead.address(), "connection_refused"),
    ] {
        let answer = ask(upstream);
        rejected(&answer, 502, error, &upstream.to_string());
        assert!(answer.text().contains(&upstream.to_string()), "{answer:?}");
    }
    assert!(other.requests().is_empty() && unknown.requests().is_empty());
}

#[test]
fn bodies_pass_a_gateway_in_both_directions() {
    let upstream = Upstream::answering(|request| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", request.body.len(), request.text())
    });
    let (andante, own) = (Andante::serve(&[]), "127.0.0.1");
    let body = "x".repeat(300_000);
    let head = format!("POST /{} HTTP/1.1\r\nHost: {own}\r\nContent-Length: {}\r\n\r\n", upstream.url("/"), body.len());
    assert_eq!(Client::ask(andante.proxy(), head + &body).text(), body);
}
