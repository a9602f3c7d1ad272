//! Treatment of valid requests and answers by a proxy.

mod connection_auth;
mod interim_answers;

use std::{
    net::{TcpListener, TcpStream},
    time::Duration,
};

use crate::support::{Andante, Client, DeadPort, Message, Upstream, h2::Client2, rejected};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Sends a GET with `fields` to `upstream`, and returns it as it arrived there, and the answer as it came back.
fn exchange(andante: &Andante, upstream: &Upstream, fields: &str) -> (Message, Message) {
    let up = upstream.address();
    let answer = Client::ask(andante.proxy(), format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n{fields}\r\n"));
    (upstream.requests().pop().expect("a request"), answer)
}

fn own_name(andante: &Andante) -> String {
    let answer = Client::get(andante.proxy(), "http://127.0.0.1:1/");
    answer.field("via").unwrap().split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn host_is_made_anew_from_the_target() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let up = upstream.address();
    let answer = Client::ask(andante.proxy(), format!("GET http://{up}/ HTTP/1.1\r\nHost: other.test\r\n\r\n"));
    assert_eq!(answer.status(), 200);
    assert_eq!(upstream.request().field("host"), Some(up.to_string()));
}

#[test]
fn fields_named_by_connection_are_dropped() {
    let upstream = Upstream::always(
        "HTTP/1.1 200 OK\r\nConnection: x-a\r\nConnection: keep-alive , X-B\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok",
    );
    let (request, answer) = exchange(
        &Andante::serve(&[]),
        &upstream,
        "Connection: x-a\r\nConnection: keep-alive,, X-B ,\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\nTE: gzip\r\n",
    );
    for message in [&request, &answer] {
        for gone in ["connection", "x-a", "x-b", "keep-alive", "proxy-connection", "te", "upgrade"] {
            assert!(!message.has(gone), "{gone}: {message:?}");
        }
        assert_eq!(message.field("x-c").as_deref(), Some("3"));
    }
}

#[test]
fn connection_takes_away_neither_host_nor_via() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let (request, _) = exchange(&andante, &upstream, "Connection: close, host, via\r\n");
    assert_eq!(request.field("host"), Some(upstream.address().to_string()));
    assert!(request.has("via"));
}

#[test]
fn a_connection_line_that_is_not_text_still_counts() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let up = upstream.address();
    let mut request = format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\nX-A: 1\r\nConnection: x-a, ").into_bytes();
    request.extend_from_slice(b"\xff\xfe\r\n\r\n");
    assert_eq!(Client::ask(andante.proxy(), request).status(), 200);
    assert!(!upstream.request().has("x-a"), "{:?}", upstream.request());
}

#[test]
fn announced_trailers_pass_in_both_directions() {
    let upstream = Upstream::always(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    let (andante, up) = (Andante::serve(&[]), upstream.address());
    let answer = Client::ask(
        andante.proxy(),
        format!(
            "POST http://{up}/ HTTP/1.1\r\nHost: {up}\r\nTE: trailers\r\nTrailer: x-sent\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sent: 8\r\n\r\n"
        ),
    );
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(answer.field("trailer").as_deref(), Some("x-sum"));
    let request = upstream.request();
    assert_eq!(request.trailers, [("x-sent".to_owned(), "8".to_owned())]);
    assert_eq!(request.field("te").as_deref(), Some("trailers"));
    assert_eq!(request.field("connection").as_deref(), Some("te"), "TE is for one hop, and says so");
}

#[test]
fn trailers_cannot_smuggle_what_fields_cannot() {
    const NAMES: &str = "content-length, host, x-hop, proxy-authorization, proxy-status, andante-flow, x-fine";
    const TRAILERS: &str = "Content-Length: 9\r\nHost: b\r\nX-Hop: 1\r\nProxy-Authorization: Basic c2VjcmV0\r\n\
         Proxy-Status: andante; error=http_request_denied\r\nAndante-Flow: f\r\nX-Fine: 1\r\n";
    let upstream = Upstream::always(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: x-hop\r\nTrailer: {NAMES}\r\n\r\n0\r\n{TRAILERS}\r\n"
    ));
    let (andante, up) = (Andante::serve(&[]), upstream.address());
    let answer = Client::ask(
        andante.proxy(),
        format!(
            "POST http://{up}/ HTTP/1.1\r\nHost: {up}\r\nTE: trailers\r\nConnection: te, x-hop\r\nTrailer: {NAMES}\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{TRAILERS}\r\n"
        ),
    );
    assert_eq!(upstream.request().trailers, [("x-fine".to_owned(), "1".to_owned())], "to the upstream");
    assert_eq!(answer.trailers, [("x-fine".to_owned(), "1".to_owned())], "to the worker");
}

