//! The memory that unanswered requests of one HTTP/2 connection may hold.
//!
//! A gRPC channel opens no second connection when the first is full: it waits silently. So a connection may have many
//! streams: a hundred with the longest heads, or a thousand with usual ones. A request beyond that is refused
//! unprocessed, and may be sent again at once (RFC 9113 §8.7).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Request;

use crate::proxy::protocol::MAX_HEAD;

/// Memory of a waiting stream beside its head, as measured in docs/performance.md.
const STREAM_BYTES: usize = 4 * 1024;
/// As many streams as RFC 9113 §6.5.2 wants a connection to have at least, with the longest heads.
const BUDGET_BYTES: usize = 100 * (MAX_HEAD + STREAM_BYTES);

/// The memory of one connection's requests.
#[derive(Clone, Default)]
pub(super) struct RequestMemory(Arc<AtomicUsize>);

/// One request's part of it. Dropped, it is given back.
pub(super) struct HeldRequest {
    memory: RequestMemory,
    bytes: usize,
}

// === impl RequestMemory ===

impl RequestMemory {
    /// Reserves the memory that `request` holds until it is answered; `None` if there is no room for it.
    pub(super) fn hold<B>(&self, request: &Request<B>) -> Option<HeldRequest> {
        let bytes = STREAM_BYTES + head_bytes(request);
        let room = |held: usize| held.checked_add(bytes).filter(|held| *held <= BUDGET_BYTES);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(HeldRequest { memory: self.clone(), bytes })
    }
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    target + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(memory: &RequestMemory, field_bytes: usize) -> Vec<HeldRequest> {
        let request = Request::get("/").header("x", "y".repeat(field_bytes)).body(()).unwrap();
        std::iter::from_fn(|| memory.hold(&request)).take(2000).collect()
    }

    #[test]
    fn a_hundred_with_the_longest_heads_have_room_and_a_thousand_with_usual_ones() {
        assert_eq!(held(&RequestMemory::default(), MAX_HEAD - 2).len(), 100);
        assert!(held(&RequestMemory::default(), 2 * 1024).len() >= 1000);
    }

    #[test]
    fn what_is_answered_makes_room_for_as_much() {
        let memory = RequestMemory::default();
        let mut all = held(&memory, MAX_HEAD / 2);
        let full = all.len();
        all.truncate(full / 2);
        all.extend(held(&memory, MAX_HEAD / 2));
        assert_eq!(all.len(), full);
        drop(all);
        assert_eq!(memory.0.load(Ordering::Relaxed), 0);
    }
}
