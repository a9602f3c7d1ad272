//! A request at each stage of its way: as it was read, with its lane, with its permit, and its outcome.

use std::{sync::Arc, time::Duration};

use http::Response;
use tower::Service;

use crate::{
    clock::Instant,
    error::Error,
    lane::{
        Permit,
        order::{Claim, Turn},
    },
    limit::Cost,
    proxy::{
        exchange::Exchange,
        message::{gateway::LocationRewriter, request_body::BoxedRequest},
        outbound::{response_body::ResponseBody, route::Route},
        request_stats::Wait,
    },
};

/// A request as it was read.
pub(crate) struct Arrival {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) request: BoxedRequest,
}

/// A call. Boxed, because the future of every step keeps room for it while it waits.
pub(crate) type BoxedCall = Box<Call>;

/// A request that may be forwarded, if its lane lets it.
pub(crate) struct Call {
    pub(crate) exchange: Arc<Exchange>,
    /// The request in the form in which it will be sent: origin-form, without fields for andante.
    pub(crate) request: BoxedRequest,
    pub(crate) route: Arc<Route>,
    /// Claim of the request on its turn.
    pub(crate) claim: Claim,
    /// Cost that the request states.
    pub(crate) cost: Option<Cost>,
    /// The requests in front of which this request goes.
    pub(crate) turn: Turn,
    /// End of its patience for its slots, over all attempts (RFC 7240, `Prefer: wait`; `max-wait`).
    pub(crate) deadline: Instant,
    /// Time at which the request came, if nothing has been waited for since.
    pub(crate) now: Option<Instant>,
    /// True if the request was searched for credentials, and has none.
    pub(crate) anonymous: bool,
    /// True if the request may log in its connection, or the session has done so: its answer is never shared.
    pub(crate) bound: bool,
    /// True if the request asks for another protocol.
    pub(crate) upgrades: bool,
    /// Rewriter that keeps the worker on the gateway by which it has come.
    pub(crate) location: Option<Arc<LocationRewriter>>,
    /// The attempt, if the request was sent before. Boxed: rare, and held once more by each step while the request
    /// waits.
    pub(crate) retry: Option<Box<RetryMark>>,
}

/// Marks a further attempt, with its reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryMark {
    pub(crate) reason: crate::metrics::RetryReason,
    /// Number of the attempt; the first was 1.
    pub(crate) attempt: u32,
    pub(crate) back_off: Duration,
}

/// A request whose turn it is.
pub(crate) struct Admitted {
    pub(crate) call: BoxedCall,
    pub(crate) permit: Permit,
    pub(crate) wait: Wait,
    /// Time at which the request came, if nothing has been waited for since.
    pub(crate) now: Option<Instant>,
}

/// One step of the stack, with all steps below it: takes a request at a stage of its way, and returns its outcome. Each
/// request has a clone of its own.
pub(crate) trait Step<Request, Outcome>:
    Service<Request, Response = Outcome, Error = Error, Future: Send> + Clone + Send + 'static
{
}

impl<S, Request, Outcome> Step<Request, Outcome> for S where
    S: Service<Request, Response = Outcome, Error = Error, Future: Send> + Clone + Send + 'static
{
}

/// Outcome of a step above the retries.
pub(crate) type Answered = Result<Response<ResponseBody>, Error>;
