//! Effects of answers on a lane and on their requests: andante waits after refusals and sends again, unseen by workers.

mod bodies;
mod compressed;
mod evidence;
mod failures;
mod gates;
mod intercepted;
mod kinds;
mod leaving;
mod outcomes;
mod patience;
mod refusals;
mod retry_and_breaker_off;
mod shared_quota;
mod untouched;
mod what_is_logged;
mod words;

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use andante::clock::{Clock, Instant};

use crate::support::{Andante, Client, Message, Upstream};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// A refusal that is over soon.
const SOON: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After-Ms: 100\r\nContent-Length: 4\r\n\r\nsoon";
/// A refusal with a wait of a second.
const SECOND: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 5\r\n\r\nlater";
/// An upstream in trouble.
const DOWN: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\ndown";
/// In place of an answer: the connection ends.
const CUT: &str = "";

/// An upstream that gives its first requests these `answers`, one after the other, and 200 to all others.
pub(crate) fn beginning_with(answers: &'static [&'static str]) -> Upstream {
    let next = AtomicUsize::new(0);
    Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            match answers.get(next.fetch_add(1, Ordering::AcqRel)).copied() {
                Some(CUT) => return,
                answer => connection.send(answer.unwrap_or(OK)),
            }
        }
    })
}

/// Sends `method /path` with `rest`: further fields, the empty line, and a body.
fn send(client: &mut Client, upstream: &Upstream, method: &str, rest: &str) {
    let (url, host) = (upstream.url("/path?q=1"), upstream.address());
    client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{rest}"));
}

/// Sends a request on a connection of its own, which stays open.
fn ask(andante: &Andante, upstream: &Upstream, method: &str, rest: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    send(&mut client, upstream, method, rest);
    client
}

/// The answer to that, and how long it took.
fn timed(andante: &Andante, upstream: &Upstream, method: &str, rest: &str) -> (Message, Duration) {
    let since = now();
    let answer = ask(andante, upstream, method, rest).answer();
    (answer, now().since(since))
}

fn now() -> Instant {
    static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);
    CLOCK.now()
}

const fn ms(of: u64) -> Duration {
    Duration::from_millis(of)
}

/// Seconds since 1970.
fn time_of_day() -> u64 {
    Clock::start().time_of_day().as_secs()
}

/// Panics unless all of these requests are equal byte for byte, except for the boundaries of chunks.
fn same(requests: &[Message]) {
    for request in requests {
        let heads = [request, &requests[0]].map(|request| String::from_utf8_lossy(&request.head).into_owned());
        assert_eq!(heads[0], heads[1]);
        assert!(request.body == requests[0].body, "another body: {request:?} after {:?}", requests[0]);
        assert_eq!(request.trailers, requests[0].trailers);
    }
}
