//! A file to which whole lines are appended, and of which only whole lines count: what a crash has cut off is no line.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::store::sync_name;

/// The file.
#[derive(Debug)]
pub(super) struct LineFile {
    file: Arc<File>,
    path: PathBuf,
    /// The length of its whole lines.
    whole: u64,
}

/// A line, with its line feed.
pub(super) struct WholeLine {
    /// The first one is 1.
    pub(super) number: u64,
    /// At which byte of the file the next one begins.
    pub(super) end: u64,
    pub(super) text: Vec<u8>,
}

/// What the system does not let be done.
#[derive(Debug, thiserror::Error)]
#[error("could not {what} {}", path.display())]
pub struct LineFileError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

// === impl LineFile ===

impl LineFile {
    /// Opens `path`, which is made if it is not there. Nothing of it counts until [`shorten`](Self::shorten) has said
    /// what does.
    pub(super) fn open(path: &Path) -> Result<Self, LineFileError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = file.map_err(LineFileError::of("open", path))?;
        Ok(Self { file: Arc::new(file), path: path.to_owned(), whole: 0 })
    }

    /// Takes the file for this process; `false` if another one has it. It is given up with the file.
    pub(super) fn try_lock(&self) -> Result<bool, LineFileError> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(source)) => Err(LineFileError::of("lock", &self.path)(source)),
        }
    }

    /// All whole lines from the beginning on. What was cut off anywhere, even within a character, is left out.
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

    /// Removes what follows the first `length` bytes, with which a line ends.
    pub(super) fn shorten(&mut self, length: u64) -> Result<(), LineFileError> {
        self.file.set_len(length).map_err(LineFileError::of("write", &self.path))?;
        self.whole = length;
        Ok(())
    }

    /// Writes all of `lines` or nothing: what follows a piece of a line would be lost with it.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), LineFileError> {
        if let Err(source) = (&*self.file).write_all(lines) {
            // A full disk lets files become shorter.
            let _ = self.file.set_len(self.whole);
            return Err(LineFileError::of("write", &self.path)(source));
        }
        self.whole += lines.len() as u64;
        Ok(())
    }

    /// What makes all that was appended so far outlive a loss of power. It blocks its thread, and lets others append.
    pub(super) fn sync(&self) -> impl FnOnce() -> Result<(), LineFileError> + Send + 'static {
        let (file, path) = (self.file.clone(), self.path.clone());
        move || file.sync_data().map_err(LineFileError::of("write", &path))
    }

    /// Returns when the name of the file outlives a loss of power: it stands in its folder, not in the file.
    pub(super) fn sync_name(&self) -> Result<(), LineFileError> {
        sync_name(&self.path).map_err(LineFileError::of("write", &self.path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of its whole lines.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }
}

// === impl LineFileError ===

impl LineFileError {
    /// Whether its folder is not there.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Makes what the system says the error of what was tried with the file at `path`.
    pub(super) fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { what, path: path.to_owned(), source }
    }
}
