//! Requests that share one call: the waiting members, the ticket with which the call leaves, and the shared answer.
//!
//! A call belongs to none of its members. The call runs in a task of its own, so that a member may leave early, and
//! ends with its last member. Members whose claims differ hold one ticket per claim, and the call leaves with the first
//! ticket whose turn comes. Sharing makes no request wait longer.
//!
//! A worker may give each request a flow of its own, so a call may have as many tickets as members. An event of one
//! ticket takes constant time; an event of the call takes one pass over its tickets.

mod candidate;
mod key;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::response;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

pub(crate) use self::{candidate::Candidate, key::Key};
use crate::{
    clock::Instant,
    error::Error,
    lane::order::Claim,
    proxy::{
        message::shared_body::{SharedBody, SharedMemory},
        request_stats::RequestStats,
    },
};

/// Time for which a request key is exempt from sharing after an answer that could not be shared.
const ALONE_FOR: Duration = Duration::from_secs(60);
/// Maximum number of exempt keys that are remembered.
const ALONE: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4096).expect("more than none");
/// Number of change counters, over all origins. Origins that collide in one counter only share slightly fewer calls.
const EPOCHS: usize = 64;

/// The calls that are shared now.
pub(crate) struct SharedCalls {
    groups: Mutex<HashMap<Key, Weak<CallGroup>>>,
    alone: Mutex<LruCache<Key, Instant>>,
    /// Counters, by origin hash, of answered requests that may have changed something at the origin.
    epochs: [AtomicU64; EPOCHS],
    pub(crate) memory: Arc<SharedMemory>,
}

/// The requests that share one call.
pub(crate) struct CallGroup {
    key: Key,
    sharing: Arc<SharedCalls>,
    state: Mutex<GroupState>,
}

/// Progress of the call.
#[derive(Clone)]
pub(crate) enum CallStage {
    /// The call waits for a slot.
    Waiting,
    /// The call has a slot.
    Sent,
    /// The answer has arrived.
    Answered(Arc<SharedAnswer>),
    /// The call has failed.
    Failed,
}

/// The answer of a call.
pub(crate) struct SharedAnswer {
    pub(crate) head: response::Parts,
    pub(crate) body: Arc<SharedBody>,
    /// Statistics of the tries that the answer took.
    pub(crate) tries: RequestStats,
    /// True if all members may have the answer; false if only the member whose request was sent may.
    pub(crate) for_all: bool,
}

#[derive(Default)]
struct GroupState {
    /// Tickets with members, and the elected one.
    places: HashMap<PlaceId, SharedTicket>,
    last_place: PlaceId,
    /// Ticket of each claim, unless the ticket has failed.
    open: HashMap<Claim, PlaceId>,
    members: usize,
    /// Place with which the call was sent, and its origin's change counter at that time.
    elected: Option<(PlaceId, u64)>,
    /// True once no further member can share the call.
    over: bool,
}

/// Number of a ticket, never used again for another ticket of its call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct PlaceId(u64);

/// A ticket of the call, and the members with its claim.
struct SharedTicket {
    claim: Claim,
    /// Progress of the call, for the members with this ticket.
    stage: watch::Sender<CallStage>,
    members: usize,
    task: Option<AbortHandle>,
    /// Time at which the ticket's slot is expected to mature.
    expected: Option<Instant>,
    failed: bool,
    error: Option<Error>,
}

/// A request that shares a call.
pub(crate) struct CallMember {
    group: Arc<CallGroup>,
    place: PlaceId,
    /// True if this member's own request is the one that its ticket sends.
    pub(crate) is_owner: bool,
    stage: watch::Receiver<CallStage>,
}

/// A call whose answer several requests share, as seen by the request that is sent for the call.
pub(crate) trait SharedCall: Send + Sync {
    /// Reports that the call waits for a slot, which is expected to mature at `expected`. Also called when the call
    /// waits again.
    fn expects(&self, expected: Instant);

    /// Reports that the call has a slot. Returns whether this request is the one to send; at most one request is.
    #[must_use = "only one place may send the request"]
    fn elect(&self) -> bool;
}

/// A request that shares a call, and follows it.
pub(crate) trait CallFollower: Send {
    /// Result of the call for the request.
    type Outcome: Send;

    /// Returns the current event at first, then each later one: a new stage, or a new expected time of the slot.
    fn next(&mut self) -> impl Future<Output = CallEvent<Self::Outcome>> + Send;
}

