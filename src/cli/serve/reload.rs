//! Loads the configuration of `serve` again while it runs: when a signal asks for it, and when a file has changed.
//!
//! The file is read every second and compared. See docs/decisions/reload.md for the reasons against other ways.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tracing::{error, info, warn};

use super::ServeArgs;
use crate::{
    app::Running,
    cli::{changes, notify},
    config::{Checked, Config, Diagnostic, File},
};

/// The configuration file of a running `serve`, and its last known content.
pub(super) struct ConfigWatch {
    args: ServeArgs,
    path: PathBuf,
    /// Content that was loaded last, whether it was good or not.
    loaded: Seen,
    /// Content seen last, if it differs: the writer of the file may not have finished.
    unfinished: Option<Seen>,
}

/// A configuration file and the files named in it, at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    content: Result<Vec<u8>, io::ErrorKind>,
    named: Vec<Option<FileStamp>>,
}

/// Metadata that changes with a file's content, without reading it: lists of revoked certificates are large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Interval of looking at the file. A change counts once it was seen twice.
const LOOK: Duration = Duration::from_secs(1);

// === impl ConfigWatch ===

impl ConfigWatch {
    /// Watches the configuration file of `args`, if there is one. Must be called before the file is loaded, so that
    /// later changes are seen.
    pub(super) fn new(args: &ServeArgs) -> Option<Self> {
        // A pipe can be read once: reading it again would return no rules.
        let path = args.path().filter(|path| !fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo()))?;
        let file = File::read(path);
        let loaded = Seen { content: content(&file), named: Vec::new() };
        Some(Self { args: args.clone(), path: file.path, loaded, unfinished: None })
    }

    /// Records that `config` was loaded, and watches its files too.
    pub(super) fn loaded(&mut self, config: &Config) {
        self.loaded.named = stamps(config);
    }

    /// Waits until the file, or a file named in it, has changed, and stays unchanged for a moment. Loses nothing when
    /// dropped and called again.
    pub(super) async fn changed(&mut self, config: &Config) {
        loop {
            tokio::time::sleep(LOOK).await;
            let (path, config) = (self.path.clone(), config.clone());
            // Reading a file on another machine may take long.
            let look = tokio::task::spawn_blocking(move || Seen::look(&path, &config).1);
            let Ok(seen) = look.await else { continue };
            if seen == self.loaded {
                self.unfinished = None;
            } else if self.unfinished.as_ref() == Some(&seen) {
                return;
            } else {
                self.unfinished = Some(seen);
            }
        }
    }

    /// Loads the file into `running`; a file with errors changes nothing. Logs the result.
    pub(super) async fn reload(&mut self, running: &mut Running) {
        notify::reloading();
        let (path, config) = (self.path.clone(), running.config().clone());
        // Reading a file on another machine may take long.
        let look = tokio::task::spawn_blocking(move || Seen::look(&path, &config)).await;
        let Ok((file, seen)) = look.inspect_err(|failed| error!(%failed, "could not read the configuration")) else {
            return notify::ready();
        };
        let files = seen.named != self.loaded.named;
        let empty = seen.content.as_ref().is_ok_and(|content| content.trim_ascii().is_empty());
        (self.loaded, self.unfinished) = (seen, None);
        let sources = self.args.sources_with(Some(file));
        match tokio::task::spawn_blocking(move || Config::check(&sources)).await {
            Ok(checked) if empty && !changes::between(running.config(), &checked.config).is_empty() => {
                kept_full(running)
            }
            Ok(checked) if checked.is_usable() => self.take_over(running, &checked, files),
            Ok(checked) => kept(running, &checked.problems),
            Err(failed) => error!(%failed, "could not load the configuration"),
        }
        notify::ready();
    }

    fn take_over(&mut self, running: &mut Running, checked: &Checked, files: bool) {
        let Checked { config, problems, .. } = checked;
        let changes = changes::between(running.config(), config);
        if let Err(error) = running.reload(config, files) {
            let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
            let causes: Vec<String> = causes.map(ToString::to_string).collect();
            error!(error = causes.join(": "), "kept the configuration: the new one cannot be used");
            return running.not_reloaded(vec![causes.join(": ")]);
        }
        self.loaded.named = stamps(config);
        problems
            .iter()
            .for_each(|problem| warn!(problem = problem.to_string(), hint = problem.hint, "in the configuration"));
        for change in &changes {
            if change.restart {
                warn!(change = change.to_string(), "this change needs a restart; until then the old value holds");
            } else {
                info!(change = change.to_string(), "configuration changed");
            }
        }
        info!(file = %self.path.display(), changes = changes.len(), "reloaded the configuration");
    }
}

/// Rejects an empty file. Users do not empty a file to remove all limits: an editor has not written yet, or the disk
/// is full.
fn kept_full(running: &Running) {
    let problem = "the file is empty, and without its rules nothing would be limited";
    error!(
        problem,
        hint = "write the rules into the file; to run without limits, write only a comment, such as `# no rules`",
        "kept the configuration"
    );
    running.not_reloaded(vec![problem.to_owned()]);
}

/// Logs why the configuration stays the same.
fn kept(running: &Running, problems: &[Diagnostic]) {
    for problem in problems.iter().filter(|problem| problem.is_error()) {
        error!(problem = problem.to_string(), hint = problem.hint, "in the new configuration");
    }
    error!("kept the configuration: the new one has errors, see `andante check`");
    running.not_reloaded(problems.iter().filter(|problem| problem.is_error()).map(ToString::to_string).collect());
}

// === impl Seen ===

impl Seen {
    /// The file at `path`, and the files named in `config`.
    fn look(path: &Path, config: &Config) -> (File, Self) {
        let file = match fs::metadata(path) {
            // Reading a pipe would block until a process writes, and its content can be read only once.
            Ok(it) if it.file_type().is_fifo() => {
                let content =
                    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, which is read at the start only"));
                File { path: path.to_owned(), content }
            }
            _ => File::read(path),
        };
        let content = content(&file);
        (file, Self { content, named: stamps(config) })
    }
}

fn content(file: &File) -> Result<Vec<u8>, io::ErrorKind> {
    file.content.as_ref().map(Clone::clone).map_err(io::Error::kind)
}

fn stamps(config: &Config) -> Vec<Option<FileStamp>> {
    let identities = config.rules.iter().filter_map(|rule| rule.egress.identity.as_ref());
    let keys = identities.flat_map(|identity| [&identity.certificate, &identity.key]);
    config.upstream_ca.iter().chain(&config.upstream_crl).chain(keys).map(|path| FileStamp::of(path)).collect()
}

// === impl FileStamp ===

impl FileStamp {
    /// `None` if there is no such file. Follows links.
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}
