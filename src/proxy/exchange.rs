//! State that the parts of one exchange share: its session, its progress, and the output that the worker has not
//! received yet.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use http::{Request, StatusCode, uri::Authority};
use parking_lot::Mutex;

use crate::{
    clock::Instant,
    memory::Charge,
    policy::Origin,
    proxy::{
        context::Proxy,
        message::{
            alarm::Alarm,
            fields,
            interim::Interim,
            interim_reader::{InterimAnswer, InterimSink},
            progress::{Phase, Progress},
            server_timing,
        },
        request_memory::RequestMemory,
        request_stats::{RequestId, RequestStats},
        request_trace::{Asked, RequestTrace},
        session::Session,
        sharing::SharedCall,
        takeover::Takeover,
    },
};

/// The carrier of one request at a time: an HTTP/1 connection, or a stream of an HTTP/2 connection.
pub(crate) struct Exchange {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) session: Arc<Session>,
    /// Shared with the bodies of the request and its answer.
    pub(crate) progress: Arc<Progress>,
    /// Statistics of the current request, or of the last one.
    pub(crate) stats: RequestStats,
    /// Trace of the current request, if requests are traced.
    trace: Mutex<Option<Arc<RequestTrace>>>,
    /// The call for which this exchange sends its request, if several requests share the call: no client of the
    /// exchange itself waits for it then.
    pub(crate) shared: Option<Arc<dyn SharedCall>>,
    /// Interim answers for the worker.
    pub(crate) interim: Interim,
    /// Makes a stream check its deadline: the connection watches the clock for all its streams.
    pub(crate) alarm: Alarm,
    /// True if the bytes that are being written answer a request that was read.
    answering: AtomicBool,
    /// Memory account of the connection, if the connection carries one request at a time.
    memory: OnceLock<RequestMemory>,
    /// True if no memory is left for the request that was read.
    out_of_memory: AtomicBool,
    /// Handler that takes over the connection once its last answer is written.
    takeover: Mutex<Option<Box<Takeover>>>,
    /// Bytes of answers given to hyper since everything was last written.
    unwritten: AtomicUsize,
    /// Task that waits until everything is written.
    writer: Mutex<Option<Waker>>,
}

// === impl Exchange ===

impl Exchange {
    /// Creates the exchange of a connection or stream that was opened at `now`.
    pub(crate) fn new(session: Arc<Session>, now: Instant) -> Self {
        let proxy = session.proxy.clone();
        Self {
            progress: Arc::new(Progress::new(proxy.clock, proxy.timeouts(), now)),
            proxy,
            session,
            stats: RequestStats::default(),
            trace: Mutex::default(),
            shared: None,
            interim: Interim::default(),
            alarm: Alarm::default(),
            answering: AtomicBool::new(false),
            memory: OnceLock::new(),
            out_of_memory: AtomicBool::new(false),
            takeover: Mutex::default(),
            unwritten: AtomicUsize::new(0),
            writer: Mutex::default(),
        }
    }

    /// Creates the exchange that sends the request of a call that several requests share.
    pub(crate) fn of_shared_call(session: Arc<Session>, now: Instant, shared: Arc<dyn SharedCall>) -> Self {
        Self { shared: Some(shared), ..Self::new(session, now) }
    }

    /// Records that a request begins `now`, which the upstream has to answer.
    pub(crate) fn begins(&self, now: Instant) {
        self.progress.enter_until(Phase::Answer, now + self.progress.answer());
        self.stats.begin(now);
    }

    /// Records that the current request waits for a slot, which is `expected` to mature then. Also called when the
    /// request waits again.
    pub(crate) fn awaits_slot(&self, expected: Instant) {
        if let Some(shared) = &self.shared {
            shared.expects(expected);
        }
    }

