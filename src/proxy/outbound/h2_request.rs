//! A request on an HTTP/2 connection: sends its head, sends its body while it waits for the answer, and reads the
//! answer's head.

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    task::Poll,
};

use http::{
    HeaderName, HeaderValue, Method, Request, Response,
    header::{CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body as _;
use tokio::sync::oneshot;

use super::{
    h2::Stream,
    h2_upload::{Upload, UploadError},
};
use crate::{
    error::BoxError,
    proxy::message::{
        request_body::{BoxedRequest, RequestBody},
        stream_reader::{StreamReader, unwrapped},
    },
};

/// Fields about a connection, which HTTP/2 does not have (RFC 9113 §8.2.2).
const OF_CONNECTIONS: [HeaderName; 4] =
    [HeaderName::from_static("keep-alive"), HeaderName::from_static("proxy-connection"), TRANSFER_ENCODING, UPGRADE];

/// Failure of a request without an answer.
pub(crate) struct SendError {
    pub(crate) error: BoxError,
    /// The request, if not a byte of it was written.
    pub(crate) unsent: Option<BoxedRequest>,
}

/// The worker's body broke off, or is malformed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BodyFailure(BoxError);

/// Sends `request` on `stream`, and waits for the answer's head. If the answer comes first, the rest of the body is sent
/// afterwards.
pub(crate) async fn send(stream: &Stream, request: BoxedRequest) -> Result<Response<StreamReader>, SendError> {
    let connection = stream.connection();
    let mut sender = connection.sender();
    if let Err(error) = poll_fn(|cx| sender.poll_ready(cx)).await {
        return Err(SendError { error: unwrapped(error), unsent: Some(request) });
    }
    let failed = |error| SendError { error: connection.explain(error), unsent: None };
    let (mut request, body) = without_body(*request);
    fit(&mut request, &body);
    let ends = body.is_end_stream();
    connection.state().on_request();
    let (mut answer, body_stream) = sender.send_request(request, ends).map_err(failed)?;
    drop(sender);
    let mut upload = (!ends).then(|| Box::pin(Upload::new(body, body_stream, connection.state().clone())));
    let answer = poll_fn(|cx| {
        if let Some(sending) = &mut upload
            && let Poll::Ready(sent) = sending.as_mut().poll(cx)
        {
            upload = None;
            if let Err(UploadError::Body(error)) = sent {
                return Poll::Ready(Err(SendError { error: BodyFailure(error).into(), unsent: None }));
            }
        }
        Pin::new(&mut answer).poll(cx).map_err(failed)
    })
    .await?;
    let upload = upload.map(|upload| {
        let (read, answer) = oneshot::channel();
        tokio::spawn(upload.finish(connection.clone(), answer));
        read
    });
    let (parts, stream) = answer.into_parts();
    let stream = StreamReader::new(stream, &parts.headers, upload);
    Ok(Response::from_parts(parts, stream))
}

fn without_body(request: Request<RequestBody>) -> (Request<()>, RequestBody) {
    let (parts, body) = request.into_parts();
    (Request::from_parts(parts, ()), body)
}

/// Adapts the fields of `request` to HTTP/2.
fn fit(request: &mut Request<()>, body: &RequestBody) {
    let has_content = !matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT);
    let fields = request.headers_mut();
    OF_CONNECTIONS.iter().for_each(|name| drop(fields.remove(name)));
    if fields.get(TE).is_some_and(|te| te != "trailers") {
        fields.remove(TE);
    }
    if let Some(length) = body.size_hint().exact().filter(|length| *length > 0 || has_content) {
        fields.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
}
