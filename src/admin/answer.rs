//! Building blocks of the admin address's answers.

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use serde::Serialize;

use super::live::Streamed;

/// An answer: complete, or a stream.
pub(super) type PageAnswer = Response<Either<Full<Bytes>, Streamed>>;

pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Reason for refusing a request to the API ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)).
#[derive(Serialize)]
struct Problem<'a> {
    title: &'a str,
    status: u16,
    detail: String,
}

/// A complete page.
pub(super) fn page(status: StatusCode, kind: HeaderValue, text: impl Into<Bytes>) -> PageAnswer {
    respond(status, kind, Either::Left(Full::new(text.into())))
}

/// An answer that browsers must not cache, and whose type they must not guess.
pub(super) fn respond(status: StatusCode, kind: HeaderValue, body: Either<Full<Bytes>, Streamed>) -> PageAnswer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// A refusal by the API.
pub(super) fn problem(status: StatusCode, title: &str, detail: String) -> PageAnswer {
    let mut answer = json(status, &Problem { title, status: status.as_u16(), detail });
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    answer
}

/// Returns `value` as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> PageAnswer {
    page(status, JSON, serde_json::to_vec(value).unwrap_or_default())
}
