//! Sends what is left of a batch, many requests at a time.

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

/// A batch at work.
pub struct Work {
    proxy: String,
    input: SharedInput,
    /// What is not sent, by name: it was answered, or nobody knows whether it was done, or it equals another one.
    skipped: HashSet<String>,
    /// Those that equal an item and get its answer.
    twins: HashMap<String, Vec<Id>>,
    answers: Mutex<AnswerFile>,
    journal: Arc<GroupCommit>,
    counts: Counts,
    /// For how many nobody could connect to the API since it has answered.
    missed: AtomicU32,
    /// For so many in a row there is no API at all.
    misses: u32,
    max_failures: u64,
    clock: Clock,
    stopped: watch::Sender<Option<Arc<Stopped>>>,
}

/// What is needed to begin.
pub struct WorkParts {
    /// The andante to send through, as HOST:PORT.
    pub proxy: String,
    /// The requests, from the first one on.
    pub input: WorkInput,
    /// Names of those that are not sent.
    pub skipped: HashSet<String>,
    /// Those that equal the item of a name, and get its answer.
    pub twins: HashMap<String, Vec<Id>>,
    /// Where answers go.
    pub answers: AnswerFile,
    /// What has begun.
    pub journal: BatchJournal,
    /// How many are to be sent.
    pub left: u64,
    /// How many may fail.
    pub max_failures: u64,
    /// Tells the time.
    pub clock: Clock,
}

/// What comes of an item.
enum Came {
    Outcome(ItemOutcome),
    /// It has begun, must not begin twice, and nobody knows how it ended.
    Unknown,
    /// It was not sent.
    Nothing,
}

/// What an answer means.
enum AnswerMeaning {
    Came(Came),
    /// It is to be sent again, so much later.
    Resend(Duration),
    /// Nobody could connect to the API: nothing was sent.
    Unreached(ItemOutcome, String),
}

/// What andante's own answers say (RFC 9457).
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct ProblemDetails {
    detail: String,
    hint: Option<String>,
}

/// Why not all was sent.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// Somebody asked for it.
    #[error("it was interrupted")]
    Interrupted,
    /// Too many requests have failed.
    #[error("{0} requests have failed")]
    Failures(u64),
    /// The API is not there: nobody could connect to it for so many requests, one after the other.
    #[error("{0}")]
    NoApi(String),
    /// andante was never there.
    #[error("could not connect to {proxy}")]
    NoProxy {
        /// Where.
        proxy: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Answers cannot be written.
    #[error(transparent)]
    Answers(AnswersError),
    /// What begins cannot be written.
    #[error(transparent)]
    Journal(JournalError),
    /// The input has changed while it was read.
    #[error(transparent)]
    Input(InputError),
}

/// The first pause after a connection failed; each further one is twice as long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(50);
/// So long is a pause at most.
const LONGEST: Duration = Duration::from_secs(2);
/// So often is an answer asked for that breaks off.
const TRIES: u32 = 5;
/// So often a request is sent that nobody could connect for, before that is what came of it,
const CONNECTS: u32 = 3;
/// unless it is so for so many in a row: then it is no mistake in a line.
const MISSES: u32 = 20;
/// The pause before each of them.
const BETWEEN: Duration = Duration::from_secs(1);
/// How often what was written is made to last.
const SYNC: Duration = Duration::from_secs(1);

// === impl Work ===

