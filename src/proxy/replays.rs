//! Requests with an `Idempotency-Key`: the call that a key identifies while it is in flight, and its answer for a while
//! afterwards.
//!
//! A call runs in a task of its own. If its worker leaves before the call has a slot, the call ends, and another
//! request with the key starts a new one. A call that was sent continues without its worker, which will ask again.

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

/// Calls by key, and the answers that are retained.
pub(crate) struct Replays {
    entries: Mutex<Entries>,
    pub(crate) memory: Arc<SharedMemory>,
}

#[derive(Default)]
struct Entries {
    calls: HashMap<Key, KeptCall>,
    /// Keys of the retained answers, ordered by expiry.
    kept: BTreeMap<(Instant, u64), Key>,
    next: u64,
}

struct KeptCall {
    call: Arc<KeyedCall>,
    /// Cost of the retained answer besides its body; `None` if no answer is retained.
    kept: Option<usize>,
}

/// The call that a key identifies.
pub(crate) struct KeyedCall {
    /// Hash of the request's body.
    pub(crate) body: Arc<BodyDigest>,
    stage: watch::Sender<KeyedStage>,
    error: Mutex<Option<Error>>,
}

/// Progress of a call.
#[derive(Clone)]
enum KeyedStage {
    /// The call waits for a slot.
    Waiting(KeyedWait),
    /// The call has a slot.
    Sent,
    /// The answer has arrived.
    Answered(Arc<KeyedAnswer>),
    /// The call has failed, or its worker left before it was sent.
    Over,
}

/// State of a call that waits for a slot.
#[derive(Clone, Copy, Default)]
struct KeyedWait {
    /// Time at which the slot is expected to mature.
    expected: Option<Instant>,
    /// True if the call had a slot before.
    again: bool,
}

/// The answer of a call.
pub(crate) struct KeyedAnswer {
    pub(crate) head: response::Parts,
    pub(crate) body: Arc<SharedBody>,
    /// Statistics of the tries that the answer took.
    pub(crate) tries: RequestStats,
    /// True if later requests with the key may have the answer; false if only the request that was sent may.
    pub(crate) for_all: bool,
    /// True once a request has got the `Set-Cookie` fields: a new session belongs to one worker.
    pub(crate) cookies_taken: Arc<AtomicBool>,
}

/// Result of looking up a key.
pub(crate) enum KeyFound {
    /// No call: the request is to make it.
    New(KeyedPlace),
    /// A call in flight.
    UnderWay(Arc<KeyedCall>),
    /// A call whose answer is retained.
    Kept(Arc<KeyedCall>, Arc<KeyedAnswer>),
}

/// A request that follows a call: the one that is sent for the call, or a twin.
pub(crate) struct KeyedMember {
    stage: watch::Receiver<KeyedStage>,
    leads: bool,
}

/// A call, owned by the task that makes it. Dropping the place ends the call.
pub(crate) struct KeyedPlace {
    replays: Arc<Replays>,
    key: Key,
    call: Arc<KeyedCall>,
}

/// A call, owned by the worker's request that is sent for it. Dropping the lead before the call's first slot ends the
/// call.
pub(crate) struct Lead {
    pub(crate) call: Arc<KeyedCall>,
    pub(crate) task: AbortHandle,
}

// === impl Replays ===

impl Replays {
    /// Creates an empty set of calls, which retains up to `memory` bytes of answers in total.
    pub(crate) fn new(memory: usize) -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), memory: Arc::new(SharedMemory::new(memory)) })
    }

    /// Looks up `key` at `now`. An unknown key gets a new call.
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

    /// Drops the answers that have expired at `now`.
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

    /// Drops the answer that expires next.
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
    /// Follows the call as the request that is sent for it.
    pub(crate) fn lead(&self) -> KeyedMember {
        KeyedMember { stage: self.stages(), leads: true }
    }

    /// Follows the call as another request with its key.
    pub(crate) fn twin(&self) -> KeyedMember {
        KeyedMember { stage: self.stages(), leads: false }
    }

    /// Receiver of the call's stages, from the present one on.
    fn stages(&self) -> watch::Receiver<KeyedStage> {
        let mut stages = self.stage.subscribe();
        stages.mark_changed();
        stages
    }

    /// The call's answer, if it has arrived.
    fn answer(&self) -> Option<Arc<KeyedAnswer>> {
        match &*self.stage.borrow() {
            KeyedStage::Answered(answer) => Some(answer.clone()),
            KeyedStage::Waiting(_) | KeyedStage::Sent | KeyedStage::Over => None,
        }
    }

    /// Takes the error of the call. To be called once.
    pub(crate) fn take_error(&self) -> Option<Error> {
        self.error.lock().take()
    }

    /// Returns whether the key no longer identifies the call.
    fn is_over(&self) -> bool {
        match &*self.stage.borrow() {
            KeyedStage::Waiting(_) | KeyedStage::Sent => false,
            KeyedStage::Answered(answer) => !answer.for_all,
            KeyedStage::Over => true,
        }
    }

    /// Ends the call if it has not had a slot yet. Returns whether it did.
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

    /// Records that the call has failed.
    pub(crate) fn failed(&self, error: Error) {
        *self.call.error.lock() = Some(error);
    }

    /// Records that the answer's head has arrived.
    pub(crate) fn answered(&self, answer: KeyedAnswer) {
        // Expected readers: the worker whose request was sent, if it is still there, and the requests that wait with
        // it.
        let wait = self.call.stage.receiver_count();
        answer.body.expect(if answer.for_all { wait } else { wait.min(1) });
        self.call.stage.send_replace(KeyedStage::Answered(Arc::new(answer)));
        self.make_room();
    }

    /// Retains the complete answer until `until`.
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

    /// Drops answers until there is room for another one of any size.
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
