//! The file of a state, for one process at a time: its lock, and what is set aside because nobody can read it.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Disk, Header, Reading, Stamp, Store as _, StoreError, Stored};

/// The lock of a state. Beside the number of its process it says until when that was alive and had written all.
#[derive(Debug)]
pub struct StateFile {
    lock: File,
}

/// A state that this process has now.
#[derive(Debug)]
pub struct Opened {
    /// The lock; given up with the process.
    pub file: StateFile,
    /// The store.
    pub store: Disk,
    /// What is in it. The stamp of its header is the latest that is known.
    pub stored: Stored,
    /// What was there and is not any more.
    pub aside: Option<Aside>,
}

/// A state that was set aside.
#[derive(Debug)]
pub struct Aside {
    /// Where it is now.
    pub path: PathBuf,
    /// Why; `None` if that was asked for.
    pub why: Option<StoreError>,
}

/// Why a state cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("the state in {path} is in use by process {pid}", path = path.display())]
    InUse {
        /// Where.
        path: PathBuf,
        /// The number of that process.
        pid: String,
    },
    /// The system says no.
    #[error("could not open the state in {path}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It may be in order, but cannot be read now.
    #[error("could not read the state in {path}", path = path.display())]
    Store {
        /// Where.
        path: PathBuf,
        /// Why.
        source: StoreError,
    },
}

/// What stands in a lock: who has it, and that all was written which had happened by then.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Heartbeat {
    pid: u32,
    /// It is true of the store as it was after so many commits.
    commits: u64,
    stamp: Stamp,
}

// === impl StateFile ===

impl StateFile {
    /// Takes the state at `path`, which is made if it is not there. One that cannot be read is set aside, and so is any if
    /// it is to be `forgotten`.
    pub fn open(path: &Path, forget: bool) -> Result<Opened, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut lock = options().open(beside(path, "lock")).map_err(failed)?;
        let mut said = String::new();
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // Advisory: it can be read all the same.
                let heartbeat = lock.read_to_string(&mut said).ok().and_then(|_| read(&said)).unwrap_or_default();
                return Err(OpenError::InUse { path: path.to_owned(), pid: heartbeat.pid.to_string() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        lock.read_to_string(&mut said).map_err(failed)?;
        let heartbeat = read(&said);
        let mut aside = None;
        if forget && path.exists() {
            aside = Some(Aside { path: set_aside(path).map_err(failed)?, why: None });
        }
        let (store, mut stored) = match open_store(path) {
            Ok(opened) => opened,
            Err(Failed::Io(source)) => return Err(failed(source)),
            Err(Failed::Store(source @ StoreError::Failed(_))) => {
                return Err(OpenError::Store { path: path.to_owned(), source });
            }
            Err(Failed::Store(why)) => {
                aside = Some(Aside { path: set_aside(path).map_err(failed)?, why: Some(why) });
                open_store(path).map_err(|error| match error {
                    Failed::Io(source) => failed(source),
                    Failed::Store(source) => OpenError::Store { path: path.to_owned(), source },
                })?
            }
        };
        if let (Some(header), Some(Heartbeat { commits, stamp, .. })) = (&mut stored.header, heartbeat)
            && header.commits == commits
            && stamp.at > header.stamp.at
        {
            header.stamp = stamp;
        }
        sync_folder(path).map_err(failed)?;
        let file = Self { lock };
        file.beat(&stored.header.clone().unwrap_or_default()).map_err(failed)?;
        Ok(Opened { file, store, stored, aside })
    }

    /// All that happened until the stamp of `header` is written. Survives a kill; not always a power failure, which only
    /// makes the gap longer.
    pub fn beat(&self, header: &Header) -> io::Result<()> {
        let Header { commits, stamp, .. } = header;
        let heartbeat = Heartbeat { pid: std::process::id(), commits: *commits, stamp: stamp.clone() };
        let mut text = serde_json::to_string(&heartbeat).map_err(io::Error::other)?;
        // As long as what may have stood there.
        text = format!("{text:<400}\n");
        self.lock.write_all_at(text.as_bytes(), 0)
    }
}

enum Failed {
    Io(io::Error),
    Store(StoreError),
}

fn open_store(path: &Path) -> Result<(Disk, Stored), Failed> {
    let file = options().open(path).map_err(Failed::Io)?;
    if !file.metadata().map_err(Failed::Io)?.is_file() {
        return Err(Failed::Io(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")));
    }
    let store = Disk::open(file).map_err(Failed::Store)?;
    let stored = store.read().map_err(Failed::Store)?;
    Ok((store, stored))
}

/// For reading and writing, made if it is not there, for its owner alone: it says which APIs somebody uses.
fn options() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

fn read(heartbeat: &str) -> Option<Heartbeat> {
    serde_json::from_str(heartbeat.trim()).ok()
}

/// Renames `path` to a name that nobody has.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let to = beside(path, &format!("aside-{}", Reading::now().unix_seconds()));
    fs::rename(path, &to)?;
    Ok(to)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// That the file is there is to last as well.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}
