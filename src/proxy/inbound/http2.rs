//! HTTP/2 towards a worker. Each stream is an exchange of its own, and is paced like a connection of its own.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;
use tracing::debug;

use crate::{
    clock::Instant,
    error::BoxError,
    memory::Charge,
    proxy::{
        call::Arrival,
        client_connection::Linger,
        context::Proxy,
        exchange::Exchange,
        inbound::watchdog::{self, NextLook, Watchdog},
        message::{
            fields::fields_bytes,
            frame_filter::{FrameFilter, Received},
            progress::Phase,
            request_body::RequestBody,
            upload::OnUnread,
        },
        outbound::response_body::ResponseBody,
        protocol::MAX_HEAD,
        request_memory::{AnswerMemory, HeldRequest, NoMemory, RequestMemory, STREAM_BYTES, USUAL_HEAD_BYTES},
        session::Session,
        stack::stack,
        steps::respond,
    },
};

/// Maximum number of requests in flight on one connection, if their heads leave room. A gRPC channel with more waits
/// silently; other proxies allow 100 to 1,000.
const MAX_STREAMS: u32 = 1000;
/// Bytes of a request's body that are taken from the worker before the request's turn has come.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes of bodies that are taken in advance, over all requests of a connection.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes of an answer that are kept for a worker that does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// Interval at which streams are checked once the process drains.
const DRAIN_TICK: Duration = Duration::from_millis(100);
/// Interval of PINGs to a worker that waits, to learn whether it is still there.
const PING: Duration = Duration::from_secs(30);

/// The streams of one connection.
#[derive(Default)]
struct Streams(Mutex<Vec<Weak<Exchange>>>);

/// Runs each stream in a task of its own.
#[derive(Clone)]
struct StreamExecutor;

/// An answer's body that ends if it has not moved for too long, or if no memory is left for it. Only its stream ends
/// with it.
struct Watched {
    body: ResponseBody,
    watch: Watchdog,
    /// Memory of the answer; `None` for the refusal of a request that lacked memory.
    memory: Option<AnswerMemory>,
}

