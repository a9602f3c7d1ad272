//! What the parts of one exchange share: its session, its progress, and what is still to be sent to the worker.

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

/// What carries one request at a time: an HTTP/1 connection, or a stream of an HTTP/2 one.
pub(crate) struct Exchange {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) session: Arc<Session>,
    /// Shared with the bodies of the request and its answer.
    pub(crate) progress: Arc<Progress>,
    /// Those of the request under way, or of the last one.
    pub(crate) stats: RequestStats,
    /// Trace of the request under way, if requests are traced.
    trace: Mutex<Option<Arc<RequestTrace>>>,
    /// The call that its request is sent for, if several requests share that: no client of its own waits for it then.
    pub(crate) shared: Option<Arc<dyn SharedCall>>,
    /// What the worker is told before its answer.
    pub(crate) interim: Interim,
    /// Has a stream look whether it has taken too long: its connection looks at the clock for all of them.
    pub(crate) alarm: Alarm,
    /// Whether what is written answers a request that was read.
    answering: AtomicBool,
    /// Memory of its connection, if that has one request at a time.
    memory: OnceLock<RequestMemory>,
    /// No memory is left for the request that was read.
    out_of_memory: AtomicBool,
    /// What serves the connection when its last answer is written.
    takeover: Mutex<Option<Box<Takeover>>>,
    /// How much of an answer hyper was given since all of it had been written.
    unwritten: AtomicUsize,
    /// The task that waits until it is.
    writer: Mutex<Option<Waker>>,
}

// === impl Exchange ===

impl Exchange {
    /// One that is there since `now`.
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

    /// What carries the request of a call that several requests share.
    pub(crate) fn of_shared_call(session: Arc<Session>, now: Instant, shared: Arc<dyn SharedCall>) -> Self {
        Self { shared: Some(shared), ..Self::new(session, now) }
    }

    /// A request begins `now`, which the upstream has to answer.
    pub(crate) fn begins(&self, now: Instant) {
        self.progress.enter_until(Phase::Answer, now + self.progress.answer());
        self.stats.begin(now);
    }

    /// The request under way waits for a slot, for the first time or once more, which is `expected` to mature then.
    pub(crate) fn awaits_slot(&self, expected: Instant) {
        if let Some(shared) = &self.shared {
            shared.expects(expected);
        }
    }

    /// The request under way has a slot. Says whether it is to be sent: not if another one was that shares its call.
    #[must_use = "a request that is not elected must not be sent"]
    pub(crate) fn elect(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.elect())
    }

    /// What the request under way is called.
    pub(crate) fn request_id(&self) -> RequestId {
        self.stats.id(&self.proxy.request_ids)
    }

    /// The request under way is sent. Says when, if the access log wants to know how long that takes.
    pub(crate) fn attempt_begins(&self) -> Option<Instant> {
        self.stats.attempt();
        self.proxy.reports.access_log.then(|| self.proxy.clock.now())
    }

    /// The attempt that began at `begun` has brought an answer's head, or has failed.
    pub(crate) fn attempt_ends(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.stats.was_upstream(self.proxy.clock.now().since(begun));
        }
    }

    /// The trace of the request under way, if requests are traced.
    pub(crate) fn trace(&self) -> Option<Arc<RequestTrace>> {
        self.proxy.tracer.as_ref()?;
        self.trace.lock().clone()
    }

    /// Begins a trace for the `request` under way, if requests are traced.
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

    /// The request under way is sent for that of `other`: its tries are parts of the same trace.
    pub(crate) fn share_trace(&self, other: &Self) {
        if self.proxy.tracer.is_some() {
            *self.trace.lock() = other.trace();
        }
    }

    /// The request under way has its answer. Its trace ends with the answer's body.
    pub(crate) fn end_trace(&self) -> Option<Arc<RequestTrace>> {
        self.proxy.tracer.as_ref()?;
        self.trace.lock().take()
    }

    /// Once the answer is written, `takeover` has the connection.
    pub(crate) fn hand_over(&self, takeover: Takeover) {
        *self.takeover.lock() = Some(Box::new(takeover));
    }

    /// What has the connection now, if that is not HTTP any more.
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

    /// Whether no memory is left for the request that was read, or for its head.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.out_of_memory.load(Ordering::Relaxed)
    }

    /// Reserves memory for a connection with one request at a time, which reads up to `most_of_bodies` bytes of a body ahead.
    pub(crate) fn reserve_memory(&self, most_of_bodies: usize) {
        self.memory.get_or_init(|| RequestMemory::new(&self.session, most_of_bodies));
    }

    /// Changes what the connection has reserved. Returns `false`, and is out of memory, if `change` did not find enough.
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

    /// An empty charge of the party that its requests come from.
    pub(crate) fn charge(&self) -> Charge {
        self.proxy.memory.charge(self.session.holder())
    }

    /// Ready when `most` bytes more may be given to hyper, which keeps what the worker has not taken.
    pub(crate) fn poll_room(&self, most: usize, cx: &Context<'_>) -> Poll<()> {
        if self.unwritten.load(Ordering::Relaxed) < most {
            return Poll::Ready(());
        }
        *self.writer.lock() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// hyper is given this many bytes of an answer. Returns `false`, and it must not be, if there is no memory for them.
    #[must_use = "an answer that does not fit must not be given"]
    pub(crate) fn give(&self, bytes: usize) -> bool {
        let fits = self.memory.get().is_none_or(|memory| memory.hold_answer(bytes));
        if fits {
            self.unwritten.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// The worker has taken all that hyper was given.
    pub(crate) fn taken(&self) {
        let taken = self.unwritten.swap(0, Ordering::Relaxed);
        if taken == 0 {
            return;
        }
        self.memory.get().into_iter().for_each(|memory| memory.release_answer(taken));
        if let Some(writer) = self.writer.lock().take() {
            // However slowly it reads, it moves.
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
        // That we go on is nothing that it was asked for: 100 is what we say ourselves, once its body is read.
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
