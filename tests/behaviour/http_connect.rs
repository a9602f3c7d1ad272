//! Tunnels, and upgrades, which are none yet.

use andante::clock::Clock;

use crate::support::{Andante, Client, DeadPort, Mock, Upstream, eventually, rejected};

/// Opens a tunnel to `upstream`.
fn tunnel(andante: &Andante, upstream: &Upstream) -> Client {
    let mut client = Client::connect(andante.proxy());
    let up = upstream.address();
    client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    client.opened();
    client
}

#[test]
fn a_target_that_is_no_host_and_port_is_refused_and_the_connection_closed() {
    let andante = Andante::serve(&[]);
    let trap = Upstream::ok();
    for target in [
        "a",
        "a:",
        "a:0",
        "a:99999",
        "a:+443",
        "a:443x",
        "a: 443",
        ":443",
        "",
        "u@a:443",
        "u:p@a:443",
        "http://a:443/",
        "https://a:443",
        "a:443/",
        "/",
        "*",
        "[::1",
        "::1:443",
        "a:443:443",
        "a b:443",
        "a%2e:443",
        "*:443",
        "a,b:443",
        "(a):443",
        "a..b:443",
        ".a:443",
        "a;b:443",
        "a=b:443",
        "a!:443",
        "a$b:443",
        "a&b:443",
        "'a':443",
        "a+b:443",
        "a~b:443",
    ] {
        let mut client = Client::connect(andante.proxy());
        // In the same packet, so that it is there already when the answer is made.
        let next = trap.url("/smuggled");
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: a:443\r\n\r\nGET {next} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer();
        rejected(&answer, 400, "http_request_error", target);
        assert_eq!(answer.field("connection").as_deref(), Some("close"), "{target}");
        client.closed();
    }
    assert_eq!(trap.requests().len(), 0);
}

#[test]
fn beyond_loopback_tunnels_go_to_443_and_to_ports_that_rules_name() {
    let (named, other) = (Upstream::echo(), Upstream::echo());
    let config = format!(
        "listen = [\"0.0.0.0:0\"]\nclients = [\"10.0.0.0/8\"]\n[[rule]]\nhost = \"127.0.0.1:{}\"\nallow-private = true\n\
         limits = \"100/s\"\n",
        named.port()
    );
    let andante = Andante::with_config_and(&config, &["--listen", "0.0.0.0:0"]);
    let proxy = std::net::SocketAddr::from(([127, 0, 0, 1], andante.proxy().port()));
    let connect = |target: String| {
        let mut client = Client::connect(proxy);
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        client
    };
    let mut refused = connect(other.address().to_string());
    rejected(&refused.answer(), 403, "destination_ip_prohibited", "another port, whose rule allows no loopback");
    refused.closed();
    connect(named.address().to_string()).opened();
    let mut refused = connect("127.0.0.1:443".to_owned());
    rejected(&refused.answer(), 403, "destination_ip_prohibited", "443, but here");
    refused.closed();
    assert_eq!(other.connections(), 0);
}

