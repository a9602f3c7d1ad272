//! A connection in a request's hands.

use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};

use super::{
    pieces::Appetite,
    pool::{Shelf, Stream},
    upload::RequestBody,
    writes::{Writes, Written},
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
    /// What is written to it.
    writes: Arc<Writes>,
    /// When the request was, if others share the connection.
    written: Option<Written>,
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
    pub(super) fn own(sender: Http1, shelf: Arc<Shelf>, writes: Arc<Writes>, reused: bool) -> Self {
        Self { way: Way::Own(sender, shelf), writes, written: None, reused }
    }

    pub(super) fn shared(stream: Stream, reused: bool) -> Self {
        let writes = stream.connection().writes.clone();
        Self { way: Way::Shared(stream), writes, written: None, reused }
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
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match &mut self.way {
            Way::Own(sender, _) => sender.try_send_request(request).await,
            Way::Shared(stream) => {
                let written = Written::by(&self.writes);
                request.body_mut().note_writes(written.clone());
                self.written = Some(written);
                stream.connection().sender.clone().try_send_request(request).await
            }
        }
    }

    /// Waits until it can carry a request, which a new connection cannot before it was polled once.
    pub(super) async fn settle(&mut self) {
        if let Way::Own(sender, _) = &mut self.way {
            let _ = sender.ready().await;
        }
    }

    /// When the last of the request was written, as far as it has been.
    pub(super) fn written(&self) -> Instant {
        self.written.as_ref().map_or_else(|| self.writes.last(), Written::at)
    }

    /// Whether more of the answer is to be read.
    pub(super) fn appetite(&self) -> &Appetite {
        &self.writes.appetite
    }

    /// The answer was read to its end: the connection may carry another request.
    pub(super) fn give_back(self) {
        let Self { way: Way::Own(mut sender, shelf), writes, .. } = self else { return };
        if sender.is_ready() {
            shelf.put(sender, writes);
        } else if !sender.is_closed() {
            tokio::spawn(async move {
                if let Ok(Ok(())) = tokio::time::timeout(SETTLE, sender.ready()).await {
                    shelf.put(sender, writes);
                }
            });
        }
    }
}
