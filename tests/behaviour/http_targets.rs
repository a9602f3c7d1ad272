//! Where a request goes: targets, hosts and their spellings.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::support::{Andante, Client, Upstream, rejected};

#[test]
fn targets_that_name_no_host_are_refused() {
    let andante = Andante::serve(&[]);
    for (status, target) in [
        (400, "/"),
        (400, "//a/x"),
        (400, "*"),
        (400, "http:///x"),
        (400, "http://"),
        (400, "http://:80/"),
        (400, "http://a:/"),
        (400, "http://a:0/"),
        (400, "http://a:99999/"),
        (400, "http://a:+80/"),
        (400, "http://a:80:80/"),
        (400, "http://[::1/"),
        (400, "http://::1/"),
        (400, "http://a%2fb/"),
        (400, "http://a b/"),
        (400, "http://a\\b/"),
        (400, "http://a/\0"),
        (400, "http://a/\u{7f}"),
        (400, "file:///etc/passwd"),
        (501, "ftp://a/"),
    ] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        rejected(&client.answer(), status, "http_request_error", target);
    }
}

/// RFC 9112 §3.2.1 and §3.2.2: an empty path is sent as "/", and only where the target names a host it may be left out.
#[test]
fn an_empty_path_becomes_a_slash_or_a_refusal_and_never_an_empty_target() {
    let (andante, upstream) = (Andante::serve(&["--limit", "127.0.0.1=1000/s"]), Upstream::ok());
    let up = upstream.address();
    let paths = ["", "#x", "/#x", "?#x", "?a=b#x", "?"];
    for path in paths {
        assert_eq!(Client::get(andante.proxy(), &format!("http://{up}{path}")).status(), 200, "{path}");
    }
    let targets: Vec<String> = upstream.requests().iter().map(|request| request.target()).collect();
    assert_eq!(targets, ["/", "/", "/", "/?", "/?a=b", "/?"]);
    // In the origin form there is nothing that a path could be left out of.
    let inside = |target: &str| {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        client.opened();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        client.answer()
    };
    for target in ["#", "#x", "?a=b", "*"] {
        rejected(&inside(target), 400, "http_request_error", target);
        let plain = Client::ask(andante.proxy(), format!("GET {target} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        rejected(&plain, 400, "http_request_error", target);
    }
    assert_eq!(upstream.requests().len(), paths.len());
    assert_eq!(inside("/#x").status(), 200);
    assert_eq!(upstream.requests().pop().unwrap().target(), "/");
}

#[test]
fn who_takes_the_proxy_for_a_web_server_is_told_what_it_is() {
    let andante = Andante::serve(&[]);
    let answer = Client::ask(andante.proxy(), "GET / HTTP/1.1\r\nHost: localhost:3128\r\n\r\n");
    rejected(&answer, 400, "http_request_error", "/");
    let hint = answer.json()["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("HTTP_PROXY") && hint.contains(&andante.admin().to_string()), "{hint}");
}

#[test]
fn credentials_in_a_target_are_refused_and_never_repeated() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let up = upstream.address();
    for user in ["user", "user:hunter2", "", "hunter2%40x"] {
        let request = format!("GET http://{user}@{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n");
        let answer = Client::ask(andante.proxy(), request);
        rejected(&answer, 400, "http_request_error", user);
        assert!(!answer.text().contains("hunter2"), "{answer:?}");
    }
    assert_eq!(upstream.requests().len(), 0);
    assert!(!andante.stderr().contains("hunter2"));
}

#[test]
fn request_lines_that_are_none_are_refused_and_the_connection_closed() {
    let andante = Andante::serve(&[]);
    for line in [
        "GET http://a/\r\n",
        "GET http://a/ HTTP/0.9\r\n",
        "GET http://a/ HTTP/2.0\r\n",
        "GET http://a/ HTTP/1.2\r\n",
        "GET http://a/ HTTP/1.1 \r\n",
        "GET http://a/ http/1.1\r\n",
        "GET  http://a/ HTTP/1.1\r\n",
        "G\u{e9}T http://a/ HTTP/1.1\r\n",
        " GET http://a/ HTTP/1.1\r\n",
        "\0\r\n",
        "\x16\x03\x01\x02\0\r\n",
    ] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("{line}Host: a\r\n\r\n"));
        let answer = client.answer();
        rejected(&answer, 400, "http_request_error", line);
        client.closed();
    }
}

/// With 414 or, depending on how it comes in, 431: see `docs/decisions/http-deviations.md`.
#[test]
fn targets_that_are_too_long_are_refused_and_the_connection_closed() {
    let andante = Andante::serve(&[]);
    for length in [70_000, 500_000] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("GET http://a/{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(length)));
        let answer = client.answer();
        assert!([414, 431].contains(&answer.status()), "{answer:?}");
        rejected(&answer, answer.status(), "http_request_error", "a long target");
        client.closed();
    }
}

#[test]
fn a_fragment_stays_with_the_worker() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/x?q#f")).status(), 200);
    assert_eq!(upstream.request().target(), "/x?q");
}

#[test]
fn schemes_and_hosts_have_no_case() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let port = upstream.port();
    for target in [format!("HTTP://127.0.0.1:{port}/"), format!("Http://LOCALHOST:{port}/")] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(Client::ask(andante.proxy(), request).status(), 200, "{target}");
    }
}

