//! Turns errors into answers, in this one place. `Proxy-Status`, `Via` and their format identify them as andante's.

use std::{convert::Infallible, time::SystemTime};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, DATE, RETRY_AFTER, VIA},
};
use serde_json::json;
use tower::{Service, service_fn};
use tracing::{debug, warn};

use crate::{
    error::{Blame, Error},
    metrics::CallOutcome,
    proxy::{
        call::{Arrival, Step},
        exchange::Exchange,
        incidents,
        log_throttle::LogTopic,
        message::{
            fields::{PROXY_STATUS, REQUEST_ID},
            request_body::RequestBody,
        },
        outbound::response_body::ResponseBody,
        protocol::{MAX_FIELDS, MAX_HEAD},
        steps::{access_log, count},
    },
};

/// Answers errors of the steps below.
pub(crate) fn answer_errors<S>(
    inner: S,
) -> impl Service<Arrival, Response = Response<ResponseBody>, Error = Infallible, Future: Send> + Clone + Send + 'static
where
    S: Step<Arrival, Response<ResponseBody>>,
{
    service_fn(move |arrival: Arrival| {
        let mut inner = inner.clone();
        async move {
            let exchange = arrival.exchange.clone();
            let connect = arrival.request.method() == Method::CONNECT;
            let old = arrival.request.version() == Version::HTTP_10;
            exchange.session.client.count_request();
            exchange.begin_trace(&arrival.request);
            let mut answer = match inner.call(arrival).await {
                Ok(mut answer) => {
                    // Without an access log, there is nothing to look the id up in.
                    if exchange.proxy.reports.access_log && !connect {
                        add_id(&mut answer, &exchange);
                    }
                    end_trace(&exchange, answer.status(), None);
                    answer
                }
                Err(error) => {
                    exchange.progress.rest();
                    let mut answer = tell(&exchange, &error);
                    end_trace(&exchange, answer.status(), Some(error.proxy_status()));
                    // RFC 9931: after a rejected CONNECT the client may already have sent other data than HTTP.
                    if connect || error.closes() {
                        close(&mut answer);
                    }
                    answer
                }
            };
            // RFC 9112 §9.3: an earlier proxy may have passed on `keep-alive` without understanding it.
            if old && !connect {
                close(&mut answer);
            }
            Ok(answer)
        }
    })
}

/// Records the answer in the request's trace, which ends with the answer's body.
fn end_trace(exchange: &Exchange, status: StatusCode, error: Option<&'static str>) {
    if let Some(trace) = exchange.end_trace() {
        trace.on_answer(status, error);
    }
}

/// Records that a request failed with `error`, and creates the answer to it.
fn tell(exchange: &Exchange, error: &Error) -> Response<ResponseBody> {
    let text = error.with_causes();
    report(exchange, error, &text);
    for_error(exchange, error, &text)
}

/// Reports `error` to the log and as an incident; `text` is the error with its causes.
fn report(exchange: &Exchange, error: &Error, text: &str) {
    let proxy = &exchange.proxy;
    match error.blame() {
        // Reported where the request is known.
        Blame::Upstream => {}
        Blame::Us if matches!(error, Error::NoDescriptor { .. }) => {
            // A limit of the process, not of one host.
            if proxy.reports.throttle.is_due(LogTopic::Descriptors, &"".into(), proxy.clock.now()) {
                warn!(error = text, hint = error.hint(), "no file descriptor is left: requests are answered with 503");
            }
        }
        Blame::Us if matches!(error, Error::MemoryFull { .. }) => {
            if proxy.reports.throttle.is_due(LogTopic::Memory, &"".into(), proxy.clock.now()) {
                warn!(
                    error = text,
                    hint = error.hint(),
                    "no memory is left: requests are answered with 503, and answers that are not read are cut short"
                );
            }
        }
        Blame::Us if matches!(error, Error::Refused { .. }) => debug!(error = text, "refused a request"),
        Blame::Us | Blame::Client => debug!(error = text, "rejected a request"),
    }
    if !matches!(error, Error::Draining { .. } | Error::CutOff { .. }) {
        proxy.reports.incidents.failed(error, text, proxy.clock.now());
    }
}

/// The answer to a request that failed with `error`; `text` is the error with its causes.
fn for_error(exchange: &Exchange, error: &Error, text: &str) -> Response<ResponseBody> {
    let (proxy, status) = (&exchange.proxy, error.status());
    let of_type = error.problem();
    let mut problem = json!({
        "type": of_type.uri(),
        "title": of_type.title().or(status.canonical_reason()).unwrap_or_default(),
        "status": status.as_u16(),
        "detail": text,
        "hint": hint(&proxy.access.admin, error),
        "blame": incidents::name(error.blame()),
        "request_id": exchange.request_id().to_string(),
    });
    if let Some(policy) = error.violated_policy() {
        problem["violated-policies"] = json!([policy]);
    }
    let mut answer = Response::new(ResponseBody::Own(None));
    *answer.status_mut() = status;
    let fields = answer.headers_mut();
    if let Some(wait) = error.retry_after() {
        // Rounded up: a second too early would be refused again.
        let seconds = wait.as_millis().div_ceil(1000).max(1) as u64;
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
        problem["retry_after"] = seconds.into();
    }
    if let Ok(proxy_status) = HeaderValue::try_from(format!("andante; error={}", error.proxy_status())) {
        fields.insert(PROXY_STATUS, proxy_status);
    }
    fields.insert(VIA, proxy.via[0].clone());
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    add_date(fields);
    add_id(&mut answer, exchange);
    *answer.body_mut() = ResponseBody::Own(Some(Bytes::from(format!("{problem:#}\n"))));
    answer
}

