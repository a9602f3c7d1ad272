//! Sends the remaining requests of a batch, many at a time.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use http::{StatusCode, header::RETRY_AFTER};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::{self, JoinSet},
};

use super::{
    answers::{AnswerFile, AnswersError, ItemOutcome, Received},
    counts::Counts,
    group_commit::{GroupCommit, NotCommitted},
    input::InputError,
    item::{Id, Item},
    journal::{BatchJournal, JournalError},
    requests::{SharedInput, WorkInput},
    send::{self, AndanteConnection, Begins, NotBegun, SendError},
};
use crate::clock::Clock;

/// Batch that is being sent.
pub struct Work {
    proxy: String,
    input: SharedInput,
    /// Names of requests that are not sent: they are answered, may have been executed, or equal another request.
    skipped: HashSet<String>,
    /// Items that equal another item and share its answer, by the name of that item.
    twins: HashMap<String, Vec<Id>>,
    answers: Mutex<AnswerFile>,
    journal: Arc<GroupCommit>,
    counts: Counts,
    /// Failed attempts to reach the API since the last other result, over all requests.
    missed: AtomicU32,
    /// Value of `missed` at which the batch stops, because the API is not reachable.
    misses: u32,
    max_failures: u64,
    clock: Clock,
    stopped: watch::Sender<Option<Arc<Stopped>>>,
}

/// Settings and files from which a batch is created.
pub struct WorkParts {
    /// Address of the andante to send through, as HOST:PORT.
    pub proxy: String,
    /// Requests of the batch, including skipped ones.
    pub input: WorkInput,
    /// Names of requests that are not sent.
    pub skipped: HashSet<String>,
    /// Items that equal another item and share its answer, by the name of that item.
    pub twins: HashMap<String, Vec<Id>>,
    /// File for the answers.
    pub answers: AnswerFile,
    /// Journal of the requests that have begun.
    pub journal: BatchJournal,
    /// Number of requests to send; `u64::MAX` for a pipe.
    pub left: u64,
    /// Number of failures at which the batch stops.
    pub max_failures: u64,
    /// Clock for pauses and syncs.
    pub clock: Clock,
}

/// Result of sending an item.
enum Came {
    Outcome(ItemOutcome),
    /// The request has begun, must not be sent twice, and its outcome is unknown.
    Unknown,
    /// The request was not sent.
    Nothing,
}

/// Meaning of an answer.
enum AnswerMeaning {
    Came(Came),
    /// The request is to be sent again after this delay.
    Resend(Duration),
    /// The API could not be reached, so nothing was sent. Holds the outcome and its message.
    Unreached(ItemOutcome, String),
}

/// Problem document of andante's own answers (RFC 9457).
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct ProblemDetails {
    detail: String,
    hint: Option<String>,
}

/// Reason why the batch stopped before all requests were sent.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// A signal asked for the stop.
    #[error("it was interrupted")]
    Interrupted,
    /// Too many requests have failed. Holds their number.
    #[error("{0} requests have failed")]
    Failures(u64),
    /// The API could not be reached many times in a row. Holds the last message.
    #[error("{0}")]
    NoApi(String),
    /// andante could not be reached, and no request has an outcome yet.
    #[error("could not connect to {proxy}")]
    NoProxy {
        /// Address of the andante, as HOST:PORT.
        proxy: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The answer file cannot be written.
    #[error(transparent)]
    Answers(AnswersError),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(JournalError),
    /// The input cannot be read, or has a mistake: a file has changed since its check, or a pipe, checked only as it is
    /// read, has a faulty line.
    #[error(transparent)]
    Input(InputError),
}

/// First pause before a request is sent again, after its connection failed or its answer broke off. Each further pause
/// is twice as long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(50);
/// Longest pause between attempts: the batch resumes soon after andante is back.
const LONGEST: Duration = Duration::from_secs(2);
/// Attempts for a request whose answer breaks off each time.
const TRIES: u32 = 5;
/// Retries of a request for which the API could not be reached. The next failure is its outcome.
const CONNECTS: u32 = 3;
/// Failures in a row to reach the API at which the batch stops: so many are no mistake in a single line.
const MISSES: u32 = 20;
/// Pause before each retry that [`CONNECTS`] counts.
const BETWEEN: Duration = Duration::from_secs(1);
/// Interval of syncs of the answer file. A loss of power may lose the answers since the last sync.
const SYNC: Duration = Duration::from_secs(1);

// === impl Work ===

impl Work {
    /// Creates a batch that has not begun.
    pub fn new(parts: WorkParts) -> Self {
        let WorkParts { proxy, input, skipped, twins, answers, journal, left, max_failures, clock } = parts;
        // Few requests would use up all their retries before `MISSES` failures, so their bound is lower.
        let misses = u32::try_from(left).unwrap_or(u32::MAX).saturating_mul(CONNECTS).min(MISSES);
        let (answers, journal) = (Mutex::new(answers), Arc::new(GroupCommit::new(journal)));
        let input = SharedInput::from(input);
        Self {
            proxy,
            input,
            skipped,
            twins,
            answers,
            journal,
            counts: Counts::default(),
            missed: AtomicU32::new(0),
            misses,
            max_failures,
            clock,
            stopped: watch::channel(None).0,
        }
    }

