//! Statistics of a request: its id, its number of attempts, and its times.

use std::{
    fmt,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use crate::clock::Instant;

/// Id of a request in answers and in the log: `5f3c9a1e-42`. The first half is the process's number in `Via`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestId {
    instance: u32,
    number: u64,
}

/// Numbers the requests of this process.
#[derive(Debug)]
pub(crate) struct RequestIds {
    instance: u32,
    next: AtomicU64,
}

/// Statistics of one request at a time. Recording takes a few stores, and no allocation.
#[derive(Debug, Default)]
pub(crate) struct RequestStats {
    /// When the request came, in nanoseconds of the clock.
    begun: AtomicU64,
    /// Number of the request; 0 until it is asked for.
    number: AtomicU64,
    attempts: AtomicU32,
    waited: AtomicU64,
    upstream: AtomicU64,
}

/// Time for which a request has waited for a slot, and the forecast when it came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    pub(crate) time: Duration,
    /// Forecast; `None` if the wait could not be predicted.
    pub(crate) expected: Option<Duration>,
    /// Number of requests that were to leave first.
    pub(crate) ahead: u32,
}

// === impl RequestIds ===

impl RequestIds {
    pub(crate) fn new(instance: u32) -> Self {
        Self { instance, next: AtomicU64::new(1) }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.instance, self.number)
    }
}

// === impl RequestStats ===

impl RequestStats {
    /// Resets the statistics for another request.
    pub(crate) fn begin(&self, now: Instant) {
        self.begun.store(now.as_nanos(), Ordering::Relaxed);
        self.number.store(0, Ordering::Relaxed);
        self.attempts.store(0, Ordering::Relaxed);
        self.waited.store(0, Ordering::Relaxed);
        self.upstream.store(0, Ordering::Relaxed);
    }

    /// When the request began.
    pub(crate) fn begun(&self) -> Instant {
        Instant::from_nanos(self.begun.load(Ordering::Relaxed))
    }

    /// Id of the request. Assigned when it is first asked for, which most requests never need.
    pub(crate) fn id(&self, ids: &RequestIds) -> RequestId {
        let mut number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            number = ids.next.fetch_add(1, Ordering::Relaxed);
            self.number.store(number, Ordering::Relaxed);
        }
        RequestId { instance: ids.instance, number }
    }

    /// Counts an attempt.
    pub(crate) fn attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds time for which the request has waited for a slot, or between two tries.
    pub(crate) fn waited(&self, time: Duration) {
        self.waited.fetch_add(crate::clock::nanos(time), Ordering::Relaxed);
    }

    /// Adds the time of a try, connecting included, until there was an answer's head or an error.
    pub(crate) fn was_upstream(&self, time: Duration) {
        self.upstream.fetch_add(crate::clock::nanos(time), Ordering::Relaxed);
    }

    /// Adds the tries of a shared `call`, which was made elsewhere.
    pub(crate) fn add_tries_of(&self, call: &Self) {
        self.attempts.fetch_add(call.attempts(), Ordering::Relaxed);
        self.was_upstream(call.upstream_time());
    }

    /// Number of attempts, failed ones included.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Waiting time, over all tries.
    pub(crate) fn waiting_time(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Time upstream, over all tries.
    pub(crate) fn upstream_time(&self) -> Duration {
        Duration::from_nanos(self.upstream.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_id_and_the_next_one_another() {
        let (ids, stats) = (RequestIds::new(0x5f3c_9a1e), RequestStats::default());
        assert_eq!(stats.id(&ids), stats.id(&ids));
        assert_eq!(stats.id(&ids).to_string(), "5f3c9a1e-1");
        stats.begin(Instant::START);
        assert_eq!(stats.id(&ids).to_string(), "5f3c9a1e-2");
    }

    #[test]
    fn the_times_of_all_tries_are_added_up_and_the_next_request_starts_anew() {
        let stats = RequestStats::default();
        for _ in 0..2 {
            stats.attempt();
            stats.waited(Duration::from_secs(2));
            stats.was_upstream(Duration::from_secs(3));
        }
        assert_eq!(stats.attempts(), 2);
        assert_eq!((stats.waiting_time().as_secs(), stats.upstream_time().as_secs()), (4, 6));
        stats.begin(Instant::START);
        assert_eq!((stats.attempts(), stats.waiting_time(), stats.upstream_time()), Default::default());
    }
}
