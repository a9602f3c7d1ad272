//! The queue of the access log: lines for the thread that writes them, bounded in bytes. A line beyond the bound is lost.

use std::{
    io::{self, Write},
    sync::Arc,
};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

use super::{
    access_log_writer::{AccessLogWriter, Sink},
    queued_bytes::{MAX_QUEUED_BYTES, QueuedBytes},
};

/// Least length of a line, so that the bound in bytes is reached before the library's bound in lines.
const MIN_LINE_BYTES: usize = 64;

/// The writing end of the queue.
#[derive(Clone)]
pub(super) struct LineQueue {
    lines: NonBlocking,
    queued: Arc<QueuedBytes>,
}

// === impl LineQueue ===

impl LineQueue {
    /// Starts a queue to `sink`. Dropping the guard waits until the queue is empty.
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
    /// Accepts all of `line`, queued or not, because a request cannot report the loss.
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
