//! A client that asks for another protocol gets it, if the upstream agrees, and holds a permit while the protocol is in
//! use.

use serde_json::Value;

use crate::support::{
    Andante, Client, Connection, Message, Upstream, eventually, rejected,
    tls::{Interceptor, Server, TRUSTED},
};

const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Key: k\r\n\r\n";

/// Switches where it is asked to, and says everything back then.
fn switching(connection: Connection) {
    talking(connection, SWITCH);
}

fn talking(mut connection: Connection, answer: &str) {
    let Some(request) = connection.request() else { return };
    if !request.has("upgrade") {
        return connection.send("HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n");
    }
    connection.send(answer);
    while let Ok(byte) = connection.bytes(1) {
        connection.send(byte);
    }
    connection.send("the end");
}

fn ask(upstream: &Upstream, fields: &str) -> String {
    format!("GET {} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", upstream.url("/chat"), upstream.address())
}

const WEBSOCKET: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";

/// Speaks a little in the protocol that was switched to, and ends it.
fn converse(client: &mut Client) {
    let answer = client.answer_to_head();
    assert_eq!(answer.status(), 101, "{answer:?}");
    assert_eq!(answer.field("upgrade").as_deref(), Some("websocket"));
    assert!(answer.field("connection").unwrap().eq_ignore_ascii_case("upgrade"));
    assert_eq!(answer.field("x-key").as_deref(), Some("k"));
    assert!(answer.has("via"), "{answer:?}");
    assert!(answer.head.windows(7).any(|bytes| bytes == b"X-Key: "), "names keep their case: {answer:?}");
    // The words include bytes that a request line would escape.
    for word in
        [&b"one"[..], b"\0\x01\x02", b"a \"<word>\", ", b"caf\xe9 \x88\xff\r\n", b"GET /\"\xff HTTP/1.1\r\n\r\n"]
    {
        client.send(word);
        assert_eq!(client.bytes(word.len()), word);
    }
}

fn lane(status: &Value, of: &str) -> u64 {
    status["lanes"][0][of].as_u64().unwrap_or(0)
}

/// aiohttp writes the URL of the WebSocket, with its scheme, into the request line.
#[test]
fn ws_in_the_target_of_an_upgrade_is_http() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::scripted(switching));
    for scheme in ["ws", "WS"] {
        let mut client = Client::connect(andante.proxy());
        client.send(ask(&upstream, WEBSOCKET).replacen("http:", &format!("{scheme}:"), 1));
        converse(&mut client);
    }
    let (request, mut client) = (upstream.requests().remove(0), Client::connect(andante.proxy()));
    assert_eq!(request.line(), "GET /chat HTTP/1.1");
    client.send(ask(&upstream, "").replacen("http:", "ws:", 1));
    rejected(&client.answer(), 501, "http_request_error", "ws without an upgrade");
}

#[test]
fn wss_in_the_target_of_an_upgrade_is_https() {
    let api = Upstream::secure(Server::new(&TRUSTED.leaf(&["localhost"]), &["http/1.1"]), switching);
    let andante = Interceptor::serve(&[]);
    let mut client = Client::connect(andante.andante.proxy());
    let host = format!("localhost:{}", api.address().port());
    client.send(format!("GET wss://{host}/chat HTTP/1.1\r\nHost: {host}\r\n{WEBSOCKET}\r\n"));
    converse(&mut client);
}

#[test]
fn bytes_flow_both_ways_after_an_upgrade() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::scripted(switching));
    let mut client = Client::connect(andante.proxy());
    client.send(ask(&upstream, WEBSOCKET));
    converse(&mut client);
    assert_eq!(andante.status()["tunnels"], 1);
    client.finish();
    assert_eq!(client.rest(), b"the end", "one side's end is not the other's");
    let request = upstream.request();
    assert_eq!(request.field("upgrade").as_deref(), Some("websocket"));
    assert_eq!(request.field("connection").as_deref(), Some("upgrade"));
    assert_eq!(request.field("sec-websocket-version").as_deref(), Some("13"));
    andante.wait_for(|status| status["tunnels"] == 0 && status["connections"]["client"] == 0);
}

#[test]
fn an_upgrade_inside_of_an_intercepted_tunnel_is_one() {
    let tls = Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &["h2", "http/1.1"]);
    let upstream = Upstream::secure(tls, switching);
    let target = upstream.address().to_string();
    let andante = Interceptor::serve(&["--intercept", "127.0.0.1"]);
    let mut client = andante.worker(&target);
    client.send(format!("GET /chat HTTP/1.1\r\nHost: {target}\r\n{WEBSOCKET}\r\n"));
    // HTTP/1.1 is asked for, whatever else the upstream speaks.
    converse(&mut client);
    client.finish();
    assert_eq!(client.rest(), b"the end");
    assert_eq!(upstream.requests().pop().unwrap().target(), "/chat");
}

#[test]
fn what_comes_with_the_answer_or_the_request_is_not_lost() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.send(format!("{SWITCH}hello"));
        assert_eq!(connection.bytes(5).unwrap(), b"early");
        connection.send("got it");
    });
    let andante = Andante::serve(&[]);
    let mut client = Client::connect(andante.proxy());
    client.send(ask(&upstream, WEBSOCKET) + "early");
    assert_eq!(client.answer_to_head().status(), 101);
    assert_eq!(client.rest(), b"hellogot it");
}