    /// Records that the current request has a slot. Returns whether to send it: `false` if another request was sent for
    /// the call that it shares.
    #[must_use = "a request that is not elected must not be sent"]
    pub(crate) fn elect(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.elect())
    }

    /// Id of the current request.
    pub(crate) fn request_id(&self) -> RequestId {
        self.stats.id(&self.proxy.request_ids)
    }

    /// Records that the current request is sent. Returns the time if the access log is on, which reports how long the
    /// attempt takes.
    pub(crate) fn attempt_begins(&self) -> Option<Instant> {
        self.stats.attempt();
        self.proxy.reports.access_log.then(|| self.proxy.clock.now())
    }

    /// Records that the attempt that began at `begun` has received an answer's head, or has failed.
    pub(crate) fn attempt_ends(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.stats.was_upstream(self.proxy.clock.now().since(begun));
        }
    }

    /// Trace of the current request, if requests are traced.
    pub(crate) fn trace(&self) -> Option<Arc<RequestTrace>> {
        self.proxy.tracer.as_ref()?;
        self.trace.lock().clone()
    }

    /// Begins a trace for the current `request`, if requests are traced.
    pub(crate) fn begin_trace<B>(&self, request: &Request<B>) {
        if let Some(tracer) = &self.proxy.tracer {
            let asked = Asked { client: self.session.requester().address, inside: self.session.inside.as_ref() };
            let inside = asked.inside.map(Origin::authority);
            let authority = inside.as_deref().or(request.uri().authority().map(Authority::as_str));
            let exempt = authority.is_some_and(|authority| tracer.exempts(authority));
            let begin = || RequestTrace::begin(tracer, self.proxy.clock, self.stats.begun(), request, asked);
            *self.trace.lock() = (!exempt).then(begin);
        }
    }

    /// Adds the tries of the current request to the trace of `other`, for which it is sent.
    pub(crate) fn share_trace(&self, other: &Self) {
        if self.proxy.tracer.is_some() {
            *self.trace.lock() = other.trace();
        }
    }

    /// Takes the trace of the current request, which now has its answer. The trace ends with the answer's body.
    pub(crate) fn end_trace(&self) -> Option<Arc<RequestTrace>> {
        self.proxy.tracer.as_ref()?;
        self.trace.lock().take()
    }

    /// Hands the connection to `takeover` once the answer is written.
    pub(crate) fn hand_over(&self, takeover: Takeover) {
        *self.takeover.lock() = Some(Box::new(takeover));
    }

    /// Takes the handler of a connection that no longer carries HTTP, if there is one.
    pub(crate) fn take_over(&self) -> Option<Box<Takeover>> {
        self.takeover.lock().take()
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.takeover.lock().is_some()
    }

    pub(crate) fn is_answering(&self) -> bool {
        self.answering.load(Ordering::Relaxed)
    }

    pub(crate) fn set_answering(&self, answering: bool) {
        self.answering.store(answering, Ordering::Relaxed);
    }

    /// Returns whether memory ran out for the request that was read, or for its head.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.out_of_memory.load(Ordering::Relaxed)
    }

    /// Reserves memory for a connection with one request at a time, which reads up to `most_of_bodies` bytes of a body
    /// ahead.
    pub(crate) fn reserve_memory(&self, most_of_bodies: usize) {
        self.memory.get_or_init(|| RequestMemory::new(&self.session, most_of_bodies));
    }

    /// Changes the connection's reservation. If `change` finds too little memory, marks the exchange out of memory and
    /// returns `false`.
    pub(crate) fn memory(&self, change: impl FnOnce(&RequestMemory) -> bool) -> bool {
        let fits = self.memory.get().is_none_or(change);
        if !fits {
            self.set_out_of_memory(true);
        }
        fits
    }

    pub(crate) fn set_out_of_memory(&self, out_of_memory: bool) {
        self.out_of_memory.store(out_of_memory, Ordering::Relaxed);
    }

    /// Creates an empty charge to the party that sends the exchange's requests.
    pub(crate) fn charge(&self) -> Charge {
        self.proxy.memory.charge(self.session.holder())
    }

    /// Ready when hyper may be given `most` more bytes. hyper keeps the bytes that the worker has not taken.
    pub(crate) fn poll_room(&self, most: usize, cx: &Context<'_>) -> Poll<()> {
        if self.unwritten.load(Ordering::Relaxed) < most {
            return Poll::Ready(());
        }
        *self.writer.lock() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Accounts for `bytes` of an answer that hyper is to be given. Returns `false` if there is no memory: then hyper
    /// must not get the bytes.
    #[must_use = "an answer that does not fit must not be given"]
    pub(crate) fn give(&self, bytes: usize) -> bool {
        let fits = self.memory.get().is_none_or(|memory| memory.hold_answer(bytes));
        if fits {
            self.unwritten.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Records that the worker has taken everything that hyper was given.
    pub(crate) fn taken(&self) {
        let taken = self.unwritten.swap(0, Ordering::Relaxed);
        if taken == 0 {
            return;
        }
        self.memory.get().into_iter().for_each(|memory| memory.release_answer(taken));
        if let Some(writer) = self.writer.lock().take() {
            // A worker that reads slowly still makes progress.
            if self.progress.phase() == Phase::Body {
                self.progress.moves();
            }
            writer.wake();
        }
    }
}

impl InterimSink for Exchange {
    fn pass_on(&self, answer: InterimAnswer) {
        let InterimAnswer { status, version, mut fields } = answer;
        // An upstream's 100 (Continue) is dropped: andante sends its own 100 when the body is first read.
        if status != StatusCode::CONTINUE {
            fields::remove_hop_by_hop(&mut fields);
            server_timing::remove(&mut fields);
            if !self.interim.is_unannounced() {
                fields::add_via(&mut fields, &self.proxy.via, version);
            }
            self.interim.push(status, &fields);
        }
    }
}
