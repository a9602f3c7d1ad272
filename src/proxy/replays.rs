//! Requests with an `Idempotency-Key`: the call that a key stands for while it is under way, and its answer for a while
//! after that.
//!
//! A call runs in a task of its own. A worker that leaves before the call has a slot takes it along, and another request
//! with the key makes a call of its own. What was sent goes on without its worker, which will ask again.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use http::response;
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

use crate::{
    clock::Instant,
    error::Error,
    proxy::{
        message::{
            incoming_body::BodyDigest,
            kept_head,
            shared_body::{MOST, SharedBody, SharedMemory},
        },
        request_stats::RequestStats,
        sharing::{Key, SharedCall},
    },
};

/// How many bytes of answers are kept, over all of them.
const MEMORY: usize = 64 * 1024 * 1024;

/// The calls that keys stand for, and the answers that are kept.
pub(crate) struct Replays {
    entries: Mutex<Entries>,
    pub(crate) memory: Arc<SharedMemory>,
}

#[derive(Default)]
struct Entries {
    calls: HashMap<Key, KeptCall>,
    /// The keys of the answers that are kept, those first that are forgotten first.
    kept: BTreeMap<(Instant, u64), Key>,
    next: u64,
}

struct KeptCall {
    call: Arc<KeyedCall>,
    /// Its answer is kept, and costs this much beside its body.
    kept: Option<usize>,
}

/// The call that a key stands for.
pub(crate) struct KeyedCall {
    /// The hash of its request's body.
    pub(crate) body: Arc<BodyDigest>,
    stage: watch::Sender<KeyedStage>,
    expected: Mutex<Option<Instant>>,
    error: Mutex<Option<Error>>,
}

/// How far a call has come.
#[derive(Clone)]
enum KeyedStage {
    /// It waits for a slot.
    Waiting,
    /// It has one.
    Sent,
    /// This is the answer.
    Answered(Arc<KeyedAnswer>),
    /// It has failed, or its worker has left in time.
    Over,
}

/// The answer of a call.
pub(crate) struct KeyedAnswer {
    pub(crate) head: response::Parts,
    pub(crate) body: Arc<SharedBody>,
    /// The tries that it took.
    pub(crate) tries: RequestStats,
    /// Whether it is for further requests with the key, or only for the one that was sent.
    pub(crate) for_all: bool,
}

/// What a key stands for.
pub(crate) enum KeyFound {
    /// Nothing: the request is to make the call.
    New(Arc<KeyedPlace>),
    /// A call that is under way.
    UnderWay(Arc<KeyedCall>),
    /// A call whose answer is kept.
    Kept(Arc<KeyedCall>),
}

/// A call in the hands of the task that makes it. Dropped, it is over.
pub(crate) struct KeyedPlace {
    replays: Arc<Replays>,
    key: Key,
    call: Arc<KeyedCall>,
}

/// A call in the hands of the worker's request that is sent. Dropped before it has a slot, it is over.
pub(crate) struct Lead {
    pub(crate) call: Arc<KeyedCall>,
    pub(crate) task: AbortHandle,
}

// === impl Replays ===

impl Replays {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_memory(MEMORY)
    }

    fn with_memory(memory: usize) -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), memory: Arc::new(SharedMemory::new(memory)) })
    }

    /// What `key` stands for at `now`. If that is nothing, it stands for a new call from now on.
    pub(crate) fn find(self: &Arc<Self>, key: Key, now: Instant) -> KeyFound {
        let mut entries = self.entries.lock();
        entries.expire(now, &self.memory);
        if let Some(entry) = entries.calls.get(&key).filter(|entry| !entry.call.is_over()) {
            let call = entry.call.clone();
            return if entry.kept.is_some() { KeyFound::Kept(call) } else { KeyFound::UnderWay(call) };
        }
        let call = Arc::new(KeyedCall {
            body: BodyDigest::new(),
            stage: watch::Sender::new(KeyedStage::Waiting),
            expected: Mutex::default(),
            error: Mutex::default(),
        });
        entries.calls.insert(key, KeptCall { call: call.clone(), kept: None });
        KeyFound::New(Arc::new(KeyedPlace { replays: self.clone(), key, call }))
    }

    /// Forgets what was kept for long enough at `now`.
    pub(crate) fn sweep(&self, now: Instant) {
        self.entries.lock().expire(now, &self.memory);
    }
}

// === impl Entries ===

impl Entries {
    fn expire(&mut self, now: Instant, memory: &SharedMemory) {
        while self.kept.first_key_value().is_some_and(|((until, _), _)| *until <= now) {
            self.forget_one(memory);
        }
    }

    /// Forgets the answer that would be forgotten next.
    fn forget_one(&mut self, memory: &SharedMemory) -> bool {
        let Some((_, key)) = self.kept.pop_first() else { return false };
        if let Some(KeptCall { kept: Some(cost), .. }) = self.calls.remove(&key) {
            memory.release(cost);
        }
        true
    }
}

// === impl KeyedCall ===

impl KeyedCall {
    /// When it is expected to leave.
    pub(crate) fn expected(&self) -> Option<Instant> {
        let waits = matches!(*self.stage.borrow(), KeyedStage::Waiting);
        self.expected.lock().filter(|_| waits)
    }

