//! State that the parts of the API share, and the form of its answers.

use std::{fmt, sync::atomic::AtomicBool, time::SystemTime};

use andante_limiter::Limiter;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::{
    control::{Down, Script},
    options::Options,
    stats::{Stats, StatsRecorder},
};
use crate::clock::Clock;

/// State shared by the connections, the requests and the control pages.
pub(super) struct ApiState {
    /// Options at the start. A control page may have changed the limit since.
    pub(super) options: Options,
    pub(super) clock: Clock,
    /// Time of day at the clock's start. Later times of day are derived from it, so that virtual time moves them too.
    pub(super) wall_at_start: SystemTime,
    pub(super) books: Mutex<LimiterBooks>,
    pub(super) down: watch::Sender<Option<Down>>,
}

/// State that changes together under one lock. The clock is read while the lock is held, so that time never goes
/// backwards for it.
pub(super) struct LimiterBooks {
    pub(super) limiter: Option<Limiter>,
    /// Generation of `limiter`: grows whenever a limiter is added or removed.
    pub(super) limiters: u64,
    pub(super) recorder: StatsRecorder,
    /// Answer to the next requests.
    pub(super) script: Option<Script>,
    pub(super) dice: fastrand::Rng,
}

/// Signals between a connection and the requests on it.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// Signal to reset the connection.
    pub(super) cut: Notify,
    /// True once the connection was used for a control page. An outage that refuses connections then lets the page's
    /// answer through.
    pub(super) controls: AtomicBool,
}

// === impl ApiState ===

impl ApiState {
    /// Statistics since the start.
    pub(super) fn stats(&self) -> Stats {
        self.books.lock().recorder.stats(self.clock.now())
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

/// Builds an answer, of type JSON unless `headers` has another content type.
pub(super) fn respond(status: StatusCode, mut headers: HeaderMap, body: String) -> Response<Full<Bytes>> {
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