/// The whole answer, as bytes, to an unreadable request that hyper wants to answer with `status`. The request begins
/// with the byte `first`.
pub(crate) fn to_unreadable(exchange: &Exchange, status: &[u8], first: u8) -> Bytes {
    let error = match status {
        b"431" => Error::TooLarge { bytes: MAX_HEAD, fields: MAX_FIELDS },
        b"414" => Error::UriTooLong,
        b"503" => memory_full(exchange),
        _ if exchange.session.inside.is_some() => Error::Malformed,
        _ => another_protocol(first).map_or(Error::Malformed, |protocol| Error::NotHttp { protocol }),
    };
    exchange.stats.begin(exchange.proxy.clock.now());
    exchange.proxy.nowhere.count(count::of_error(&error));
    access_log::AccessLine { status: Some(error.status()), ..access_log::AccessLine::default() }
        .write(exchange, CallOutcome::Rejected);
    let mut answer = tell(exchange, &error);
    let ResponseBody::Own(body) = answer.body_mut() else { return Bytes::new() };
    let body = body.take().unwrap_or_default();
    let mut text =
        format!("HTTP/1.1 {}\r\nconnection: close\r\ncontent-length: {}\r\n", answer.status(), body.len()).into_bytes();
    for (name, value) in answer.headers() {
        text.extend_from_slice(name.as_ref());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(&body);
    text.into()
}

/// The error of a request for which there is no memory.
pub(crate) fn memory_full(exchange: &Exchange) -> Error {
    no_memory(exchange, false)
}

/// The error of a request whose answer finds no memory.
pub(crate) fn memory_full_for_answer(exchange: &Exchange) -> Error {
    no_memory(exchange, true)
}

fn no_memory(exchange: &Exchange, is_sent: bool) -> Error {
    let client = exchange.session.requester().client.to_string();
    Error::MemoryFull { bytes: exchange.proxy.memory.bytes(), client, is_sent }
}

/// Creates and reports the error that ends an answer whose worker reads too slowly for the memory that is left.
pub(crate) fn unread(exchange: &Exchange) -> Error {
    let error = memory_full(exchange);
    report(exchange, &error, &error.with_causes());
    error
}

/// The answer instead of one for whose head there is no memory. The connection ends with it.
pub(crate) fn without_memory(exchange: &Exchange) -> Response<ResponseBody> {
    let mut answer = tell(exchange, &memory_full_for_answer(exchange));
    close(&mut answer);
    answer
}

/// Protocol of a client whose first byte is `first`; no request begins with these bytes.
fn another_protocol(first: u8) -> Option<&'static str> {
    match first {
        // A handshake record (RFC 8446 §5.1).
        0x16 => Some("TLS"),
        // The version (RFC 1928 §3).
        0x04 | 0x05 => Some("SOCKS"),
        _ => None,
    }
}

/// The answer to TRACE and OPTIONS whose `Max-Forwards` ends here (RFC 9110 §9.3.7, §9.3.8).
pub(crate) fn last_hop(request: &Request<RequestBody>) -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::Own(None));
    if request.method() == Method::OPTIONS {
        answer
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, TRACE"));
    } else {
        // Without the request's fields: they may hold credentials (RFC 9110 §9.3.8).
        let line = format!("TRACE {} {:?}\r\n\r\n", request.uri(), request.version());
        *answer.body_mut() = ResponseBody::Own(Some(line.into()));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("message/http"));
    }
    add_date(answer.headers_mut());
    *answer.version_mut() = Version::HTTP_11;
    answer
}

fn close(answer: &mut Response<ResponseBody>) {
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

fn hint(admin: &str, error: &Error) -> String {
    let hint = error.hint();
    if matches!(error, Error::NoTarget) { format!("{hint}; its state is shown at {admin}") } else { hint.to_owned() }
}

fn add_id(answer: &mut Response<ResponseBody>, exchange: &Exchange) {
    let id = HeaderValue::try_from(exchange.request_id().to_string()).expect("letters, digits and a hyphen");
    answer.headers_mut().insert(REQUEST_ID, id);
}

fn add_date(fields: &mut http::HeaderMap) {
    if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now())) {
        fields.insert(DATE, date);
    }
}
