//! A request's body on its connection, and the end of reading it: an answer may be over before the upload is.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

/// Takes the unread rest of an upload whose reader has stopped.
pub(crate) type OnUnread = Arc<dyn Fn(Incoming) + Send + Sync>;

/// A body on its connection.
pub(super) struct Upload {
    /// `None` once the upload is dropped.
    incoming: Option<Incoming>,
    /// Takes the rest of an upload that is dropped before its end. `None` where hyper reads it, which is by HTTP/1.
    on_unread: Option<OnUnread>,
}

// === impl Upload ===

impl Upload {
    pub(super) fn new(incoming: Incoming, on_unread: Option<OnUnread>) -> Self {
        Self { incoming: Some(incoming), on_unread }
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.incoming.as_mut().map_or(Poll::Ready(None), |incoming| Pin::new(incoming).poll_frame(cx))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let rest = self.incoming.take().filter(|incoming| !incoming.is_end_stream());
        if let (Some(rest), Some(on_unread)) = (rest, &self.on_unread) {
            on_unread(rest);
        }
    }
}
