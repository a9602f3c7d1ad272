//! An upstream that speaks HTTP/2 inside of TLS.

use std::{future::Future, ops::Deref, sync::Arc};

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    server::{self, SendResponse},
};
use http::Response;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use super::{head, next, push, read, runtime, wait};
use crate::support::{
    Message,
    record::Record,
    tls::{Server, TRUSTED},
};

/// An upstream on a free port of loopback, which is known as `127.0.0.1` and `localhost`.
pub(crate) struct Upstream2 {
    record: Arc<Record>,
    accepting: JoinHandle<()>,
}

/// A request, and the way to answer it.
pub(crate) struct Exchange {
    /// The request. Its body is complete only after [`read`](Self::read).
    pub(crate) request: Message,
    body: RecvStream,
    respond: SendResponse<Bytes>,
    record: Arc<Record>,
    index: usize,
}

// === impl Upstream2 ===

impl Upstream2 {
    /// Answers each request by `answer`.
    pub(crate) fn serving<A>(answer: impl Fn(Exchange) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output = ()> + Send + 'static,
    {
        Self::with(server::Builder::new(), answer)
    }

    /// Answers each request by `answer`, with these settings.
    pub(crate) fn with<A>(settings: server::Builder, answer: impl Fn(Exchange) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = wait("a port", TcpListener::bind("127.0.0.1:0")).unwrap();
        let record = Arc::new(Record::new(listener.local_addr().unwrap()));
        let tls = TlsAcceptor::from(Server::new(&TRUSTED.leaf(&["127.0.0.1", "localhost"]), &["h2"]).0);
        let (answer, kept) = (Arc::new(answer), record.clone());
        let accepting = runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(stream, tls.clone(), settings.clone(), answer.clone(), kept.clone()));
            }
        });
        Self { record, accepting }
    }

    /// Reads each request, and answers it with 200 and a short body.
    pub(crate) fn ok() -> Self {
        Self::serving(|mut exchange| async move {
            exchange.read().await;
            exchange.answer(200, &[], "ok");
        })
    }
}

impl Deref for Upstream2 {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Drop for Upstream2 {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve<A>(
    stream: TcpStream,
    tls: TlsAcceptor,
    settings: server::Builder,
    answer: Arc<impl Fn(Exchange) -> A + Send + Sync + 'static>,
    record: Arc<Record>,
) where
    A: Future<Output = ()> + Send + 'static,
{
    let Ok(stream) = tls.accept(stream).await else { return };
    record.connected();
    let Ok(mut connection) = settings.handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (parts, body) = request.into_parts();
        let line = format!("{} {} HTTP/2", parts.method, parts.uri);
        let request = Message { head: head(line, &parts.headers), ..Message::default() };
        let index = record.remember(request.clone());
        tokio::spawn(answer(Exchange { request, body, respond, record: record.clone(), index }));
    }
}

// === impl Exchange ===

impl Exchange {
    /// Reads the request's body and trailers, which are remembered, too.
    pub(crate) async fn read(&mut self) {
        if read(&mut self.body, &mut self.request).await.is_ok() {
            self.record.complete(self.index, self.request.clone());
        }
    }

    /// The next piece of the request's body.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, h2::Error>> {
        next(&mut self.body).await
    }

    /// Answers with all of `body`.
    pub(crate) fn answer(self, status: u16, fields: &[(&str, &str)], body: &'static str) {
        let sending = self.start(status, fields, body.is_empty());
        if let Some(mut sending) = sending.filter(|_| !body.is_empty()) {
            let _ = sending.send_data(Bytes::from_static(body.as_bytes()), true);
        }
    }

    /// Begins an answer, if the request is still wanted.
    pub(crate) fn start(mut self, status: u16, fields: &[(&str, &str)], end: bool) -> Option<SendStream<Bytes>> {
        self.head(status, fields, end)
    }

    /// Begins an answer while the request may still be unread.
    pub(crate) fn head(&mut self, status: u16, fields: &[(&str, &str)], end: bool) -> Option<SendStream<Bytes>> {
        let mut answer = Response::builder().status(status);
        for (name, value) in fields {
            answer = answer.header(*name, *value);
        }
        self.respond.send_response(answer.body(()).unwrap(), end).ok()
    }

    /// Sends a piece of a body as there is room for it.
    pub(crate) async fn push(
        into: &mut SendStream<Bytes>,
        piece: impl Into<Bytes>,
        end: bool,
    ) -> Result<(), h2::Error> {
        push(into, piece.into(), end).await
    }

    /// Does not answer, for this `reason`.
    pub(crate) fn refuse(mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }
}