#[test]
fn a_get_before_it_does_not_open_the_way_for_a_connect() {
    let upstream = Upstream::ok();
    let up = upstream.address();
    let config = "clients = [\"10.0.0.0/8\"]\n[[rule]]\nhost = \"127.0.0.1\"\nallow-private = true\nin-flight = 9\n";
    let andante = Andante::with_config_and(config, &["--listen", "0.0.0.0:0"]);
    let mut client = Client::connect(([127, 0, 0, 1], andante.proxy().port()).into());
    client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    assert_eq!(client.answer().text(), "ok");
    client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    client.opened();
    // Not even with a rule for the host is it open to anything but plain HTTP.
    client.send("SSH-2.0-OpenSSH\r\n");
    client.closed();
    assert_eq!(upstream.requests().len(), 1);

    let mut client = Client::connect(([127, 0, 0, 1], andante.proxy().port()).into());
    // A URL without a port means port 80, but CONNECT needs a port. The port need not have a listener.
    client.send("GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    client.answer();
    client.send("CONNECT 127.0.0.1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    rejected(&client.answer(), 400, "http_request_error", "no port");
    client.closed();
}

#[test]
fn a_dead_port_is_502_and_the_connection_closed() {
    let andante = Andante::serve(&[]);
    let held = DeadPort::reserve();
    let dead = held.address();
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {dead} HTTP/1.1\r\nHost: {dead}\r\n\r\n\x16\x03\x01 not for you"));
    rejected(&client.answer(), 502, "connection_refused", "a dead port");
    client.closed();
}

#[test]
fn a_rejected_connect_takes_what_came_with_it_along() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let (own, up) = (andante.admin(), upstream.address());
    let mut client = Client::connect(andante.proxy());
    client
        .send(format!("CONNECT {own} HTTP/1.1\r\nHost: {own}\r\n\r\nGET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    rejected(&client.answer(), 403, "proxy_loop_detected", "our own port");
    client.closed();
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn a_connect_with_two_hosts_is_refused_and_the_connection_closed() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", upstream.address()));
    rejected(&client.answer(), 400, "http_request_error", "two hosts");
    client.closed();
    assert_eq!(upstream.connections(), 0);
}

/// See `docs/decisions/http-deviations.md`.
#[test]
fn a_connect_without_host_opens_a_tunnel() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {} HTTP/1.1\r\n\r\n", upstream.address()));
    client.opened();
}

#[test]
fn a_connect_refused_by_its_lane_closes_the_connection() {
    let rule = "[[rule]]\nhost = \"127.0.0.1\"\nlimits = \"1/h\"\nhttps = \"tunnel\"\n";
    let (andante, upstream) = (Andante::with_config(rule), Upstream::echo());
    let _open = tunnel(&andante, &upstream);
    let up = upstream.address();
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\nPrefer: wait=1\r\n\r\n"));
    let answer = client.answer();
    rejected(&answer, 429, "http_request_denied", "no slot");
    assert!(answer.has("retry-after"));
    client.closed();
}

#[test]
fn what_comes_with_connect_waits_for_the_tunnel_and_passes_then() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let up = upstream.address();
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\nhello before 200"));
    client.opened();
    assert_eq!(client.bytes(16), b"hello before 200");
}

#[test]
fn the_answer_that_opens_a_tunnel_has_no_framing() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let up = upstream.address();
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    let head = client.opened();
    assert_eq!(head.line(), "HTTP/1.1 200 OK");
    for gone in ["content-length", "transfer-encoding", "connection"] {
        assert!(!head.has(gone), "{gone}: {head:?}");
    }
}

#[test]
fn connect_with_a_body_is_refused_and_the_connection_closed() {
    // RFC 9110 §9.3.6: CONNECT has no content. The following bytes may be content or tunnel data, and andante cannot
    // know which.
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let up = upstream.address();
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n{framing}\r\n\r\nhello"));
        let answer = client.answer();
        rejected(&answer, 400, "http_request_error", framing);
        client.closed();
    }
    assert_eq!(upstream.connections(), 0);
    // An explicit length of 0, as some clients send it, is accepted.
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\nContent-Length: 0\r\n\r\nhello"));
    client.opened();
    assert_eq!(client.bytes(5), b"hello");
}

#[test]
fn when_the_client_has_no_more_to_send_the_upstream_may_still_answer() {
    let upstream = Upstream::scripted(|mut connection| {
        let all = connection.rest().unwrap();
        connection.send(format!("got {}", all.len()));
    });
    let andante = Andante::serve(&[]);
    let mut client = tunnel(&andante, &upstream);
    client.send(vec![b'x'; 300_000]);
    client.finish();
    assert_eq!(client.rest(), b"got 300000");
    andante.wait_for(|status| status["tunnels"] == 0 && status["connections"]["client"] == 0);
}

#[test]
fn when_the_upstream_has_no_more_to_send_the_client_may_still_talk() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = parking_lot::Mutex::new(sender);
    let upstream = Upstream::scripted(move |mut connection| {
        connection.send(vec![b'y'; 300_000]);
        connection.finish();
        sender.lock().send(connection.rest().unwrap()).unwrap();
    });
    let andante = Andante::serve(&[]);
    let mut client = tunnel(&andante, &upstream);
    assert_eq!(client.rest().len(), 300_000);
    client.send("bye");
    client.finish();
    assert_eq!(receiver.recv_timeout(crate::support::PATIENCE).unwrap(), b"bye");
}

