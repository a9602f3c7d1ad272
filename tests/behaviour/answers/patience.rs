//! A worker's patience, and other ends of retries: the upstream's last answer passes unchanged.

use super::{OK, SOON, ask, beginning_with, ms, now, same, timed};
use crate::support::{Andante, Message, Upstream, rejected};

const FIVE: &str = "HTTP/1.1 429 Too Many\r\nRetry-After: 5\r\nX-A: 1\r\nX-A: 2\r\nContent-Type: text/x\r\n\
     Content-Length: 5\r\n\r\nlater";

fn is_the_refusal(answer: &Message) {
    assert_eq!((answer.status(), answer.text().as_str()), (429, "later"), "{answer:?}");
    assert_eq!(answer.field("retry-after").as_deref(), Some("5"));
    assert_eq!(answer.all("x-a"), ["1", "2"]);
    assert_eq!(answer.field("content-type").as_deref(), Some("text/x"));
    assert!(!answer.has("proxy-status"), "{answer:?}");
}

#[test]
fn who_has_no_time_for_the_pause_gets_the_refusal_itself() {
    let (andante, upstream) = (Andante::logging("info", &[]), Upstream::always(FIVE));
    let (answer, took) = timed(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n");
    is_the_refusal(&answer);
    assert!(took < ms(900), "{took:?}");
    assert_eq!(upstream.requests().len(), 1);
    // The gate is closed: the next one does not even leave.
    let (answer, took) = timed(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n");
    rejected(&answer, 429, "http_request_denied", "no time");
    assert!(took < ms(900), "{took:?}");
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn whoever_waits_and_has_no_time_for_a_pause_is_told_when_it_begins() {
    const THIRTY: &str = "HTTP/1.1 429 No\r\nRetry-After: 30\r\nContent-Length: 2\r\n\r\nno";
    let upstream = beginning_with(&[OK, THIRTY]);
    let limit = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"2/s\"]\n", upstream.address());
    let (andante, since) = (Andante::with_config(&limit), now());
    assert_eq!(ask(&andante, &upstream, "GET", "\r\n").answer().status(), 200);
    let mut others: Vec<_> = (0..4).map(|_| ask(&andante, &upstream, "GET", "Prefer: wait=5\r\n\r\n")).collect();
    // The request that is refused after 0.5 s gets that answer. Requests behind it could leave after 30 s.
    let answers: Vec<_> = others.iter_mut().map(|other| other.answer()).collect();
    let (refused, told): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.text() == "no");
    assert_eq!((refused.len(), told.len()), (1, 3), "{answers:?}");
    for answer in told {
        rejected(answer, 429, "http_request_denied", "too late");
        let again: u64 = answer.field("retry-after").unwrap().parse().unwrap();
        assert!((24..=27).contains(&again), "{again}: 30 s, less the five that it may wait");
    }
    assert!(now().since(since) < ms(3000), "{:?}", now().since(since));
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn max_wait_of_a_rule_bounds_how_long_a_refusal_is_waited_out() {
    let upstream = Upstream::always(FIVE);
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\nmax-wait = \"1s\"\n", upstream.address()));
    let (answer, took) = timed(&andante, &upstream, "POST", "Content-Length: 2\r\n\r\nhi");
    is_the_refusal(&answer);
    assert!(took < ms(900), "{took:?}");
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn patience_covers_all_tries_together() {
    // Each refusal asks for 400 ms: the third would be too late.
    const AGAIN: &str = "HTTP/1.1 429 No\r\nRetry-After-Ms: 400\r\nContent-Length: 5\r\n\r\nagain";
    let (andante, upstream) = (Andante::serve(&[]), Upstream::always(AGAIN));
    let (answer, took) = timed(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n");
    assert_eq!((answer.status(), answer.text().as_str()), (429, "again"));
    assert!(took < ms(1900), "{took:?}");
    let tries = upstream.requests().len();
    assert!((2..=3).contains(&tries), "{tries}");
}

/// An in-flight limit may block the request without end: no slot could be a little late.
#[test]
fn who_waits_in_vain_is_told_when_its_patience_ends() {
    let upstream = Upstream::scripted(|mut connection| while connection.head().is_some() {});
    let host = upstream.address();
    let andante = Andante::with_config(&format!("[[rule]]\nhost = '{host}'\nin-flight = 1\nallow-private = true\n"));
    let _first = ask(&andante, &upstream, "GET", "\r\n");
    andante.wait_for(|status| status["lanes"][0]["in_flight"] == 1);
    let (answer, took) = timed(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n");
    rejected(&answer, 429, "http_request_denied", "no slot");
    assert!((ms(1000)..ms(1400)).contains(&took), "{took:?}");
}

#[test]
fn patience_ends_the_tries_of_failures_too() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::always(super::DOWN));
    let (answer, took) = timed(&andante, &upstream, "GET", "Prefer: wait=0\r\n\r\n");
    assert_eq!((answer.status(), answer.text().as_str()), (503, "down"));
    assert!(took < ms(900), "{took:?}");
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_refusal_that_is_too_large_to_be_kept_is_passed_on() {
    let large = |length: usize| {
        let body = "y".repeat(length);
        format!("HTTP/1.1 429 No\r\nRetry-After-Ms: 50\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    for length in [64 * 1024 + 1, 100_000, 3_000_000] {
        let (andante, upstream) = (Andante::serve(&[]), Upstream::always(large(length)));
        let (answer, _) = timed(&andante, &upstream, "GET", "\r\n");
        assert_eq!((answer.status(), answer.body.len()), (429, length));
        assert_eq!(upstream.requests().len(), 1);
    }
    let first = std::sync::atomic::AtomicBool::new(true);
    let upstream = Upstream::answering(move |_| {
        if first.swap(false, std::sync::atomic::Ordering::AcqRel) { large(60_000) } else { OK.to_owned() }
    });
    assert_eq!(timed(&Andante::serve(&[]), &upstream, "GET", "\r\n").0.status(), 200);
}

#[test]
fn a_last_answer_that_was_kept_is_passed_on_whole() {
    const CHUNKED: &str = "HTTP/1.1 429 No\r\nRetry-After: 5\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n\
         3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-T: 1\r\n\r\n";
    let (andante, upstream) = (Andante::serve(&[]), Upstream::always(CHUNKED));
    let mut client = ask(&andante, &upstream, "GET", "TE: trailers\r\nPrefer: wait=1\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (429, "abcdefg"));
    assert_eq!(answer.trailers, [("x-t".to_owned(), "1".to_owned())], "{answer:?}");
    // The connection is good for the next one, which has no patience either, and is answered by us.
    super::send(&mut client, &upstream, "GET", "Prefer: wait=1\r\n\r\n");
    assert!(client.answer().has("proxy-status"));
}

#[test]
fn a_worker_that_never_tells_its_patience_waits_for_several_refusals() {
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[SOON; 6]));
    let since = now();
    let (answer, _) = timed(&andante, &upstream, "POST", "Content-Length: 2\r\n\r\nhi");
    assert_eq!(answer.status(), 200);
    assert!(now().since(since) >= ms(590));
    assert_eq!(upstream.requests().len(), 7);
    same(&upstream.requests());
}

#[test]
fn after_a_refusal_that_was_passed_on_the_connection_is_what_it_was() {
    let upstream = Upstream::always(FIVE);
    let andante = Andante::with_config("[timeouts]\nkeep-alive = \"700ms\"\nanswer = \"30s\"\n");
    let mut client = ask(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n");
    is_the_refusal(&client.answer());
    // andante itself answers an unreadable request.
    let mut other = ask(&andante, &Upstream::ok(), "GET", "Prefer: wait=0\r\n\r\n");
    assert_eq!(other.answer().status(), 429);
    other.send("NONSENSE\r\n\r\n");
    rejected(&other.answer(), 400, "http_request_error", "nonsense");
    let since = now();
    client.closed();
    assert!(now().since(since) < ms(3000), "it is not kept for longer than any other");
}

#[test]
fn a_refusal_that_asks_for_no_wait_is_not_hammered_upon() {
    const NOW: &str = "HTTP/1.1 429 No\r\nRetry-After: 0\r\nContent-Length: 3\r\n\r\nnow";
    let (andante, upstream) = (Andante::serve(&[]), Upstream::always(NOW));
    let (answer, took) = timed(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n");
    assert_eq!((answer.status(), answer.text().as_str()), (429, "now"));
    let tries = upstream.requests().len();
    assert!(tries <= 20, "{tries} requests in {took:?}");
}
