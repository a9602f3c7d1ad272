//! Limits in other units than requests, and the costs of requests.

mod bodies;
mod stated;

use serde_json::Value;

use crate::support::{Andante, Client, Message, Upstream, rejected};

fn limited(limits: &str) -> (Upstream, Andante) {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{host}\"\nlimits = [{limits}]\n"));
    (upstream, andante)
}

/// Sends a GET with `fields` that waits for nothing.
fn ask(andante: &Andante, upstream: &Upstream, fields: &str) -> Message {
    let host = upstream.address();
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=0\r\n{fields}\r\n");
    Client::ask(andante.proxy(), request)
}

#[test]
fn a_limit_counts_its_own_unit_alone() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"100/s burst 50\", \"1000 tokens/h\", \"50 points/h\"]\n\
         max-cost = \"tokens=600\"\n"
    ));
    let ask = |fields: &str| ask(&andante, &upstream, fields);
    assert_eq!(ask("Andante-Cost: tokens=600, points=1\r\n").status(), 200);
    assert_eq!(ask("Andante-Cost: tokens=600\r\n").status(), 429, "600 and 600 are more than 1,000");
    assert_eq!(ask("").status(), 200, "who takes no tokens does not wait for them");
    let status = andante.status();
    let limits = status["lanes"][0]["limits"].as_array().unwrap();
    let used = |limit: &str| {
        let written = |status: &&Value| status["limit"].as_str().is_some_and(|text| text.starts_with(limit));
        limits.iter().find(written).unwrap()["used"].as_u64()
    };
    assert_eq!((used("1000 tokens/h"), used("50 points/h")), (Some(600), Some(1)), "{limits:?}");
}

/// A rule would limit nothing if a request took none of all that it counts.
#[test]
fn what_counts_a_unit_alone_of_which_nothing_is_said_counts_requests() {
    let (upstream, andante) = limited("\"2 hits/h burst 2\"");
    let answers = [200, 200, 429];
    for answer in answers {
        assert_eq!(ask(&andante, &upstream, "").status(), answer);
    }
}

/// Whatever rules for other hosts say of that unit, and one for other requests of this host.
#[test]
fn what_others_cost_does_not_say_what_a_request_takes() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"2 hits/h burst 2\"]\n\
         [[rule]]\nhost = \"{host}\"\npath = \"/p\"\ncost = \"hits=2\"\n\
         [[rule]]\nhost = \"elsewhere.test\"\nlimits = [\"9 hits/h\"]\ncost = \"hits=3\"\n\
         [[rule]]\nhost = \"answers.test\"\nlimits = [\"9 hits/h\"]\nusage = [\"hits=header:x-hits\"]\n"
    ));
    for answer in [200, 200, 429] {
        assert_eq!(ask(&andante, &upstream, "").status(), answer);
    }
}

#[test]
fn of_what_a_request_does_not_say_its_rule_says_the_cost() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"1000/s burst 50\", \"100 a/h burst 100\", \"9 b/h burst 9\"]\n\
         cost = \"a=1, b=3\"\nmax-cost = \"a=50, b=3\"\n"
    ));
    for (said, answer) in [("a=2", 200), ("1", 200), ("a=50, b=3", 200), ("a=2", 429), ("a=1, b=0", 200)] {
        let answered = ask(&andante, &upstream, &format!("Andante-Cost: {said}\r\n")).status();
        assert_eq!(answered, answer, "three of nine b each time: {said}");
    }
}

#[test]
fn a_cost_that_no_window_has_room_for_is_refused_at_once() {
    let (upstream, andante) = limited("\"100/s burst 50\", \"1000 tokens/h\"");
    for wrong in ["tokens=1001", "tokens=-1", "tokens", "tokens=1.5", "token=5"] {
        rejected(&ask(&andante, &upstream, &format!("Andante-Cost: {wrong}\r\n")), 400, "http_request_error", wrong);
    }
    let hint = ask(&andante, &upstream, "Andante-Cost: tokens=abc\r\n");
    rejected(&hint, 400, "http_request_error", "tokens=abc");
    assert!(hint.text().contains("write a whole number for each unit, as in \\\"tokens=500\\\""), "{}", hint.text());
    let problem = ask(&andante, &upstream, "Andante-Cost: tokens=1001\r\n");
    let problem = problem.text();
    assert!(problem.contains("a request that costs 1001 tokens fits no window of 1000 tokens/h"), "{problem}");
}

