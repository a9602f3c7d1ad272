//! Kinds of requests: a kind pauses alone, in the queue, within its own patience, and with a time for answers of its
//! own.

use super::{OK, ask, ms, now};
use crate::support::{Andante, Upstream, eventually};

/// A refusal although there is room: another limit than the one that is shown, of this kind of request.
const ROOM: &str =
    "HTTP/1.1 429 No\r\nX-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 60\r\nContent-Length: 2\r\n\r\nno";

/// An upstream that refuses its first request so, answers the second after `pause`, and all others at once.
fn refusing_first(pause: std::time::Duration) -> Upstream {
    let count = std::sync::atomic::AtomicUsize::new(0);
    Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            let answer = match count.fetch_add(1, std::sync::atomic::Ordering::AcqRel) {
                0 => ROOM,
                1 => {
                    std::thread::park_timeout(pause);
                    OK
                }
                _ => OK,
            };
            connection.send(answer);
        }
    })
}

#[test]
fn what_was_sent_after_its_kind_had_paused_is_given_the_time_that_answers_have() {
    // The request may wait for two seconds, pauses for one, and is answered three seconds after it was sent.
    let (andante, upstream) = (Andante::serve(&[]), refusing_first(ms(3000)));
    let since = now();
    let answer = ask(&andante, &upstream, "POST", "Prefer: wait=2\r\nContent-Length: 2\r\n\r\nhi").answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"), "after {:?}", now().since(since));
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn an_answer_that_does_not_come_after_a_pause_is_not_waited_for_as_long_as_a_slot() {
    let upstream = refusing_first(ms(8000));
    let andante = Andante::with_config("[timeouts]\nanswer = \"1s\"\n");
    let since = now();
    let answer = ask(&andante, &upstream, "POST", "Content-Length: 2\r\n\r\nhi").answer();
    assert_eq!(answer.status(), 504, "{answer:?}");
    assert!(now().since(since) < ms(5000), "{:?}", now().since(since));
}

#[test]
fn those_that_wait_for_their_kind_are_seen_and_leave_together() {
    let (andante, upstream) = (Andante::serve(&[]), refusing_first(ms(300)));
    let mut clients = vec![ask(&andante, &upstream, "GET", "\r\n")];
    upstream.wait_for(1);
    eventually("the refusal to be read", || {
        let lane = &andante.status()["lanes"][0];
        (lane["answered_429_total"] == 1).then_some(())
    });
    clients.extend((0..10).map(|_| ask(&andante, &upstream, "GET", "\r\n")));
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 11);
    let since = now();
    for client in &mut clients {
        assert_eq!(client.answer().status(), 200);
    }
    // The pause of a second, and the answer to the probe: no request sleeps for longer.
    assert!(now().since(since) < ms(1000 + 300 + 600), "{:?}", now().since(since));
    assert_eq!(upstream.requests().len(), 12);
}
