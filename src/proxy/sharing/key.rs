//! Key of requests that may share a call.

/// Keyed hash of everything that identifies a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Hashes of the request.
    pub(crate) request: [u64; 2],
    /// Hash of its origin.
    pub(crate) origin: u64,
}

// === impl Key ===

impl Key {
    /// Creates a key with two hashes, because 64 bits are few where a collision hands out another request's answer. The
    /// argument of `hash` says which of the two to make.
    pub(crate) fn new(origin: u64, hash: impl Fn(u8) -> u64) -> Self {
        Self { request: [hash(0), hash(1)], origin }
    }
}
