//! Bytes that pass as sent: names and order of fields, targets; and the parts that a rule omits.

use crate::support::{Andante, Client, Message, Upstream};

/// The lines of a head behind the first, without those that andante or the test's own peers add.
fn names(message: &Message) -> Vec<String> {
    let own = ["via", "server-timing", "date", "content-length", "transfer-encoding", "connection"];
    let head = String::from_utf8_lossy(&message.head).into_owned();
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':').map(|(name, _)| name.to_owned()));
    lines.filter(|name| !own.contains(&&*name.to_ascii_lowercase())).collect()
}

fn ask(andante: &Andante, target: &str, host: impl ToString, fields: &str) -> Message {
    let host = host.to_string();
    Client::ask(
        andante.proxy(),
        format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: 2\r\n\r\nhi"),
    )
}

/// RFC 9110 §5.1 makes names case-insensitive; old servers and devices compare them byte by byte all the same.
#[test]
fn names_of_fields_keep_their_spelling_and_order() {
    let answer = "HTTP/1.1 200 OK\r\nX-Device-ID: 1\r\nContent-Length: 2\r\nSOAPAction: x\r\nConnection: close\r\n\
                  ETag: \"a\"\r\nx_under: 1\r\nServer: s\r\nX-B: 1\r\nX-b: 2\r\n\r\nok";
    let sent = "X-API-Key: k\r\nConnection: keep-alive, X-Gone\r\nSOAPAction: \"urn:x\"\r\nX_Under: 1\r\n\
                Proxy-Connection: keep-alive\r\nX-Gone: 1\r\nUser-Agent: a\r\ncontent-TYPE: text/xml\r\n";
    let upstream = Upstream::always(answer);
    let address = upstream.address();
    let rule = |keys: &str| format!("[[rule]]\nhost = \"{address}\"\n{keys}\n");
    for andante in
        [Andante::serve(&[]), Andante::serve(&["--retry", "off"]), Andante::with_config(&rule("coalesce = true"))]
    {
        for target in [upstream.url("/"), format!("/http://{address}/")] {
            let host = if target.starts_with('/') { andante.proxy() } else { address };
            let got = ask(&andante, &target, host, sent);
            assert_eq!(
                names(&got),
                ["X-Device-ID", "SOAPAction", "ETag", "x_under", "Server", "X-B", "X-b"],
                "{got:?}"
            );
            let seen = upstream.requests().pop().unwrap();
            assert_eq!(
                names(&seen),
                ["Host", "X-API-Key", "SOAPAction", "X_Under", "User-Agent", "content-TYPE"],
                "{seen:?}"
            );
        }
        let url = upstream.url("/shared");
        let got =
            Client::ask(andante.proxy(), format!("GET {url} HTTP/1.1\r\nHost: {address}\r\nX-API-Key: k\r\n\r\n"));
        assert!(names(&got).contains(&"SOAPAction".to_owned()), "{got:?}");
        assert_eq!(names(&upstream.requests().pop().unwrap()), ["Host", "X-API-Key"]);
    }
}

