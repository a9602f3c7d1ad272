//! What events lead to: decided by the state under the lane's lock, done by the driver once the lock is released.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Slot, State, full::Displaced, narrow::Drawn, turn::LineKey};
use crate::{clock::Instant, lane::request::Refusal, learn::Changes};

/// What the driver does after events. `T` is how a waiting request is told that it has its slot.
#[must_use = "slots that nobody gets are lost"]
pub(in crate::lane) struct Effects<T> {
    /// Slots to hand over.
    pub(in crate::lane) grants: Grants<T>,
    /// Requests that waited and have to go.
    pub(in crate::lane) displaced: Vec<Displaced<T>>,
    pub(in crate::lane) timer: Timer,
    /// The next block of a long quota is to be written down.
    pub(in crate::lane) block: bool,
    /// The store is to be called.
    pub(in crate::lane) calls: bool,
    /// What was learned, for the log.
    pub(in crate::lane) changes: Changes,
}

/// Few at once, mostly: each slot matures at an instant of its own.
pub(in crate::lane) type Grants<T> = SmallVec<[Grant<T>; 2]>;

/// A slot for a request that has waited.
pub(in crate::lane) struct Grant<T> {
    pub(in crate::lane) ticket: T,
    pub(in crate::lane) slot: Box<Slot>,
    pub(in crate::lane) waited: Duration,
}

/// What becomes of the lane's one timer. When it rings, the state is [woken](super::State::woken).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lane) enum Timer {
    /// It stays as it is, set or not.
    Keep,
    /// It was not set, and is to ring at this instant.
    Set(Instant),
    /// It is set to a later instant than is needed, and is to ring now.
    Ring,
}

/// What becomes of a request that asks for a slot.
pub(in crate::lane) enum Decision {
    /// It leaves now.
    Send(Box<Slot>),
    /// It may [join the queue](super::State::enqueued).
    Wait(QueueOffer),
    /// It may not even wait.
    Refuse(Refusal),
}

/// Where in the queue a request may wait: good as long as the lock is held.
pub(in crate::lane) struct QueueOffer {
    pub(super) line: LineKey,
    pub(super) drawn: Option<Box<Drawn>>,
    /// When the slot is expected to mature.
    pub(in crate::lane) expected: Instant,
    /// How many leave before it, as things stand.
    pub(in crate::lane) ahead: u32,
}

/// Where no request waits any more, a timer that fires within this time is left alone.
const DOZE: Duration = Duration::from_secs(1);

// === impl State ===

impl<T> State<T> {
    /// The timer has rung, which was to do so at `due`; or at `now`, if it was told to [ring](Timer::Ring).
    pub(in crate::lane) fn woken(&mut self, now: Instant, due: Instant) -> Effects<T> {
        let mut grants = Grants::new();
        self.refuse_late(now);
        let next = self.give(now, due, &mut grants).min(self.next_look());
        self.next_wakeup = (!self.queue.is_empty()).then_some(next);
        let timer = self.next_wakeup.map_or(Timer::Keep, Timer::Set);
        self.finish(grants, timer)
    }

    /// Whether the events since the last effects may have led to any. While no request waits, hardly any do.
    pub(in crate::lane) fn has_effects(&self) -> bool {
        !self.queue.is_empty()
            || self.next_wakeup.is_some()
            || !self.changes.is_empty()
            || !self.displaced.is_empty()
            || self.fleet.as_ref().is_some_and(|fleet| fleet.is_calling())
            || self.budget.is_calling()
    }

    /// What follows from the events since the last effects: slots that have matured are given, and the timer is set for the
    /// next one.
    pub(in crate::lane) fn effects(&mut self, now: Instant) -> Effects<T> {
        let (mut grants, mut timer) = (Grants::new(), Timer::Keep);
        self.refuse_late(now);
        if !self.queue.is_empty() {
            // A timer that rings late does not make a slot mature later.
            let due = self.next_wakeup.map_or(now, |wakeup| wakeup.min(now));
            let next = self.give(now, due, &mut grants).min(self.next_look());
            match self.next_wakeup {
                Some(wakeup) if next < wakeup => timer = Timer::Ring,
                None if !self.queue.is_empty() => {
                    self.next_wakeup = Some(next);
                    timer = Timer::Set(next);
                }
                _ => {}
            }
        }
        if self.queue.is_empty() && self.next_wakeup.is_some_and(|wakeup| wakeup > now + DOZE) {
            timer = Timer::Ring;
        }
        self.finish(grants, timer)
    }

    fn finish(&mut self, grants: Grants<T>, timer: Timer) -> Effects<T> {
        let (block, calls) = (self.budget.asks_for_block(), self.calls());
        let (changes, displaced) = (std::mem::take(&mut self.changes), std::mem::take(&mut self.displaced));
        Effects { grants, displaced, timer, block, calls, changes }
    }
}
