//! Memory of the answer's head that is being read from an upstream's HTTP/1.1 connection. It is charged to the client
//! whose request was sent there. HTTP/2 connections, which clients share, have a holder of their own.

use std::io;

use parking_lot::Mutex;

use crate::memory::Charge;

/// Maximum size of an answer's head in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 512 * 1024;
/// A head of up to this many bytes is not charged.
pub(crate) const UNCHARGED_BYTES: usize = 8 * 1024;
/// Longer heads are charged in multiples of this.
const STEP_BYTES: usize = 8 * 1024;

/// The memory of one connection's head.
#[derive(Default)]
pub(crate) struct HeadMemory(Mutex<Head>);

/// A head that is being read.
#[derive(Default)]
pub(crate) struct Head {
    charge: Option<Charge>,
    bytes: usize,
    /// True if all of the head has come.
    whole: bool,
}

/// The error of a connection whose answer's head finds no memory.
pub(crate) fn error() -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, "no memory is left for an answer's head")
}

// === impl HeadMemory ===

impl HeadMemory {
    /// Charges the next head to the holder of `charge`.
    pub(crate) fn begin(&self, charge: Charge) {
        *self.0.lock() = Head::of(charge);
    }

    /// Adds `bytes` to the head that is being read. Returns `false` if there is no memory for them.
    pub(crate) fn add(&self, bytes: usize) -> bool {
        let mut head = self.0.lock();
        let bytes = (head.bytes + bytes).min(MAX_HEAD_BYTES);
        head.whole || head.resize(bytes)
    }

    /// Records that all of the head has come. It stays charged, because the connection keeps the buffer that it came
    /// in.
    pub(crate) fn on_whole(&self) {
        self.0.lock().whole = true;
    }

    /// Returns the memory.
    pub(crate) fn end(&self) {
        *self.0.lock() = Head::default();
    }
}

// === impl Head ===

impl Head {
    /// A head that is charged to the holder of `charge`.
    pub(crate) fn of(charge: Charge) -> Self {
        Self { charge: Some(charge), bytes: 0, whole: false }
    }

    /// Sets the length of the part that has come. Returns `false` if there is no memory for it.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        self.bytes = bytes;
        let charged = if bytes <= UNCHARGED_BYTES { 0 } else { bytes.next_multiple_of(STEP_BYTES) };
        self.charge.as_mut().is_none_or(|charge| charge.resize(charged as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Clock,
        memory::{Holder, Memory},
    };

    const CLIENT: Holder = Holder::Client(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    #[test]
    fn long_head_is_charged_as_it_comes_until_its_connection_is_free() {
        let (memory, head) = (Memory::new(1 << 40, Clock::start()), HeadMemory::default());
        assert!(head.add(1 << 20), "a connection without a request");
        head.begin(memory.charge(CLIENT));
        assert!(head.add(UNCHARGED_BYTES));
        assert_eq!(memory.charged(), 0);
        assert!((0..100).all(|_| head.add(10_000)));
        assert_eq!(memory.charged(), MAX_HEAD_BYTES as u64, "interim answers before it are not kept");
        head.on_whole();
        assert!(head.add(10_000), "the body");
        assert_eq!(memory.charged(), MAX_HEAD_BYTES as u64);
        head.end();
        assert_eq!(memory.charged(), 0);
    }
}