/// Progress of a shared call, as reported to a request.
pub(crate) enum CallEvent<T> {
    /// The call waits for a slot with this request and its patience.
    Leads,
    /// The call waits for a slot. The value is the time at which the slot is expected to mature, if known.
    Waits(Option<Instant>),
    /// The call has a slot.
    Sent,
    /// The call is over for this request, with this outcome.
    Over(T),
}

/// Outcome of a call for one member.
pub(crate) enum SharedOutcome {
    /// The answer.
    Answer(Arc<SharedAnswer>),
    /// Error of the call, for the member whose own request has failed.
    Error(Error),
    /// No answer, and the ticket is gone: the request may join another call.
    Rejoin,
    /// No answer: the request continues without sharing.
    Alone,
}

// === impl SharedCalls ===

impl SharedCalls {
    /// Creates an empty set of calls, which keeps up to `memory` bytes of shared answers in total.
    pub(crate) fn new(memory: usize) -> Arc<Self> {
        Arc::new(Self {
            groups: Mutex::default(),
            alone: Mutex::new(LruCache::new(ALONE)),
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
            memory: Arc::new(SharedMemory::new(memory)),
        })
    }

    /// Makes the request with this `key` a member of a call: of one in flight, or of a new one. Also returns the
    /// candidate that is to wait for a slot, if the member needs a new ticket.
    pub(crate) fn join(self: &Arc<Self>, key: Key, claim: Claim) -> (CallMember, Option<Arc<Candidate>>) {
        loop {
            // Never under the lock: the last one to drop a group takes it.
            let known = self.groups.lock().get(&key).cloned();
            if let Some(joined) = known.as_ref().and_then(Weak::upgrade).and_then(|group| group.join(claim)) {
                return joined;
            }
            let group = Arc::new(CallGroup { key, sharing: self.clone(), state: Mutex::default() });
            let mut groups = self.groups.lock();
            let same = match (groups.get(&key), &known) {
                (Some(now), Some(known)) => now.ptr_eq(known),
                (now, _) => now.is_none(),
            };
            if same {
                groups.insert(key, Arc::downgrade(&group));
                drop(groups);
                return group.join(claim).expect("nothing has come of a new call");
            }
            drop(groups);
        }
    }

    /// Returns whether a recent answer to such a request could not be shared.
    pub(crate) fn is_alone(&self, key: Key, now: Instant) -> bool {
        self.alone.lock().get(&key).is_some_and(|until| now < *until)
    }

    /// Records that the answer to such a request could not be shared.
    pub(crate) fn set_alone(&self, key: Key, now: Instant) {
        self.alone.lock().put(key, now + ALONE_FOR);
    }

    /// Records that the origin with this hash answered a request that may have changed something. Later requests do not
    /// share calls that were sent before.
    pub(crate) fn changed(&self, origin: u64) {
        self.epoch(origin).fetch_add(1, Ordering::SeqCst);
    }

    fn epoch(&self, origin: u64) -> &AtomicU64 {
        &self.epochs[origin as usize % EPOCHS]
    }
}

// === impl CallGroup ===

impl CallGroup {
    fn join(self: &Arc<Self>, claim: Claim) -> Option<(CallMember, Option<Arc<Candidate>>)> {
        let mut state = self.state.lock();
        let epoch = self.sharing.epoch(self.key.origin).load(Ordering::SeqCst);
        if state.over || state.elected.is_some_and(|(_, sent)| sent != epoch) {
            return None;
        }
        let known = match state.elected {
            Some((elected, _)) => Some(elected),
            None => state.open.get(&claim).copied(),
        };
        let (id, is_owner) = known.map_or_else(|| (state.add_place(claim), true), |known| (known, false));
        let place = state.place(id).expect("open and elected tickets are kept");
        place.members += 1;
        let mut stage = place.stage.subscribe();
        stage.mark_changed();
        state.members += 1;
        drop(state);
        let candidate = is_owner.then(|| Arc::new(Candidate { group: Arc::downgrade(self), place: id }));
        Some((CallMember { group: self.clone(), place: id, is_owner, stage }, candidate))
    }

    /// Closes the call: no further request may share it.
    fn close(&self) {
        self.state.lock().over = true;
    }
}

impl Drop for CallGroup {
    fn drop(&mut self) {
        let mut groups = self.sharing.groups.lock();
        if groups.get(&self.key).is_some_and(|group| group.strong_count() == 0) {
            groups.remove(&self.key);
        }
    }
}

// === impl GroupState ===

