//! Outcome of one attempt, and the context for the next.

use std::{sync::Arc, time::Duration};

use http::Response;

use super::replay::ReplayRequest;
use crate::{
    clock::Instant,
    lane::order::{Claim, Turn},
    limit::Cost,
    metrics::RetryReason,
    proxy::{
        call::{Answered, Call, RetryMark},
        exchange::Exchange,
        message::{gateway::LocationRewriter, request_body::BoxedRequest},
        outbound::{response_body::ResponseBody, route::Route},
    },
};

/// Outcome of one attempt.
pub(crate) enum AttemptOutcome {
    /// An answer for the worker.
    Done(Response<ResponseBody>),
    /// A failure after which the request may be sent again.
    Failed(Box<FailedAttempt>),
}

/// A failed attempt of a request that may be sent again.
pub(crate) struct FailedAttempt {
    pub(crate) context: AttemptContext,
    pub(crate) replay: ReplayRequest,
    pub(crate) reason: RetryReason,
    /// The wait that the answer asks for.
    pub(crate) retry_after: Option<Duration>,
    /// The worker's answer or error if the request is not sent again.
    pub(crate) last: Answered,
}

/// Context that every attempt of a request needs besides the request.
#[derive(Clone)]
pub(crate) struct AttemptContext {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) route: Arc<Route>,
    pub(crate) claim: Claim,
    pub(crate) cost: Option<Cost>,
    /// See [`Call::bound`].
    pub(crate) bound: bool,
    pub(crate) location: Option<Arc<LocationRewriter>>,
    pub(crate) deadline: Instant,
}

// === impl AttemptContext ===

impl AttemptContext {
    /// A further attempt, which sends `request`.
    pub(crate) fn call(&self, request: BoxedRequest, turn: Turn, mark: RetryMark) -> Call {
        let Self { exchange, route, claim, cost, bound, location, deadline } = self.clone();
        Call {
            exchange,
            request,
            route,
            claim,
            cost,
            turn,
            deadline,
            now: None,
            anonymous: false,
            bound,
            upgrades: false,
            location,
            retry: Some(Box::new(mark)),
        }
    }
}
