//! Memory of one connection: its requests, and answers that its worker has not taken.
//!
//! A gRPC channel opens no second connection when the first is full: it waits silently. So a connection may have many
//! streams: a hundred with the longest heads, or a thousand with usual ones. A request beyond that is refused
//! unprocessed, and may be sent again at once (RFC 9113 §8.7). All connections together are bounded by `max-memory`. A
//! connection reserves memory of its client's account in steps, so that usual requests do not touch the shared account.
//!
//! An answer is charged for bytes that were taken from upstream and not yet written to its worker. On HTTP/2, h2 holds
//! these bytes without reporting writes: so each part returns its memory when it is dropped.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use parking_lot::Mutex;

use crate::{
    memory::Charge,
    proxy::{message::fields::fields_bytes, protocol::MAX_HEAD, session::Session},
};

/// Memory of a waiting stream beside its head, as measured in docs/performance.md.
pub(crate) const STREAM_BYTES: usize = 4 * 1024;
/// Memory for the minimum number of streams that RFC 9113 §6.5.2 recommends, with the longest heads.
const BUDGET_BYTES: usize = 100 * (MAX_HEAD + STREAM_BYTES);
/// Memory of a connection without a request.
const CONNECTION_BYTES: usize = 2 * 1024;
/// Memory of a connection is reserved in steps of this many bytes: one step is a connection with a usual request.
const STEP_BYTES: usize = 8 * 1024;

/// A head of up to this many bytes is charged only when it is complete.
pub(crate) const USUAL_HEAD_BYTES: usize = 8 * 1024;

/// The memory of one connection's requests.
#[derive(Clone)]
pub(crate) struct RequestMemory(Arc<Mutex<HeldMemory>>);

struct HeldMemory {
    /// Memory of heads, and of streams beside their heads.
    heads: usize,
    /// Memory of bodies that workers may send before they are read.
    bodies: usize,
    /// Maximum number of bytes that are read of all bodies of the connection.
    most_of_bodies: usize,
    /// Memory of an incomplete head.
    reading: usize,
    /// Parts of answers that the worker has not taken.
    answers: usize,
    charge: Charge,
}

/// One request's part of the memory, which is returned when it is dropped.
pub(crate) struct HeldRequest {
    memory: RequestMemory,
    head: usize,
    body: usize,
}

/// The memory of one stream's answer, from its head until its worker has taken all of it. Clones share it.
#[derive(Clone)]
pub(crate) struct AnswerMemory(Arc<HeldRequest>);

/// Part of an answer, which returns its memory when it is dropped.
struct HeldPart {
    data: Bytes,
    memory: AnswerMemory,
}

/// The reason why there is no memory for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoMemory {
    /// The connection has its maximum of requests.
    Connection,
    /// The client's account or the process's memory is used up.
    Account,
}

// === impl RequestMemory ===

impl RequestMemory {
    /// Memory of a connection of `session`, which reads up to `most_of_bodies` bytes of bodies ahead of their turns.
    pub(crate) fn new(session: &Session, most_of_bodies: usize) -> Self {
        let charge = session.proxy.memory.charge(session.holder());
        let mut held = HeldMemory { heads: 0, bodies: 0, most_of_bodies, reading: 0, answers: 0, charge };
        // A connection beyond the bound gets an error when it sends a request.
        held.reserve();
        Self(Arc::new(Mutex::new(held)))
    }

    /// Reserves the memory that `request` holds until it is answered.
    pub(crate) fn hold<B: Body>(&self, request: &Request<B>) -> Result<HeldRequest, NoMemory> {
        let (head, unread) = (STREAM_BYTES + head_bytes(request), request.body().size_hint());
        let mut held = self.0.lock();
        let body = unread.upper().map_or(held.most_of_bodies, |bytes| held.most_of_bodies.min(bytes as usize));
        if held.heads + head > BUDGET_BYTES {
            return Err(NoMemory::Connection);
        }
        (held.heads, held.bodies) = (held.heads + head, held.bodies + body);
        if held.reserve() {
            return Ok(HeldRequest { memory: self.clone(), head, body });
        }
        (held.heads, held.bodies) = (held.heads - head, held.bodies - body);
        Err(NoMemory::Account)
    }

