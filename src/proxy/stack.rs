//! The way of a request, top to bottom.
//!
//! ```text
//! accept → connection → the stack below → the answer's body streams back
//! ```
//!
//! Each step consumes what the step above it knows and hands down what it has found out: an [`Arrival`] becomes a
//! [`Call`](super::call::Call) once its lane is known, and [`Admitted`] once it holds a permit. The steps have no state of their own, so
//! that the whole stack is of size zero. Its futures are boxed only where the wait is over.

use std::{convert::Infallible, pin::Pin};

use http::Response;
use tower::{Service, ServiceBuilder, layer::layer_fn, service_fn};

use super::{
    call::{Admitted, Arrival},
    outbound::response_body::ResponseBody,
    steps::{
        count, forward, read, respond,
        retry::{self, attempt::AttemptOutcome},
        share, tunnel, wait,
    },
};
use crate::error::Error;

/// The way of a request.
pub(crate) fn stack()
-> impl Service<Arrival, Response = Response<ResponseBody>, Error = Infallible, Future: Send> + Clone + Send + 'static {
    ServiceBuilder::new()
        // Outermost, so that every way out passes here: errors become answers in this one place.
        .layer(layer_fn(respond::answer_errors))
        // Nothing below sees a request that is malformed, denied or without a lane.
        .layer(layer_fn(read::find_lane))
        // Above the queue, so that requests that leave it are counted too; below the lane, whose rule names the
        // counters.
        .layer(layer_fn(count::outcomes))
        // Below the counters, so that each request is counted that shares a call; above the queue, in which the call waits
        // once, and the retries, which are the call's.
        .layer(layer_fn(share::answers))
        // Above the queue, so that each try takes a permit of its own.
        .layer(layer_fn(retry::what_failed))
        // The last thing before the upstream: while a request waits here its body is unread,
        // but for the beginning of it where that tells the cost, and no connection held.
        .layer(layer_fn(wait::for_a_slot))
        .service(service_fn(send))
}

/// The permit is in hand: spend it on a request, or on a tunnel. Boxed: a waiting request would carry the size of all
/// that may follow.
fn send(admitted: Admitted) -> Pin<Box<dyn Future<Output = Result<AttemptOutcome, Error>> + Send>> {
    if admitted.call.request.method() == http::Method::CONNECT {
        Box::pin(async move { tunnel::open(admitted).await.map(AttemptOutcome::Done) })
    } else {
        Box::pin(forward::forward(admitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that waits holds the futures of all steps in one allocation, beside 40 bytes of `inbound::http1`. The
    /// allocator's next size after 512 is 640.
    #[test]
    fn what_waits_fits_in_512_bytes() {
        fn size<S: Service<Arrival>>(_: &S) -> usize {
            size_of::<S::Future>()
        }

        let size = size(&stack());
        assert!(size <= 512 - 40, "the futures of all steps take {size} bytes");
    }
}