/// RFC 9110 §6.5.1: what frames, routes, authenticates, modifies or controls a message, or says what its content is, means
/// nothing after it.
#[test]
fn trailers_bring_nothing_that_belongs_into_a_head() {
    const NAMES: [&str; 34] = [
        "cookie",
        "set-cookie",
        "authorization",
        "www-authenticate",
        "proxy-authenticate",
        "via",
        "host",
        "max-forwards",
        "location",
        "content-location",
        "retry-after",
        "age",
        "cache-control",
        "pragma",
        "date",
        "expires",
        "vary",
        "warning",
        "range",
        "content-range",
        "content-type",
        "content-encoding",
        "content-language",
        "trailer",
        "expect",
        "if-match",
        "if-none-match",
        "if-range",
        "if-modified-since",
        "if-unmodified-since",
        "te",
        "upgrade",
        "forwarded",
        "idempotency-key",
    ];
    let trailers: String = NAMES.iter().map(|name| format!("{name}: 1\r\n")).collect();
    let (names, trailers) = (format!("{}, x-fine", NAMES.join(", ")), format!("{trailers}X-Fine: 1\r\n"));
    let upstream = Upstream::always(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: {names}\r\n\r\n2\r\nok\r\n0\r\n{trailers}\r\n"
    ));
    let (andante, up) = (Andante::serve(&[]), upstream.address());
    let fine = [("x-fine".to_owned(), "1".to_owned())];
    let answer = Client::ask(
        andante.proxy(),
        format!(
            "POST http://{up}/ HTTP/1.1\r\nHost: {up}\r\nTE: trailers\r\nTrailer: {names}\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{trailers}\r\n"
        ),
    );
    assert_eq!(upstream.request().trailers, fine, "to the upstream");
    assert_eq!(answer.trailers, fine, "to the worker");
    let answer = Client2::connect(andante.proxy()).send(http::Request::get(upstream.url("/")).header("te", "trailers"));
    assert_eq!(answer.answer().trailers, fine, "to the worker, in HTTP/2");
}

/// RFC 9110 §7.6.1: a proxy removes what `Connection` names, whatever that is. A sender that means credentials for the
/// upstream must not name them.
#[test]
fn what_connection_names_is_removed_even_if_it_was_meant_for_the_upstream() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let fields = "Connection: Authorization, cookie, host, cache-control, content-type, via\r\nAuthorization: Bearer x\r\n\
         Cookie: a=1\r\nCache-Control: no-cache\r\nContent-Type: text/plain\r\nVia: 1.1 far\r\n";
    let (request, _) = exchange(&andante, &upstream, fields);
    for gone in ["authorization", "cookie", "connection"] {
        assert!(!request.has(gone), "{gone}: {request:?}");
    }
    for kept in ["host", "cache-control", "content-type", "via"] {
        assert!(request.has(kept), "{kept}: {request:?}");
    }
}

