//! What the parts of one worker's connection share: its socket, who speaks, what it is at, and until when that may take.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::{
    Pool, Proxy,
    account::{Account, RequestId},
    connection::Speech,
    interim::Interim,
    recent::Recent,
    upstream::Route,
};
use crate::{
    clock::{Clock, Instant},
    policy::{Origin, Scheme},
};

/// A worker's TCP connection.
pub(super) struct Wire {
    proxy: Arc<Proxy>,
    pub(super) stream: TcpStream,
    /// Tokio has been told that there is nothing to read, although there may be: see `socket`.
    unread: AtomicBool,
}

/// Whom requests come from: the worker at the end of a wire, or what speaks inside of its tunnel.
pub(super) struct Peer {
    pub(super) proxy: Arc<Proxy>,
    /// The pool of the thread that serves this connection.
    pub(super) pool: Arc<Pool>,
    pub(super) wire: Arc<Wire>,
    /// The client's address.
    pub(super) address: IpAddr,
    /// The same, if it may not be here.
    pub(super) stranger: Option<IpAddr>,
    /// Where the tunnel leads in which the requests come; no other origin may be asked for in it (R41).
    pub(super) inside: Option<Origin>,
    /// Whether what is inside speaks HTTP/2 in the clear, as the upstream will have to.
    pub(super) h2c: bool,
    /// Where the last requests went: the next one most likely goes there too.
    pub(super) routes: Mutex<Recent<Arc<Route>>>,
}

/// What carries one request at a time: an HTTP/1 connection, or a stream of an HTTP/2 one.
pub(super) struct Link {
    pub(super) proxy: Arc<Proxy>,
    pub(super) peer: Arc<Peer>,
    /// That of the request under way, or of the last one.
    pub(super) account: Account,
    phase: AtomicU8,
    /// Whether what is written answers a request that was read.
    answering: AtomicBool,
    /// No further request is to be read from the connection.
    last: AtomicBool,
    /// The connection is somebody else's now: a tunnel's, or another protocol's.
    handed_over: AtomicBool,
    /// What the worker is told before its answer.
    pub(super) interim: Interim,
    /// When the current phase has taken too long, in nanoseconds of the clock.
    deadline: AtomicU64,
    /// How much of an answer hyper was given since all of it had been written.
    unwritten: AtomicUsize,
    /// Who waits until it is.
    writer: Mutex<Option<Waker>>,
}

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// No request.
    Idle,
    /// Part of a request's head is here.
    Head,
    /// A ticket waits in its lane.
    Waiting,
    /// The upstream is sent the request, and the client has to send more of its body.
    Upload,
    /// The upstream has to answer.
    Answer,
    /// The answer's body is under way.
    Body,
    /// The phase before took too long; requests are to fail with what that was.
    LateWaiting,
    LateUpload,
    LateAnswer,
    /// The process ends.
    CutOff,
}

// === impl Wire ===

impl Wire {
    pub(super) fn new(proxy: Arc<Proxy>, stream: TcpStream) -> Self {
        proxy.open.fetch_add(1, Ordering::Relaxed);
        proxy.metrics.client_connections.inc();
        Self { proxy, stream, unread: AtomicBool::new(false) }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.proxy.is_draining()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.proxy.clock
    }

    pub(super) fn unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    pub(super) fn set_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.proxy.metrics.client_connections.dec();
        if self.proxy.open.fetch_sub(1, Ordering::Release) == 1 {
            self.proxy.empty.notify_waiters();
        }
    }
}

// === impl Peer ===

impl Peer {
    pub(super) fn new(proxy: Arc<Proxy>, pool: Arc<Pool>, wire: Arc<Wire>, address: IpAddr) -> Self {
        let stranger = (!proxy.lets_in(address)).then_some(address);
        Self { proxy, pool, wire, address, stranger, inside: None, h2c: false, routes: Mutex::default() }
    }

    /// What speaks inside of a tunnel to `origin`, in the clear as `speech` says. Who opened the tunnel was let in.
    pub(super) fn inside(&self, origin: Origin, speech: Speech) -> Self {
        Self {
            proxy: self.proxy.clone(),
            pool: self.pool.clone(),
            wire: self.wire.clone(),
            address: self.address,
            stranger: None,
            h2c: origin.scheme == Scheme::Http && speech == Speech::Http2,
            inside: Some(origin),
            routes: Mutex::default(),
        }
    }
}

