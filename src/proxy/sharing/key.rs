//! Key of requests that may share a call.

/// What makes two requests the same; a keyed hash of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Of the request.
    pub(crate) request: [u64; 2],
    /// Of its origin.
    pub(crate) origin: u64,
}

// === impl Key ===

impl Key {
    /// Two hashes, as 64 bits are few where a collision hands out another request's answer. `hash` is told which one it
    /// makes.
    pub(crate) fn new(origin: u64, hash: impl Fn(u8) -> u64) -> Self {
        Self { request: [hash(0), hash(1)], origin }
    }
}