#[test]
fn a_target_without_a_path_asks_for_the_root() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    for (path, asked) in [("", "/"), ("?q=1", "/?q=1")] {
        Client::get(andante.proxy(), &upstream.url(path));
        assert_eq!(upstream.requests().pop().unwrap().target(), asked);
    }
}

#[test]
fn all_spellings_of_a_host_share_one_lane() {
    let (andante, upstream) = (Andante::serve(&["--limit", "127.0.0.1=100/s burst 20"]), Upstream::ok());
    let port = upstream.port();
    let spellings = [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0177.0.0.1",
        "2130706433",
        "0x7F000001",
        "[::ffff:7f00:1]",
        "[::ffff:127.0.0.1]",
        "127.0.0.1.",
    ];
    for host in spellings {
        let request = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        assert_eq!(Client::ask(andante.proxy(), request).status(), 200, "{host}");
    }
    let status = andante.status();
    assert_eq!(status["lanes"].as_array().unwrap().len(), 1, "{status:#}");
    assert_eq!(status["lanes"][0]["host"], "127.0.0.1");
    assert_eq!(status["lanes"][0]["sent_total"], spellings.len());
}

#[test]
fn names_have_neither_case_nor_a_dot_at_the_end() {
    let (andante, upstream) = (Andante::serve(&["--limit", "localhost=100/s burst 20"]), Upstream::ok());
    let port = upstream.port();
    for host in ["localhost", "LocalHost", "localhost."] {
        let request = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        assert_eq!(Client::ask(andante.proxy(), request).status(), 200, "{host}");
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"));
        client.opened();
    }
    // A tunnel to a host with a limit takes no slot: its turns would.
    let status = andante.wait_for(|status| status["lanes"][0]["sent_total"] == 3);
    assert_eq!(status["lanes"].as_array().unwrap().len(), 1, "{status:#}");
}

#[test]
fn our_own_ports_cannot_be_reached_through_us() {
    let andante = Andante::serve(&[]);
    for port in [andante.proxy().port(), andante.admin().port()] {
        for host in ["127.0.0.1", "localhost", "LOCALHOST.", "127.1", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0", "0"] {
            let request = format!("GET http://{host}:{port}/metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
            rejected(&Client::ask(andante.proxy(), request), 403, "proxy_loop_detected", host);
            let mut client = Client::connect(andante.proxy());
            client.send(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            rejected(&client.answer(), 403, "proxy_loop_detected", host);
            client.closed();
        }
    }
}

#[test]
fn nor_by_an_address_of_this_machine_on_the_network() {
    let Some(here) = own_address() else {
        eprintln!("SKIPPED: this machine has no address beyond loopback");
        return;
    };
    let config = "clients = [\"any\"]\n[[rule]]\nhost = \"*\"\nallow-private = true\nlimits = \"100/s burst 50\"\n";
    let andante = Andante::with_config_and(config, &["--listen", "0.0.0.0:0", "--admin", "0.0.0.0:0"]);
    let at = |address: SocketAddr| SocketAddr::new(here, address.port());
    for own in andante.listen().iter().copied().chain([andante.admin()]).map(at) {
        let answer = Client::get(at(andante.proxy()), &format!("http://{own}/metrics"));
        rejected(&answer, 403, "proxy_loop_detected", &own.to_string());
    }
}

#[test]
fn a_client_from_a_network_that_is_not_named_is_told_403_and_the_connection_closed() {
    let Some(here) = own_address() else {
        eprintln!("SKIPPED: this machine has no address beyond loopback");
        return;
    };
    let config = "clients = [\"198.51.100.0/24\"]\n";
    let andante = Andante::with_config_and(config, &["--listen", "0.0.0.0:0"]);
    let mut client = Client::connect(SocketAddr::new(here, andante.proxy().port()));
    client
        .send("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\nGET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n");
    rejected(&client.answer(), 403, "http_request_denied", "a stranger");
    client.closed();
}

/// The address that this machine would talk to others from. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("203.0.113.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn options_without_a_path_becomes_a_slash() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let up = upstream.address();
    Client::ask(andante.proxy(), format!("OPTIONS http://{up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    assert_eq!(upstream.request().line(), "OPTIONS / HTTP/1.1");
}

#[test]
fn a_client_that_speaks_tls_or_socks_to_the_proxy_is_told_so() {
    let andante = Andante::serve(&[]);
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n";
    for (bytes, protocol) in
        [(&hello[..], "TLS"), (b"\x05\x01\x00", "SOCKS"), (b"\x04\x01\x01\xbb\x7f\x00\x00\x01\x00", "SOCKS")]
    {
        let mut client = Client::connect(andante.proxy());
        client.send(bytes);
        let answer = client.answer();
        rejected(&answer, 400, "http_request_error", protocol);
        let problem = answer.json();
        let detail = format!("the client speaks {protocol} to this port, where the proxy speaks HTTP alone");
        assert_eq!(problem["detail"], detail, "{problem:#}");
        assert!(problem["hint"].as_str().unwrap().contains("write http:// in HTTP_PROXY"), "{problem:#}");
    }
    let incidents = andante.status()["incidents"].to_string();
    assert!(incidents.contains("speaks TLS") && incidents.contains("speaks SOCKS"), "{incidents}");
}