// === impl Link ===

impl Link {
    pub(super) fn new(peer: Arc<Peer>) -> Self {
        let link = Self {
            proxy: peer.proxy.clone(),
            peer,
            account: Account::default(),
            phase: AtomicU8::new(Phase::Idle as u8),
            answering: AtomicBool::new(false),
            last: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            interim: Interim::default(),
            deadline: AtomicU64::new(u64::MAX),
            unwritten: AtomicUsize::new(0),
            writer: Mutex::default(),
        };
        // The first request has to come soon; later ones may take their time.
        link.enter(Phase::Idle, link.proxy.timeouts.head);
        link
    }

    /// Enters `phase`, which may take `at_most`.
    pub(super) fn enter(&self, phase: Phase, at_most: Duration) {
        self.enter_until(phase, self.proxy.clock.now() + at_most);
    }

    /// Enters `phase`, which has to be over at `deadline`.
    pub(super) fn enter_until(&self, phase: Phase, deadline: Instant) {
        self.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// What the request under way is called.
    pub(super) fn request_id(&self) -> RequestId {
        self.account.id(&self.proxy.request_ids)
    }

    /// The request under way is tried. Says when, if anybody wants to know how long that takes.
    pub(super) fn tries(&self) -> Option<Instant> {
        self.account.tries();
        self.proxy.access_log.then(|| self.proxy.clock.now())
    }

    /// The try that began at `begun` has brought an answer's head, or has failed.
    pub(super) fn tried(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.account.was_upstream(self.proxy.clock.now().since(begun));
        }
    }

    /// The request is over: the next one may come.
    pub(super) fn rest(&self) {
        self.enter(Phase::Idle, self.proxy.timeouts.keep_alive);
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::from_u8(self.phase.load(Ordering::Relaxed))
    }

    /// When the current phase has taken too long.
    pub(super) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    /// From now on the connection is somebody else's.
    pub(super) fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    pub(super) fn is_answering(&self) -> bool {
        self.answering.load(Ordering::Relaxed)
    }

    pub(super) fn set_answering(&self, answering: bool) {
        self.answering.store(answering, Ordering::Relaxed);
    }

    /// The request under way is the last one on its connection, if that is one of HTTP/1.
    pub(super) fn set_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// Ready when `most` bytes more may be given to hyper, which keeps what the worker has not taken.
    pub(super) fn poll_room(&self, most: usize, cx: &Context<'_>) -> Poll<()> {
        if self.unwritten.load(Ordering::Relaxed) < most {
            return Poll::Ready(());
        }
        *self.writer.lock() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// hyper was given this many bytes of an answer.
    pub(super) fn give(&self, bytes: usize) {
        self.unwritten.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The worker has taken all that hyper was given.
    pub(super) fn taken(&self) {
        if self.unwritten.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(writer) = self.writer.lock().take() {
            // However slowly it reads, it moves.
            if self.phase() == Phase::Body {
                self.enter(Phase::Body, self.proxy.timeouts.idle);
            }
            writer.wake();
        }
    }

    /// Makes the request under way fail, if there is one that can still be answered. `false`: the connection has to go.
    pub(super) fn give_up(&self, drained: bool) -> bool {
        let late = match self.phase() {
            Phase::Waiting | Phase::Upload | Phase::Answer if drained => Phase::CutOff,
            Phase::Waiting => Phase::LateWaiting,
            Phase::Upload => Phase::LateUpload,
            Phase::Answer => Phase::LateAnswer,
            _ => return false,
        };
        // The answer that says so has to be taken in reasonable time, too.
        self.enter(late, self.proxy.timeouts.head);
        true
    }
}

// === impl Phase ===

impl Phase {
    fn from_u8(phase: u8) -> Self {
        const ALL: [Phase; 10] = [
            Phase::Idle,
            Phase::Head,
            Phase::Waiting,
            Phase::Upload,
            Phase::Answer,
            Phase::Body,
            Phase::LateWaiting,
            Phase::LateUpload,
            Phase::LateAnswer,
            Phase::CutOff,
        ];
        ALL[usize::from(phase)]
    }
}
