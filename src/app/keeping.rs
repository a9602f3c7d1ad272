//! Persists the state of lanes. Opens it, writes changes every second, blocks of long quotas at once, and the rest at
//! the end.

#[cfg(test)]
mod power_failures;
#[cfg(test)]
mod tests;

use std::{
    env,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::oneshot};
use tracing::{error, info, warn};

use crate::{
    admin::status::StateStatus,
    clock::{Clock, log_seconds},
    config::{Config, StatePlace},
    lane::{KeepRequest, KeptLanes, Lane, Lanes, Past, UnreadLane, write_down},
    limit::Gap,
    metrics::Metrics,
    proxy::{self, Proxy},
    store::{Aside, Batch, Header, OpenError, Opened, Reading, StateFile, Store, StoreError, Stored},
};

/// The state of this process, before any request is sent.
pub(super) struct Keeping {
    file: StateFile,
    store: Box<dyn Store>,
    header: Header,
    requests: mpsc::Receiver<KeepRequest>,
    sender: mpsc::Sender<KeepRequest>,
    clock: Clock,
    readings: Readings,
    report: Arc<StateReport>,
}

/// Source of the readings of the machine's clocks.
type Readings = Box<dyn Fn() -> Reading + Send>;

/// Handle of the writing thread.
pub(super) struct Writer {
    requests: mpsc::Sender<KeepRequest>,
    thread: JoinHandle<()>,
    pub(super) report: Arc<StateReport>,
}

/// State of the writing, for people.
#[derive(Debug)]
pub(super) struct StateReport {
    path: PathBuf,
    last: Mutex<LastCommit>,
}

#[derive(Clone, Debug, Default)]
struct LastCommit {
    commits: u64,
    problem: Option<String>,
}

/// Interval of writing changes.
const EVERY: Duration = Duration::from_secs(1);

// === impl Keeping ===

impl Keeping {
    /// Opens the state that `config` names for a process that listens on `listen`, with its lanes. Without a state,
    /// returns only a clock that begins now.
    pub(super) fn open(
        config: &Config,
        listen: &[SocketAddr],
        forget: bool,
    ) -> Result<(Clock, Option<(Self, KeptLanes)>), OpenError> {
        let Some(path) = Self::path(config, listen) else { return Ok((Clock::start(), None)) };
        let usual = matches!(config.state, StatePlace::Usual);
        let opened = match StateFile::open(&path, forget) {
            Ok(opened) => opened,
            // The user did not ask for a state here.
            Err(OpenError::Io { path, source }) if usual => {
                warn!(
                    path = %path.display(), error = %source,
                    "a restart will forget what was sent: the state cannot be kept here; name a place with --state FILE, \
                     or say --state off"
                );
                return Ok((Clock::start(), None));
            }
            Err(error) => return Err(error),
        };
        let (keeping, kept) = Self::begin(path, opened, Box::new(Reading::now));
        Ok((keeping.clock, Some((keeping, kept))))
    }

    /// Path of the state that `config` names for a process that listens on `listen`; `None` if none is kept.
    pub(super) fn path(config: &Config, listen: &[SocketAddr]) -> Option<PathBuf> {
        match &config.state {
            StatePlace::Off => None,
            StatePlace::At(path) => Some(path.clone()),
            StatePlace::Usual => usual_path(config, listen),
        }
    }

