//! Reads the beginning of a request's body before its turn, if the request's rule derives the cost from it.

use std::time::Duration;

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use http_body::Body as _;

use super::{
    costs::{self, SeenBody},
    draws,
};
use crate::{
    error::Error,
    policy::RuleCost,
    proxy::{call::Call, message::progress::Phase},
};

/// Number of bytes to read of the body of `call`, if any.
pub(super) fn wants(call: &Call) -> Option<usize> {
    let most = call.route.lane.policy().read_body?;
    let rule = draws::cost(&call.route.added, &call.request, call.route.lane.policy());
    let open = call.cost.is_none() && rule.is_some_and(RuleCost::is_in_body);
    (open && call.retry.is_none() && !call.request.body().is_end_stream() && is_json(call.request.headers()))
        .then_some(most)
}

/// Reads up to `most` bytes of the body, and sets the cost of `call` by them.
pub(super) async fn at_body(call: &mut Call, most: usize) -> Result<(), Error> {
    let (exchange, route) = (&call.exchange, &call.route);
    let (clock, head) = (exchange.proxy.clock, exchange.progress.timeouts().head);
    // The bound below ends the wait, with the right error for it.
    exchange.progress.enter(Phase::Upload, head + Duration::from_secs(60));
    let until = clock.now() + head;
    let beginning = tokio::select! {
        biased;
        read = call.request.body_mut().read_beginning(most, &exchange.proxy.replay_memory) => {
            read.map_err(|source| Error::Body { source })?
        }
        // Other requests may block the connection. The bytes that have come set the cost, and the rest is read in the
        // request's turn.
        () = clock.sleep_until(until) => true,
    };
    exchange.progress.awaits_answer();
    if beginning {
        let body = call.request.body();
        let seen = SeenBody { length: costs::length(body), beginning: body.beginning() };
        let cost = costs::of(&route.added, &call.request, &route.lane, &call.claim, seen);
        call.cost = Some(cost);
    }
    Ok(())
}

/// Returns whether the fields allow a body that is readable JSON.
fn is_json(fields: &HeaderMap) -> bool {
    let of = |name| fields.get(name).map(|value| value.as_bytes().to_ascii_lowercase());
    let plain = of(CONTENT_ENCODING).is_none_or(|coding| matches!(&*coding, b"" | b"identity"));
    plain && of(CONTENT_TYPE).is_none_or(|kind| kind.windows(4).any(|part| part == b"json"))
}
