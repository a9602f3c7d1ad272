//! Times at which data for an upstream has reached its socket.
//!
//! An HTTP/1 connection carries one request at a time, so its last write is that request's. On an HTTP/2 connection
//! many requests write at once. Each records the first complete write after its hand-over, or after its body's end.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Wake,
};

use parking_lot::Mutex;

use crate::{
    clock::{Clock, Instant},
    proxy::message::{
        appetite::Appetite, connection_task::ConnectionTask, head_memory::HeadMemory, interim_reader::InterimListener,
    },
};

/// The writes of one connection.
pub(crate) struct Writes {
    clock: Clock,
    /// When data was last written, in nanoseconds of the clock.
    last: AtomicU64,
    /// True if data was written, and perhaps not all of it.
    unfinished: AtomicBool,
    /// Kind of error of a failed write. The upstream may still be read.
    failure: OnceLock<io::ErrorKind>,
    /// The requests whose next write is to be recorded.
    waiting: Mutex<PendingWrites>,
    /// Flag that says whether more of an answer is to be read, if the connection carries one at a time.
    pub(crate) appetite: Appetite,
    /// Memory of the head that is being read.
    pub(crate) head: HeadMemory,
    /// Receiver of interim answers, if the connection carries one answer at a time.
    pub(crate) interim: InterimListener,
    /// The connection's task, if it carries one answer at a time.
    pub(crate) task: ConnectionTask,
}

/// Requests whose write is to be recorded.
#[derive(Default)]
struct PendingWrites {
    /// Requests since whose hand-over nothing was written.
    handed_over: Vec<Arc<AtomicU64>>,
    /// Requests that were written in part, or perhaps completely.
    writing: Vec<Arc<AtomicU64>>,
}

/// When one request of a shared connection was last written.
#[derive(Clone)]
pub(crate) struct Written {
    at: Arc<AtomicU64>,
    writes: Arc<Writes>,
}

// === impl Writes ===

impl Writes {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        let (last, unfinished) = (AtomicU64::new(0), AtomicBool::new(false));
        let (failure, waiting, appetite, head, interim, task) = Default::default();
        Arc::new(Self { clock, last, unfinished, failure, waiting, appetite, head, interim, task })
    }

    /// Records that data was written.
    pub(crate) fn wrote(&self) {
        self.last.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        self.unfinished.store(true, Ordering::Relaxed);
        let PendingWrites { handed_over, writing } = &mut *self.waiting.lock();
        writing.append(handed_over);
    }

    /// Records that all data has been written.
    pub(crate) fn finished(&self) {
        if self.unfinished.swap(false, Ordering::Relaxed) {
            let last = self.last.load(Ordering::Relaxed);
            // A request that was handed over since is not part of this write.
            self.waiting.lock().writing.drain(..).for_each(|at| at.store(last, Ordering::Relaxed));
        }
    }

    /// Records a failed write: the upstream reads no more, but may have answered.
    pub(crate) fn failed(&self, how: io::ErrorKind) {
        let _ = self.failure.set(how);
    }

    /// Error of a failed write, if one has failed.
    pub(crate) fn failure(&self) -> Option<io::ErrorKind> {
        self.failure.get().copied()
    }

    /// When data was last written; the clock's start if nothing was.
    pub(crate) fn last(&self) -> Instant {
        Instant::from_nanos(self.last.load(Ordering::Relaxed))
    }
}

/// Returns whether a write failed because the other side reads no more.
pub(crate) fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Wakes the connection's task, for hyper.
impl Wake for Writes {
    fn wake(self: Arc<Self>) {
        self.task.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.task.wake();
    }
}

// === impl Written ===

impl Written {
    /// Records that a request is handed over to the connection.
    pub(crate) fn by(writes: &Arc<Writes>) -> Self {
        let written = Self { at: Arc::default(), writes: writes.clone() };
        written.again();
        written
    }

    /// Records that more of the same request is handed over.
    pub(crate) fn again(&self) {
        let mut waiting = self.writes.waiting.lock();
        if !waiting.handed_over.iter().any(|at| Arc::ptr_eq(at, &self.at)) {
            waiting.handed_over.push(self.at.clone());
        }
    }

    /// When the request was last written; the clock's start if it was not yet.
    pub(crate) fn at(&self) -> Instant {
        Instant::from_nanos(self.at.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_an_older_write_is_not_that_of_a_request_handed_over_meanwhile() {
        let clock = Clock::start();
        let writes = Writes::new(clock);
        writes.wrote();
        let request = Written::by(&writes);
        // The socket takes no more for a while: another request's upload.
        tokio::time::advance(Duration::from_millis(100)).await;
        writes.finished();
        writes.wrote();
        writes.finished();
        assert_eq!(request.at().since(Instant::START), Duration::from_millis(100));
    }
}