/// Clients send what RFC 3986 forbids in a target. Browsers escape these bytes (WHATWG URL §1.3).
#[test]
fn bytes_that_no_target_may_have_are_escaped_and_others_pass() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let address = upstream.address();
    for (target, seen) in [
        (&b"/api?query=up{job=\"api\"}"[..], "/api?query=up{job=%22api%22}"),
        (b"/api?filter={\"where\":[1]}&a=<b>", "/api?filter={%22where%22:[1]}&a=%3Cb%3E"),
        (b"/a`b?c=`", "/a%60b?c=`"),
        (b"/caf\xe9?\xfc", "/caf%E9?%FC"),
        (b"/a%00%zz/..//b[]|^", "/a%00%zz/..//b[]|^"),
    ] {
        for (before, host) in [(format!("http://{address}"), address), (format!("/http://{address}"), andante.proxy())]
        {
            let fields = format!(" HTTP/1.1\r\nHost: {host}\r\nX-Kept: \"<a>`\r\n\r\n");
            let request = [b"GET ", before.as_bytes(), target, fields.as_bytes()].concat();
            assert_eq!(Client::ask(andante.proxy(), request).status(), 200, "{seen}");
            let arrived = upstream.requests().pop().unwrap();
            assert_eq!((arrived.target(), arrived.field("x-kept").as_deref()), (seen.to_owned(), Some("\"<a>`")));
        }
    }
    // The second of two requests in one packet, and a line that comes in pieces.
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET http://{address}/?a=\""));
    client.send(format!("b\" HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert_eq!(client.answer().status(), 200);
}

/// hyper reads ahead, so a read may begin in the middle of a head or a body. Escapes there would change what is signed, and
/// the place where the next request begins.
#[test]
fn bytes_of_fields_and_bodies_are_never_escaped_wherever_a_read_begins() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let address = upstream.address();
    let line = |method: &str| format!("{method} http://{address}/?q=1 HTTP/1.1\r\nHost: {address}\r\n");
    let mut client = Client::connect(andante.proxy());
    client.send(format!("{}\r\n{}X-Kept: a", line("GET"), line("GET")));
    assert_eq!(client.answer().status(), 200);
    client.send("b <c>\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    assert_eq!(upstream.requests().pop().unwrap().field("x-kept").as_deref(), Some("ab <c>"));

    let mut client = Client::connect(andante.proxy());
    let body = "a ?<b>\n";
    client.send(format!("{}\r\n{}Content-Length: {}\r\n\r\n", line("GET"), line("POST"), body.len()));
    assert_eq!(client.answer().status(), 200);
    client.send(body);
    assert_eq!(client.answer().status(), 200);
    assert_eq!(upstream.requests().pop().unwrap().body, body.as_bytes());
}

/// A body whose length is stated ends at a known place: the next request is read as the first.
#[test]
fn targets_of_later_requests_on_a_connection_are_escaped() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let address = upstream.address();
    let mut client = Client::connect(andante.proxy());
    for _ in 0..3 {
        client.send(format!("POST http://{address}/?a=\" HTTP/1.1\r\nHost: {address}\r\nContent-Length: 3\r\n\r\na"));
        client.send("bc");
        assert_eq!(client.answer().status(), 200);
        assert_eq!(upstream.requests().pop().unwrap().target(), "/?a=%22");
    }
}

#[test]
fn via_is_left_out_where_a_rule_says_so() {
    let upstream = Upstream::ok();
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\nvia-field = \"off\"", upstream.address()));
    let answer = Client::get(andante.proxy(), &upstream.url("/"));
    assert!(!answer.has("via") && !upstream.requests().pop().unwrap().has("via"), "{answer:?}");
    let early =
        Upstream::always("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    for off in [true, false] {
        let keys = if off { "via-field = \"off\"" } else { "" };
        let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\n{keys}", early.address()));
        let mut client = Client::connect(andante.proxy());
        client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", early.url("/"), early.address()));
        for status in [103, 200] {
            let answer = client.answer();
            assert_eq!((answer.status(), answer.has("via")), (status, !off), "{answer:?}");
        }
    }
    let other = Upstream::ok();
    assert!(Client::get(andante.proxy(), &other.url("/")).has("via"));
    // A loop through andante itself is found by its own addresses.
    let own = format!("http://{}/", andante.proxy());
    assert_ne!(Client::get(andante.proxy(), &own).status(), 200);
}

/// AWS Signature Version 4, RFC 9421, OAuth 1.0a and exchanges sign fields, target and body as they are.
#[test]
fn signed_requests_pass_byte_for_byte() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let target = "/bkt/a%20b%2Bc/%C3%BC~%27x.txt?X-Amz-Date=20261128T120000Z&recvWindow=5000&timestamp=1&b=&a=%7E";
    let fields = "X-Amz-Date: 20261128T120000Z\r\nAuthorization: AWS4-HMAC-SHA256 Credential=a/20261128/x/s3/aws4_request, \
                  SignedHeaders=host;x-amz-date,  Signature=ab\r\nDate: Sat, 28 Nov 2026 12:00:00 GMT\r\n\
                  Content-Digest: sha-256=:AA==:\r\nSignature-Input: sig=(\"@method\" \"date\");created=1\r\n";
    let got = ask(&andante, &upstream.url(target), upstream.address(), fields);
    assert_eq!(got.status(), 200);
    let seen = upstream.requests().pop().unwrap();
    assert_eq!((seen.target().as_str(), seen.text().as_str()), (target, "hi"));
    let head = String::from_utf8(seen.head.clone()).unwrap();
    assert!(head.contains(&format!("Host: {}\r\n{fields}", upstream.address())), "{head}");
}