#[test]
fn only_our_own_server_timing_is_called_andante() {
    let upstream = Upstream::always(
        "HTTP/1.1 200 OK\r\nServer-Timing: andante;dur=9999, db;dur=53\r\nServer-Timing: Andante ;dur=1\r\n\
         Server-Timing: cache;desc=\"a, andante;dur=1\", andante\r\nTransfer-Encoding: chunked\r\n\
         Trailer: server-timing\r\n\r\n2\r\nok\r\n0\r\nServer-Timing: andante;dur=7, total;dur=9\r\n\r\n",
    );
    let (_, answer) = exchange(&Andante::serve(&[]), &upstream, "TE: trailers\r\nConnection: te\r\n");
    let timings = answer.all("server-timing");
    assert_eq!(timings[..2], ["db;dur=53", "cache;desc=\"a, andante;dur=1\""]);
    assert!(timings.len() == 3 && timings[2].starts_with("andante;dur="), "{timings:?}");
    assert_eq!(answer.trailers, [("server-timing".to_owned(), "total;dur=9".to_owned())]);
}

#[test]
fn proxy_authorization_is_never_forwarded() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let secret = "Proxy-Authorization: Basic c2VjcmV0\r\n";
    let (request, _) = exchange(&andante, &upstream, &format!("{secret}{secret}Authorization: Bearer x\r\n"));
    assert!(!request.has("proxy-authorization"));
    assert_eq!(request.field("authorization").as_deref(), Some("Bearer x"));
}

#[test]
fn via_grows_in_both_directions() {
    let upstream = Upstream::answering(|request| match request.target().as_str() {
        "/old" => "HTTP/1.0 200 OK\r\nVia: 1.1 far\r\nContent-Length: 2\r\n\r\nok",
        _ => "HTTP/1.1 200 OK\r\nVia: 1.1 far\r\nContent-Length: 2\r\n\r\nok",
    });
    let andante = Andante::serve(&[]);
    let name = own_name(&andante);
    let (request, answer) = exchange(&andante, &upstream, "Via: 1.0 fred, 1.1 p.example\r\n");
    assert_eq!(request.all("via").join(", "), format!("1.0 fred, 1.1 p.example, 1.1 {name}"));
    assert_eq!(answer.all("via").join(", "), format!("1.1 far, 1.1 {name}"));
    let answer = Client::ask(andante.proxy(), format!("GET {} HTTP/1.0\r\n\r\n", upstream.url("/old")));
    assert_eq!(answer.all("via").join(", "), format!("1.1 far, 1.0 {name}"));
    assert_eq!(upstream.requests()[1].field("via"), Some(format!("1.0 {name}")));
}

/// RFC 9110 §6.6.1: a proxy that forwards an answer without a date appends the date of its arrival.
#[test]
fn an_answer_without_a_date_gets_one_and_any_other_keeps_its_own() {
    let own = "Sun, 06 Nov 1994 08:49:37 GMT";
    let dated = Upstream::always(format!("HTTP/1.1 200 OK\r\nDate: {own}\r\nContent-Length: 2\r\n\r\nok"));
    let andante = Andante::serve(&[]);
    let date = |upstream: &Upstream| exchange(&andante, upstream, "").1.all("date");
    assert_eq!(date(&dated), [own]);
    let [date] = &date(&Upstream::ok())[..] else { panic!("it has one date") };
    assert!(date.len() == own.len() && date.ends_with(" GMT") && date != own, "{date}");
}

#[test]
fn a_request_that_has_been_here_goes_no_further() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let (name, up) = (own_name(&andante), upstream.address());
    for via in [format!("1.1 {name}"), format!("1.0 a, HTTP/1.1 {name} (comment), 1.1 b")] {
        let request = format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\nVia: 1.1 x\r\nVia: {via}\r\n\r\n");
        rejected(&Client::ask(andante.proxy(), request), 502, "proxy_loop_detected", &via);
    }
    assert_eq!(upstream.requests().len(), 0);
    // A request through a second andante is a chain, not a loop.
    assert_eq!(exchange(&andante, &upstream, "Via: 1.1 andante-00000000\r\n").1.status(), 200);
}