    /// Sends the remaining requests, `parallel` at a time, until none is left or the batch is stopped. Returns the
    /// reason of a stop.
    pub async fn run(self: &Arc<Self>, parallel: usize) -> Option<Arc<Stopped>> {
        let mut workers = JoinSet::new();
        for _ in 0..parallel {
            let work = self.clone();
            workers.spawn(async move { work.one_after_the_other().await });
        }
        let mut next_sync = self.clock.now() + SYNC;
        loop {
            tokio::select! {
                joined = workers.join_next() => if joined.is_none() { break },
                () = self.clock.sleep_until(next_sync) => {
                    next_sync = self.clock.now() + SYNC;
                    self.sync().await;
                }
            }
        }
        self.sync().await;
        self.stopped.borrow().clone()
    }

    /// Stops the batch; the first reason counts. Requests in flight are given up, except those that have begun and must
    /// not be sent twice.
    pub fn stop(&self, why: Stopped) {
        self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            if first {
                *stopped = Some(Arc::new(why));
            }
            first
        });
    }

    /// Counts of the progress.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Clears the journal, because all requests are answered.
    pub fn finish(&self) -> Result<(), JournalError> {
        self.journal.finish()
    }

    async fn sync(&self) {
        let sync = self.answers.lock().sync();
        let synced = task::spawn_blocking(sync).await.expect("a sync does not panic");
        synced.unwrap_or_else(|error| self.stop(Stopped::Answers(error)));
    }

    async fn one_after_the_other(self: Arc<Self>) {
        let mut connection = None;
        let mut stopped = self.stopped.subscribe();
        while stopped.borrow_and_update().is_none() {
            // A pipe may be silent for any time, so a stop has to end the wait.
            let next = tokio::select! { item = self.next() => item, () = is_stopped(&mut stopped) => None };
            let Some(item) = next else { return };
            let begun = Arc::new(AtomicBool::new(false));
            let mut sending = pin!(self.obtain(&item, &mut connection, &begun));
            let came = tokio::select! {
                came = &mut sending => came,
                () = is_stopped(&mut stopped) => {
                    // A request that may be sent again is given up. Giving it up costs nothing while it only waits.
                    if !begun.load(Ordering::Acquire) {
                        self.counts.given_up.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    sending.await
                }
            };
            self.record(&item, came);
        }
    }

    /// Returns the next request to send; `None` at the end of the input, or at a mistake.
    async fn next(&self) -> Option<Item> {
        match self.input.next(&self.skipped).await? {
            Ok(item) => Some(item),
            Err(error) => {
                self.stop(Stopped::Input(error));
                None
            }
        }
    }

    /// Sends `item`, more than once if necessary, and returns the result.
    async fn obtain(
        self: &Arc<Self>,
        item: &Item,
        connection: &mut Option<AndanteConnection>,
        begun: &Arc<AtomicBool>,
    ) -> Came {
        let (mut pause, mut tries, mut connects) = (FIRST, 0, 0);
        loop {
            begun.store(false, Ordering::Release);
            // Without a body there is no `100 Continue`, which would tell that the request begins: it is recorded
            // before it is sent.
            let begins = match self.begins(item, begun) {
                Some(begins) if item.body.is_empty() => match begins.await {
                    Ok(()) => None,
                    Err(NotBegun) => return Came::Nothing,
                },
                begins => begins,
            };
            let sent = send::send(connection, &self.proxy, item, begins).await;
            if sent.is_ok() {
                self.counts.unreached.store(false, Ordering::Relaxed);
            }
            let wait = match sent.map(|received| AnswerMeaning::of(received, item)) {
                Ok(AnswerMeaning::Came(came)) => {
                    self.missed.store(0, Ordering::Relaxed);
                    return came;
                }
                Ok(AnswerMeaning::Unreached(outcome, message)) => {
                    connects += 1;
                    // A later run would treat a request in the journal as unknown, although it was not sent. So its
                    // failure is recorded now.
                    if begun.load(Ordering::Acquire) || connects > CONNECTS {
                        return Came::Outcome(outcome);
                    }
                    if self.stops_unreachable(message) {
                        return Came::Nothing;
                    }
                    BETWEEN
                }
                Ok(AnswerMeaning::Resend(wait)) => wait,
                Err(error) => {
                    *connection = None;
                    if begun.load(Ordering::Acquire) && !error.is_unsent() {
                        return Came::Unknown;
                    }
                    if let SendError::Cut(cause) = &error {
                        tries += 1;
                        if tries >= TRIES {
                            let message = cause.to_string();
                            return Came::Outcome(ItemOutcome::Failed { code: "incomplete".into(), message });
                        }
                    }
                    self.not_sent(error, pause);
                    let longer = (pause * 2).min(LONGEST);
                    std::mem::replace(&mut pause, longer)
                }
            };
            self.clock.sleep_until(self.clock.now() + wait).await;
        }
    }

    /// Counts an attempt that did not reach the API. Stops the batch after too many of them, and then returns `true`.
    fn stops_unreachable(&self, message: String) -> bool {
        let stops = self.missed.fetch_add(1, Ordering::Relaxed) + 1 >= self.misses;
        if stops {
            self.stop(Stopped::NoApi(message));
        }
        stops
    }

    /// Records an attempt that did not reach andante; `pause` passes before the next one. Stops a batch that has
    /// never reached andante.
    fn not_sent(&self, error: SendError, pause: Duration) {
        match error {
            SendError::Connect(source) if self.counts.done() == 0 && pause >= LONGEST => {
                self.stop(Stopped::NoProxy { proxy: self.proxy.clone(), source });
            }
            SendError::Connect(_) | SendError::Broken(_) => self.counts.unreached.store(true, Ordering::Relaxed),
            SendError::Cut(_) => {}
        }
    }

    /// Returns a future that records in the journal that `item` begins; `None` if `item` may be sent twice. After a
    /// failed record, `item` must not begin.
    fn begins(self: &Arc<Self>, item: &Item, begun: &Arc<AtomicBool>) -> Option<Begins> {
        if item.is_repeatable() {
            return None;
        }
        let (work, name, begun) = (self.clone(), item.id.name.clone(), begun.clone());
        Some(Box::pin(async move {
            // From here on a stop does not give the request up: it may be in the journal, and then its outcome would be
            // unknown.
            begun.store(true, Ordering::Release);
            let Err(NotCommitted(why)) = work.journal.begins(name).await else { return Ok(()) };
            begun.store(false, Ordering::Release);
            why.into_iter().for_each(|error| work.stop(Stopped::Journal(error)));
            Err(NotBegun)
        }))
    }

    fn record(&self, item: &Item, came: Came) {
        let twins = self.twins.get(&item.id.name).map_or(&[][..], Vec::as_slice);
        let ids: Vec<&Id> = [&item.id].into_iter().chain(twins).collect();
        let outcome = match came {
            Came::Outcome(outcome) => outcome,
            Came::Unknown => return self.counts.unknown.lock().extend(ids.iter().map(|id| id.name.clone())),
            Came::Nothing => return,
        };
        let written = self.answers.lock().write(&ids, &outcome);
        if let Err(error) = written {
            return self.stop(Stopped::Answers(error));
        }
        let failed = self.counts.note(&outcome, ids.len() as u64);
        if failed >= self.max_failures {
            self.stop(Stopped::Failures(failed));
        }
    }
}

