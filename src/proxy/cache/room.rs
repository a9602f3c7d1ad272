//! Memory of a cache. An answer takes memory until it has no more users: a worker that does not read keeps it, too.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;

use crate::memory::Charge;

/// The account is charged in steps of this many bytes.
const STEP_BYTES: usize = 4 * 1024;

/// Memory that an answer takes of its cache, and of the process's account. Dropping it returns the memory.
pub(super) struct Room {
    used: Arc<AtomicUsize>,
    bytes: usize,
    charge: Charge,
}

/// A body with its memory.
struct RoomedBody {
    body: Box<[u8]>,
    _room: Room,
}

// === impl Room ===

impl Room {
    /// Creates an empty share of a cache that has `used` so much.
    pub(super) fn new(used: Arc<AtomicUsize>, charge: Charge) -> Self {
        Self { used, bytes: 0, charge }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `more` bytes of a cache of `most`. Returns `false`, and takes none, if there is not enough memory.
    pub(super) fn grow(&mut self, more: usize, most: usize) -> bool {
        let fits = self.used.load(Ordering::Relaxed) + more <= most
            && self.charge.resize((self.bytes + more).next_multiple_of(STEP_BYTES) as u64);
        if fits {
            self.bytes += more;
            self.used.fetch_add(more, Ordering::Relaxed);
        }
        fits
    }

    /// Returns `body`, which takes this memory until its last clone is dropped.
    pub(super) fn hold(self, body: Vec<u8>) -> Bytes {
        Bytes::from_owner(RoomedBody { body: body.into(), _room: self })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for RoomedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}
