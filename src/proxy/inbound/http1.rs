//! HTTP/1 towards a worker: hyper reads and writes it, and this module enforces its deadlines.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response,
    header::{CONNECTION, UPGRADE},
};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;
use tracing::debug;

use crate::{
    error::BoxError,
    proxy::{
        call::Arrival,
        exchange::Exchange,
        inbound::{rewrite_errors::RewriteErrorsIo, watchdog::Watchdog},
        message::{fields::fields_bytes, progress::Phase, request_body::RequestBody},
        outbound::response_body::ResponseBody,
        protocol::{MAX_FIELDS, MAX_HEAD},
        stack::stack,
        steps::respond,
    },
};

/// Maximum number of bytes of an answer that hyper may hold before it gets another piece.
const AT_ONCE: usize = 16 * 1024;

/// A head of up to this many bytes is covered by the memory that a connection reserves at once.
const USUAL_ANSWER_HEAD_BYTES: usize = 4 * 1024;

/// An answer's body that gives hyper more only when the worker has taken the earlier pieces. Otherwise hyper would hold
/// the size of the longest head, and one more piece.
struct Unhurried {
    body: ResponseBody,
    exchange: Arc<Exchange>,
}

/// Serves HTTP/1 on `stream` until it ends, hangs, or the process drains.
pub(crate) async fn serve<S>(exchange: Arc<Exchange>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    exchange.reserve_memory(AT_ONCE);
    let service = service_fn(|request| answer(begin(&exchange, request)));
    let connection = builder()
        .serve_connection(TokioIo::new(RewriteErrorsIo::new(stream, exchange.clone())), service)
        .with_upgrades();

    let mut connection = pin!(connection);
    let mut watch = Watchdog::new(exchange.clone());
    let mut drain = pin!(exchange.proxy.drain.notified());
    // Registers this task once; the drain wakes it, and the flags say what has happened.
    drain.as_mut().enable();
    let (mut listens, mut shutting_down) = (false, false);
    let mut turn = |cx: &mut Context<'_>| {
        if !std::mem::replace(&mut listens, true) {
            let _ = drain.as_mut().poll(cx);
        }
        if (exchange.proxy.is_draining() || exchange.progress.is_last()) && !shutting_down {
            // hyper closes an idle connection without another read. A request that is in the socket already would be
            // lost, and its client would not know.
            if exchange.progress.phase() == Phase::Idle
                && let Poll::Ready(ended) = connection.as_mut().poll(cx)
            {
                return Poll::Ready(ended.is_ok());
            }
            shutting_down = true;
            connection.as_mut().graceful_shutdown();
            watch.look_again();
        }
        if watch.poll_over(cx).is_ready() {
            if exchange.progress.phase() == Phase::Idle {
                // Nothing is cut short, which TLS requires to be signalled (RFC 8446 §6.1).
                connection.as_mut().graceful_shutdown();
                let _ = connection.as_mut().poll(cx);
            }
            return Poll::Ready(false);
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            if let Err(error) = &ended {
                debug!(%error, "a worker's connection ended early");
            }
            return Poll::Ready(ended.is_ok());
        }
        watch.catch_up(cx);
        exchange.interim.wake(cx);
        // hyper notices a client that leaves only while it has nothing else to read.
        if exchange.progress.phase() == Phase::Waiting && exchange.session.client.poll_left(cx) {
            return Poll::Ready(false);
        }
        Poll::Pending
    };
    let finished = poll_fn(|cx| exchange.progress.in_turn(|| turn(cx))).await;
    if (finished || exchange.is_out_of_memory()) && !exchange.is_handed_over() && !exchange.session.client.has_left() {
        Box::pin(exchange.session.client.linger()).await;
    }
}

fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .max_headers(MAX_FIELDS)
        .max_buf_size(MAX_HEAD)
        // Old servers and devices compare names byte by byte.
        .preserve_header_case(true)
        // An answer without a date gets that of its arrival (RFC 9110 §6.6.1).
        .auto_date_header(true)
        // Pieces of answers are written from the buffers into which they were read: no second copy waits for a slow
        // worker.
        .writev(true);
    builder
}

/// Begins the exchange of a `request` whose head hyper has parsed.
fn begin(exchange: &Arc<Exchange>, request: Request<Incoming>) -> Arrival {
    exchange.set_answering(true);
    exchange.interim.open(request.version());
    exchange.stats.begin(exchange.progress.awaits_answer());
    // Bytes after a request for another protocol need not be HTTP.
    let asks_for_takeover = request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE);
    let body_bytes = request.body().size_hint().exact().filter(|_| !asks_for_takeover);
    exchange.progress.head_parsed(body_bytes);
    exchange.set_out_of_memory(false);
    exchange.memory(|memory| memory.hold_only(&request));
    let request = Box::new(request.map(|body| RequestBody::new(body, exchange.progress.clone(), None)));
    Arrival { exchange: exchange.clone(), request }
}

/// Takes a request through the stack.
async fn answer(arrival: Arrival) -> Result<Response<Unhurried>, Infallible> {
    let exchange = arrival.exchange.clone();
    // Created here: a future that is created outside is stored a second time where it is awaited.
    let mut answer = stack().call(arrival).await.unwrap_or_else(|never| match never {});
    exchange.interim.close();
    exchange.memory(|memory| memory.release());
    let head = fields_bytes(answer.headers());
    if head > USUAL_ANSWER_HEAD_BYTES && !exchange.give(head) {
        answer = respond::without_memory(&exchange);
    }
    // hyper closes the connection then. A worker in the middle of its upload has to be told (RFC 9112 §9.6).
    let is_cut_short = exchange.progress.is_unread() || exchange.progress.is_body_coming();
    if is_cut_short && answer.status().as_u16() >= 400 {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer.map(|body| Unhurried { body, exchange }))
}

// === impl Unhurried ===

impl http_body::Body for Unhurried {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        ready!(self.exchange.poll_room(AT_ONCE, cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        if bytes > 0 && !self.exchange.give(bytes) {
            return Poll::Ready(Some(Err(respond::unread(&self.exchange).into())));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