    fn begin(path: PathBuf, opened: Opened, readings: Readings) -> (Self, KeptLanes) {
        let Opened { file, store, stored, commits, aside } = opened;
        let Stored { header: before, lanes } = stored;
        let reading = readings();
        let (clock, away) = match &before {
            Some(header) => (reading.resume(&header.stamp), reading.since(&header.stamp)),
            None => (Clock::start(), Duration::ZERO),
        };
        let now = clock.now();
        let gap = before.as_ref().and_then(|header| {
            // An earlier gap is merged into this one: lanes that were not requested since then have both.
            let stamp = Some(header.stamp.at);
            let from = header.gap.map_or(stamp, |gap| gap.from.min(stamp));
            if header.clean { header.gap } else { Some(Gap { from, until: now }) }
        });
        let is_lost = aside.as_ref().is_some_and(|aside| aside.why.is_some());
        let lost = if is_lost { Some(now) } else { before.as_ref().and_then(|header| header.lost) };
        let past = Past { gap, lost, until: before.as_ref().map(|_| now) };
        let (sender, requests) = mpsc::channel();
        let stored = lanes.iter().map(|(id, text)| (id.as_str(), text.as_slice()));
        let (kept, unread) = KeptLanes::read(stored, past, now, sender.clone());
        let shown = path.display();
        match &aside {
            Some(Aside { path: aside, why: Some(why) }) => error!(
                path = %shown, aside = %aside.display(), why = %why,
                "the state cannot be read and is set aside: all limits count as used up, long quotas until they are \
                 renewed; restart with --forget if nothing was used of them"
            ),
            Some(Aside { path: aside, why: None }) => {
                warn!(path = %shown, aside = %aside.display(), "the state is set aside and forgotten, as --forget asks");
            }
            None => {}
        }
        if before.as_ref().is_some_and(|header| !header.clean) {
            let unknown_s = log_seconds(away);
            warn!(path = %shown, unknown_s, "the last andante did not shut down cleanly: it counts as having sent all that the limits allow in that time");
        }
        for UnreadLane { problem, .. } in &unread {
            error!(path = %shown, problem, "the saved state of a lane cannot be read: all of its limits count as used up");
        }
        if before.is_some() {
            info!(path = %shown, lanes = kept.len(), away_s = log_seconds(away), "resumed from the saved state");
        }
        let stamp = readings().stamp(now);
        let secret = before.as_ref().map(|header| header.secret).filter(|secret| *secret != [0; 2]);
        let secret = secret.unwrap_or_else(proxy::new_secret);
        // Must come before any request, because budgets are looked up with this secret.
        proxy::set_secret(secret);
        let header = Header { version: Header::VERSION, commits, stamp, clean: false, gap, lost, secret };
        let report = Arc::new(StateReport { path, last: Mutex::default() });
        let mut keeping = Self { file, store: Box::new(store), header, requests, sender, clock, readings, report };
        let rows: Vec<_> = unread.into_iter().map(|UnreadLane { id, text, .. }| (id, text)).collect();
        keeping.commit(keeping.header.clone(), &rows, &[]);
        (keeping, kept)
    }

    /// Returns whether the last write failed.
    fn fails(&self) -> bool {
        self.report.last.lock().problem.is_some()
    }

    /// Commits `lanes` and removes `gone`, with `header` as the store's new header. Returns whether the commit is
    /// durable.
    fn commit(&mut self, header: Header, lanes: &[(Arc<str>, Vec<u8>)], gone: &[Arc<str>]) -> bool {
        let header = Header { commits: header.commits + 1, ..header };
        let done = self.store.commit(&Batch { header: &header, lanes, gone });
        if done.is_ok() {
            // On failure the next process uses the store's own header.
            let _ = self.file.beat(&header);
            self.header = header;
        }
        self.tell(done.err())
    }

    /// Records that nothing has changed up to the stamp of `header`.
    fn beat(&mut self, header: Header) -> bool {
        let done = self.file.beat(&header).map_err(|error| StoreError::Failed(error.to_string()));
        if done.is_ok() {
            self.header = header;
        }
        self.tell(done.err())
    }

