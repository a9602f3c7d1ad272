//! Sends a request whose turn it is, and passes the answer back.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Method, Response, StatusCode, Version, header::CONTENT_LENGTH};
use hyper::body::Incoming;

use super::{
    body::{Body, UpstreamBody},
    fields::{self, SERVER_TIMING},
    link::Link,
    stack::{Admitted, Boxed, Call, Outcome},
    upstream::{Lease, Route},
};
use crate::{
    error::Error,
    pace::{Permit, Verdict},
};

/// Spends the permit on the request.
pub(super) async fn forward(admitted: Admitted) -> Outcome {
    let Admitted { call: Call { link, request, route, .. }, mut permit, waited } = admitted;
    let head = request.method() == Method::HEAD;
    let (answer, lease) = send(&link, &route, &mut permit, request).await?;
    let refused = answer.status() == StatusCode::TOO_MANY_REQUESTS;
    let verdict = if refused { Verdict::Refused } else { Verdict::Served };
    permit.answered(verdict, lease.written());
    pass_back(link, answer, lease, permit, head, waited, &route)
}

/// Writes the request on a connection that is ready, and waits for the answer's head.
async fn send(
    link: &Arc<Link>,
    route: &Route,
    permit: &mut Permit,
    mut request: Boxed,
) -> Result<(Response<Incoming>, Lease), Error> {
    loop {
        let mut lease = route.connection(&link.proxy, &link.pool).await?;
        permit.sent();
        match lease.sender.try_send_request(*request).await {
            Ok(answer) => return Ok((answer, lease)),
            // The upstream had closed the connection, and no byte of the request was written: another one may have it.
            Err(mut error) if lease.reused && error.message().is_some() => {
                *request = error.take_message().expect("looked at just now");
                // Another connection may take its time; the slot is spent when the request is written.
                permit.recall();
            }
            Err(error) => return Err(failure(error.into_error(), route)),
        }
    }
}

fn failure(error: hyper::Error, route: &Route) -> Error {
    let origin = route.origin.to_string();
    if error.is_user() {
        // The only thing of ours that hyper polls here is the worker's body.
        return Error::Body { source: error.into() };
    }
    if error.is_parse() || error.is_parse_status() || error.is_parse_too_large() {
        return Error::BadAnswer { origin, source: error.into() };
    }
    Error::Broken { origin, source: error.into() }
}

/// Makes of the upstream's answer what the worker is to get.
fn pass_back(
    link: Arc<Link>,
    answer: Response<Incoming>,
    lease: Lease,
    permit: Permit,
    head: bool,
    waited: Duration,
    route: &Route,
) -> Outcome {
    let (mut parts, incoming) = answer.into_parts();
    let unasked = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let switches = unasked.then_some("it switches to a protocol that nobody asked for");
    if let Some(wrong) = switches.or_else(|| fields::wrong_framing(&parts.headers)) {
        return Err(Error::BadAnswer { origin: route.origin.to_string(), source: wrong.into() });
    }
    // A length that describes what is not there (RFC 9110 §8.6) is passed on; any other is made anew from the body.
    let length = (head || parts.status == StatusCode::NOT_MODIFIED).then(|| parts.headers.get(CONTENT_LENGTH).cloned());
    fields::remove_hop_by_hop(&mut parts.headers);
    if let Some(Some(length)) = length {
        parts.headers.insert(CONTENT_LENGTH, length);
    }
    fields::add_via(&mut parts.headers, &link.proxy.via, parts.version);
    parts.headers.append(SERVER_TIMING, server_timing(waited));
    parts.version = Version::HTTP_11;
    let body = UpstreamBody::new(incoming, link, Some(lease), permit);
    Ok(Response::from_parts(parts, Body::Upstream(body)))
}

/// Milliseconds that the request has waited, as W3C Server Timing has it.
fn server_timing(waited: Duration) -> HeaderValue {
    if waited.is_zero() {
        return HeaderValue::from_static("andante;dur=0");
    }
    HeaderValue::try_from(format!("andante;dur={:.1}", waited.as_secs_f64() * 1e3)).expect("digits and letters")
}
