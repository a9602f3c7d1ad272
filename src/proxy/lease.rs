//! A connection in a request's hands.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};

use super::{
    pool::{Shelf, Stream},
    upload::RequestBody,
};
use crate::{clock::Instant, tls::Protocol};

/// How long a connection may take to become usable again after its answer has been read, for instance because the
/// upstream answered before it had read the whole request.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) type Http1 = http1::SendRequest<RequestBody>;
pub(super) type Http2 = http2::SendRequest<RequestBody>;

/// A connection in use. Dropped it is closed, unless it was given back or is one that others use, too.
pub(super) struct Lease {
    way: Way,
    /// When something was last written to it, in nanoseconds of the clock.
    written: Arc<AtomicU64>,
    /// Whether it has carried a request before, so that the upstream may have closed it meanwhile.
    pub(super) reused: bool,
}

enum Way {
    /// An HTTP/1 connection, ours alone.
    Own(Http1, Arc<Shelf>),
    /// A stream of an HTTP/2 connection.
    Shared(Stream),
}

// === impl Lease ===

impl Lease {
    pub(super) fn own(sender: Http1, shelf: Arc<Shelf>, written: Arc<AtomicU64>, reused: bool) -> Self {
        Self { way: Way::Own(sender, shelf), written, reused }
    }

    pub(super) fn shared(stream: Stream, reused: bool) -> Self {
        let written = stream.connection().written.clone();
        Self { way: Way::Shared(stream), written, reused }
    }

    /// What it speaks.
    pub(super) fn protocol(&self) -> Protocol {
        match self.way {
            Way::Own(..) => Protocol::Http1,
            Way::Shared(_) => Protocol::Http2,
        }
    }

    /// Sends `request`. An error comes with the request if not a byte of it was written.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match &mut self.way {
            Way::Own(sender, _) => sender.try_send_request(request).await,
            Way::Shared(stream) => stream.connection().sender.clone().try_send_request(request).await,
        }
    }

    /// Waits until it can carry a request, which a new connection cannot before it was polled once.
    pub(super) async fn settle(&mut self) {
        if let Way::Own(sender, _) = &mut self.way {
            let _ = sender.ready().await;
        }
    }

    /// When something was last written.
    pub(super) fn written(&self) -> Instant {
        Instant::from_nanos(self.written.load(Ordering::Relaxed))
    }

    /// The answer was read to its end: the connection may carry another request.
    pub(super) fn give_back(self) {
        let Self { way: Way::Own(mut sender, shelf), written, .. } = self else { return };
        if sender.is_ready() {
            shelf.put(sender, written);
        } else if !sender.is_closed() {
            tokio::spawn(async move {
                if let Ok(Ok(())) = tokio::time::timeout(SETTLE, sender.ready()).await {
                    shelf.put(sender, written);
                }
            });
        }
    }
}