    /// Logs when writing begins to fail, and when it works again. Returns whether it works.
    fn tell(&self, failed: Option<StoreError>) -> bool {
        let mut last = self.report.last.lock();
        last.commits = self.header.commits;
        let path = self.report.path.display();
        match (&failed, last.problem.take()) {
            (Some(failed), None) => error!(
                %path, error = %failed,
                "the state cannot be written: trying again each second, and pacing continues; if andante is killed before a \
                 write succeeds, the usage of long quotas since the last write is lost"
            ),
            (None, Some(_)) => info!(%path, "the state is written again"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        last.problem = failed.as_ref().map(ToString::to_string);
        failed.is_none()
    }

    /// Gives the store up. Lanes that need blocks of their long quotas continue without: their records belong to the
    /// next process.
    fn release(self, done: oneshot::Sender<()>) {
        let Self { file, store, requests, .. } = self;
        drop((file, store));
        // The requester waits for this message.
        let _ = done.send(());
        for request in requests {
            match request {
                KeepRequest::Block(lane) => lane.unkept(),
                KeepRequest::Release(_) => {}
                KeepRequest::End => return,
            }
        }
    }

    /// Starts writing changes of the lanes of `proxy`.
    pub(super) fn start(self, proxy: &Arc<Proxy>, metrics: &Metrics) -> std::io::Result<Writer> {
        let (requests, handle, report) = (self.sender.clone(), Handle::current(), self.report.clone());
        metrics.state_written(!self.fails());
        let writing = Writing { keeping: self, metrics: metrics.clone() };
        metrics.show_state();
        let proxy = Arc::downgrade(proxy);
        let thread = thread::Builder::new().name("state".to_owned()).spawn(move || {
            // Lanes whose blocks are written continue in this runtime.
            let _runtime = handle.enter();
            writing.run(|| proxy.upgrade());
        })?;
        Ok(Writer { requests, thread, report })
    }
}

impl Writer {
    /// Writes the rest, and gives the store to the next process. Requests that leave afterwards are recorded by that
    /// process.
    pub(super) async fn release(&self) {
        let (done, released) = oneshot::channel();
        // Before that, the thread ends only after a failure, which it has logged.
        let _ = self.requests.send(KeepRequest::Release(done));
        let _ = released.await;
    }

    /// Writes the rest, and marks it as final. No request may leave any more.
    pub(super) async fn finish(self) {
        // Before that, the thread ends only after a failure, which it has logged.
        let _ = self.requests.send(KeepRequest::End);
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

/// State of the writing thread.
struct Writing {
    keeping: Keeping,
    metrics: Metrics,
}

impl Writing {
    fn run(mut self, proxy: impl Fn() -> Option<Arc<Proxy>>) {
        let clock = self.keeping.clock;
        let mut next = clock.now() + EVERY;
        loop {
            let wait = next.since(clock.now());
            let (mut asked, mut ends, mut released) = (Vec::new(), false, None);
            match self.keeping.requests.recv_timeout(wait) {
                Ok(first) => {
                    for request in std::iter::once(first).chain(self.keeping.requests.try_iter()) {
                        match request {
                            KeepRequest::Block(lane) => asked.push(lane),
                            KeepRequest::Release(done) => released = Some(done),
                            KeepRequest::End => ends = true,
                        }
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            let Some(proxy) = proxy() else { return };
            let now = clock.now();
            let last = ends || released.is_some();
            let due = last || now >= next;
            if due {
                next = now + EVERY;
            }
            self.write(&proxy.lanes, &asked, due, last);
            if let Some(done) = released {
                return self.keeping.release(done);
            }
            if ends {
                return;
            }
        }
    }

    /// Writes the lanes in `asked`; when a write is `due`, also all lanes that have changed.
    fn write(&mut self, lanes: &Lanes, asked: &[Arc<Lane>], due: bool, last: bool) {
        let keeping = &mut self.keeping;
        let failing = keeping.fails();
        // Read before the lanes: later events may be missing from the records. The order of the clocks matters: the
        // next process' clock may be late, and must not be early.
        let at = keeping.clock.now();
        let stamp = (keeping.readings)().stamp(at);
        // Read before the lanes, too: a lane that is requested again in between is written after its removal.
        let gone = if due { lanes.gone() } else { Vec::new() };
        let mut written: Vec<_> = write_down(asked.iter(), true, last).collect();
        if due {
            written.extend(write_down(lanes.all().iter(), last, last));
        }
        let mut header = keeping.header.clone();
        if due {
            header.stamp = stamp;
        }
        header.clean = last;
        let done = if failing && !due {
            // A single attempt per second is enough to notice that the disk is full: opening the store reads all of
            // it.
            false
        } else if !written.is_empty() || !gone.is_empty() || last || failing {
            let rows: Vec<_> = written.iter().map(|lane| (lane.id.clone(), lane.text.clone())).collect();
            keeping.commit(header, &rows, &gone)
        } else {
            !due || keeping.beat(header)
        };
        self.metrics.state_written(!keeping.fails());
        written.iter().for_each(|lane| lane.done(done));
        if !done {
            lanes.forgotten(gone);
        }
    }
}

impl StateReport {
    pub(super) fn status(&self) -> StateStatus {
        let LastCommit { commits, problem } = self.last.lock().clone();
        StateStatus { file: self.path.display().to_string(), commits_total: commits, problem }
    }
}

/// Default place of the state: a file in the folder for state, named after andante's first listening address, so that
/// several andantes have one each. `None` if a port is picked each time, or there is no such folder.
fn usual_path(config: &Config, listen: &[SocketAddr]) -> Option<PathBuf> {
    let first = *listen.first()?;
    if config.listen.iter().any(|asked| asked.port() == 0) {
        return None;
    }
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd separates several folders by colons; the first is andante's.
    let of_systemd =
        || env::var("STATE_DIRECTORY").ok()?.split(':').next().map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = || {
        let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
        state.map(|state| state.join("andante"))
    };
    let folder = of_systemd().or_else(|| config.data.clone()).or_else(of_user)?;
    let address: String =
        first.to_string().chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    Some(folder.join(format!("limits-{address}.redb")))
}
