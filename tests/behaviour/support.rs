//! What every behaviour test needs: andante itself, an upstream that does as it is told, and a client that sees bytes.
//!
//! Everything that waits is bounded by [`PATIENCE`]: a test that hangs fails, and says on what.

mod andante;
mod client;
mod message;
mod upstream;

use std::{thread, time::Duration};

pub(crate) use self::{
    andante::Andante,
    client::Client,
    message::{Message, Wire},
    upstream::{Connection, Upstream},
};

/// What a loaded machine may need for anything that these tests wait for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks `question` until it has an answer; panics with `what` when that takes too long.
pub(crate) fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if let Some(answer) = question() {
            return answer;
        }
        thread::park_timeout(PAUSE);
    }
    panic!("waited in vain: {what}");
}