#[test]
fn a_side_that_stays_silent_after_the_other_has_closed_does_not_keep_the_tunnel() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.finish();
        let _ = connection.rest();
    });
    let andante = Andante::with_config("[timeouts]\nidle = \"300ms\"\n");
    let mut client = tunnel(&andante, &upstream);
    client.closed();
    andante.wait_for(|status| status["tunnels"] == 0);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn a_reset_on_one_side_ends_the_other() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let mut client = tunnel(&andante, &upstream);
    client.send("x");
    assert_eq!(client.bytes(1), b"x");
    client.reset();
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
    let upstream = Upstream::scripted(|mut connection| {
        let _ = connection.bytes(1);
        connection.reset();
    });
    let mut client = tunnel(&andante, &upstream);
    client.send("x");
    client.closed();
    andante.wait_for(|status| status["tunnels"] == 0);
}

#[test]
fn the_upstream_may_speak_first() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.send("SSH-2.0-test\r\n");
        let _ = connection.rest();
    });
    let andante = Andante::serve(&[]);
    let mut client = tunnel(&andante, &upstream);
    assert_eq!(client.bytes(14), b"SSH-2.0-test\r\n");
}

/// Node's undici and httplib2 ask for tunnels for `http://` URLs, too.
#[test]
fn plain_http_in_a_tunnel_is_a_request_like_any_other_whatever_the_rules() {
    let tunnel_rule = "[[rule]]\nhost = \"127.0.0.1\"\nhttps = \"tunnel\"\n";
    for rules in ["", "[[rule]]\nhost = \"other.test\"\nlimits = \"1/h\"\n", tunnel_rule] {
        let (andante, upstream) = (Andante::with_config(rules), Upstream::ok());
        let mut client = tunnel(&andante, &upstream);
        for _ in 0..3 {
            client.send(format!("GET /inside HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.address()));
            let answer = client.answer();
            assert_eq!((answer.text().as_str(), answer.has("via")), ("ok", true), "{rules}: {answer:?}");
        }
        let sent = andante.status()["lanes"][0]["sent_total"].as_u64();
        assert_eq!((sent, upstream.connections()), (Some(3), 1), "{rules}: the tunnel itself has cost nothing");
        assert!(!andante.stderr().contains("a blind tunnel"), "{rules}: {}", andante.stderr());
    }
}

/// A host that is called by its address, and a proxy behind andante: without limits the tunnel is theirs alone.
#[test]
fn requests_for_other_hosts_pass_in_a_tunnel_without_limits() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    for request in [
        "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
        "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
        "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n",
    ] {
        let mut client = tunnel(&andante, &upstream);
        client.send(request);
        let answer = client.answer();
        assert_eq!((answer.status(), answer.has("via")), (200, false), "{request}: {answer:?}");
    }
}

#[test]
fn refusals_of_an_api_without_a_rule_do_not_reach_a_client_that_asks_for_a_tunnel() {
    let (andante, mock) = (Andante::serve(&[]), Mock::start(&["--limit", "5/s"]));
    let mut client = Client::connect(andante.proxy());
    let host = mock.address();
    client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.opened();
    for _ in 0..12 {
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.answer().status(), 200);
    }
}

/// Protocols whose client speaks first, some in lines like those of HTTP.
#[test]
fn a_tunnel_carries_any_protocol_that_is_not_http() {
    let rule = "[[rule]]\nhost = \"127.0.0.1\"\nlimits = \"100/s\"\n";
    for rules in ["", rule] {
        let (andante, upstream) = (Andante::with_config(rules), Upstream::echo());
        for words in [
            "SSH-2.0-OpenSSH_9.9\r\n",
            "*1\r\n$4\r\nPING\r\n",
            "SET key value\r\n",
            "OPTIONS rtsp://camera.test/ RTSP/1.0\r\nCSeq: 1\r\n\r\n",
            "x",
        ] {
            let mut client = tunnel(&andante, &upstream);
            client.send(words);
            assert_eq!(client.bytes(words.len()), words.as_bytes(), "{rules}");
        }
    }
}

#[test]
fn one_byte_and_the_end_is_a_tunnel_too() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let mut client = tunnel(&andante, &upstream);
    client.send("x");
    client.finish();
    assert_eq!(client.rest(), b"x");
}

#[test]
fn connect_works_in_http_1_0() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {} HTTP/1.0\r\n\r\n", upstream.address()));
    assert_eq!(client.opened().status(), 200);
    client.send("through");
    assert_eq!(client.bytes(7), b"through");
}

