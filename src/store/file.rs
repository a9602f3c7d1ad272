//! The file of a state, for one process at a time: its lock, and states that were set aside because they cannot be
//! read.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Disk, Header, Reading, Stamp, StoreError, Stored, disk};

/// The lock of a state. Holds the process' number, and the time until which that process was alive and had written
/// everything.
#[derive(Debug)]
pub struct StateFile {
    lock: File,
    /// The state itself, locked as well: a user may remove the lock file, or reach the state by a hard link.
    state: File,
}

/// A state that this process has locked.
#[derive(Debug)]
pub struct Opened {
    /// The lock; released with the process.
    pub file: StateFile,
    /// The store. The file is opened with the first commit, which is also when a full disk shows.
    pub store: Disk,
    /// Contents of the store. The stamp of its header is the latest that is known.
    pub stored: Stored,
    /// Number of known commits, including those of a state that was set aside.
    pub commits: u64,
    /// Former state, if this process has set it aside.
    pub aside: Option<Aside>,
}

/// A state that was set aside.
#[derive(Debug)]
pub struct Aside {
    /// New path of the state.
    pub path: PathBuf,
    /// Reason; `None` if the user asked for it.
    pub why: Option<StoreError>,
}

/// Reason why a state cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The state is locked by another process.
    #[error("the state in {path} is in use by {}", holder(*.pid), path = path.display())]
    InUse {
        /// Path of the state.
        path: PathBuf,
        /// Number of that process, if the lock contains it.
        pid: Option<u32>,
    },
    /// The system reports an error.
    #[error("could not open the state in {path}", path = path.display())]
    Io {
        /// Path of the state.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Content of a lock: its owner, and the time until which everything was written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Heartbeat {
    pid: u32,
    /// Number of the commit for which the stamp is true.
    commits: u64,
    stamp: Stamp,
    /// A process continues from this commit. The store may not say so, for example because its disk is full.
    begun: bool,
}

/// Largest file that is read: no state is nearly as large.
const MOST: u64 = 1 << 30;
/// Longest heartbeat that is read: a heartbeat is shorter.
const LINE: u64 = 4096;

// === impl StateFile ===

impl StateFile {
    /// Takes the state at `path`, which is made if it is not there. An unreadable state is set aside, and so is any
    /// state if `forget` is set.
    pub fn open(path: &Path, forget: bool) -> Result<Opened, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let lock = regular(&beside(path, "lock")).map_err(failed)?;
        let taken = |file: &File| match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                // The lock is advisory, so its content is readable.
                let pid = Some(Heartbeat::read(&lock).pid).filter(|pid| *pid != 0);
                Err(OpenError::InUse { path: path.to_owned(), pid })
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        };
        taken(&lock)?;
        let state = regular(path).map_err(failed)?;
        taken(&state)?;
        let mut heartbeat = Heartbeat::read(&lock);
        let mut file = Self { lock, state };
        let mut aside = None;
        if forget {
            heartbeat = Heartbeat::default();
            // The text does not grow, so a full disk has room for it.
            let _ = file.say(heartbeat.clone());
            if has_content(&file.state).map_err(failed)? {
                aside = Some(Aside { path: set_aside(path).map_err(failed)?, why: None });
            }
        }
        let mut stored = match read_store(path, heartbeat.commits) {
            Ok(stored) => stored,
            Err(Failed::Io(source)) => return Err(failed(source)),
            Err(Failed::Store(why)) => {
                // In case of a kill before the next store records the loss, the lock records it.
                heartbeat.commits = heartbeat.commits.max(1);
                let _ = file.say(heartbeat.clone());
                aside = Some(Aside { path: set_aside(path).map_err(failed)?, why: Some(why) });
                Stored::default()
            }
        };
        if let Some(header) = &mut stored.header
            && header.commits == heartbeat.commits
        {
            header.clean &= !heartbeat.begun;
            if heartbeat.stamp.at > header.stamp.at {
                header.stamp = heartbeat.stamp.clone();
            }
        }
        if aside.is_some() {
            file.state = regular(path).map_err(failed)?;
            file.state.try_lock().map_err(|error| failed(error.into()))?;
        }
        let store = Disk::in_file(file.state.try_clone().map_err(failed)?);
        sync_name(path).map_err(failed)?;
        let commits = stored.header.as_ref().map_or(heartbeat.commits, |header| header.commits);
        let stamp = stored.header.as_ref().map(|header| header.stamp.clone()).unwrap_or_default();
        let _ = file.say(Heartbeat { pid: 0, commits, stamp, begun: true });
        Ok(Opened { file, store, stored, commits, aside })
    }

    /// Records that everything is written that happened until the stamp of `header`. Survives a kill; not always a
    /// power failure, which only makes the gap longer.
    pub fn beat(&self, header: &Header) -> io::Result<()> {
        let Header { commits, stamp, clean, .. } = header;
        self.say(Heartbeat { pid: 0, commits: *commits, stamp: stamp.clone(), begun: !clean })
    }

    fn say(&self, heartbeat: Heartbeat) -> io::Result<()> {
        let heartbeat = Heartbeat { pid: std::process::id(), ..heartbeat };
        let mut text = serde_json::to_string(&heartbeat).map_err(io::Error::other)?;
        // The padding covers any earlier text.
        text = format!("{text:<400}\n");
        self.lock.write_all_at(text.as_bytes(), 0)
    }
}