/// Waits until the batch is stopped.
async fn is_stopped(stopped: &mut watch::Receiver<Option<Arc<Stopped>>>) {
    // The sender is not dropped: the batch owns it, and outlives this wait.
    let _ = stopped.wait_for(Option::is_some).await;
}

// === impl AnswerMeaning ===

impl AnswerMeaning {
    /// Interprets `received`: an answer of the API is an outcome, and an answer of andante itself tells why there is
    /// none.
    fn of(received: Received, item: &Item) -> Self {
        let Some(code) = send::own_error(&received.headers) else {
            return Self::Came(Came::Outcome(ItemOutcome::Answered(received)));
        };
        // The upstream may have executed the request (RFC 9209 §2.3).
        if matches!(code.as_str(), "connection_terminated" | "http_response_timeout") && !item.is_repeatable() {
            return Self::Came(Came::Unknown);
        }
        // Refusals of a request that was not sent: full queue, too long a wait, Idempotency-Key in use, drain, or lack
        // of resources.
        let waits = [StatusCode::TOO_MANY_REQUESTS, StatusCode::CONFLICT].contains(&received.status);
        let refused = (waits && code == "http_request_denied") || received.status == StatusCode::SERVICE_UNAVAILABLE;
        if refused {
            let asked = received.headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
            return Self::Resend(Duration::from_secs(asked.unwrap_or(1)));
        }
        let ProblemDetails { detail, hint } = serde_json::from_slice(&received.body).unwrap_or_default();
        let message = hint.map(|hint| format!("{detail}: {hint}")).unwrap_or(detail);
        let unreached = UNREACHED.contains(&code.as_str());
        let outcome = ItemOutcome::Failed { code, message: message.clone() };
        if unreached { Self::Unreached(outcome, message) } else { Self::Came(Came::Outcome(outcome)) }
    }
}

/// Error types after which it is certain that nothing was sent, because no connection was established (RFC 9209 §2.3).
const UNREACHED: [&str; 6] = [
    "connection_refused",
    "connection_timeout",
    "destination_ip_unroutable",
    "destination_unavailable",
    "dns_error",
    "dns_timeout",
];
