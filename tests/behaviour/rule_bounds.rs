//! How often a request is sent, and how long an API may take, as its rule says.

use std::{thread, time::Duration};

use andante::clock::{Clock, Instant};
use parking_lot::Mutex;

use crate::support::{Andante, Client, Message, Upstream, rejected};

fn get(andante: &Andante, url: &str) -> Message {
    Client::get(andante.proxy(), url)
}

#[test]
fn tries_bounds_how_often_a_request_is_sent_after_each_kind_of_failure() {
    for (status, tries) in [("502 Bad", 1), ("502 Bad", 3), ("502 Bad", 6), ("429 No", 1), ("429 No", 2)] {
        let upstream = Upstream::always(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno"));
        let andante = Andante::with_config(&format!(
            "[[rule]]\nhost = \"{}\"\nretry = {{ tries = {tries} }}\nmax-wait = \"60s\"\nbreaker = \"off\"\n",
            upstream.address()
        ));
        let answer = get(&andante, &upstream.url("/"));
        assert_eq!(format!("{} {}", answer.status(), answer.text()), format!("{} no", &status[..3]));
        assert_eq!(upstream.requests().len(), tries, "{status}");
    }
}

#[test]
fn tries_of_a_rule_count_before_those_of_all() {
    let upstream = Upstream::always("HTTP/1.1 502 Bad\r\nContent-Length: 2\r\n\r\nno");
    let rule = format!("[[rule]]\nhost = \"{}\"\nretry = {{ tries = 2 }}\n", upstream.address());
    let andante = Andante::with_config(&format!("retry = {{ tries = 4, body = \"1KiB\" }}\nbreaker = \"off\"\n{rule}"));
    assert_eq!(get(&andante, &upstream.url("/")).status(), 502);
    assert_eq!(upstream.requests().len(), 2);
    let other = Upstream::always("HTTP/1.1 502 Bad\r\nContent-Length: 2\r\n\r\nno");
    assert_eq!(get(&andante, &other.url("/")).status(), 502);
    assert_eq!(other.requests().len(), 4);
}

/// An upstream that answers after `pause`, and ends its answer after another `pause`.
fn slow(pause: Duration) -> Upstream {
    Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            thread::park_timeout(pause);
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
            thread::park_timeout(pause);
            connection.send("k");
        }
    })
}

#[test]
fn timeouts_of_a_rule_are_for_its_hosts_and_no_others_on_the_same_connection() {
    let (impatient, patient) = (slow(Duration::from_millis(1200)), slow(Duration::from_millis(1200)));
    let andante = Andante::with_config(&format!(
        "[timeouts]\nanswer = \"30s\"\nidle = \"30s\"\n\
         [[rule]]\nhost = \"{}\"\ntimeouts = {{ answer = \"400ms\" }}\nretry = \"off\"\n",
        impatient.address()
    ));
    let mut client = Client::connect(andante.proxy());
    let clock = Clock::start();
    for _ in 0..2 {
        for (upstream, status) in [(&patient, 200), (&impatient, 504)] {
            let (url, host) = (upstream.url("/"), upstream.address());
            client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let answer = client.answer();
            assert_eq!(answer.status(), status, "{answer:?}");
            if status == 504 {
                rejected(&answer, 504, "http_response_timeout", "400ms");
                assert!(answer.text().contains("within 400ms"), "{answer:?}");
            }
        }
    }
    let took = clock.now().since(Instant::START);
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[test]
fn a_rule_gives_its_host_longer_than_all_others_have() {
    let upstream = slow(Duration::from_millis(900));
    let andante = Andante::with_config(&format!(
        "[timeouts]\nanswer = \"300ms\"\nidle = \"300ms\"\n\
         [[rule]]\nhost = \"{}\"\ntimeouts = {{ answer = \"10s\", idle = \"10s\" }}\n\
         coalesce = true\n",
        upstream.address()
    ));
    for fields in ["", "Cache-Control: no-store\r\n"] {
        let mut client = Client::connect(andante.proxy());
        let (url, host) = (upstream.url("/"), upstream.address());
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        assert_eq!(client.answer().text(), "ok", "{fields}");
    }
}

#[test]
fn a_silent_body_is_cut_after_the_idle_time_of_its_rule() {
    let upstream = slow(Duration::from_millis(900));
    let rule = format!("[[rule]]\nhost = \"{}\"\ntimeouts = {{ idle = \"200ms\" }}\n", upstream.address());
    let andante = Andante::with_config(&rule);
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/"), upstream.address());
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert!(client.rest().ends_with(b"\r\n\r\no"), "the head and the first byte, and no more");
}

/// A listener whose queue of connections is full takes no further ones: a SYN gets no answer.
#[test]
fn a_connection_that_does_not_come_about_is_given_up_after_the_time_of_its_rule() {
    // RFC 5737: TEST-NET-1 has no hosts. A machine without a route reports that at once, which is an error as well.
    let rule = "[[rule]]\nhost = \"192.0.2.1\"\ntimeouts = { connect = \"300ms\" }\nretry = \"off\"\n";
    let andante = Andante::with_config(rule);
    let clock = Clock::start();
    let answer = get(&andante, "http://192.0.2.1/");
    assert!(matches!(answer.status(), 502 | 504), "{answer:?}");
    let took = clock.now().since(Instant::START);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_stream_of_completions_is_asked_for_its_usage_which_is_counted() {
    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n\
         data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5,\"total_tokens\":12}}\n\n\
         data: [DONE]\n\n";
    let upstream = Upstream::answering(|_| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{STREAM}",
            STREAM.len()
        )
    });
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{}\"\ninclude-usage = true\nusage = [\"tokens=total_tokens\"]\n\
         limits = [\"100/s\", \"1000 tokens/min\"]\n",
        upstream.address()
    ));
    let ask = |path: &str, fields: &str, body: &str| {
        let mut client = Client::connect(andante.proxy());
        let (url, host, length) = (upstream.url(path), upstream.address(), body.len());
        client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
        assert_eq!(client.answer().status(), 200);
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.field("content-length").unwrap(), request.body.len().to_string());
        request.text()
    };
    let json = "Content-Type: application/json\r\n";
    let asked = ask("/v1/chat/completions", json, "{\"model\":\"m\",\"stream\":true}");
    assert_eq!(asked, "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    andante.wait_for(|status| {
        let limits = status["lanes"][0]["limits"].as_array().unwrap();
        limits.iter().any(|limit| limit["used_total"] == 12)
    });
    for (path, fields, body) in [
        ("/v1/chat/completions", json, "{\"model\":\"m\"}"),
        ("/v1/chat/completions", json, "{\"stream\":true,\"stream_options\":{\"include_usage\":false}}"),
        ("/v1/chat/completions", "Content-Type: text/plain\r\n", "{\"stream\":true}"),
        ("/v1/responses", json, "{\"stream\":true}"),
    ] {
        assert_eq!(ask(path, fields, body), body, "{path}");
    }
}