#[test]
fn what_no_limit_of_the_rule_counts_costs_nothing() {
    let (upstream, andante) = limited("\"100/s\"");
    assert_eq!(ask(&andante, &upstream, "Andante-Cost: tokens=5000\r\n").status(), 200);
    assert!(!upstream.request().has("andante-cost"));
}

#[test]
fn a_rule_says_what_requests_cost_that_do_not_say_so() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"100/s burst 50\", \"1000 tokens/h burst 1000\"]\ncost = \"tokens=10\"\n\
         [[rule]]\nhost = \"{host}\"\nmethod = \"POST\"\npath = \"/big/*\"\ncost = \"tokens=600\"\n"
    ));
    let send = |method: &str, path: &str, fields: &str| {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let head = format!("{method} http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=0\r\n");
        Client::ask(andante.proxy(), format!("{head}{length}{fields}\r\n")).status()
    };
    let used = || andante.status()["lanes"][0]["limits"][1]["used"].as_u64();
    assert_eq!((send("GET", "/big/1", ""), used()), (200, Some(10)));
    assert_eq!((send("POST", "/big/1", ""), used()), (200, Some(610)));
    assert_eq!(send("POST", "/big/1", ""), 429);
    assert_eq!((send("POST", "/big/1", "Andante-Cost: tokens=90\r\n"), used()), (200, Some(700)));
}

#[test]
fn what_an_answer_says_was_used_counts_and_a_debt_is_paid_first() {
    let answer = concat!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Points: 3\r\nContent-Length: 69\r\n\r\n",
        r#"{"text":"\"completion_tokens\":9","usage":{"completion_tokens": 700}}"#
    );
    let upstream = Upstream::always(answer);
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"100/s burst 50\", \"1000 tokens/h burst 1000\", \"50 points/h burst 50\"]\n\
         usage = [\"tokens=completion_tokens\", \"points=header:x-points\"]\n"
    ));
    let send = || ask(&andante, &upstream, "Andante-Cost: tokens=100\r\n");
    assert_eq!(send().text().len(), 69);
    let used = |limit: usize| andante.status()["lanes"][0]["limits"][limit]["used"].as_u64();
    andante.wait_for(|status| status["lanes"][0]["limits"][1]["used"] == 700);
    assert_eq!(used(2), Some(3));
    assert_eq!(send().status(), 200, "700 and 100 fit");
    andante.wait_for(|status| status["lanes"][0]["limits"][1]["used"] == 1400);
    assert_eq!(send().status(), 429, "more was used than there is");
}

/// An answer that has used as many tokens as its request has bytes, divided by `by`.
fn by_length(by: usize) -> Upstream {
    Upstream::answering(move |request| {
        let json = format!(r#"{{"usage":{{"tokens":{}}}}}"#, request.body.len() / by);
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}", json.len())
    })
}

fn used(status: &Value) -> u64 {
    status["lanes"][0]["limits"][1]["used"].as_u64().unwrap()
}

#[test]
fn what_the_length_of_a_request_comes_to_is_learned_and_reserved() {
    let upstream = by_length(4);
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"100/s burst 50\", \"1000 tokens/h burst 1000\"]\n\
         usage = [\"tokens=tokens\"]\ncost = \"tokens=length\"\n"
    ));
    let sized = |bytes: usize| {
        let head = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=0\r\nContent-Length: {bytes}");
        Client::ask(andante.proxy(), format!("{head}\r\n\r\n{}", "x".repeat(bytes))).status()
    };
    assert_eq!(sized(400), 200, "nothing is known yet");
    andante.wait_for(|status| used(status) == 100);
    assert_eq!(sized(3604), 429, "901 are more than the 900 that are left");
    assert_eq!(sized(2000), 200);
    andante.wait_for(|status| used(status) == 600);
    assert_eq!(sized(1600), 200, "400 are left");
    andante.wait_for(|status| used(status) == 1000);
}

#[test]
fn what_a_byte_is_can_be_said() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"100/s burst 50\", \"1000 tokens/h burst 1000\"]\n\
         cost = \"tokens=length*0.25\"\n"
    ));
    let post = |bytes: usize| {
        let head = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=0\r\nContent-Length: {bytes}");
        Client::ask(andante.proxy(), format!("{head}\r\n\r\n{}", "x".repeat(bytes))).status()
    };
    assert_eq!((post(2001), used(&andante.status())), (200, 501));
    assert_eq!(post(2000), 429, "500 are more than 499");
    assert_eq!((post(1996), used(&andante.status())), (200, 1000));
}
