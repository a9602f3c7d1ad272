//! Sends requests as they arrive from a pipe, before the pipe has ended.
//!
//! The requests read are kept beside the answers. After a crash the same command continues if the pipe begins with them
//! again.

use std::os::unix::fs::OpenOptionsExt as _;
use std::{
    collections::{HashMap, hash_map::Entry},
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::FileTypeExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use tokio::sync::mpsc;
use tracing::warn;

use super::{BatchOptions, Failure, beside};
use crate::batch::{Format, Input, InputError, Item, input::Defaults};

/// Requests from a pipe.
pub(super) struct Stream {
    pub(super) items: mpsc::Receiver<Result<Item, InputError>>,
    pub(super) progress: StreamProgress,
}

/// Progress of reading a pipe.
#[derive(Clone, Default)]
pub(super) struct StreamProgress {
    read: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

/// Copies everything that is read into a file.
struct Tee<R> {
    reader: R,
    kept: File,
}

/// Requests that are read ahead.
const READ_AHEAD: usize = 64;

/// Returns whether the requests of `options` come from a pipe and can be sent as they arrive. A continued batch must
/// first separate the answered requests, and --dedupe needs all requests.
pub(super) fn is_possible(options: &BatchOptions) -> bool {
    let is_pipe = |path: &Path| {
        fs::metadata(path).is_ok_and(|file| {
            let kind = file.file_type();
            kind.is_fifo() || kind.is_socket() || kind.is_char_device()
        })
    };
    let path = if options.file == Path::new("-") { Path::new("/dev/stdin") } else { &options.file };
    let is_empty = |path: &Path| fs::metadata(path).map_or(true, |file| file.len() == 0);
    !options.dedupe && is_pipe(path) && is_empty(&options.out) && is_empty(&kept(options))
}

/// Path of the copy of the input.
pub(super) fn kept(options: &BatchOptions) -> std::path::PathBuf {
    beside(&options.out, "input")
}

/// Starts reading.
pub(super) fn start(options: &BatchOptions, defaults: &Defaults) -> Result<Stream, Failure> {
    let failed = |what: String| move |error: io::Error| Failure::new(what).because(error);
    let reader: Box<dyn Read + Send> = if options.file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(&options.file).map_err(failed(format!("could not read {}", options.file.display())))?)
    };
    let path = kept(options);
    // The lines may hold credentials.
    let kept = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path);
    let kept = kept.map_err(failed(format!("could not keep what is read in {}", path.display())))?;
    let (sender, items) = mpsc::channel(READ_AHEAD);
    let progress = StreamProgress::default();
    let (told, defaults, format) = (progress.clone(), defaults.clone(), named_format(options));
    let read = move || {
        let reader = BufReader::new(Tee { reader, kept });
        send(reader, format, &defaults, &told, |item| {
            // Lines from the mistake on must be corrected, so the copy ends before them.
            let shortened = item.as_ref().err().map_or(Ok(()), |error| keep_before(error, &path));
            let _ = shortened.inspect_err(
                |error| warn!(%error, file = %path.display(), "could not truncate the saved copy of the input"),
            );
            sender.blocking_send(item).is_ok()
        });
    };
    let thread = thread::Builder::new().name("batch-input".into()).spawn(read);
    thread.map_err(failed("could not start a thread that reads".to_owned()))?;
    Ok(Stream { items, progress })
}

/// The format that an option or the file's name states.
fn named_format(options: &BatchOptions) -> Option<Format> {
    match options.format.as_deref() {
        Some("jsonl") => Some(Format::JsonLines),
        Some("csv") => Some(Format::Csv),
        Some(_) => Some(Format::Urls),
        None if options.url.is_some() => Some(Format::Csv),
        None => Format::named(&options.file),
    }
}

