//! What the API's parts share: its options, its books under one lock, and how it answers.

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

/// What the connections, the requests and the control pages have in common.
pub(super) struct ApiState {
    /// As they were at the start: the limit may have changed since.
    pub(super) options: Options,
    pub(super) clock: Clock,
    /// The time of day at the clock's start: virtual time moves the time of day along.
    pub(super) wall_at_start: SystemTime,
    pub(super) books: Mutex<LimiterBooks>,
    pub(super) down: watch::Sender<Option<Down>>,
}

/// What is kept in step under one lock; time is read inside it, so that it never goes backwards here.
pub(super) struct LimiterBooks {
    pub(super) limiter: Option<Limiter>,
    /// How many limiters there were before this one.
    pub(super) limiters: u64,
    pub(super) recorder: StatsRecorder,
    /// What the next requests are answered.
    pub(super) script: Option<Script>,
    pub(super) dice: fastrand::Rng,
}

/// What a connection and the requests on it tell each other.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// It is to be reset.
    pub(super) cut: Notify,
    /// It is used for the control pages: their answers must get out whatever they were about.
    pub(super) controls: AtomicBool,
}

// === impl ApiState ===

impl ApiState {
    /// What it saw so far.
    pub(super) fn stats(&self) -> Stats {
        self.books.lock().recorder.stats(self.clock.now())
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

/// An answer of JSON, unless `headers` say otherwise.
pub(super) fn respond(status: StatusCode, mut headers: HeaderMap, body: String) -> Response<Full<Bytes>> {
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
