//! A request that can be sent once more.

use std::sync::Arc;

use http::{HeaderName, Request};
use http_body::Body as _;

use crate::{
    learn::RouteName,
    policy,
    proxy::{
        message::request_body::BoxedRequest,
        message::{
            progress::Progress, replay_buffer::ReplayBuffer, replay_memory::ReplayMemory, request_body::RequestBody,
        },
    },
};

/// Says that a request may be done twice.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What is needed to send a request once more.
pub(crate) struct ReplayRequest {
    head: http::request::Parts,
    /// `None` if it has no body.
    kept: Option<Arc<ReplayBuffer>>,
    repeatable: bool,
}

// === impl ReplayRequest ===

impl ReplayRequest {
    /// Makes sure that `request` can be sent again.
    pub(crate) fn of(
        request: &mut Request<RequestBody>,
        retry: policy::RetryPolicy,
        memory: &Arc<ReplayMemory>,
    ) -> Self {
        let kept = (!request.body().is_end_stream()).then(|| request.body_mut().keep(retry.body, memory));
        let mut head = Request::new(()).into_parts().0;
        head.method.clone_from(request.method());
        head.uri.clone_from(request.uri());
        head.version = request.version();
        head.headers.clone_from(request.headers());
        let repeatable = head.method.is_idempotent() || head.headers.contains_key(IDEMPOTENCY_KEY);
        Self { head, kept, repeatable }
    }

    /// Whether it may be done twice (RFC 9110 §9.2.2), or says so itself.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// What requests of its kind are called.
    pub(crate) fn route_name(&self) -> RouteName<'_> {
        RouteName { method: self.head.method.as_str(), path: self.head.uri.path() }
    }

    /// The request, to be sent once more; `None` if its body is gone.
    pub(crate) async fn once_more(mut self, progress: &Arc<Progress>) -> Option<BoxedRequest> {
        let body = match self.kept.take() {
            Some(kept) => RequestBody::again(kept, progress.clone()).await?,
            None => RequestBody::empty(progress.clone()),
        };
        let head = std::mem::replace(&mut self.head, Request::new(()).into_parts().0);
        Some(Box::new(Request::from_parts(head, body)))
    }
}

impl Drop for ReplayRequest {
    fn drop(&mut self) {
        if let Some(kept) = &self.kept {
            kept.let_go();
        }
    }
}