/// Serves HTTP/2 on `stream` until it ends, hangs, or the process drains.
pub(crate) async fn serve<S>(session: Arc<Session>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (proxy, streams, next_look) = (session.proxy.clone(), Streams::default(), Arc::new(NextLook::default()));
    let usual = watchdog::tick(&proxy);
    let memory = RequestMemory::new(&session, CONNECTION_WINDOW as usize);
    let on_unread = on_unread(&session);
    let service = service_fn(|request: Request<Incoming>| {
        let held = memory.hold(&request);
        let arrival = streams.begin(&session, request, &on_unread);
        arrival.exchange.set_out_of_memory(matches!(held, Err(NoMemory::Account)));
        answer(arrival, next_look.clone(), held)
    });
    let head_refused = AtomicBool::new(false);
    let stream = TokioIo::new(FrameFilter::of_client(stream, on_read(memory.clone(), &head_refused)));
    let mut connection = pin!(builder().serve_connection(stream, service));
    let mut tick = tokio::time::interval(usual);
    let mut drain = pin!(proxy.drain.notified());
    drain.as_mut().enable();
    let mut checks = ConnectionChecks::new(&session, &streams, &next_look, usual);
    let mut draining = false;
    poll_fn(|cx| {
        let _ = drain.as_mut().poll(cx);
        if proxy.is_draining() && !draining {
            draining = true;
            connection.as_mut().graceful_shutdown();
            // All streams have to be over when the drain is.
            streams.look_again(Instant::FAR);
            tick = tokio::time::interval(DRAIN_TICK);
        }
        // The connection is polled first, so that frames for its streams are written before they are cut.
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            let _ = ended.inspect_err(|error| debug!(%error, "a worker's connection ended early"));
            return Poll::Ready(());
        }
        let mut out_of_memory = head_refused.load(Ordering::Relaxed);
        while !out_of_memory && tick.poll_tick(cx).is_ready() {
            out_of_memory = proxy.memory.is_to_end(session.holder());
            match checks.check(tick.period()) {
                NextStep::Serve => {}
                NextStep::ShutDown => {
                    connection.as_mut().graceful_shutdown();
                    cx.waker().wake_by_ref();
                }
                NextStep::End => return Poll::Ready(()),
            }
        }
        if out_of_memory {
            respond::unread(&Exchange::new(session.clone(), proxy.clock.now()));
            // The worker gets GOAWAY, though without the number of the last processed request: that would take a round
            // trip.
            connection.as_mut().graceful_shutdown();
            let _ = connection.as_mut().poll(cx);
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// Returns the callback for each read: it charges the heads of requests, and sets `is_refused` if no memory is left for
/// one.
fn on_read(memory: RequestMemory, is_refused: &AtomicBool) -> impl FnMut(Received) -> io::Result<()> {
    let mut open_block = 0;
    move |received| {
        let before = std::mem::replace(&mut open_block, received.open_block);
        if open_block.max(before) > USUAL_HEAD_BYTES && !memory.reads_head(open_block) {
            is_refused.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn builder() -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING)
        .auto_date_header(true);
    builder
}

/// Returns the callback for uploads that nothing reads to their end: the rest is read and dropped.
fn on_unread(session: &Arc<Session>) -> OnUnread {
    let session = session.clone();
    Arc::new(move |upload| {
        let mut charge = session.proxy.memory.charge(session.holder());
        // Without memory, the stream is reset at once.
        if charge.resize(STREAM_BYTES as u64) {
            tokio::spawn(read_rest(upload, session.proxy.clone(), charge));
        }
    })
}

/// Takes one stream's request through the stack. `next_look` is the time of its connection's next check of deadlines.
/// If the connection has no memory for a request, the request is refused unprocessed.
async fn answer(
    arrival: Arrival,
    next_look: Arc<NextLook>,
    held: Result<HeldRequest, NoMemory>,
) -> Result<Response<Watched>, BoxError> {
    if matches!(held, Err(NoMemory::Connection)) {
        return Err(h2::Error::from(Reason::REFUSED_STREAM).into());
    }
    let exchange = arrival.exchange.clone();
    let mut watch = Watchdog::of_stream(exchange.clone(), next_look);
    let mut stack = stack();
    let mut answer = pin!(stack.call(arrival));
    let answer = poll_fn(|cx| {
        if watch.poll_over(cx).is_ready() {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)));
        }
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Ok(answer.unwrap_or_else(|never| match never {})));
        }
        watch.catch_up(cx);
        Poll::Pending
    })
    .await?;
    let head = fields_bytes(answer.headers());
    let memory = match held.ok().map(|held| held.into_answer(head)) {
        Some(None) => return Err(out_of_memory(&exchange)),
        held => held.flatten(),
    };
    Ok(answer.map(|body| Watched { body, watch, memory }))
}

/// Reads and drops the rest of an upload that nothing reads any more, as its answer came before its end. If its stream
/// were reset at once, which RFC 9113 §8.1 allows, curl 7.88 would lose the answer, and httpx would wait for its timeout.
/// The stream stays charged.
async fn read_rest(mut upload: Incoming, proxy: Arc<Proxy>, _charge: Charge) {
    let mut linger = Linger::begin(&proxy);
    loop {
        tokio::select! {
            frame = poll_fn(|cx| Pin::new(&mut upload).poll_frame(cx)) => {
                if !matches!(frame, Some(Ok(_))) || linger.extend(&proxy) {
                    return;
                }
            }
            () = proxy.clock.sleep_until(linger.silent_until) => return,
        }
    }
}

/// Reports that no memory is left for the answer of `exchange`. Returns the error that resets its stream because the
/// worker's connection holds too much (RFC 9113 §7).
fn out_of_memory(exchange: &Exchange) -> BoxError {
    respond::unread(exchange);
    h2::Error::from(Reason::ENHANCE_YOUR_CALM).into()
}

/// Periodic checks of a connection's deadlines.
struct ConnectionChecks<'a> {
    proxy: &'a Proxy,
    streams: &'a Streams,
    next_look: &'a NextLook,
    /// Interval of the checks before the process drains.
    usual: Duration,
    keep_alive: Duration,
    /// Time by which the connection has to carry a request.
    idle_until: Instant,
    /// The connection was idle at the last check.
    rested: bool,
    is_shutting_down: bool,
}

/// Outcome of a check.
enum NextStep {
    Serve,
    /// The client gets GOAWAY. A request may be on its way, and the client then knows whether its request was processed
    /// (RFC 9113 §6.8).
    ShutDown,
    End,
}

/// Activity of a connection's streams.
enum StreamActivity {
    /// There is no stream.
    Idle,
    /// All streams move.
    Busy,
    /// A stream has not moved for longer than its body's timeout, although hyper would have polled it: the worker does
    /// not read the connection.
    Stuck,
}

