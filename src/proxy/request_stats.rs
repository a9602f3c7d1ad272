//! What is recorded of a request on its way: its name, how often it was sent, and where its time went.

use std::{
    fmt,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use crate::clock::Instant;

/// What a request of this process is called in answers and in the log: `5f3c9a1e-42`. The first half is the one in `Via`.
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

/// The stats of one request at a time. Costs it some stores, and no allocation.
#[derive(Debug, Default)]
pub(crate) struct RequestStats {
    /// When it came, in nanoseconds of the clock.
    begun: AtomicU64,
    /// Its number; 0 until it is asked for.
    number: AtomicU64,
    attempts: AtomicU32,
    waited: AtomicU64,
    upstream: AtomicU64,
}

/// How long a request has waited for a slot, and what it had to expect when it came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    pub(crate) time: Duration,
    /// `None` if it could not be predicted.
    pub(crate) expected: Option<Duration>,
    /// How many were to leave before it.
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
    /// Another request begins.
    pub(crate) fn begin(&self, now: Instant) {
        self.begun.store(now.as_nanos(), Ordering::Relaxed);
        self.number.store(0, Ordering::Relaxed);
        self.attempts.store(0, Ordering::Relaxed);
        self.waited.store(0, Ordering::Relaxed);
        self.upstream.store(0, Ordering::Relaxed);
    }

    /// When it began.
    pub(crate) fn begun(&self) -> Instant {
        Instant::from_nanos(self.begun.load(Ordering::Relaxed))
    }

    /// What the request is called. Made up when that is first asked for, which for most requests it never is.
    pub(crate) fn id(&self, ids: &RequestIds) -> RequestId {
        let mut number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            number = ids.next.fetch_add(1, Ordering::Relaxed);
            self.number.store(number, Ordering::Relaxed);
        }
        RequestId { instance: ids.instance, number }
    }

    /// It is about to be sent, for the first time or once more.
    pub(crate) fn attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// It has waited for a slot, or between two tries.
    pub(crate) fn waited(&self, time: Duration) {
        self.waited.fetch_add(crate::clock::nanos(time), Ordering::Relaxed);
    }

    /// A try has taken this long, connecting included, until there was an answer's head or an error.
    pub(crate) fn was_upstream(&self, time: Duration) {
        self.upstream.fetch_add(crate::clock::nanos(time), Ordering::Relaxed);
    }

    /// Its tries were made elsewhere, in a call that others share.
    pub(crate) fn add_tries_of(&self, call: &Self) {
        self.attempts.fetch_add(call.attempts(), Ordering::Relaxed);
        self.was_upstream(call.upstream_time());
    }

    /// How often it was sent, or tried to be.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// How long it waited, over all tries.
    pub(crate) fn waiting_time(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// How long it took upstream, over all tries.
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
