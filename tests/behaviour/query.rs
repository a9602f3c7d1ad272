//! QUERY (RFC 10008): safe, idempotent, and known by its body. Cached, shared and sent again as a GET is.

use std::process::Command;

use parking_lot::Mutex;

use crate::support::{Andante, Client, Message, Upstream, h2::Client2};

const MISS: &str = "andante; fwd=miss; stored";
const HIT: &str = "andante; hit";

/// An upstream whose n-th answer has n as its body, and may be stored.
fn counting() -> Upstream {
    let count = Mutex::new(0);
    Upstream::answering(move |_| {
        let mut count = count.lock();
        *count += 1;
        let body = count.to_string();
        format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    })
}

fn ruled(upstream: &Upstream, rule: &str) -> Andante {
    Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\n{rule}\n", upstream.address()))
}

/// Sends a QUERY for `/find` with `fields` and `body`, and does not wait for the answer.
fn send(andante: &Andante, upstream: &Upstream, fields: &str, body: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    let (url, host, length) = (upstream.url("/find"), upstream.address(), body.len());
    client.send(format!("QUERY {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
    client
}

fn query(andante: &Andante, upstream: &Upstream, fields: &str, body: &str) -> Message {
    send(andante, upstream, fields, body).answer()
}

fn handled(answer: &Message) -> (String, String) {
    (answer.field("cache-status").unwrap_or_default(), answer.text())
}

fn is(answer: &Message, status: &str, body: &str) {
    assert_eq!(handled(answer), (status.to_owned(), body.to_owned()));
}

#[test]
fn a_stored_answer_is_for_the_same_body_and_its_type_alone() {
    let upstream = counting();
    let andante = ruled(&upstream, "cache = \"64KiB\"");
    let json = "Content-Type: application/json\r\n";
    is(&query(&andante, &upstream, json, "{\"q\":1}"), MISS, "1");
    is(&query(&andante, &upstream, json, "{\"q\":1}"), HIT, "1");
    is(&query(&andante, &upstream, json, "{\"q\":2}"), MISS, "2");
    is(&query(&andante, &upstream, "Content-Type: text/plain\r\n", "{\"q\":1}"), MISS, "3");
    is(&query(&andante, &upstream, &format!("{json}Content-Encoding: x\r\n"), "{\"q\":1}"), MISS, "4");
    is(&query(&andante, &upstream, &format!("{json}Authorization: Bearer b\r\n"), "{\"q\":1}"), MISS, "5");
    is(&query(&andante, &upstream, json, ""), MISS, "6");
    let get = Client::get(andante.proxy(), &upstream.url("/find"));
    is(&get, MISS, "7");
    is(&query(&andante, &upstream, json, "{\"q\":1}"), HIT, "1");
    // The chunks form the same body.
    let mut chunked = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/find"), upstream.address());
    chunked.send(format!("QUERY {url} HTTP/1.1\r\nHost: {host}\r\n{json}Transfer-Encoding: chunked\r\n\r\n"));
    chunked.send("3\r\n{\"q\r\n4\r\n\":1}\r\n0\r\n\r\n");
    is(&chunked.answer(), HIT, "1");
    let sent: Vec<_> = upstream.requests().iter().map(Message::text).collect();
    assert_eq!(sent, ["{\"q\":1}", "{\"q\":2}", "{\"q\":1}", "{\"q\":1}", "{\"q\":1}", "", ""], "bodies reach the API");
}

#[test]
fn an_unsafe_request_to_the_resource_has_its_answers_forgotten() {
    let upstream = counting();
    let andante = ruled(&upstream, "cache = \"64KiB\"");
    is(&query(&andante, &upstream, "", "a"), MISS, "1");
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/find"), upstream.address());
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\nx"));
    assert_eq!(client.answer().status(), 200);
    is(&query(&andante, &upstream, "", "a"), MISS, "3");
}

#[test]
fn a_body_too_large_to_be_compared_passes_as_it_is() {
    let upstream = counting();
    let andante = ruled(&upstream, "cache = \"64KiB\"\ncoalesce = true");
    let large = "x".repeat(3_000_000);
    for n in ["1", "2"] {
        is(&query(&andante, &upstream, "", &large), "andante; fwd=bypass", n);
    }
    assert!(upstream.requests().iter().all(|request| request.body.len() == 3_000_000));
    let mut chunked = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/find"), upstream.address());
    chunked.send(format!("QUERY {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"));
    for _ in 0..30 {
        chunked.send(format!("{:x}\r\n{}\r\n", 100_000, &large[..100_000]));
    }
    chunked.send("0\r\n\r\n");
    is(&chunked.answer(), "andante; fwd=bypass", "3");
    assert_eq!(upstream.requests()[2].body.len(), 3_000_000);
}

#[test]
fn equal_queries_share_one_call_and_others_do_not() {
    let upstream = counting();
    let andante = ruled(&upstream, "coalesce = true\nlimits = [\"1/s\"]");
    assert_eq!(query(&andante, &upstream, "", "first").status(), 200);
    let mut same: Vec<_> = (0..20).map(|_| send(&andante, &upstream, "", "same")).collect();
    let mut other = send(&andante, &upstream, "", "other");
    same.iter_mut().for_each(|client| assert_eq!(client.answer().status(), 200));
    assert_eq!(other.answer().status(), 200);
    let mut sent: Vec<_> = upstream.requests().iter().map(Message::text).collect();
    sent.sort();
    assert_eq!(sent, ["first", "other", "same"]);
    andante.wait_for(|status| status["slots_saved_total"] == 19);
}

#[test]
fn a_query_whose_connection_breaks_is_sent_again_with_its_body() {
    for rule in ["", "coalesce = true", "cache = \"64KiB\""] {
        let tries = Mutex::new(0);
        let upstream = Upstream::scripted(move |mut connection| {
            while connection.request().is_some() {
                let mut tries = tries.lock();
                *tries += 1;
                // The first request of all is answered, so that it is known that somebody is there.
                if *tries == 2 {
                    return;
                }
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
        let andante = ruled(&upstream, &format!("{rule}\nmax-wait = \"10s\""));
        assert_eq!(query(&andante, &upstream, "", "one").text(), "ok");
        let answer = query(&andante, &upstream, "", "two");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"), "{rule}");
        let sent: Vec<_> = upstream.requests().iter().map(Message::text).collect();
        assert_eq!(sent, ["one", "two", "two"], "{rule}");
    }
}

#[test]
fn a_query_that_is_refused_before_any_of_it_was_read_is_sent_again_with_its_body() {
    let tries = Mutex::new(0);
    let upstream = Upstream::answering(move |_| {
        let mut tries = tries.lock();
        *tries += 1;
        let status = if *tries == 1 { "503 Busy" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
    });
    let andante = ruled(&upstream, "cache = \"64KiB\"\ncoalesce = true\nmax-wait = \"10s\"");
    assert_eq!(query(&andante, &upstream, "", "again").status(), 200);
    let sent: Vec<_> = upstream.requests().iter().map(Message::text).collect();
    assert_eq!(sent, ["again", "again"]);
}

#[test]
fn a_query_by_http2_is_compared_as_one_by_http1() {
    let upstream = counting();
    let andante = ruled(&upstream, "cache = \"64KiB\"");
    is(&query(&andante, &upstream, "", "same"), MISS, "1");
    let request = http::Request::builder().method("QUERY").uri(upstream.url("/find"));
    let mut asked = Client2::connect(andante.proxy()).begin(request);
    asked.push("same", true);
    is(&asked.answer(), HIT, "1");
}

#[test]
fn a_worker_that_stalls_in_its_query_is_told_so() {
    let upstream = counting();
    let rule =
        format!("[timeouts]\nidle = \"500ms\"\n[[rule]]\nhost = \"{}\"\ncache = \"64KiB\"\n", upstream.address());
    let andante = Andante::with_config(&rule);
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/find"), upstream.address());
    client.send(format!("QUERY {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\nhalf"));
    assert_eq!(client.answer().status(), 408);
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn curl_queries_through_andante() {
    let upstream = counting();
    let andante = ruled(&upstream, "cache = \"64KiB\"");
    let proxy = format!("http://{}", andante.proxy());
    let url = upstream.url("/find");
    let ask = |body: &str| {
        let args = ["-s", "--max-time", "20", "-x", &proxy, "-X", "QUERY", "--json", body, &url];
        let out = Command::new("curl").args(args).env_clear().env("PATH", std::env::var("PATH").unwrap()).output();
        String::from_utf8(out.expect("curl runs").stdout).unwrap()
    };
    assert_eq!([ask("{\"q\":1}"), ask("{\"q\":1}"), ask("{\"q\":2}")], ["1", "1", "2"]);
    let first = &upstream.requests()[0];
    assert_eq!((first.line().as_str(), first.text().as_str()), ("QUERY /find HTTP/1.1", "{\"q\":1}"));
}