#[test]
fn an_upgraded_connection_is_in_flight_until_its_end() {
    let upstream = Upstream::scripted(switching);
    let andante = Andante::serve(&["--limit", &format!("{}=in-flight 1", upstream.address())]);
    let mut first = Client::connect(andante.proxy());
    first.send(ask(&upstream, WEBSOCKET));
    converse(&mut first);
    let mut second = Client::connect(andante.proxy());
    second.send(ask(&upstream, WEBSOCKET));
    andante.wait_for(|status| lane(status, "in_flight") == 1 && lane(status, "waiting") == 1);
    assert_eq!(upstream.requests().len(), 1);
    first.reset();
    converse(&mut second);
    drop(second);
    andante.wait_for(|status| lane(status, "in_flight") == 0);
}

#[test]
fn an_answer_that_declines_an_upgrade_passes() {
    for (status, answer) in [
        (200, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        (
            426,
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nok",
        ),
        (403, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nok"),
    ] {
        let (andante, upstream) = (Andante::serve(&[]), Upstream::always(answer));
        let mut client = Client::connect(andante.proxy());
        client.send(ask(&upstream, WEBSOCKET));
        let answer = client.answer();
        assert_eq!((answer.status(), answer.text().as_str()), (status, "ok"));
        client.send(ask(&upstream, ""));
        assert_eq!(client.answer().status(), status, "the connection goes on in HTTP");
    }
}

#[test]
fn h2c_is_never_asked_for() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    for (fields, kept) in [
        ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", None),
        ("Connection: Upgrade\r\nUpgrade: H2C, websocket\r\n", Some("websocket")),
        ("Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n", Some("websocket")),
        ("Upgrade: websocket\r\n", None),
        ("Connection: close\r\nUpgrade: websocket\r\n", None),
    ] {
        assert_eq!(Client::ask(andante.proxy(), ask(&upstream, fields)).status(), 200, "{fields}");
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.field("upgrade").as_deref(), kept, "{fields}: {request:?}");
        assert_eq!(request.has("connection"), kept.is_some(), "{fields}: {request:?}");
        assert!(!request.has("http2-settings"), "{fields}: {request:?}");
    }
}

/// RFC 9110 §7.8 knows no bound to GET. `kubectl exec` upgrades a POST to SPDY, docker's API one with a body to `tcp`.
#[test]
fn post_is_upgraded_with_a_body_and_without() {
    let upstream = Upstream::scripted(|mut connection| {
        let Some(request) = connection.request() else { return };
        let protocol = request.field("upgrade").expect("it asks for another protocol");
        connection.send(format!("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"));
        connection.send(&request.body);
        while let Ok(byte) = connection.bytes(1) {
            connection.send(byte);
        }
    });
    let address = upstream.address();
    let andante = Andante::serve(&[]);
    for (protocol, framing, body) in [
        ("SPDY/3.1", "Content-Length: 0\r\n\r\n", ""),
        ("SPDY/3.1", "\r\n", ""),
        ("tcp", "Content-Length: 14\r\n\r\n{\"Tty\": false}", "{\"Tty\": false}"),
        ("tcp", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}"),
    ] {
        for target in [upstream.url("/exec"), format!("/http://{address}/exec")] {
            let mut client = Client::connect(andante.proxy());
            let fields = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
            let host = if target.starts_with('/') { andante.proxy() } else { address };
            client.send(format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n{fields}{framing}"));
            let answer = client.answer_to_head();
            assert_eq!(
                (answer.status(), answer.field("upgrade").as_deref()),
                (101, Some(protocol)),
                "{framing}: {answer:?}"
            );
            assert_eq!(client.bytes(body.len()), body.as_bytes());
            client.send("one");
            assert_eq!(client.bytes(3), b"one");
        }
    }
}

#[test]
fn a_switch_that_nobody_asked_for_is_a_bad_answer() {
    let other = SWITCH.replace("websocket", "irc/6.9");
    let unnamed = SWITCH.replace("Upgrade: websocket\r\n", "");
    for (fields, said) in [("", SWITCH), (WEBSOCKET, &*other), (WEBSOCKET, &*unnamed)] {
        let (andante, upstream) = (Andante::serve(&[]), Upstream::once(said.to_owned()));
        let answer = Client::ask(andante.proxy(), ask(&upstream, fields));
        rejected(&answer, 502, "http_protocol_error", said);
        eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
        andante.wait_for(|status| lane(status, "in_flight") == 0);
    }
}

#[test]
fn upgrades_go_where_requests_may_go_and_nowhere_else() {
    let andante = Andante::serve(&[]);
    let own = andante.admin();
    let request = format!("GET http://{own}/ HTTP/1.1\r\nHost: {own}\r\n{WEBSOCKET}\r\n");
    let answer: Message = Client::ask(andante.proxy(), request);
    rejected(&answer, 403, "proxy_loop_detected", "the admin pages");
}
