//! What one attempt comes to, and what is needed for the next.

use std::{sync::Arc, time::Duration};

use http::Response;

use super::replay::ReplayRequest;
use crate::{
    clock::Instant,
    lane::order::Claim,
    limit::Cost,
    metrics::RetryReason,
    proxy::{
        call::Answered,
        exchange::Exchange,
        message::gateway::LocationRewriter,
        outbound::{response_body::ResponseBody, route::Route},
    },
};

/// What one attempt comes to.
pub(crate) enum AttemptOutcome {
    /// An answer for the worker.
    Done(Response<ResponseBody>),
    /// The request may be sent again.
    Failed(Box<FailedAttempt>),
}

/// An attempt that has failed, of a request that may be sent again.
pub(crate) struct FailedAttempt {
    pub(crate) context: AttemptContext,
    pub(crate) replay: ReplayRequest,
    pub(crate) reason: RetryReason,
    /// The wait that the answer asks for.
    pub(crate) retry_after: Option<Duration>,
    /// What the worker gets if it is not sent again.
    pub(crate) last: Answered,
}

/// What every attempt of a request needs beside the request.
#[derive(Clone)]
pub(crate) struct AttemptContext {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) route: Arc<Route>,
    pub(crate) claim: Claim,
    pub(crate) cost: Option<Cost>,
    /// See [`Call::bound`](crate::proxy::call::Call).
    pub(crate) bound: bool,
    pub(crate) location: Option<Arc<LocationRewriter>>,
    pub(crate) deadline: Instant,
}