impl Work {
    /// A batch that has not begun.
    pub fn new(parts: WorkParts) -> Self {
        let WorkParts { proxy, input, skipped, twins, answers, journal, left, max_failures, clock } = parts;
        // Where few are left each of them comes to nothing before it is so for many.
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

    /// Sends what is left, `parallel` requests at a time, until all of it has its answer or something stops it.
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

    /// Sends nothing more. What has begun gets its answer.
    pub fn stop(&self, why: Stopped) {
        self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            if first {
                *stopped = Some(Arc::new(why));
            }
            first
        });
    }

    /// How far it is.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Forgets what had begun, as all of it is answered.
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
            // A pipe may be silent for as long as it likes.
            let next = tokio::select! { item = self.next() => item, () = is_stopped(&mut stopped) => None };
            let Some(item) = next else { return };
            let begun = Arc::new(AtomicBool::new(false));
            let mut sending = pin!(self.obtain(&item, &mut connection, &begun));
            let came = tokio::select! {
                came = &mut sending => came,
                () = is_stopped(&mut stopped) => {
                    // What can be sent again is given up: it costs nothing where it only waits.
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

    /// The next request that is to be sent.
    async fn next(&self) -> Option<Item> {
        match self.input.next(&self.skipped).await? {
            Ok(item) => Some(item),
            Err(error) => {
                self.stop(Stopped::Input(error));
                None
            }
        }
    }

    /// What comes of `item`.
    async fn obtain(
        self: &Arc<Self>,
        item: &Item,
        connection: &mut Option<AndanteConnection>,
        begun: &Arc<AtomicBool>,
    ) -> Came {
        let (mut pause, mut tries, mut connects) = (FIRST, 0, 0);
        loop {
            begun.store(false, Ordering::Release);
            // Without a body nothing is asked for, and nothing tells when the request begins.
            let begins = match self.begins(item, begun) {
                Some(begins) if item.body.is_empty() => match begins.await {
                    Ok(()) => None,
                    Err(NotBegun) => return Came::Nothing,
                },
                begins => begins,
            };
            match send::send(connection, &self.proxy, item, begins).await {
                Ok(received) => {
                    self.counts.unreached.store(false, Ordering::Relaxed);
                    match AnswerMeaning::of(received, item) {
                        AnswerMeaning::Came(came) => {
                            self.missed.store(0, Ordering::Relaxed);
                            return came;
                        }
                        AnswerMeaning::Unreached(outcome, message) => {
                            connects += 1;
                            // Written down as begun it would be in doubt the next time, and it is known that it was not sent.
                            if begun.load(Ordering::Acquire) || connects > CONNECTS {
                                return Came::Outcome(outcome);
                            }
                            if self.missed.fetch_add(1, Ordering::Relaxed) + 1 >= self.misses {
                                self.stop(Stopped::NoApi(message));
                                return Came::Nothing;
                            }
                            self.clock.sleep_until(self.clock.now() + BETWEEN).await;
                        }
                        AnswerMeaning::Resend(wait) => self.clock.sleep_until(self.clock.now() + wait).await,
                    }
                    continue;
                }
                Err(error) => {
                    *connection = None;
                    if begun.load(Ordering::Acquire) && !error.is_unsent() {
                        return Came::Unknown;
                    }
                    match error {
                        SendError::Cut(cause) => {
                            tries += 1;
                            if tries >= TRIES {
                                let message = cause.to_string();
                                return Came::Outcome(ItemOutcome::Failed { code: "incomplete".into(), message });
                            }
                        }
                        SendError::Connect(source) if self.counts.done() == 0 && pause >= LONGEST => {
                            self.stop(Stopped::NoProxy { proxy: self.proxy.clone(), source });
                        }
                        SendError::Connect(_) | SendError::Broken(_) => {
                            self.counts.unreached.store(true, Ordering::Relaxed);
                        }
                    }
                }
            }
            self.clock.sleep_until(self.clock.now() + pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Writes down that `item` begins, if it must not begin twice. What cannot be written down does not begin.
    fn begins(self: &Arc<Self>, item: &Item, begun: &Arc<AtomicBool>) -> Option<Begins> {
        if item.is_repeatable() {
            return None;
        }
        let (work, name, begun) = (self.clone(), item.id.name.clone(), begun.clone());
        Some(Box::pin(async move {
            // From here on nobody gives it up: it would be in the journal, and in doubt.
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

/// Waits until somebody has stopped the batch.
async fn is_stopped(stopped: &mut watch::Receiver<Option<Arc<Stopped>>>) {
    // The batch, which sends it, outlives whoever waits.
    let _ = stopped.wait_for(Option::is_some).await;
}

// === impl AnswerMeaning ===

impl AnswerMeaning {
    /// What `received` means: the API's answers are answers; andante's own say why there is none.
    fn of(received: Received, item: &Item) -> Self {
        let Some(code) = send::own_error(&received.headers) else {
            return Self::Came(Came::Outcome(ItemOutcome::Answered(received)));
        };
        // It has not been sent: the queue is full, or its patience would be over before its turn, or an equal one is under
        // way, or andante is about to end.
        let waits = [StatusCode::TOO_MANY_REQUESTS, StatusCode::CONFLICT].contains(&received.status);
        let refused = (waits && code == "http_request_denied") || received.status == StatusCode::SERVICE_UNAVAILABLE;
        if refused {
            let asked = received.headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
            return Self::Resend(Duration::from_secs(asked.unwrap_or(1)));
        }
        // The upstream may have done it (RFC 9209 §2.3).
        if matches!(code.as_str(), "connection_terminated" | "http_response_timeout") && !item.is_repeatable() {
            return Self::Came(Came::Unknown);
        }
        let ProblemDetails { detail, hint } = serde_json::from_slice(&received.body).unwrap_or_default();
        let message = hint.map(|hint| format!("{detail}: {hint}")).unwrap_or(detail);
        let unreached = UNREACHED.contains(&code.as_str());
        let outcome = ItemOutcome::Failed { code, message: message.clone() };
        if unreached { Self::Unreached(outcome, message) } else { Self::Came(Came::Outcome(outcome)) }
    }
}

/// The names of errors after which it is certain that nothing was sent, since nobody could connect (RFC 9209 §2.3).
const UNREACHED: [&str; 5] =
    ["connection_refused", "connection_timeout", "dns_error", "dns_timeout", "destination_unavailable"];
