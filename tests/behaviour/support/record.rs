//! Record of an upstream's connections and requests, for any protocol.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use super::{Message, eventually};

/// Address of an upstream, and its connections and requests so far.
pub(crate) struct Record {
    address: SocketAddr,
    connections: AtomicUsize,
    requests: Mutex<Vec<Message>>,
}

// === impl Record ===

impl Record {
    /// An empty record of an upstream at `address`.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, connections: AtomicUsize::new(0), requests: Mutex::default() }
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::AcqRel);
    }

    /// Keeps `request`, and says which one it is.
    pub(super) fn remember(&self, request: Message) -> usize {
        let mut requests = self.requests.lock();
        requests.push(request);
        requests.len() - 1
    }

    /// Keeps more of a request that it has.
    pub(super) fn complete(&self, index: usize, request: Message) {
        self.requests.lock()[index] = request;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://127.0.0.1:1234` and `path`, also where a rule makes HTTPS of it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> Vec<Message> {
        self.requests.lock().clone()
    }

    /// The only request so far.
    pub(crate) fn request(&self) -> Message {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    /// Number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Waits until there have been `count` requests.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Message> {
        eventually(&format!("{count} requests"), || Some(self.requests()).filter(|requests| requests.len() >= count))
    }
}
