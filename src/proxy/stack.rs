//! The steps of a request, top to bottom.
//!
//! ```text
//! accept → connection → the stack below → the answer's body streams back
//! ```
//!
//! Each step consumes the result of the step above it and hands down its own. An [`Arrival`] becomes a
//! [`Call`](super::call::Call) once its lane is known, and [`Admitted`] once it holds a permit. The steps have no state
//! of their own, so that the whole stack is of size zero. Its futures are boxed only after the wait.

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

/// The steps of a request.
pub(crate) fn stack()
-> impl Service<Arrival, Response = Response<ResponseBody>, Error = Infallible, Future: Send> + Clone + Send + 'static {
    ServiceBuilder::new()
        // Outermost, so that every outcome passes here: errors become answers in this one place.
        .layer(layer_fn(respond::answer_errors))
        // No step below sees a request that is malformed, denied or without a lane.
        .layer(layer_fn(read::find_lane))
        // Above the queue, so that requests that leave it are counted too. Below the lane, because the lane's rule
        // names the counters.
        .layer(layer_fn(count::outcomes))
        // Below the counters, so that each request that shares a call is counted. Above the queue and the retries,
        // which the call needs only once.
        .layer(layer_fn(share::answers))
        // Above the queue, so that each try takes a permit of its own.
        .layer(layer_fn(retry::what_failed))
        // Directly before the upstream. A request that waits here holds no connection, and its body is unread, except
        // for a beginning that shows the cost.
        .layer(layer_fn(wait::for_a_slot))
        .service(service_fn(send))
}

/// Spends the permit on a request, or on a tunnel. Boxed: a waiting request would carry the size of all later futures.
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

    /// A waiting request holds the futures of all steps in one allocation, beside 40 bytes of `inbound::http1`. The
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
