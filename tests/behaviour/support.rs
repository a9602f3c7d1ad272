//! Support of behaviour tests: andante itself, an upstream that follows orders, and a client that sees bytes.
//!
//! [`PATIENCE`] bounds each wait: a test that hangs fails, and names the awaited event.

mod alone;
mod andante;
mod client;
pub(crate) mod collector;
mod dead_port;
pub(crate) mod h2;
mod log;
pub(crate) mod message;
mod mock;
mod name_server;
mod record;
mod redis;
pub(crate) mod tls;
mod upstream;

use std::{thread, time::Duration};

pub(crate) use self::{
    alone::alone,
    andante::Andante,
    client::Client,
    collector::Collector,
    dead_port::DeadPort,
    log::Log,
    message::{Message, RawConnection},
    mock::Mock,
    name_server::{Name, NameServer},
    redis::Redis,
    upstream::{Connection, Upstream},
};

/// Time that a loaded machine may need for any event that these tests wait for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks `question` until it has an answer; panics with `what` when that takes too long.
pub(crate) fn eventually<T>(what: &str, question: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, question)
}

/// Asks `question` until it has an answer, for up to `patience`, where other programs may need longer by design.
pub(crate) fn eventually_within<T>(patience: Duration, what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    for _ in 0..patience.as_millis() / PAUSE.as_millis() {
        if let Some(answer) = question() {
            return answer;
        }
        thread::park_timeout(PAUSE);
    }
    panic!("waited in vain: {what}");
}

/// Panics unless `answer` is one of andante's own: with `status`, this RFC 9209 `error`, and a problem that helps.
pub(crate) fn rejected(answer: &Message, status: u16, error: &str, what: &str) {
    assert_eq!(answer.status(), status, "{what:?}: {answer:?}");
    assert_eq!(answer.field("proxy-status"), Some(format!("andante; error={error}")), "{what:?}: {answer:?}");
    assert!(answer.field("via").is_some_and(|via| via.starts_with("1.1 andante-")), "{what:?}: {answer:?}");
    assert_eq!(answer.field("content-type").as_deref(), Some("application/problem+json"), "{what:?}: {answer:?}");
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{what:?}: {answer:?}");
    for member in ["title", "detail", "hint"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{what:?}: no {member}: {answer:?}");
    }
}

/// Waits for `time`, on a test's own thread.
#[expect(clippy::disallowed_methods, reason = "no task runs on a test's thread")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}
