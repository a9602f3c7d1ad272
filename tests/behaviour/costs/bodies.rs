//! Costs that the beginning of a request's body states.

use super::used;
use crate::support::{Andante, Client, Upstream};

/// An upstream whose answers report a usage of 10 tokens, and an andante that reads request bodies for their cost.
fn reading(more: &str) -> (Upstream, Andante) {
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"used\":10}";
    let upstream = Upstream::always(answer);
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"100/s burst 50\", \"1000 tokens/h burst 1000\"]\nread-body = \"1KiB\"\n\
         cost = \"tokens=body:max_tokens\"\n{more}"
    ));
    (upstream, andante)
}

fn head(upstream: &Upstream, framing: &str) -> String {
    let host = upstream.address();
    format!(
        "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=0\r\nContent-Type: application/json\r\n{framing}\r\n\r\n"
    )
}

fn post(andante: &Andante, upstream: &Upstream, body: &str) -> u16 {
    let head = head(upstream, &format!("Content-Length: {}", body.len()));
    Client::ask(andante.proxy(), format!("{head}{body}")).status()
}

#[test]
fn what_a_body_says_is_reserved_and_the_body_arrives_as_it_was_sent() {
    let (upstream, andante) = reading("");
    let body = r#"{"prompt":"\"max_tokens\": 5","x":{"max_tokens":6},"max_tokens": 700}"#;
    assert_eq!((post(&andante, &upstream, body), used(&andante.status())), (200, 700));
    assert_eq!(upstream.request().text(), body);
    assert_eq!(post(&andante, &upstream, r#"{"max_tokens":301}"#), 429);
    let chunks = "5\r\n{\"max\r\n13\r\n_tokens\":300,\"y\":\"z\r\n2\r\n\"}\r\n0\r\n\r\n";
    let sent = format!("{}{chunks}", head(&upstream, "Transfer-Encoding: chunked"));
    assert_eq!((Client::ask(andante.proxy(), sent).status(), used(&andante.status())), (200, 1000));
    assert_eq!(upstream.requests()[1].text(), "{\"max_tokens\":300,\"y\":\"z\"}");
}

#[test]
fn what_was_reserved_too_much_is_given_back() {
    let (upstream, andante) = reading("usage = [\"tokens=used\"]\n");
    for count in 1..=3 {
        assert_eq!(post(&andante, &upstream, r#"{"max_tokens":900}"#), 200);
        andante.wait_for(|status| used(status) == count * 10);
    }
}

#[test]
fn what_is_behind_what_was_read_says_nothing_and_arrives() {
    let (upstream, andante) = reading("");
    let long = "x".repeat(200_000);
    let body = format!("{{\"prompt\":\"{long}\",\"max_tokens\":2000}}");
    assert_eq!((post(&andante, &upstream, &body), used(&andante.status())), (200, 0));
    assert_eq!(upstream.request().text(), body);
    assert_eq!((post(&andante, &upstream, "max_tokens=900"), used(&andante.status())), (200, 0));
    assert_eq!((post(&andante, &upstream, r#"{"max_tokens":5000}"#), used(&andante.status())), (200, 1000), "a window");
}

#[test]
fn whoever_waits_for_a_100_gets_it_when_the_body_is_read() {
    let (upstream, andante) = reading("");
    let mut client = Client::connect(andante.proxy());
    let body = r#"{"max_tokens":40}"#;
    client.send(head(&upstream, &format!("Expect: 100-continue\r\nContent-Length: {}", body.len())));
    client.until("HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(used(&andante.status()), 0);
    client.send(body);
    assert_eq!((client.answer().status(), used(&andante.status())), (200, 40));
}

#[test]
fn a_body_that_comes_late_is_not_waited_for() {
    let (upstream, andante) = reading("[timeouts]\nhead = \"200ms\"\n");
    let mut client = Client::connect(andante.proxy());
    client.send(head(&upstream, "Content-Length: 20"));
    client.send("{\"max");
    andante.wait_for(|status| status["lanes"][0]["in_flight"] == 1);
    client.send("_tokens\": 40  }");
    assert_eq!(client.answer().status(), 200);
}