    /// Reserves memory for the `bytes` of a head that have come. Returns `false` if there is no memory. A usual head is
    /// charged only when it is complete.
    pub(crate) fn reads_head(&self, bytes: usize) -> bool {
        let bytes = if bytes > USUAL_HEAD_BYTES { bytes.min(MAX_HEAD) } else { 0 };
        let mut held = self.0.lock();
        let before = std::mem::replace(&mut held.reading, bytes);
        let fits = held.reserve();
        if !fits {
            held.reading = before;
        }
        fits
    }
}

/// For parts of answers.
impl RequestMemory {
    /// Reserves memory for `bytes` of an answer that the worker has not taken. Returns `false`, and reserves nothing,
    /// if there is none.
    pub(crate) fn hold_answer(&self, bytes: usize) -> bool {
        let mut held = self.0.lock();
        held.answers += bytes;
        let fits = held.reserve();
        if !fits {
            held.answers -= bytes;
        }
        fits
    }

    /// Returns the memory of `bytes` that the worker has taken.
    pub(crate) fn release_answer(&self, bytes: usize) {
        let mut held = self.0.lock();
        held.answers -= bytes;
        held.reserve();
    }
}

/// For connections with one request at a time.
impl RequestMemory {
    /// Reserves the memory of the only request that is read. Returns `false`, and reserves nothing, if there is none.
    pub(crate) fn hold_only<B: Body>(&self, request: &Request<B>) -> bool {
        let mut held = self.0.lock();
        let unread = request.body().size_hint().upper();
        held.bodies = unread.map_or(held.most_of_bodies, |bytes| held.most_of_bodies.min(bytes as usize));
        (held.heads, held.reading) = (STREAM_BYTES + head_bytes(request), 0);
        let fits = held.reserve();
        if !fits {
            (held.heads, held.bodies) = (0, 0);
        }
        fits
    }

    /// Returns the memory of the only request, which always succeeds.
    pub(crate) fn release(&self) -> bool {
        let mut held = self.0.lock();
        (held.heads, held.bodies) = (0, 0);
        held.reserve()
    }
}

// === impl HeldRequest ===

impl HeldRequest {
    /// Returns the memory of the request, and reserves that of its answer's `head` and its stream. `None` if there is
    /// none.
    pub(crate) fn into_answer(mut self, head: usize) -> Option<AnswerMemory> {
        let mut held = self.memory.0.lock();
        let answer = STREAM_BYTES.max(head);
        let (head, body) = (std::mem::replace(&mut self.head, answer), std::mem::take(&mut self.body));
        (held.heads, held.bodies) = (held.heads - head + answer, held.bodies - body);
        let fits = held.reserve();
        drop(held);
        fits.then(|| AnswerMemory(Arc::new(self)))
    }
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        let mut held = self.memory.0.lock();
        (held.heads, held.bodies) = (held.heads - self.head, held.bodies - self.body);
        held.reserve();
    }
}

// === impl AnswerMemory ===

impl AnswerMemory {
    /// `data` with a reservation that lasts until it is dropped; `None` if there is no memory.
    pub(crate) fn hold(&self, data: Bytes) -> Option<Bytes> {
        let fits = self.0.memory.hold_answer(data.len());
        fits.then(|| Bytes::from_owner(HeldPart { data, memory: self.clone() }))
    }
}

// === impl HeldPart ===

impl AsRef<[u8]> for HeldPart {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for HeldPart {
    fn drop(&mut self) {
        self.memory.0.memory.release_answer(self.data.len());
    }
}

// === impl HeldMemory ===

impl HeldMemory {
    /// Charges the account for the memory held, in whole steps. Returns `false` if the account is used up.
    fn reserve(&mut self) -> bool {
        let heads = self.heads + self.reading;
        // A head beyond a usual one exists twice for a while: as it was read, and as fields.
        let copies = heads.saturating_sub(STEP_BYTES) / 2;
        let bytes = CONNECTION_BYTES + heads + copies + self.answers + self.bodies.min(self.most_of_bodies);
        self.charge.resize(bytes.next_multiple_of(STEP_BYTES) as u64)
    }
}

fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    target + fields_bytes(request.headers())
}

#[cfg(test)]
mod tests {
    use http_body_util::{Empty, Full};

    use super::*;
    use crate::{
        clock::Clock,
        memory::{Holder, Memory},
    };

