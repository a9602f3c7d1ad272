//! A client that keeps to HTTP/2 where `h2` makes it.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc, task::Poll};

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use http::{Request, request};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::mpsc,
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

use super::{head, next, push, read, runtime, wait};
use crate::support::{
    Message,
    tls::{Interceptor, Worker},
};

/// A client on one connection.
pub(crate) struct Client2 {
    sender: SendRequest<Bytes>,
    /// Sets the window of each stream while the connection runs.
    window: mpsc::UnboundedSender<u32>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// A request on its way.
pub(crate) struct Asked {
    response: ResponseFuture,
    body: SendStream<Bytes>,
}

/// An answer whose head has arrived.
pub(crate) struct Incoming {
    /// The head, with an empty body.
    pub(crate) head: Message,
    body: RecvStream,
    sending: SendStream<Bytes>,
}

// === impl Client2 ===

impl Client2 {
    /// Connects to `address` in the clear, with prior knowledge.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::with(&client::Builder::new(), address)
    }

    /// Connects to `address` with these settings.
    pub(crate) fn with(settings: &client::Builder, address: SocketAddr) -> Self {
        let stream = wait("a connection", TcpStream::connect(address)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(settings, stream)
    }

    /// Speaks HTTP/2 in TLS to `andante`, in a tunnel to `target`.
    pub(crate) fn inside(andante: &Interceptor, target: &str) -> Self {
        let worker = Worker { alpn: &["h2"], ..andante.trusting(target) };
        let name = worker.name.clone().unwrap().try_into().unwrap();
        let tls = TlsConnector::from(Arc::new(worker.config()));
        let socket = andante.tunnel(target).into_socket();
        socket.set_nonblocking(true).unwrap();
        let shaken = async { tls.connect(name, TcpStream::from_std(socket).unwrap()).await };
        Self::over(&client::Builder::new(), wait("a handshake", shaken).expect("a handshake"))
    }

    /// Speaks HTTP/2 on `stream`.
    pub(crate) fn over<S>(settings: &client::Builder, stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, mut connection) = wait("the preface", settings.handshake(stream)).unwrap();
        let (window, mut windows) = mpsc::unbounded_channel();
        let driven = std::future::poll_fn(move |cx| {
            while let Poll::Ready(Some(window)) = windows.poll_recv(cx) {
                connection.set_initial_window_size(window)?;
            }
            Pin::new(&mut connection).poll(cx)
        });
        Self { sender, window, connection: runtime().spawn(driven) }
    }

    /// Sends `request`, which has no body.
    pub(crate) fn send(&mut self, request: request::Builder) -> Asked {
        self.start(request, true)
    }

    /// Sends the head of `request`, whose body is to follow.
    pub(crate) fn begin(&mut self, request: request::Builder) -> Asked {
        self.start(request, false)
    }

    /// Sends `GET url`.
    pub(crate) fn get(&mut self, url: &str) -> Asked {
        self.send(Request::get(url))
    }

    fn start(&mut self, request: request::Builder, end: bool) -> Asked {
        wait("room for a request", std::future::poll_fn(|cx| self.sender.poll_ready(cx))).unwrap();
        let (response, body) = self.sender.send_request(request.body(()).unwrap(), end).unwrap();
        Asked { response, body }
    }

    /// Lets the other side send `window` bytes more on each stream.
    pub(crate) fn widen(&self, window: u32) {
        self.window.send(window).unwrap();
    }

    /// Waits for the connection's end, and says whether it ended in order.
    pub(crate) fn ended(self) -> Result<(), h2::Error> {
        drop(self.sender);
        wait("the connection's end", self.connection).unwrap()
    }
}

// === impl Asked ===

impl Asked {
    /// Waits for the answer.
    pub(crate) fn answer(self) -> Message {
        self.try_answer().expect("an answer")
    }

    /// Waits for the answer, or for the error in its place.
    pub(crate) fn try_answer(self) -> Result<Message, h2::Error> {
        self.try_head()?.try_rest()
    }

    /// Waits for the answer's head.
    pub(crate) fn head(self) -> Incoming {
        self.try_head().expect("an answer")
    }

    pub(crate) fn try_head(self) -> Result<Incoming, h2::Error> {
        let (parts, body) = wait("an answer", self.response)?.into_parts();
        let head =
            Message { head: head(format!("HTTP/2 {}", parts.status.as_u16()), &parts.headers), ..Message::default() };
        Ok(Incoming { head, body, sending: self.body })
    }

    /// Sends a piece of the request's body.
    pub(crate) fn push(&mut self, piece: impl Into<Bytes>, end: bool) {
        wait("room for a piece", push(&mut self.body, piece.into(), end)).expect("a piece to be taken");
    }

    /// Ends the request's body by `trailers`.
    pub(crate) fn end_with(&mut self, trailers: &[(&'static str, &str)]) {
        let trailers = trailers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        self.body.send_trailers(trailers.collect()).unwrap();
    }

    /// Does not want it any more.
    pub(crate) fn cancel(mut self) {
        self.body.send_reset(Reason::CANCEL);
    }
}

// === impl Incoming ===

impl Incoming {
    /// The next piece of the body; `None` at its end.
    pub(crate) fn next(&mut self) -> Option<Result<Bytes, h2::Error>> {
        wait("a piece of the answer", next(&mut self.body))
    }

    /// Sends a piece of the request's body.
    pub(crate) fn push(&mut self, piece: impl Into<Bytes>, end: bool) {
        wait("room for a piece", push(&mut self.sending, piece.into(), end)).expect("a piece to be taken");
    }

    /// Reads to the end.
    pub(crate) fn rest(self) -> Message {
        self.try_rest().expect("the rest of the answer")
    }

    pub(crate) fn try_rest(mut self) -> Result<Message, h2::Error> {
        wait("the answer's body", read(&mut self.body, &mut self.head))?;
        Ok(self.head)
    }

    /// The body, for tests that read it themselves.
    pub(crate) fn into_body(self) -> RecvStream {
        self.body
    }
}