// Unlocks explicitly: a program that is being started holds all open files for a moment, and with them the lock.
impl Drop for StateFile {
    fn drop(&mut self) {
        let _ = self.lock.unlock();
        let _ = self.state.unlock();
    }
}

impl Heartbeat {
    /// Heartbeat in `lock`; the default if the text is no heartbeat.
    fn read(lock: &File) -> Self {
        let mut text = Vec::new();
        let read = lock.take(LINE).read_to_end(&mut text);
        read.ok().and_then(|_| serde_json::from_slice(text.trim_ascii()).ok()).unwrap_or_default()
    }
}

/// Display form of the process that holds a state file.
fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Returns whether the file has content: a new file has none.
fn has_content(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.len() > 0)
}

enum Failed {
    Io(io::Error),
    Store(StoreError),
}

/// Contents of the store at `path`, which had `commits` once. Reads a copy, so that a full or read-only disk does not
/// prevent reading.
fn read_store(path: &Path, commits: u64) -> Result<Stored, Failed> {
    let mut file = regular(path).map_err(Failed::Io)?;
    let corrupt = |what: &str| Err(Failed::Store(StoreError::Corrupt(what.to_owned())));
    if file.metadata().map_err(Failed::Io)?.len() > MOST {
        return corrupt("it is larger than any state");
    }
    let mut copy = Vec::new();
    file.read_to_end(&mut copy).map_err(Failed::Io)?;
    if disk::is_unmade(&copy) && commits == 0 {
        return Ok(Stored::default());
    }
    if copy.is_empty() {
        return corrupt("it is empty or was removed, and there was something in it");
    }
    let stored = Disk::read_copy(&copy).map_err(Failed::Store)?;
    if stored.header.as_ref().map_or(0, |header| header.commits) < commits {
        return corrupt("it is older than what was kept last");
    }
    Ok(stored)
}

/// Opens the file at `path` for reading and writing. Creates a missing file for its owner alone, because its content
/// shows which APIs the owner uses.
fn regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        // Reading a pipe would block.
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no regular file", path.display())))
    }
}

/// Renames `path` to an unused name.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let now = Reading::now().unix_seconds();
    let mut names = (now..).map(|second| beside(path, &format!("aside-{second}")));
    let to = names.find(|to| !to.exists()).expect("there are more seconds than files");
    fs::rename(path, &to)?;
    Ok(to)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// Returns when the name of the file at `path` survives a power failure: the name is in the folder, not in the file.
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
