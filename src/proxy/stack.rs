//! The way of a request, top to bottom.
//!
//! ```text
//! accept → connection → the stack below → the answer's body streams back
//! ```
//!
//! Each step consumes what the step above it knows and hands down what it has found out: an [`Arrival`] becomes a
//! [`Call`] once its lane is known, and [`Admitted`] once it holds a permit. The steps have no state of their own, so
//! that the whole stack is of size zero. Its futures are boxed only where the wait is over.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response};
use tower::{Service, ServiceBuilder, layer::layer_fn, service_fn};

use super::{
    body::Body,
    count, forward,
    gateway::Stay,
    link::Link,
    request, respond,
    retry::{self, Again, Attempt},
    tunnel,
    upload::RequestBody,
    upstream::Route,
    wait,
};
use crate::{clock::Instant, error::Error, pace::Permit};

/// A request. Boxed, because every step's future would otherwise carry its 300 bytes once more while it waits.
pub(super) type Boxed = Box<Request<RequestBody>>;

/// A request as it was read.
pub(super) struct Arrival {
    pub(super) link: Arc<Link>,
    pub(super) request: Boxed,
}

/// A request that may be forwarded, if its lane lets it.
pub(super) struct Call {
    pub(super) link: Arc<Link>,
    /// As it will be sent: origin-form, without what was meant for us.
    pub(super) request: Boxed,
    pub(super) route: Arc<Route>,
    /// Until when it is willing to wait for its slots, however often it is sent (RFC 7240, `Prefer: wait`; `max-wait`).
    pub(super) deadline: Instant,
    /// What keeps the worker on the gateway that it has come by.
    pub(super) stay: Option<Arc<Stay>>,
    /// What makes it be sent once more, if it was sent before.
    pub(super) again: Option<Attempt>,
}

/// A request whose turn it is.
pub(super) struct Admitted {
    pub(super) call: Call,
    pub(super) permit: Permit,
    pub(super) waited: Duration,
}

/// What a step below the first gives back.
pub(super) type Outcome = Result<Response<Body>, Error>;

/// What one try comes to.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and is not to cost an allocation")]
pub(super) enum Tried {
    /// An answer for the worker.
    Done(Response<Body>),
    /// It may be sent again.
    Again(Box<Again>),
}

/// The way of a request.
pub(super) fn stack()
-> impl Service<Arrival, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static {
    ServiceBuilder::new()
        // Outermost, so that every way out passes here: errors become answers in this one place.
        .layer(layer_fn(respond::answer_errors))
        // Nothing below sees a request that is malformed, denied or without a lane.
        .layer(layer_fn(request::find_lane))
        // Above the queue, so that who leaves it is counted too; below the lane, whose rule names the counters.
        .layer(layer_fn(count::outcomes))
        // Above the queue, so that each try takes a permit of its own.
        .layer(layer_fn(retry::what_failed))
        // The last thing before the upstream: while a request waits here its body is unread and no connection held.
        .layer(layer_fn(wait::for_a_slot))
        .service(service_fn(send))
}

/// The permit is in hand: spend it on a request, or on a tunnel.
async fn send(admitted: Admitted) -> Result<Tried, Error> {
    if admitted.call.request.method() == http::Method::CONNECT {
        Box::pin(tunnel::open(admitted)).await.map(Tried::Done)
    } else {
        // Boxed like the tunnel: who still waits would carry its size, and that of all that it may come to.
        Box::pin(forward::forward(admitted)).await
    }
}
