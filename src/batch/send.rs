//! Sends one request through an andante, by its gateway address.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, StatusCode, Uri,
    header::{EXPECT, HOST, USER_AGENT},
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::oneshot, time};

use super::{
    answers::Received,
    item::{Item, gateway_address},
};

/// Future that completes before a request begins. An error forbids the request to begin.
pub(super) type Begins = Pin<Box<dyn Future<Output = Result<(), NotBegun>> + Send>>;

/// The request must not begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotBegun;

/// Connection to an andante.
pub(super) struct AndanteConnection {
    sender: SendRequest<AnnouncedBody>,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// andante cannot be reached.
    #[error("could not connect")]
    Connect(#[source] io::Error),
    /// The connection ended before the answer began.
    #[error("the connection broke off")]
    Broken(#[source] hyper::Error),
    /// The answer is incomplete, or larger than [`LARGEST`].
    #[error("the answer broke off")]
    Cut(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Body that is sent after `100 Continue` and after `begins`. An empty body ends at once.
pub(super) struct AnnouncedBody {
    data: Bytes,
    asked: Option<oneshot::Receiver<()>>,
    begins: Option<Begins>,
}

/// Largest body of an answer, in bytes (256 MiB): it is held in memory as a whole.
const LARGEST: usize = 256 << 20;

/// Sends `item` through the andante at `proxy` (HOST:PORT). The body is sent only after `begins` completes.
pub(super) async fn send(
    connection: &mut Option<AndanteConnection>,
    proxy: &str,
    item: &Item,
    begins: Option<Begins>,
) -> Result<Received, SendError> {
    let mut used = match connection.take().filter(|connection| !connection.sender.is_closed()) {
        Some(connection) => connection,
        None => AndanteConnection::open(proxy).await?,
    };
    used.sender.ready().await.map_err(SendError::Broken)?;
    let announced = !item.body.is_empty();
    let (request, answered_early) = request(proxy, item, begins);
    let response = used.sender.send_request(request).await.map_err(SendError::Broken)?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LARGEST).collect().await.map_err(SendError::Cut)?.to_bytes();
    // If the answer came before `100 Continue`, the body is unsent, and the connection cannot be used again.
    if !announced || answered_early.load(Ordering::Acquire) {
        *connection = Some(used);
    }
    Ok(Received { status: head.status, headers: head.headers, body })
}

/// Returns whether `address` (HOST:PORT) answers, but not as an andante that takes requests. Asks once. An address
/// without a listener is not another server: an andante may be about to start there.
pub async fn is_other_server(address: &str) -> bool {
    const PATIENCE: Duration = Duration::from_secs(5);
    let asked = async {
        let mut connection = AndanteConnection::open(address).await.ok()?;
        let mut request = Request::new(AnnouncedBody { data: Bytes::new(), asked: None, begins: None });
        request.headers_mut().insert(HOST, HeaderValue::try_from(address).ok()?);
        connection.sender.send_request(request).await.ok()
    };
    let answer = time::timeout(PATIENCE, asked).await.ok().flatten();
    answer.is_some_and(|answer| own_error(answer.headers()).is_none())
}

/// Returns the type of the error, if andante itself has answered.
pub(super) fn own_error(headers: &HeaderMap) -> Option<String> {
    let status = headers.get("proxy-status")?.to_str().ok()?;
    Some(status.strip_prefix("andante; error=")?.to_owned())
}

/// Returns the request for the gateway address of `item`, and a flag that `100 Continue` sets.
fn request(proxy: &str, item: &Item, begins: Option<Begins>) -> (Request<AnnouncedBody>, Arc<AtomicBool>) {
    let uri = Uri::try_from(gateway_address(&item.url)).expect("what is no URI was refused when it was read");
    let (ask, asked) = oneshot::channel();
    let was_asked = Arc::new(AtomicBool::new(false));
    let announced = !item.body.is_empty();
    let body = AnnouncedBody { data: item.body.clone(), asked: announced.then_some(asked), begins };
    let mut request = Request::new(body);
    *request.method_mut() = item.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = item.headers.clone();
    let host = HeaderValue::try_from(proxy).unwrap_or(HeaderValue::from_static("localhost"));
    request.headers_mut().insert(HOST, host);
    // A web page cannot send this field: see docs/gateway-addresses.md.
    request.headers_mut().insert("andante-gateway", HeaderValue::from_static("1"));
    let ours = HeaderValue::from_static(concat!("andante/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(ours);
    if announced {
        request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
        let (ask, flag) = (parking_lot::Mutex::new(Some(ask)), was_asked.clone());
        hyper::ext::on_informational(&mut request, move |interim| {
            if interim.status() == StatusCode::CONTINUE {
                flag.store(true, Ordering::Release);
                // The receiver is gone if the request was given up.
                let _ = ask.lock().take().map(|ask| ask.send(()));
            }
        });
    }
    (request, was_asked)
}

// === impl SendError ===

impl SendError {
    /// Returns whether no part of the request was written.
    pub(super) fn is_unsent(&self) -> bool {
        match self {
            Self::Connect(_) => true,
            Self::Broken(error) => error.is_canceled(),
            Self::Cut(_) => false,
        }
    }
}

// === impl AndanteConnection ===

impl AndanteConnection {
    async fn open(proxy: &str) -> Result<Self, SendError> {
        let stream = TcpStream::connect(proxy).await.map_err(SendError::Connect)?;
        stream.set_nodelay(true).map_err(SendError::Connect)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(SendError::Broken)?;
        // The request in flight sees the end of its connection, so the task needs no observer.
        tokio::spawn(connection);
        Ok(Self { sender })
    }
}

// === impl AnnouncedBody ===

impl Body for AnnouncedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.data.is_empty() {
            return Poll::Ready(None);
        }
        if let Some(asked) = &mut self.asked {
            // If the answer came instead of `100 Continue`, the sender is dropped, and the connection ends.
            if ready!(Pin::new(asked).poll(cx)).is_err() {
                return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
            }
            self.asked = None;
        }
        if let Some(begins) = &mut self.begins {
            if ready!(begins.as_mut().poll(cx)).is_err() {
                return Poll::Ready(Some(Err(io::ErrorKind::Other.into())));
            }
            self.begins = None;
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.data)))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.len() as u64)
    }
}
