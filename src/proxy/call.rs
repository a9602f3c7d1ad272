//! A request at each stage of its way: as it was read, with its lane, with its permit, and what came of it.

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
    /// As it will be sent: origin-form, without what was meant for us.
    pub(crate) request: BoxedRequest,
    pub(crate) route: Arc<Route>,
    /// By what it claims its turn.
    pub(crate) claim: Claim,
    /// What it says that it costs.
    pub(crate) cost: Option<Cost>,
    /// Which requests it goes in front of.
    pub(crate) turn: Turn,
    /// Until when it is willing to wait for its slots, however often it is sent (RFC 7240, `Prefer: wait`; `max-wait`).
    pub(crate) deadline: Instant,
    /// When it came, if nothing has been waited for since.
    pub(crate) now: Option<Instant>,
    /// It has been looked through for credentials, and has none.
    pub(crate) anonymous: bool,
    /// Whether the request may log in its connection, or the session has done so: its answer is never shared.
    pub(crate) bound: bool,
    /// It asks for another protocol.
    pub(crate) upgrades: bool,
    /// What keeps the worker on the gateway that it has come by.
    pub(crate) location: Option<Arc<LocationRewriter>>,
    /// Which attempt it is, if it was sent before.
    /// Boxed: rare, and held once more by each step while the request waits.
    pub(crate) retry: Option<Box<RetryMark>>,
}

/// Marks a further attempt, and says why it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryMark {
    pub(crate) reason: crate::metrics::RetryReason,
    /// The first attempt was 1.
    pub(crate) attempt: u32,
    pub(crate) back_off: Duration,
}

/// A request whose turn it is.
pub(crate) struct Admitted {
    pub(crate) call: BoxedCall,
    pub(crate) permit: Permit,
    pub(crate) wait: Wait,
    /// When it came, if nothing has been waited for since.
    pub(crate) now: Option<Instant>,
}

/// One step of the stack, with all that are below it: takes a request at a stage of its way, and gives back what came of
/// it. Each request has a clone of its own.
pub(crate) trait Step<Request, Outcome>:
    Service<Request, Response = Outcome, Error = Error, Future: Send> + Clone + Send + 'static
{
}

impl<S, Request, Outcome> Step<Request, Outcome> for S where
    S: Service<Request, Response = Outcome, Error = Error, Future: Send> + Clone + Send + 'static
{
}

/// What a step above the retries gives back.
pub(crate) type Answered = Result<Response<ResponseBody>, Error>;
