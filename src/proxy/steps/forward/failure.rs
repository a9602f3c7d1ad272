//! Translates a connection's errors into errors of an attempt.

use std::{error::Error as StdError, io};

use h2::Reason;

use crate::{
    error::{BoxError, Error, io_error},
    policy::Scheme,
    proxy::{
        exchange::Exchange,
        message::head_memory::MAX_HEAD_BYTES,
        outbound::{h2_request::BodyFailure, route::Route},
        protocol::MAX_FIELDS,
        steps::respond,
    },
    tls,
};

/// The error of an attempt without an answer. A failed write, `written`, is reported first: it causes the end of the
/// connection.
pub(crate) fn of_attempt(error: BoxError, written: Option<io::ErrorKind>, exchange: &Exchange, route: &Route) -> Error {
    match written {
        _ if is_out_of_memory(&*error) => respond::memory_full_for_answer(exchange),
        None if route.origin.scheme == Scheme::Http && !route.has_answered() && is_no_answer(&*error) => {
            Error::NoHttp { origin: route.origin.to_string(), source: error }
        }
        Some(kind) => {
            let source = format!("it reads no more of the request ({kind})").into();
            Error::Broken { origin: route.origin.to_string(), source }
        }
        None => of(error, route),
    }
}

/// The error that ends the attempt.
pub(crate) fn of(error: BoxError, route: &Route) -> Error {
    if is_not_processed(&*error) {
        return Error::NotProcessed { origin: route.origin.to_string(), source: error };
    }
    // TLS 1.3 upstreams report a problem with andante's certificate only when andante reads.
    if let Some(error) = tls::failure(&route.origin, &*error) {
        return error;
    }
    let origin = route.origin.to_string();
    let of_http1 = error.downcast_ref::<hyper::Error>();
    // The only user code that hyper polls here is the worker's body.
    if error.is::<BodyFailure>() || of_http1.is_some_and(hyper::Error::is_user) {
        return Error::Body { source: error };
    }
    if of_http1.is_some_and(hyper::Error::is_parse_too_large) {
        let source = format!("its head has more than {MAX_FIELDS} fields, or than {} KiB", MAX_HEAD_BYTES / 1024);
        return Error::BadAnswer { origin, source: source.into() };
    }
    // hyper reports an invalid framing of a body as an I/O error of invalid input.
    let kind = io_error(&*error).map(io::Error::kind);
    let unreadable = matches!(kind, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData));
    let misread = |error: &hyper::Error| error.is_parse() || error.is_parse_status();
    if unreadable || of_http1.is_some_and(misread) {
        return Error::BadAnswer { origin, source: error };
    }
    Error::Broken { origin, source: error }
}

/// The error of an attempt whose answer began, and cannot be passed on.
pub(crate) fn of_answer(error: BoxError, exchange: &Exchange, route: &Route) -> Error {
    if is_out_of_memory(&*error) { respond::memory_full_for_answer(exchange) } else { of(error, route) }
}

/// Returns whether a connection has ended without the beginning of an answer: many TLS servers end plain HTTP in this
/// way.
fn is_no_answer(error: &(dyn StdError + 'static)) -> bool {
    let is_incomplete = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
    let kind = io_error(error).map(io::Error::kind);
    is_incomplete || matches!(kind, Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe))
}

/// Returns whether the connection was ended because no memory was left for the answer's head.
fn is_out_of_memory(error: &(dyn StdError + 'static)) -> bool {
    io_error(error).is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory)
}

/// Returns whether the upstream reports the request as unprocessed (RFC 9113 §7, §8.7). Reports are a refused stream,
/// HTTP/1.1 required, too many requests, or a GOAWAY before this stream.
pub(crate) fn is_not_processed(error: &(dyn StdError + 'static)) -> bool {
    let Some(error) = of_http2(error).filter(|error| error.is_remote()) else { return false };
    // The library reports GOAWAY only for streams beyond its last stream.
    error.is_go_away()
        // gRPC also treats ENHANCE_YOUR_CALM before an answer as a refusal (its mapping of HTTP/2 errors).
        || matches!(
            error.reason(),
            Some(Reason::REFUSED_STREAM | Reason::HTTP_1_1_REQUIRED | Reason::ENHANCE_YOUR_CALM)
        )
}

/// Returns whether the upstream wants HTTP/1.1 for this request (RFC 9113 §7).
pub(crate) fn wants_http1(error: &(dyn StdError + 'static)) -> bool {
    of_http2(error).is_some_and(|error| error.is_remote() && error.reason() == Some(Reason::HTTP_1_1_REQUIRED))
}

fn of_http2<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a h2::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}
