//! The connection to a collector.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response,
    header::{CONTENT_TYPE, HOST, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use super::messages::ExportAnswer;
use crate::{
    config::OtlpEndpoint,
    dial::Dialer,
    error::BoxError,
    policy::{Egress, Scheme},
    tls::TlsClient,
};

/// Largest answer that is read: an answer has a sentence at most.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("andante/", env!("CARGO_PKG_VERSION")));

/// The endpoint of one signal, and the connection to it, while there is one.
pub(super) struct Collector {
    endpoint: OtlpEndpoint,
    dialer: Dialer,
    tls: TlsClient,
    timeout: Duration,
    connection: Option<Connection>,
}

type Connection = SendRequest<Full<Bytes>>;

/// Failure of an export.
#[derive(Debug)]
pub(super) struct ExportFailure {
    /// True if the collector may accept the export later (OTLP, *Failures*).
    pub(super) is_retryable: bool,
    pub(super) error: BoxError,
}

// === impl Collector ===

impl Collector {
    pub(super) fn new(endpoint: OtlpEndpoint, dialer: Dialer, tls: TlsClient, timeout: Duration) -> Self {
        Self { endpoint, dialer, tls, timeout, connection: None }
    }

    /// Address of the collector, without credentials.
    pub(super) fn name(&self) -> String {
        self.endpoint.to_string()
    }

    /// Sends `body`. Returns the number of rejected spans or data points.
    pub(super) async fn export(&mut self, body: Bytes) -> Result<u64, ExportFailure> {
        let later = |error: BoxError| ExportFailure { is_retryable: true, error };
        let sent = timeout(self.timeout, self.send(body)).await;
        let (connection, answer) =
            sent.map_err(|_| later("no answer in time".into())).and_then(|done| done.map_err(later))?;
        let (head, body) = answer.into_parts();
        let read = timeout(self.timeout, Limited::new(body, MAX_ANSWER_BYTES).collect()).await;
        // The status decides. A body that breaks off, stalls or is too long only lacks details.
        let mut answer = Bytes::new();
        if let Ok(Ok(whole)) = read {
            answer = whole.to_bytes();
            self.connection = Some(connection);
        }
        let status = head.status;
        if !status.is_success() {
            let is_retryable = matches!(status.as_u16(), 429 | 502..=504);
            return Err(ExportFailure { is_retryable, error: format!("it answered {status}").into() });
        }
        // An answer in another format still means that the export was accepted.
        let rejected = ExportAnswer::decode(answer).unwrap_or_default().partial_success.unwrap_or_default().rejected;
        Ok(rejected.try_into().unwrap_or_default())
    }

    /// Closes the connection that is kept for the next export.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends `body`. Returns the answer and its connection.
    async fn send(&mut self, body: Bytes) -> Result<(Connection, Response<Incoming>), BoxError> {
        let mut connection = match self.connection.take().filter(|connection| connection.is_ready()) {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answer = connection.send_request(self.request(body)).await?;
        Ok((connection, answer))
    }

    async fn connect(&self) -> Result<Connection, BoxError> {
        let origin = &self.endpoint.origin;
        let stream = self.dialer.connect(origin, &Egress::default(), true).await?;
        match origin.scheme {
            Scheme::Http => handshake(stream).await,
            Scheme::Https => handshake(self.tls.connect(origin, stream, true).await?.0).await,
        }
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        // The path was part of a valid URL.
        *request.uri_mut() = self.endpoint.path.parse().unwrap_or_default();
        let fields = request.headers_mut();
        fields.extend(self.endpoint.headers.clone());
        fields.insert(CONTENT_TYPE, PROTOBUF);
        fields.entry(USER_AGENT).or_insert(AGENT);
        if let Ok(host) = HeaderValue::try_from(self.endpoint.origin.authority()) {
            fields.insert(HOST, host);
        }
        request
    }
}

async fn handshake<S>(stream: S) -> Result<Connection, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Errors of the connection are reported by the request on it.
    tokio::spawn(connection);
    sender.ready().await?;
    Ok(sender)
}
