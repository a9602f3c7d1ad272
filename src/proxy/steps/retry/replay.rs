//! A request that can be sent once more.

use std::sync::Arc;

use http::{Extensions, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use crate::{
    learn::RouteName,
    proxy::{
        message::request_body::BoxedRequest,
        message::{
            progress::Progress, replay_buffer::ReplayBuffer, replay_memory::ReplayMemory, request_body::RequestBody,
        },
    },
};

/// Field that says that a request may be carried out twice.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Whether `request` may be carried out twice: its method is idempotent (RFC 9110 §9.2.2), or it has an idempotency key.
pub(crate) fn is_repeatable<B>(request: &Request<B>) -> bool {
    request.method().is_idempotent() || request.headers().contains_key(IDEMPOTENCY_KEY)
}

/// Copy of a request that is needed to send it once more.
pub(crate) struct ReplayRequest {
    method: Method,
    uri: Uri,
    version: Version,
    /// Not a map: no field is looked up.
    fields: Vec<(HeaderName, HeaderValue)>,
    /// Spelling of the fields' names. Cloned ahead, because hyper drops it with the request and offers no access to it.
    extensions: Extensions,
    /// Buffer of the body; `None` if the request has no body.
    kept: Option<Arc<ReplayBuffer>>,
    repeatable: bool,
}

// === impl ReplayRequest ===

impl ReplayRequest {
    /// Prepares `request` to be sent again, if its body has no more than `most` bytes.
    pub(crate) fn of(request: &mut Request<RequestBody>, most: u64, memory: &Arc<ReplayMemory>) -> Self {
        let unended = !request.body().is_end_stream();
        let kept = unended.then(|| request.body_mut().keep(most, memory)).flatten();
        let (method, uri, version) = (request.method().clone(), request.uri().clone(), request.version());
        let fields = request.headers();
        let repeatable = is_repeatable(request);
        let fields = fields.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let extensions = request.extensions().clone();
        Self { method, uri, version, fields, extensions, kept, repeatable }
    }

    /// Returns whether the request may be carried out twice (RFC 9110 §9.2.2), or says so itself.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Name of the request's kind.
    pub(crate) fn route_name(&self) -> RouteName<'_> {
        RouteName { method: self.method.as_str(), path: self.uri.path() }
    }

    /// Returns the request, to be sent once more; `None` if its body is gone.
    pub(crate) async fn once_more(mut self, progress: &Arc<Progress>) -> Option<BoxedRequest> {
        let body = match self.kept.take() {
            Some(kept) => RequestBody::again(kept, progress.clone()).await?,
            None => RequestBody::empty(progress.clone()),
        };
        let mut request = Request::new(body);
        *request.method_mut() = std::mem::take(&mut self.method);
        *request.uri_mut() = std::mem::take(&mut self.uri);
        *request.version_mut() = self.version;
        *request.extensions_mut() = std::mem::take(&mut self.extensions);
        request.headers_mut().extend(self.fields.drain(..));
        Some(Box::new(request))
    }
}

impl Drop for ReplayRequest {
    fn drop(&mut self) {
        if let Some(kept) = &self.kept {
            kept.let_go();
        }
    }
}