/// A known deviation: see `docs/decisions/http-deviations.md`.
#[test]
fn upgrades_that_would_hide_requests_are_not_asked_for_upstream() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let up = upstream.address();
    for (connection, upgrade) in [("keep-alive", "websocket"), ("Upgrade, HTTP2-Settings", "h2c")] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!(
            "GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\nConnection: {connection}\r\nUpgrade: {upgrade}\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
        ));
        assert_eq!(client.answer().text(), "ok", "{upgrade}");
        let request = upstream.requests().pop().unwrap();
        assert!(!request.has("upgrade") && !request.has("connection"), "{request:?}");
    }
    assert!(!upstream.requests()[1].has("http2-settings"));
}

/// A gateway beyond loopback, with a rule for the host `127.0.0.1` that says `more` and names no port.
fn gateway(more: &str) -> (Andante, std::net::SocketAddr) {
    let config = format!("clients = [\"10.0.0.0/8\"]\n[[rule]]\nhost = \"127.0.0.1\"\nallow-private = true\n{more}\n");
    let andante = Andante::with_config_and(&config, &["--listen", "0.0.0.0:0"]);
    let proxy = ([127, 0, 0, 1], andante.proxy().port()).into();
    (andante, proxy)
}

#[test]
fn plain_http_at_a_gateway_is_allowed_in_both_spellings() {
    for more in ["", "limits = \"10/s\"", "https = \"intercept\""] {
        let upstream = Upstream::ok();
        let up = upstream.address();
        let (andante, proxy) = gateway(more);
        let mut absolute = Client::connect(proxy);
        absolute.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        assert_eq!(absolute.answer().text(), "ok", "{more}");
        let mut tunnel = Client::connect(proxy);
        tunnel.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        tunnel.opened();
        for _ in 0..3 {
            tunnel.send(format!("GET /inside HTTP/1.1\r\nHost: {up}\r\n\r\n"));
            assert_eq!(tunnel.answer().text(), "ok", "{more}");
        }
        assert!(upstream.requests().iter().all(|request| request.has("via")), "{more}: relayed unseen");
        let sent = andante.status()["lanes"][0]["sent_total"].as_u64();
        assert_eq!(sent, Some(4), "{more}: each request is counted, and the tunnel is not");
    }
}

#[test]
fn plain_http_in_a_tunnel_to_a_port_that_no_rule_names_is_paced() {
    let upstream = Upstream::ok();
    let up = upstream.address();
    let (_andante, proxy) = gateway("limits = \"5/s burst 1\"");
    let mut tunnel = Client::connect(proxy);
    tunnel.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    tunnel.opened();
    let clock = Clock::start();
    let begun = clock.now();
    for _ in 0..4 {
        tunnel.send(format!("GET / HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        assert_eq!(tunnel.answer().text(), "ok");
    }
    let took = clock.now().since(begun);
    assert!(took >= std::time::Duration::from_millis(600), "4 requests at 5/s in {took:?}");
}

#[test]
fn tunnel_at_a_gateway_to_a_port_that_no_rule_names_carries_nothing_but_plain_http() {
    for more in ["", "limits = \"100/s\"", "https = \"tunnel\"", "https = \"intercept\""] {
        // A mail server, which speaks first.
        let mail = Upstream::scripted(|mut connection| {
            connection.send("220 mail.test ESMTP\r\n");
            connection.request();
        });
        let (andante, proxy) = gateway(more);
        for words in ["\x16\x03\x01\x00\x05 hello", "SSH-2.0-OpenSSH\r\n", "EHLO\r\n", "HELO worker.test\r\n"] {
            let trap = Upstream::echo();
            let up = trap.address();
            let mut client = Client::connect(proxy);
            client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
            client.opened();
            client.send(words);
            let heard = client.rest();
            assert!(
                !heard.windows(5).any(|part| words.as_bytes().windows(5).next() == Some(part)),
                "{more}: {words:?}"
            );
            if words.starts_with('\x16') {
                assert_eq!(heard, [21, 3, 3, 0, 2, 2, 49], "{more}: a TLS client reads access_denied");
            }
            assert!(trap.requests().is_empty(), "{more}: {words:?} came through");
        }
        let up = mail.address();
        let mut client = Client::connect(proxy);
        client.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        client.opened();
        assert_eq!(client.rest(), b"", "{more}: nothing of the server's came through");
        let log = andante.stderr();
        assert!(log.contains("plain HTTP only") && log.contains("name the port in a rule"), "{more}: {log}");
    }
}