#[test]
fn a_ring_of_two_is_noticed_on_the_second_round() {
    // The upstream plays a second proxy that sends everything back to the first one.
    let andante = Andante::serve(&["--retry", "off"]);
    let (first, name) = (andante.proxy(), own_name(&andante));
    let ring = Upstream::answering(move |request| {
        let host = request.field("host").unwrap();
        let via = request.all("via").join(", ");
        let answer =
            Client::ask(first, format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nVia: {via}, 1.1 two\r\n\r\n"));
        [answer.head, answer.framed].concat()
    });
    let (request, answer) = exchange(&andante, &ring, "");
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.json()["status"], 502);
    assert_eq!((ring.requests().len(), request.field("via")), (1, Some(format!("1.1 {name}"))));
}

#[test]
fn max_forwards_counts_down_and_ends_here_for_trace_and_options() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let up = upstream.address();
    let mut client = Client::connect(andante.proxy());
    let mut ask = |method: &str, left: &str| {
        client.send(format!(
            "{method} http://{up}/p HTTP/1.1\r\nHost: {up}\r\nAuthorization: secret\r\nMax-Forwards: {left}\r\n\r\n"
        ));
        client.answer()
    };
    let options = ask("OPTIONS", "0");
    assert_eq!(options.status(), 200);
    assert!(options.field("allow").is_some_and(|allow| allow.contains("OPTIONS")), "{options:?}");
    let trace = ask("TRACE", "0");
    assert_eq!((trace.status(), trace.field("content-type").as_deref()), (200, Some("message/http")));
    assert!(!trace.text().contains("secret"), "{trace:?}");
    assert_eq!(upstream.requests().len(), 0);
    for (method, left, passed) in
        [("OPTIONS", "7", "6"), ("TRACE", "1", "0"), ("GET", "0", "0"), ("OPTIONS", "many", "many")]
    {
        assert_eq!(ask(method, left).text(), "ok");
        assert_eq!(upstream.requests().pop().unwrap().field("max-forwards").as_deref(), Some(passed), "{method}");
    }
    // An answer of our own leaves the connection as it was.
    assert_eq!(ask("OPTIONS", "0").status(), 200);
    client.send("nonsense\r\n\r\n");
    rejected(&client.answer(), 400, "http_request_error", "nonsense");
}

/// A known deviation: see `docs/decisions/http-deviations.md`.
#[test]
fn path_query_and_fields_keep_their_bytes_and_order() {
    let upstream = Upstream::always(
        "HTTP/1.1 401 Nope, Sorry\r\nWWW-Authenticate: Basic realm=\"a\"\r\nWWW-Authenticate: Bearer\r\nAllow: GET,  HEAD\r\n\
         Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nServer: x/1\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
    );
    let (andante, up) = (Andante::serve(&[]), upstream.address());
    let target = "/%7Ea/../b//c;d/%2f?x=%2F&y=a+b&&z=~{}'!$*(),@:[]";
    let fields =
        "Accept-Encoding: br;q=1.0,  gzip\r\nX-A: 1\r\nX-B: 2\r\nX-A: 3\r\nAuthorization: Digest a=\"b\",  c=d\r\n";
    let answer = Client::ask(
        andante.proxy(),
        format!("GET http://{up}{target} HTTP/1.1\r\nHost: {up}\r\n{fields}Cookie: a=1; b=2\r\n\r\n"),
    );
    let request = upstream.request();
    assert_eq!(request.target(), target);
    assert_eq!(request.all("x-a"), ["1", "3"]);
    assert_eq!(request.field("authorization").as_deref(), Some("Digest a=\"b\",  c=d"));
    assert_eq!(request.field("accept-encoding").as_deref(), Some("br;q=1.0,  gzip"));
    assert_eq!(request.field("cookie").as_deref(), Some("a=1; b=2"));
    assert_eq!(answer.line(), "HTTP/1.1 401 Nope, Sorry");
    assert_eq!(answer.all("www-authenticate"), ["Basic realm=\"a\"", "Bearer"]);
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(answer.field("allow").as_deref(), Some("GET,  HEAD"));
    assert_eq!(answer.field("content-encoding").as_deref(), Some("gzip"));
}