#[test]
fn a_body_with_the_option_is_sent_again_when_it_is_refused() {
    let tries = Mutex::new(0);
    let upstream = Upstream::answering(move |_| {
        let mut tries = tries.lock();
        *tries += 1;
        let status = if *tries == 1 { "429 No" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{{}}")
    });
    let rule = "include-usage = true\nusage = [\"tokens=total_tokens\"]\nlimits = [\"1000 tokens/min\"]";
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\n{rule}\n", upstream.address()));
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/chat/completions"), upstream.address());
    let json = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{json}\r\nf\r\n{{\"stream\":true}}\r\n0\r\n\r\n"));
    assert_eq!(client.answer().status(), 200);
    let sent: Vec<_> = upstream.requests().iter().map(Message::text).collect();
    assert_eq!(sent, vec!["{\"stream\":true,\"stream_options\":{\"include_usage\":true}}"; 2]);
}

/// The same body twice, with the option added and without: at the second one no memory is left to change the body.
#[test]
fn a_key_is_good_for_the_same_body_while_no_memory_is_left_to_ask_for_its_usage() {
    const MIB: usize = 1024 * 1024;
    let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"total_tokens\":1}");
    // andante holds bodies for a possible retry until they have an answer.
    let silent = Upstream::scripted(|mut connection| while connection.request().is_some() {});
    let rule = "include-usage = true\nusage = [\"tokens=total_tokens\"]\nidempotency-keys = \"1h\"\nlimits = [\"1000000000 tokens/min\"]";
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\n{rule}\n", upstream.address()));
    let (url, host) = (upstream.url("/chat/completions"), upstream.address());
    let ask = || {
        let mut client = Client::connect(andante.proxy());
        let fields = "Content-Type: application/json\r\nIdempotency-Key: \"k\"\r\nContent-Length: 15";
        client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n\r\n{{\"stream\":true}}"));
        client.answer().status()
    };
    assert_eq!(ask(), 200);
    assert!(upstream.requests()[0].text().contains("include_usage"));
    let (put, body) = (silent.url("/"), "x".repeat(MIB));
    let large = format!("PUT {put} HTTP/1.1\r\nHost: {}\r\nContent-Length: {MIB}\r\n\r\n{body}", silent.address());
    let holders: Vec<_> = (0..64)
        .map(|_| {
            let mut client = Client::connect(andante.proxy());
            client.send(&large);
            client
        })
        .collect();
    silent.wait_for(64);
    assert_eq!((ask(), upstream.requests().len()), (200, 1), "the answer to the first one");
    drop(holders);
}
