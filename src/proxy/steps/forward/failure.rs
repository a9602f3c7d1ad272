//! What hyper's errors say of an attempt.

use std::io;

use crate::{
    error::{Error, io_error},
    proxy::outbound::route::Route,
    tls,
};

/// The error that ends an attempt without an answer. If its request could not be `written`, that is what is reported: the end
/// of the connection only follows from it.
pub(crate) fn of_attempt(error: hyper::Error, written: Option<io::ErrorKind>, route: &Route) -> Error {
    match written {
        Some(kind) => {
            let source = format!("it reads no more of the request ({kind})").into();
            Error::Broken { origin: route.origin.to_string(), source }
        }
        None => of(error, route),
    }
}

/// The error that ends the attempt.
pub(crate) fn of(error: hyper::Error, route: &Route) -> Error {
    if is_not_processed(&error) {
        return Error::NotProcessed { origin: route.origin.to_string(), source: error.into() };
    }
    // TLS 1.3 upstreams say what they miss in our certificate only when we read.
    if let Some(error) = tls::failure(&route.origin, &error) {
        return error;
    }
    let origin = route.origin.to_string();
    if error.is_user() {
        // The only thing of ours that hyper polls here is the worker's body.
        return Error::Body { source: error.into() };
    }
    // A body's framing is read as input of the system's kind is.
    let kind = io_error(&error).map(io::Error::kind);
    let unreadable = matches!(kind, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData));
    if unreadable || error.is_parse() || error.is_parse_status() || error.is_parse_too_large() {
        return Error::BadAnswer { origin, source: error.into() };
    }
    Error::Broken { origin, source: error.into() }
}

/// Whether the upstream says that it has not looked at the request (RFC 9113 §8.7).
pub(crate) fn is_not_processed(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let left = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            return error.is_remote() && (left || error.reason() == Some(h2::Reason::REFUSED_STREAM));
        }
        cause = error.source();
    }
    false
}
