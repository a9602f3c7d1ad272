//! Requests with an `Idempotency-Key`: the call that a key stands for while it is under way, and its answer for a while
//! after that.
//!
//! A call runs in a task of its own. A worker that leaves before the call has a slot takes it along, and another request
//! with the key makes a call of its own. What was sent goes on without its worker, which will ask again.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::AtomicBool},
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
        sharing::{CallEvent, CallFollower, Key, SharedCall},
    },
};

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
    error: Mutex<Option<Error>>,
}

/// How far a call has come.
#[derive(Clone)]
enum KeyedStage {
    /// It waits for a slot.
    Waiting(KeyedWait),
    /// It has one.
    Sent,
    /// This is the answer.
    Answered(Arc<KeyedAnswer>),
    /// It has failed, or its worker has left in time.
    Over,
}

/// How a call waits for a slot.
#[derive(Clone, Copy, Default)]
struct KeyedWait {
    /// When the slot is expected to mature.
    expected: Option<Instant>,
    /// It had one before.
    again: bool,
}

/// The answer of a call.
pub(crate) struct KeyedAnswer {
    pub(crate) head: response::Parts,
    pub(crate) body: Arc<SharedBody>,
    /// The tries that it took.
    pub(crate) tries: RequestStats,
    /// Whether it is for further requests with the key, or only for the one that was sent.
    pub(crate) for_all: bool,
    /// Whether a request has got its `Set-Cookie` fields: a session that begins is one worker's.
    pub(crate) cookies_taken: Arc<AtomicBool>,
}

/// What a key stands for.
pub(crate) enum KeyFound {
    /// Nothing: the request is to make the call.
    New(KeyedPlace),
    /// A call that is under way.
    UnderWay(Arc<KeyedCall>),
    /// A call whose answer is kept.
    Kept(Arc<KeyedCall>, Arc<KeyedAnswer>),
}

/// A request that follows a call: the one that is sent for it, or a twin.
pub(crate) struct KeyedMember {
    stage: watch::Receiver<KeyedStage>,
    leads: bool,
}

/// A call in the hands of the task that makes it. Dropped, it is over.
pub(crate) struct KeyedPlace {
    replays: Arc<Replays>,
    key: Key,
    call: Arc<KeyedCall>,
}

/// A call in the hands of the worker's request that is sent. Dropped before it has had a slot, it is over.
pub(crate) struct Lead {
    pub(crate) call: Arc<KeyedCall>,
    pub(crate) task: AbortHandle,
}

// === impl Replays ===

impl Replays {
    /// None yet; up to `memory` bytes of answers are kept, over all of them.
    pub(crate) fn new(memory: usize) -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), memory: Arc::new(SharedMemory::new(memory)) })
    }

    /// What `key` stands for at `now`. If that is nothing, it stands for a new call from now on.
    pub(crate) fn find(self: &Arc<Self>, key: Key, now: Instant) -> KeyFound {
        let mut entries = self.entries.lock();
        entries.expire(now, &self.memory);
        if let Some(entry) = entries.calls.get(&key).filter(|entry| !entry.call.is_over()) {
            let call = entry.call.clone();
            return match call.answer().filter(|_| entry.kept.is_some()) {
                Some(answer) => KeyFound::Kept(call, answer),
                None => KeyFound::UnderWay(call),
            };
        }
        let call = Arc::new(KeyedCall {
            body: BodyDigest::new(),
            stage: watch::Sender::new(KeyedStage::Waiting(KeyedWait::default())),
            error: Mutex::default(),
        });
        entries.calls.insert(key, KeptCall { call: call.clone(), kept: None });
        KeyFound::New(KeyedPlace { replays: self.clone(), key, call })
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
    /// The request that is sent for it.
    pub(crate) fn lead(&self) -> KeyedMember {
        KeyedMember { stage: self.stages(), leads: true }
    }

    /// Another request with its key.
    pub(crate) fn twin(&self) -> KeyedMember {
        KeyedMember { stage: self.stages(), leads: false }
    }

    /// Its stages, from the present one on.
    fn stages(&self) -> watch::Receiver<KeyedStage> {
        let mut stages = self.stage.subscribe();
        stages.mark_changed();
        stages
    }

    /// Its answer, if that is here.
    fn answer(&self) -> Option<Arc<KeyedAnswer>> {
        match &*self.stage.borrow() {
            KeyedStage::Answered(answer) => Some(answer.clone()),
            KeyedStage::Waiting(_) | KeyedStage::Sent | KeyedStage::Over => None,
        }
    }

    /// What it has failed with. To be asked once.
    pub(crate) fn take_error(&self) -> Option<Error> {
        self.error.lock().take()
    }

    /// Whether the key stands for it no more.
    fn is_over(&self) -> bool {
        match &*self.stage.borrow() {
            KeyedStage::Waiting(_) | KeyedStage::Sent => false,
            KeyedStage::Answered(answer) => !answer.for_all,
            KeyedStage::Over => true,
        }
    }

    /// It is over if it has not had a slot yet. Says whether that is so.
    fn leave_the_queue(&self) -> bool {
        self.stage.send_if_modified(|stage| {
            let unsent = matches!(stage, KeyedStage::Waiting(KeyedWait { again: false, .. }));
            if unsent {
                *stage = KeyedStage::Over;
            }
            unsent
        })
    }
}

impl SharedCall for KeyedCall {
    fn expects(&self, expected: Instant) {
        let expected = Some(expected).filter(|expected| *expected != Instant::FAR);
        self.stage.send_if_modified(|stage| {
            let again = match stage {
                KeyedStage::Waiting(wait) => wait.again,
                KeyedStage::Sent => true,
                KeyedStage::Answered(_) | KeyedStage::Over => return false,
            };
            *stage = KeyedStage::Waiting(KeyedWait { expected, again });
            true
        });
    }

    fn elect(&self) -> bool {
        self.stage.send_if_modified(|stage| {
            let waits = matches!(stage, KeyedStage::Waiting(_));
            if waits {
                *stage = KeyedStage::Sent;
            }
            waits
        });
        !self.is_over()
    }
}

// === impl KeyedMember ===

impl CallFollower for KeyedMember {
    type Outcome = Option<Arc<KeyedAnswer>>;

    async fn next(&mut self) -> CallEvent<Self::Outcome> {
        if self.stage.changed().await.is_err() {
            return CallEvent::Over(None);
        }
        match &*self.stage.borrow_and_update() {
            KeyedStage::Waiting(_) if self.leads => CallEvent::Leads,
            KeyedStage::Waiting(wait) => CallEvent::Waits(wait.expected),
            KeyedStage::Sent => CallEvent::Sent,
            KeyedStage::Answered(answer) => CallEvent::Over(Some(answer.clone())),
            KeyedStage::Over => CallEvent::Over(None),
        }
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
        let kept = KeyedAnswer {
            head,
            body: answer.body.clone(),
            tries,
            for_all: answer.for_all,
            cookies_taken: answer.cookies_taken.clone(),
        };
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
        if self.call.leave_the_queue() {
            self.task.abort();
        }
    }
}