#[test]
fn a_proxy_in_between_may_still_ask_for_credentials() {
    let upstream = Upstream::always(
        "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 0\r\n\r\n",
    );
    let (_, answer) = exchange(&Andante::serve(&[]), &upstream, "");
    assert_eq!((answer.status(), answer.field("proxy-authenticate").as_deref()), (407, Some("Basic realm=\"p\"")));
}

#[test]
fn marks_that_only_we_may_set_are_taken_off_what_comes_from_others() {
    let upstream = Upstream::always(
        "HTTP/1.1 429 Too Many Requests\r\nProxy-Status: cdn; fwd=miss\r\nProxy-Status: andante; error=http_request_denied\r\n\
         Proxy-Status: other, Andante;error=x\r\nProxy-Status: \"andante\"; error=x\r\nAndante-Flow: x\r\nAndante-Cost: 5\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let (request, answer) = exchange(
        &Andante::serve(&["--retry", "off"]),
        &upstream,
        "Andante-Flow: batch\r\nAndante-Cost: 1\r\nAndante-Other: 1\r\n",
    );
    for message in [&request, &answer] {
        let ours = message.fields().into_iter().find(|(name, _)| name.starts_with("andante-"));
        assert_eq!(ours, None, "{message:?}");
    }
    let marks = answer.all("proxy-status").join(", ").to_ascii_lowercase();
    assert!(!marks.contains("andante") && marks.contains("cdn; fwd=miss"), "{marks}");
    assert!(answer.all("server-timing").last().unwrap().starts_with("andante;dur="));
}

#[test]
fn our_own_429_says_that_it_is_ours_and_when_to_come_back() {
    let (andante, upstream) = (Andante::serve(&["--limit", "127.0.0.1=1/h"]), Upstream::ok());
    assert_eq!(exchange(&andante, &upstream, "").1.status(), 200);
    let (_, answer) = exchange(&andante, &upstream, "Prefer: wait=1\r\n");
    rejected(&answer, 429, "http_request_denied", "no slot within a second");
    let after: u64 = answer.field("retry-after").expect("Retry-After").parse().unwrap();
    assert!((3500..=3660).contains(&after), "{after}");
    assert_eq!(answer.field("cache-control").as_deref(), Some("no-store"));
}

#[test]
fn no_field_names_the_client_to_the_upstream() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let (request, _) = exchange(&andante, &upstream, "X-Forwarded-For: 203.0.113.9\r\n");
    assert_eq!(request.field("x-forwarded-for").as_deref(), Some("203.0.113.9"), "what was there passes unchanged");
    let names: Vec<String> = request.fields().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 3, "host, via and what was sent: {names:?}");
}

#[test]
fn what_cannot_be_reached_is_said_in_rfc_9209s_words() {
    let andante = Andante::with_config("[timeouts]\nconnect = \"500ms\"\n");
    rejected(&Client::get(andante.proxy(), &DeadPort::reserve().url()), 502, "connection_refused", "a dead port");
    let (full, _waiting) = full();
    let full = full.local_addr().unwrap();
    rejected(&Client::get(andante.proxy(), &format!("http://{full}/")), 504, "connection_timeout", "nobody accepts");
}

#[test]
fn a_name_that_does_not_resolve_is_a_dns_error() {
    let andante = Andante::serve(&[]);
    // A label may have 63 bytes: no resolver asks the network for this label, which could take long.
    let answer = Client::get(andante.proxy(), &format!("http://{}.invalid/", "a".repeat(64)));
    rejected(&answer, 502, "dns_error", "a label that is too long");
}

/// A listener that accepts no connection and refuses none either, and the connections that keep it so.
fn full() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let waiting = std::iter::from_fn(connect).collect();
    (listener, waiting)
}
