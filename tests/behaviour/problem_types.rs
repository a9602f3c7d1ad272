//! The problem types of andante's own refusals (draft-ietf-httpapi-ratelimit-headers-11, RFC 9457).

use rustix::process::Signal;

use crate::support::{Andante, Client, Message, Upstream, h2::Client2};

const QUOTA: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

fn get(andante: &Andante, upstream: &Upstream, path: &str, fields: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url(path), upstream.address());
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
    client
}

fn is_problem(answer: &Message, status: u16, of_type: &str, title: &str) {
    let problem = answer.json();
    assert_eq!((answer.status(), &problem["status"]), (status, &status.into()), "{answer:?}");
    assert_eq!(answer.field("content-type").as_deref(), Some("application/problem+json"));
    assert_eq!((&problem["type"], &problem["title"]), (&of_type.into(), &title.into()), "{problem:#}");
    assert!(answer.has("retry-after"), "{answer:?}");
}

fn exceeds(answer: &Message, policy: &str) {
    is_problem(answer, 429, QUOTA, "Request cannot be satisfied as assigned quota has been exceeded");
    assert_eq!(answer.json()["violated-policies"], serde_json::json!([policy]));
}

#[test]
fn a_refusal_for_a_limit_is_quota_exceeded_and_names_the_rule() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nname = \"whole\"\nhost = \"{host}\"\nlimits = [\"2/h burst 2\"]\nmax-waiting = 1\n\
         [[rule]]\nname = \"search\"\nhost = \"{host}\"\npath = \"/search\"\nlimits = [\"1/h\"]\n"
    ));
    assert_eq!(get(&andante, &upstream, "/search", "").answer().status(), 200);
    exceeds(&get(&andante, &upstream, "/search", "Prefer: wait=0\r\n").answer(), "search");
    assert_eq!(get(&andante, &upstream, "/", "").answer().status(), 200);
    exceeds(&get(&andante, &upstream, "/", "Prefer: wait=0\r\n").answer(), "whole");
    let _waits = get(&andante, &upstream, "/", "");
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    exceeds(&get(&andante, &upstream, "/", "").answer(), "whole");
    let mut client = Client2::connect(andante.proxy());
    exceeds(&client.get(&upstream.url("/")).answer(), "whole");
}

#[test]
fn a_refusal_in_a_pause_is_reduced_capacity_and_names_the_rule() {
    let upstream = Upstream::always("HTTP/1.1 429 No\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n");
    let rule = format!("[[rule]]\nname = \"api\"\nhost = \"{}\"\nlimits = [\"100/s\"]\n", upstream.address());
    let andante = Andante::with_config(&rule);
    let passed_on = get(&andante, &upstream, "/", "Prefer: wait=1\r\n").answer();
    assert!(!passed_on.has("proxy-status"), "{passed_on:?}");
    let refused = get(&andante, &upstream, "/", "Prefer: wait=1\r\n").answer();
    is_problem(&refused, 429, CAPACITY, "Request cannot be satisfied due to temporary server capacity constraints");
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["api"]));
}

#[test]
fn the_end_of_a_drain_is_reduced_capacity() {
    let upstream = Upstream::ok();
    let rule = format!("drain = \"300ms\"\n[[rule]]\nhost = \"{}\"\nlimits = [\"1/h\"]\n", upstream.address());
    let mut andante = Andante::with_config(&rule);
    assert_eq!(get(&andante, &upstream, "/", "").answer().status(), 200);
    let mut waits = get(&andante, &upstream, "/", "");
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    andante.signal(Signal::TERM);
    let refused = waits.answer();
    is_problem(&refused, 503, CAPACITY, "Request cannot be satisfied due to temporary server capacity constraints");
    assert!(refused.json().get("violated-policies").is_none(), "no policy is exceeded: {refused:?}");
    assert!(andante.ended().success());
}