impl GroupState {
    /// The ticket `id`; `None` once it was removed.
    fn place(&mut self, id: PlaceId) -> Option<&mut SharedTicket> {
        self.places.get_mut(&id)
    }

    /// The ticket `id`, if the call may still be sent with it.
    fn remaining(&mut self, id: PlaceId) -> Option<&mut SharedTicket> {
        if self.has_lost(id) { None } else { self.place(id) }
    }

    /// Adds a ticket for `claim`, which needs a member at once.
    fn add_place(&mut self, claim: Claim) -> PlaceId {
        self.last_place.0 += 1;
        let (id, stage) = (self.last_place, watch::Sender::new(CallStage::Waiting));
        let (members, task, expected, failed, error) = Default::default();
        self.places.insert(id, SharedTicket { claim, stage, members, task, expected, failed, error });
        self.open.insert(claim, id);
        id
    }

    /// Removes a member from ticket `id`. A ticket without members leaves the queue; once the request was sent, it belongs
    /// to all members, and leaves with the last one.
    fn remove_member(&mut self, id: PlaceId) {
        let elected = self.elected.map(|(elected, _)| elected);
        let place = self.place(id).expect("a ticket with members is kept");
        place.members -= 1;
        if place.members == 0 && elected != Some(id) {
            place.abort();
            self.close(id);
            self.places.remove(&id);
        }
        self.members -= 1;
        if self.members == 0 {
            self.over = true;
            elected.and_then(|elected| self.place(elected)).into_iter().for_each(SharedTicket::abort);
        }
    }

    /// Closes the ticket `id` to new members.
    fn close(&mut self, id: PlaceId) {
        let Some(claim) = self.place(id).map(|place| place.claim) else { return };
        if self.open.get(&claim) == Some(&id) {
            self.open.remove(&claim);
        }
    }

    /// Sets the call's stage for the members of every ticket.
    fn set_stage(&self, stage: &CallStage) {
        for place in self.places.values() {
            place.stage.send_replace(stage.clone());
        }
    }

    /// Returns whether the call was sent with a place other than `id`.
    fn has_lost(&self, id: PlaceId) -> bool {
        self.elected.is_some_and(|(elected, _)| elected != id)
    }
}

// === impl SharedTicket ===

impl SharedTicket {
    fn abort(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

// === impl CallMember ===

impl CallMember {
    /// Returns the member's event while the call waits for a slot.
    fn waits(&self) -> CallEvent<SharedOutcome> {
        let mut state = self.group.state.lock();
        let (elected, leads) = (state.elected, self.is_owner && !state.has_lost(self.place));
        let place = state.place(elected.map_or(self.place, |(place, _)| place)).expect("it has members, or is elected");
        if place.failed && elected.is_none() {
            // Only the member whose own request the ticket sends gets the error.
            let error = if self.is_owner { place.error.take() } else { None };
            return CallEvent::Over(error.map_or(SharedOutcome::Rejoin, SharedOutcome::Error));
        }
        if leads { CallEvent::Leads } else { CallEvent::Waits(place.expected) }
    }

    /// Returns the member's outcome of a call that failed after it was sent.
    fn failed(&self) -> SharedOutcome {
        let mut state = self.group.state.lock();
        let own = self.is_owner && !state.has_lost(self.place);
        let error = state.place(self.place).filter(|_| own).and_then(|place| place.error.take());
        error.map_or(SharedOutcome::Alone, SharedOutcome::Error)
    }

    /// Returns whether this member's request was sent for the call.
    pub(crate) fn is_elected(&self) -> bool {
        self.is_owner && self.group.state.lock().elected.is_some_and(|(place, _)| place == self.place)
    }
}

impl CallFollower for CallMember {
    type Outcome = SharedOutcome;

    async fn next(&mut self) -> CallEvent<SharedOutcome> {
        if self.stage.changed().await.is_err() {
            return CallEvent::Over(SharedOutcome::Alone);
        }
        let stage = self.stage.borrow_and_update().clone();
        match stage {
            CallStage::Waiting => self.waits(),
            CallStage::Sent => CallEvent::Sent,
            CallStage::Answered(answer) if answer.for_all || self.is_elected() => {
                CallEvent::Over(SharedOutcome::Answer(answer))
            }
            CallStage::Answered(_) => CallEvent::Over(SharedOutcome::Alone),
            CallStage::Failed => CallEvent::Over(self.failed()),
        }
    }
}

impl Drop for CallMember {
    fn drop(&mut self) {
        self.group.state.lock().remove_member(self.place);
    }
}