// === impl ConnectionChecks ===

impl<'a> ConnectionChecks<'a> {
    fn new(session: &'a Session, streams: &'a Streams, next_look: &'a NextLook, usual: Duration) -> Self {
        let proxy = &*session.proxy;
        let timeouts = proxy.timeouts();
        next_look.set(proxy.clock.now() + usual);
        let (keep_alive, idle_until) = (timeouts.keep_alive, proxy.clock.now() + timeouts.head);
        Self { proxy, streams, next_look, usual, keep_alive, idle_until, rested: false, is_shutting_down: false }
    }

    /// Checks the connection and its streams. The next check is after `interval`.
    fn check(&mut self, interval: Duration) -> NextStep {
        let (now, drain) = (self.proxy.clock.now(), &self.proxy.drain);
        let is_cut_off = now >= drain.cut_off();
        self.next_look.set(now + interval);
        // Gives a timer to each stream whose deadline is before the next check.
        self.streams.look_again(if is_cut_off { Instant::FAR } else { now + interval });
        let mut step = NextStep::Serve;
        match self.streams.look(now - self.usual) {
            StreamActivity::Stuck => return NextStep::End,
            StreamActivity::Busy => (self.idle_until, self.rested) = (now + self.keep_alive, false),
            // While connections are full, one that is idle at two checks in a row is closed.
            StreamActivity::Idle if now < self.idle_until && !(self.rested && drain.is_full(now)) => self.rested = true,
            StreamActivity::Idle if self.is_shutting_down => return NextStep::End,
            StreamActivity::Idle => {
                self.is_shutting_down = true;
                step = NextStep::ShutDown;
            }
        }
        if is_cut_off && !self.streams.await_answers() { NextStep::End } else { step }
    }
}

// === impl StreamExecutor ===

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        // Boxed: the future would be moved four times on its way into the task.
        tokio::spawn(Box::pin(stream));
    }
}

// === impl Watched ===

impl Watched {
    /// Charges `frame` until it is written.
    fn hold(&self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
        let Some(memory) = &self.memory else { return Ok(frame) };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return Ok(trailers),
        };
        match memory.hold(data) {
            Some(data) => Ok(Frame::data(data)),
            None => Err(out_of_memory(self.watch.exchange())),
        }
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| self.hold(frame?)));
        }
        ready!(self.watch.poll_over(cx));
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Streams ===

impl Streams {
    /// Begins the exchange of a `request` whose head hyper has parsed.
    fn begin(&self, session: &Arc<Session>, request: Request<Incoming>, on_unread: &OnUnread) -> Arrival {
        let now = session.proxy.clock.now();
        let exchange = Arc::new(Exchange::new(session.clone(), now));
        self.add(&exchange);
        exchange.begins(now);
        let request = Box::new(request.map(|body| RequestBody::new(body, exchange.progress.clone(), Some(on_unread))));
        Arrival { exchange, request }
    }

    fn add(&self, exchange: &Arc<Exchange>) {
        let mut streams = self.0.lock();
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(Arc::downgrade(exchange));
    }

    /// Makes the streams with a deadline by `now` check the clock.
    fn look_again(&self, now: Instant) {
        let streams = self.0.lock();
        let late = streams.iter().filter_map(Weak::upgrade).filter(|exchange| exchange.progress.deadline() <= now);
        late.for_each(|exchange| exchange.alarm.ring());
    }

    /// Returns whether any stream has not been answered yet.
    fn await_answers(&self) -> bool {
        let unanswered = |exchange: Arc<Exchange>| !matches!(exchange.progress.phase(), Phase::Idle | Phase::Body);
        self.0.lock().iter().filter_map(Weak::upgrade).any(unanswered)
    }

    /// Activity of the streams since the last check. A stream is stuck if it should have moved by `then`.
    fn look(&self, then: Instant) -> StreamActivity {
        let mut streams = self.0.lock();
        let stuck =
            |exchange: Arc<Exchange>| exchange.progress.phase() == Phase::Body && exchange.progress.deadline() <= then;
        if streams.iter().filter_map(Weak::upgrade).any(stuck) {
            return StreamActivity::Stuck;
        }
        // Streams that came and ended in between count, too.
        let look = if streams.is_empty() { StreamActivity::Idle } else { StreamActivity::Busy };
        streams.retain(|stream| stream.strong_count() > 0);
        look
    }
}
