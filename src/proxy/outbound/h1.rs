//! HTTP/1 towards an upstream: the beginning and the end of a connection.

use std::{
    convert::Infallible,
    future::poll_fn,
    ops::{Deref, DerefMut},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot::{self, error::TryRecvError},
    task::coop::unconstrained,
};
use tracing::debug;

use crate::{
    metrics::Metrics,
    proxy::{
        message::{head_memory::MAX_HEAD_BYTES, request_body::RequestBody, writes::Writes},
        outbound::piecewise_io::PiecewiseIo,
        protocol::MAX_FIELDS,
    },
};

/// Maximum time until a connection without a sender ends. At first, hyper finishes the writes that it has begun, but an
/// upstream that does not read would never let it.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Sends requests on a connection, one at a time. Dropping it ends the connection.
pub(crate) struct Sender {
    requests: http1::SendRequest<RequestBody>,
    _held: oneshot::Sender<Infallible>,
}

/// Makes an HTTP/1 connection of `stream`, whose writes are recorded in `writes`.
pub(crate) async fn handshake<S>(metrics: &Metrics, stream: S, writes: Arc<Writes>) -> Result<Sender, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let waker = Waker::from(writes.clone());
    let (requests, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_FIELDS)
        // Old clients and devices compare names byte by byte.
        .preserve_header_case(true)
        // RFC 9112 §5.1 and §5.2: a proxy removes blanks before the colon of an answer's field, and makes one space of
        // a fold. Both are undone before framing is read. Requests stay strict, and so does everything else in answers:
        // to drop an invalid line could drop the framing that the upstream meant.
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .writev(false)
        .handshake(TokioIo::new(PiecewiseIo::of(stream, writes.clone(), waker.clone())))
        .await?;
    let open = metrics.upstream_connections.clone();
    open.inc();
    let (held, mut let_go) = oneshot::channel::<Infallible>();
    tokio::spawn(async move {
        let mut connection = pin!(connection.with_upgrades());
        let mut listens = false;
        let ended = poll_fn(|cx| {
            writes.task.turn(cx.waker());
            match connection.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                // Polled once, outside the task's budget, the receiver wakes this task. The task is polled far more
                // often than a sender is dropped.
                Poll::Pending if !std::mem::replace(&mut listens, true) => {
                    pin!(unconstrained(&mut let_go)).poll(cx).map(|_| None)
                }
                Poll::Pending if let_go.try_recv() == Err(TryRecvError::Closed) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        let ended = match ended.await {
            Some(ended) => Ok(ended),
            None => tokio::time::timeout(LAST_WORDS, connection).await,
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "an upstream's connection ended early"),
            Err(_) => debug!("ending the connection of an upstream that does not read"),
        }
        open.dec();
    });
    Ok(Sender { requests, _held: held })
}

// === impl Sender ===

impl Deref for Sender {
    type Target = http1::SendRequest<RequestBody>;

    fn deref(&self) -> &Self::Target {
        &self.requests
    }
}

impl DerefMut for Sender {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.requests
    }
}