    const CLIENT: Holder = Holder::Client(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    fn memory(account: &Arc<Memory>) -> RequestMemory {
        let charge = account.charge(CLIENT);
        RequestMemory(Arc::new(Mutex::new(HeldMemory {
            heads: 0,
            bodies: 0,
            most_of_bodies: 1 << 20,
            reading: 0,
            answers: 0,
            charge,
        })))
    }

    fn unbounded() -> RequestMemory {
        memory(&Memory::new(1 << 40, Clock::start()))
    }

    fn held(memory: &RequestMemory, field_bytes: usize) -> Vec<HeldRequest> {
        let request = Request::get("/").header("x", "y".repeat(field_bytes)).body(Empty::<&[u8]>::new()).unwrap();
        std::iter::from_fn(|| memory.hold(&request).ok()).take(2000).collect()
    }

    #[test]
    fn a_hundred_with_the_longest_heads_have_room_and_a_thousand_with_usual_ones() {
        assert_eq!(held(&unbounded(), MAX_HEAD - 2).len(), 100);
        assert!(held(&unbounded(), 2 * 1024).len() >= 1000);
    }

    #[test]
    fn what_is_answered_makes_room_for_as_much() {
        let memory = unbounded();
        let mut all = held(&memory, MAX_HEAD / 2);
        let full = all.len();
        all.truncate(full / 2);
        all.extend(held(&memory, MAX_HEAD / 2));
        assert_eq!(all.len(), full);
        drop(all);
        let held = memory.0.lock();
        assert_eq!((held.heads, held.bodies), (0, 0));
    }

    #[test]
    fn a_usual_request_fits_in_the_first_step_and_a_long_head_is_charged_with_its_copy() {
        let account = Memory::new(1 << 40, Clock::start());
        let memory = memory(&account);
        assert!(memory.reads_head(0));
        assert_eq!(account.charged(), STEP_BYTES as u64);
        let usual = Request::get("/").header("x", "y".repeat(1500)).body(Full::new(&b"body"[..])).unwrap();
        let usual = memory.hold(&usual).unwrap();
        assert_eq!(account.charged(), STEP_BYTES as u64);
        drop(usual);
        let long = held(&memory, 60 * 1024).len() as u64;
        assert_eq!(long, 106);
        assert!(memory.reads_head(MAX_HEAD));
        assert!(account.charged() >= MAX_HEAD as u64);
    }

    #[test]
    fn a_part_of_an_answer_is_charged_until_it_is_written_and_its_stream_with_it() {
        let account = Memory::new(1 << 40, Clock::start());
        let memory = memory(&account);
        let request = Request::get("/").header("x", "y".repeat(8000)).body(Empty::<&[u8]>::new()).unwrap();
        let answer = memory.hold(&request).unwrap().into_answer(100).unwrap();
        assert_eq!(memory.0.lock().heads, STREAM_BYTES, "its head is not needed any more");
        let parts: Vec<_> = (0..10).map(|_| answer.hold(Bytes::from(vec![0; 16 * 1024])).unwrap()).collect();
        drop(answer);
        assert!(account.charged() >= 160 * 1024, "{}", account.charged());
        drop(parts);
        let held = memory.0.lock();
        assert_eq!((held.heads, held.answers, account.charged()), (0, 0, STEP_BYTES as u64));
    }

    #[test]
    fn a_long_head_of_an_answer_is_charged_in_the_place_of_its_request() {
        let account = Memory::new(1 << 40, Clock::start());
        let memory = memory(&account);
        let request = || memory.hold(&Request::get("/").body(Empty::<&[u8]>::new()).unwrap()).unwrap();
        let answer = request().into_answer(480 * 1024).unwrap();
        assert!(account.charged() >= 480 * 1024, "{}", account.charged());
        drop(answer);
        assert!(request().into_answer(1 << 41).is_none());
        assert_eq!(memory.0.lock().heads, 0);
    }

    #[test]
    fn a_part_of_an_answer_that_does_not_fit_is_charged_to_nobody() {
        let account = Memory::new(1 << 40, Clock::start());
        let memory = memory(&account);
        assert!(memory.hold_answer(STEP_BYTES));
        let before = account.charged();
        assert!(!memory.hold_answer(1 << 40));
        assert_eq!((memory.0.lock().answers, account.charged()), (STEP_BYTES, before));
    }

    #[test]
    fn all_bodies_of_a_connection_count_as_one_window() {
        let memory = unbounded();
        let request = |length: usize| Request::post("/").body(Full::new(vec![0_u8; length].leak() as &[u8])).unwrap();
        let _all: Vec<_> = (0..100).map(|_| memory.hold(&request(1 << 16)).unwrap()).collect();
        let charged = memory.0.lock().charge.bytes();
        assert!((1 << 20..(1 << 20) + 1000 * 1024).contains(&charged), "{charged}");
    }
}