/// Reads requests to the end, or to the first mistake.
fn send(
    mut reader: impl BufRead + Send + 'static,
    format: Option<Format>,
    defaults: &Defaults,
    progress: &StreamProgress,
    mut each: impl FnMut(Result<Item, InputError>) -> bool,
) {
    let format = format.unwrap_or_else(|| Format::of_text(reader.fill_buf().unwrap_or_default()));
    let mut names = HashMap::new();
    let input = match Input::from_reader(Box::new(reader), format, defaults) {
        Ok(input) => input,
        Err(error) => {
            each(Err(error));
            return;
        }
    };
    for item in input {
        let item = item.and_then(|item| match names.entry(item.id.name.clone()) {
            Entry::Occupied(earlier) => {
                let what = format!("its id {:?} is that of line {}", item.id.name, earlier.get());
                Err(InputError::Line { line: item.line, what })
            }
            Entry::Vacant(free) => {
                free.insert(item.line);
                Ok(item)
            }
        });
        let is_good = item.is_ok();
        progress.read.fetch_add(u64::from(is_good), Ordering::Relaxed);
        if !each(item) || !is_good {
            return;
        }
    }
    progress.ended.store(true, Ordering::Release);
}

/// Removes from the file at `kept` the line with this error and everything below it.
fn keep_before(error: &InputError, kept: &Path) -> io::Result<()> {
    let whole_lines = match error {
        InputError::Line { line, .. } => line.saturating_sub(1),
        // No part of the input is usable.
        InputError::File { .. } | InputError::Template(_) => 0,
    };
    let (mut reader, mut length) = (BufReader::new(File::open(kept)?), 0);
    for _ in 0..whole_lines {
        length += reader.skip_until(b'\n')? as u64;
    }
    OpenOptions::new().write(true).open(kept)?.set_len(length)
}

/// Returns whether the file at `all` begins with the content of the file at `kept`.
pub(super) fn begins_with(all: &Path, kept: &Path) -> io::Result<bool> {
    let (mut all, mut kept) = (BufReader::new(File::open(all)?), BufReader::new(File::open(kept)?));
    loop {
        let (one, other) = (all.fill_buf()?, kept.fill_buf()?);
        let length = one.len().min(other.len());
        if other.is_empty() {
            return Ok(true);
        }
        if length == 0 || one[..length] != other[..length] {
            return Ok(false);
        }
        all.consume(length);
        kept.consume(length);
    }
}

// === impl StreamProgress ===

impl StreamProgress {
    /// Number of requests read so far.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Number of requests, as far as it is known: one more while the pipe has not ended.
    pub(super) fn total(&self) -> u64 {
        self.read() + u64::from(!self.ended.load(Ordering::Acquire))
    }
}

// === impl Tee ===

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.kept.write_all(&buffer[..length])?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> (Vec<Result<String, String>>, u64) {
        let (progress, mut items) = (StreamProgress::default(), Vec::new());
        send(text.as_bytes(), None, &Defaults::default(), &progress, |item| {
            items.push(item.map(|item| item.id.name).map_err(|error| error.to_string()));
            true
        });
        (items, progress.total())
    }

    #[test]
    fn a_stream_ends_at_the_first_mistake() {
        assert_eq!(read("http://a/\nhttp://b/\n"), (vec![Ok("1".into()), Ok("2".into())], 2));
        let (items, total) = read("{\"id\":\"a\",\"url\":\"http://a/\"}\n{\"id\":\"a\",\"url\":\"http://b/\"}\n{}\n");
        assert_eq!(items, [Ok("a".into()), Err("line 2: its id \"a\" is that of line 1".into())]);
        assert_eq!(total, 2, "it has not ended");
    }

    #[test]
    fn a_mistake_and_what_follows_it_are_not_kept() {
        for (error, expected) in [
            (InputError::Line { line: 3, what: String::new() }, "a\r\nb\n"),
            (InputError::Line { line: 9, what: String::new() }, "a\r\nb\noops\nc"),
            (InputError::Template(String::new()), ""),
        ] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(b"a\r\nb\noops\nc").unwrap();
            keep_before(&error, file.path()).unwrap();
            assert_eq!(fs::read_to_string(file.path()).unwrap(), expected, "{error:?}");
        }
    }

    #[test]
    fn what_was_kept_is_the_beginning_of_the_same_pipe() {
        let file = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file
        };
        for (all, kept, expected) in
            [("ab\ncd\n", "ab\nc", true), ("ab\n", "", true), ("ab", "abc", false), ("ax", "ab", false)]
        {
            assert_eq!(begins_with(file(all).path(), file(kept).path()).unwrap(), expected, "{all} {kept}");
        }
    }
}
