//! Writes the access log, and detects failures: a full disk, a removed file or folder, a pipe without a reader. Lost
//! lines are counted, and the log reports them once a minute. Never delays a request.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tracing::{info, warn};

use super::queued_bytes::{OVERFLOW, QueuedBytes};
use crate::{clock, metrics::access_log};

/// Shortest time between two reports of lost lines.
const WARNING_PERIOD: Duration = Duration::from_secs(60);
/// Interval of checks whether the path still leads to the open file.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Destination of lines.
pub(super) enum Sink {
    /// Standard output or standard error.
    Stream(Box<dyn Write + Send>),
    /// A file opened by its path.
    File(LogFile),
}

/// A file that can be reopened by its path.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    checked: Duration,
}

/// The writer of the access log.
pub(super) struct AccessLogWriter {
    sink: Sink,
    loss: Loss,
    queued: Arc<QueuedBytes>,
}

/// State of the reports about lost lines.
#[derive(Debug, Default)]
struct Loss {
    reported: Option<Duration>,
    is_failing: bool,
}

// === impl AccessLogWriter ===

impl AccessLogWriter {
    /// A writer to `sink` for lines that `queued` counts.
    pub(super) fn new(sink: Sink, queued: Arc<QueuedBytes>) -> Self {
        access_log::started();
        Self { sink, loss: Loss::default(), queued }
    }

    /// Reports lines that found no room in the queue since the last call. Returns whether there were any.
    fn report_lost(&mut self) -> bool {
        let overflowed = self.queued.take_overflowed();
        if overflowed {
            self.loss.report(OVERFLOW, clock::monotonic());
        }
        overflowed
    }
}

impl Write for AccessLogWriter {
    /// Accepts all of `lines`, written or not, because the calling thread cannot report the loss.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let drops = self.report_lost();
        let appended = self.sink.append(lines);
        self.queued.remove(lines.len());
        match appended {
            Ok(()) if drops => {}
            Ok(()) => self.loss.end(),
            Err(error) => {
                let count = lines.iter().filter(|byte| **byte == b'\n').count().max(1);
                self.loss.add(count as u64, &error.to_string(), clock::monotonic());
            }
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.report_lost();
        if let Sink::Stream(stream) = &mut self.sink {
            // A stream that cannot be flushed fails the next write as well.
            let _ = stream.flush();
        }
        Ok(())
    }
}

// === impl Sink ===

impl Sink {
    /// The file at `path`, which is created if it is missing.
    pub(super) fn open(path: &std::path::Path) -> io::Result<Self> {
        let file = open(path)?;
        Ok(Self::File(LogFile { path: path.to_owned(), file, checked: clock::monotonic() }))
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stream(stream) => {
                stream.write_all(lines)?;
                stream.flush()
            }
            Self::File(file) => file.append(lines),
        }
    }
}

// === impl LogFile ===

impl LogFile {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let now = clock::monotonic();
        if now.saturating_sub(self.checked) >= CHECK_PERIOD {
            self.reopen_if_moved()?;
            self.checked = now;
        }
        let mut written = 0;
        while written < lines.len() {
            match self.file.write(&lines[written..]) {
                Ok(0) => return self.give_up(written, io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.give_up(written, error),
            }
        }
        Ok(())
    }

    /// Removes the written half of a line from the end of the file: it would break readers of JSON lines.
    fn give_up(&mut self, written: usize, error: io::Error) -> io::Result<()> {
        if written > 0
            && let Ok(metadata) = self.file.metadata()
            && metadata.is_file()
        {
            // A file that cannot be truncated keeps its half line.
            let _ = self.file.set_len(metadata.len().saturating_sub(written as u64));
        }
        Err(error)
    }

    /// Reopens the file if its path leads elsewhere, after a rotation or a removal.
    fn reopen_if_moved(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_same =
            std::fs::metadata(&self.path).is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()));
        if !is_same {
            self.file = open(&self.path)?;
        }
        Ok(())
    }
}

fn open(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

// === impl Loss ===

impl Loss {
    fn add(&mut self, lines: u64, why: &str, now: Duration) {
        access_log::lost(lines);
        self.report(why, now);
    }

    fn report(&mut self, why: &str, now: Duration) {
        access_log::set_problem(Some(why.to_owned()));
        self.is_failing = true;
        if self.is_due(now) {
            warn!(
                lost = access_log::take_unreported(),
                error = why,
                hint = "make room, or repair the target of --access-log: lines are lost until then",
                "the access log cannot be written"
            );
            self.reported = Some(now);
        }
    }

    fn is_due(&self, now: Duration) -> bool {
        self.reported.is_none_or(|reported| now.saturating_sub(reported) >= WARNING_PERIOD)
    }

    fn end(&mut self) {
        if self.is_failing {
            self.is_failing = false;
            access_log::set_problem(None);
            info!(lost = access_log::take_unreported(), "the access log is written again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_lines_are_reported_once_a_minute() {
        let mut loss = Loss::default();
        let mut reports = 0;
        for second in 0..150_u64 {
            let before = loss.reported;
            loss.add(1, "disk full", Duration::from_secs(second));
            reports += u32::from(loss.reported != before);
        }
        assert_eq!(reports, 3);
        loss.end();
        assert!(!loss.is_failing);
    }

    #[test]
    fn a_file_that_was_rotated_is_opened_anew_and_a_removed_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/access.log");
        std::fs::create_dir(folder.path().join("below")).unwrap();
        let Sink::File(mut log) = Sink::open(&path).unwrap() else { panic!() };
        log.append(b"one\n").unwrap();
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        log.checked = Duration::ZERO;
        log.append(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
        std::fs::remove_dir_all(folder.path().join("below")).unwrap();
        log.checked = Duration::ZERO;
        assert!(log.append(b"three\n").is_err());
    }
}
