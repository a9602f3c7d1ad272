//! File that grows by whole lines. A partial line, which a crash has left, does not count.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::store::sync_name;

/// File of whole lines.
#[derive(Debug)]
pub(super) struct LineFile {
    file: Arc<File>,
    path: PathBuf,
    /// Length of the whole lines, in bytes.
    whole: u64,
}

/// Line with its line feed.
pub(super) struct WholeLine {
    /// Line number, from 1.
    pub(super) number: u64,
    /// Offset of the next line, in bytes.
    pub(super) end: u64,
    pub(super) text: Vec<u8>,
}

/// Operation on a file that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("could not {what} {}", path.display())]
pub struct LineFileError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

// === impl LineFile ===

impl LineFile {
    /// Opens `path`, or creates it. No content counts until [`shorten`](Self::shorten) has set the length of the whole
    /// lines.
    pub(super) fn open(path: &Path) -> Result<Self, LineFileError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = file.map_err(LineFileError::of("open", path))?;
        Ok(Self { file: Arc::new(file), path: path.to_owned(), whole: 0 })
    }

    /// Locks the file for this process; returns `false` if another process holds the lock. Closing the file releases
    /// it.
    pub(super) fn try_lock(&self) -> Result<bool, LineFileError> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(source)) => Err(LineFileError::of("lock", &self.path)(source)),
        }
    }

    /// Returns all whole lines from the start. A partial last line is left out, even if it ends within a character.
    pub(super) fn read(&self) -> Result<impl Iterator<Item = Result<WholeLine, LineFileError>>, LineFileError> {
        let failed = || LineFileError::of("read", &self.path);
        let mut reader = BufReader::new(File::open(&self.path).map_err(failed())?);
        let (mut number, mut end) = (0, 0);
        Ok(std::iter::from_fn(move || {
            let mut text = Vec::new();
            if let Err(source) = reader.read_until(b'\n', &mut text) {
                return Some(Err(failed()(source)));
            }
            (number, end) = (number + 1, end + text.len() as u64);
            text.ends_with(b"\n").then_some(Ok(WholeLine { number, end, text }))
        }))
    }

    /// Truncates the file to `length` bytes, which have to end with a whole line.
    pub(super) fn shorten(&mut self, length: u64) -> Result<(), LineFileError> {
        self.file.set_len(length).map_err(LineFileError::of("write", &self.path))?;
        self.whole = length;
        Ok(())
    }

    /// Appends all of `lines`. After a failure it removes a partial line, because the next line would continue it.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), LineFileError> {
        if let Err(source) = (&*self.file).write_all(lines) {
            // Truncation works on a full disk.
            let _ = self.file.set_len(self.whole);
            return Err(LineFileError::of("write", &self.path)(source));
        }
        self.whole += lines.len() as u64;
        Ok(())
    }

    /// Returns a function that makes all appended lines survive a loss of power. The function blocks its thread, and
    /// others may append meanwhile.
    pub(super) fn sync(&self) -> impl FnOnce() -> Result<(), LineFileError> + Send + 'static {
        let (file, path) = (self.file.clone(), self.path.clone());
        move || file.sync_data().map_err(LineFileError::of("write", &path))
    }

    /// Returns when the name of the file survives a loss of power: the name is in the folder, not in the file.
    pub(super) fn sync_name(&self) -> Result<(), LineFileError> {
        sync_name(&self.path).map_err(LineFileError::of("write", &self.path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the whole lines, in bytes.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }
}

// === impl LineFileError ===

impl LineFileError {
    /// Returns whether the folder of the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Returns a function that turns a system error into the failure of `what` at `path`.
    pub(super) fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { what, path: path.to_owned(), source }
    }
}