    /// Waits until it has a slot; `false` if it gets none.
    pub(crate) async fn has_slot(&self) -> bool {
        !matches!(self.reaches(|stage| !matches!(stage, KeyedStage::Waiting)).await, KeyedStage::Over)
    }

    /// Its answer, once there is one; `None` if none is to come.
    pub(crate) async fn answer(&self) -> Option<Arc<KeyedAnswer>> {
        match self.reaches(|stage| matches!(stage, KeyedStage::Answered(_) | KeyedStage::Over)).await {
            KeyedStage::Answered(answer) => Some(answer),
            KeyedStage::Waiting | KeyedStage::Sent | KeyedStage::Over => None,
        }
    }

    /// What it has failed with. To be asked once.
    pub(crate) fn take_error(&self) -> Option<Error> {
        self.error.lock().take()
    }

    async fn reaches(&self, stage: impl Fn(&KeyedStage) -> bool) -> KeyedStage {
        let mut stages = self.stage.subscribe();
        // Only a sender that is gone ends it early, and we hold that.
        let reached = stages.wait_for(stage).await.map(|stage| stage.clone());
        reached.unwrap_or(KeyedStage::Over)
    }

    /// Whether the key stands for it no more.
    fn is_over(&self) -> bool {
        match &*self.stage.borrow() {
            KeyedStage::Waiting | KeyedStage::Sent => false,
            KeyedStage::Answered(answer) => !answer.for_all,
            KeyedStage::Over => true,
        }
    }

    /// Goes from `Waiting` to `next`. Says whether it was there.
    fn leave_the_queue(&self, next: KeyedStage) -> bool {
        self.stage.send_if_modified(|stage| {
            let waits = matches!(stage, KeyedStage::Waiting);
            if waits {
                *stage = next;
            }
            waits
        })
    }
}

// === impl KeyedPlace ===

impl KeyedPlace {
    pub(crate) fn call(&self) -> &Arc<KeyedCall> {
        &self.call
    }

    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.replays.memory
    }

    /// The call has failed.
    pub(crate) fn failed(&self, error: Error) {
        *self.call.error.lock() = Some(error);
    }

    /// The answer's head is here.
    pub(crate) fn answered(&self, answer: KeyedAnswer) {
        // The worker whose request was sent, if it is still there, and those that wait with it.
        let wait = self.call.stage.receiver_count();
        answer.body.expect(if answer.for_all { wait } else { wait.min(1) });
        self.call.stage.send_replace(KeyedStage::Answered(Arc::new(answer)));
        self.make_room();
    }

    /// All of the answer is here, and is to be kept until `until`.
    pub(crate) fn keep(&self, until: Instant) {
        let answer = match &*self.call.stage.borrow() {
            KeyedStage::Answered(answer) if answer.body.settle() => answer.clone(),
            _ => return,
        };
        let head = kept_head::settled(&answer.head);
        let cost = kept_head::cost(&head.headers);
        let tries = RequestStats::default();
        tries.add_tries_of(&answer.tries);
        let kept = KeyedAnswer { head, body: answer.body.clone(), tries, for_all: answer.for_all };
        self.call.stage.send_replace(KeyedStage::Answered(Arc::new(kept)));
        let mut entries = self.replays.entries.lock();
        let until = (until, entries.next);
        entries.next += 1;
        let Some(entry) = entries.calls.get_mut(&self.key).filter(|entry| Arc::ptr_eq(&entry.call, &self.call)) else {
            return;
        };
        entry.kept = Some(cost);
        entries.kept.insert(until, self.key);
        self.replays.memory.take(cost);
        drop(entries);
        self.make_room();
    }

    /// Forgets answers until there is room for another one of any size.
    fn make_room(&self) {
        let Replays { entries, memory } = &*self.replays;
        let mut entries = entries.lock();
        while memory.left() < MOST && entries.forget_one(memory) {}
    }
}

impl SharedCall for KeyedPlace {
    fn expects(&self, expected: Instant) {
        *self.call.expected.lock() = Some(expected).filter(|expected| *expected != Instant::FAR);
    }

    fn elect(&self) -> bool {
        self.call.leave_the_queue(KeyedStage::Sent)
    }
}

impl Drop for KeyedPlace {
    fn drop(&mut self) {
        let mut entries = self.replays.entries.lock();
        let ours = |entry: &KeptCall| Arc::ptr_eq(&entry.call, &self.call) && entry.kept.is_none();
        let gone = if entries.calls.get(&self.key).is_some_and(ours) { entries.calls.remove(&self.key) } else { None };
        drop(entries);
        drop(gone);
        self.call.stage.send_if_modified(|stage| {
            let unanswered = !matches!(stage, KeyedStage::Answered(_));
            if unanswered {
                *stage = KeyedStage::Over;
            }
            unanswered
        });
    }
}

// === impl Lead ===

impl Drop for Lead {
    fn drop(&mut self) {
        if self.call.leave_the_queue(KeyedStage::Over) {
            self.task.abort();
        }
    }
}
