//! The queue of the access log: lines for the thread that writes them, bounded in bytes. A line beyond the bound is lost.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

use super::access_log_writer::{AccessLogWriter, Sink};
use crate::metrics::access_log;

/// Lines of about a second at 20,000 requests a second. `max-memory` has room for them: see its reserve.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;
/// No line is shorter, so the bound in bytes is reached before the library's in lines.
const MIN_LINE_BYTES: usize = 64;

/// The reason why lines are lost when the queue is full.
pub(super) const OVERFLOW: &str = "it is written more slowly than requests come";

/// The end of the queue that lines are written to.
#[derive(Clone)]
pub(super) struct LineQueue {
    lines: NonBlocking,
    queued: Arc<QueuedBytes>,
}

/// Bytes in the queue, and whether it overflowed.
#[derive(Debug, Default)]
pub(super) struct QueuedBytes {
    bytes: AtomicUsize,
    overflowed: AtomicBool,
}

// === impl LineQueue ===

impl LineQueue {
    /// A queue to `sink`. Dropped, the guard waits until it is empty.
    pub(super) fn start(sink: Sink) -> (Self, WorkerGuard) {
        let queued = Arc::<QueuedBytes>::default();
        let (lines, guard) = NonBlockingBuilder::default()
            .thread_name("access-log")
            .buffered_lines_limit(MAX_QUEUED_BYTES / MIN_LINE_BYTES)
            .finish(AccessLogWriter::new(sink, queued.clone()));
        (Self { lines, queued }, guard)
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for LineQueue {
    /// Takes all of `line`, queued or not: a request has nobody to report to.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queued.add(line.len()) {
            self.lines.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl QueuedBytes ===

impl QueuedBytes {
    /// Counts a line of `bytes`. Returns `false`, and counts it as lost, if there is no room for it.
    fn add(&self, bytes: usize) -> bool {
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_QUEUED_BYTES;
        if !fits {
            self.remove(bytes);
            // Counted here: the thread that writes may hang.
            access_log::lost(1);
            if !self.overflowed.swap(true, Ordering::Relaxed) {
                access_log::set_problem(Some(OVERFLOW.to_owned()));
            }
        }
        fits
    }

    /// Takes `bytes` out of the queue.
    pub(super) fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns whether lines were lost since the last call.
    pub(super) fn take_overflowed(&self) -> bool {
        self.overflowed.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_bound_are_lost_until_others_are_written() {
        let queued = QueuedBytes::default();
        assert!(queued.add(MAX_QUEUED_BYTES - 100));
        assert!(!queued.add(101) && queued.add(100) && !queued.add(1));
        assert!(queued.take_overflowed() && !queued.take_overflowed());
        queued.remove(100);
        assert!(queued.add(100));
    }
}
