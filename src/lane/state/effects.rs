//! Effects of events: decided by the state under the lane's lock, carried out by the driver after releasing the lock.

use std::time::Duration;

use andante_clock::Instant;
use andante_learn::Changes;
use smallvec::SmallVec;

use super::{Slot, State, full::Evicted, sub_limits::Drawn, turn::LineKey};
use crate::request::Refusal;

/// Work for the driver after events. `T` is the handle through which a waiting request receives its slot.
#[must_use = "slots that nobody gets are lost"]
pub(crate) struct Effects<T> {
    /// Slots to hand over.
    pub(crate) grants: Grants<T>,
    /// Requests removed from the queue, with their refusals.
    pub(crate) evicted: Vec<Evicted<T>>,
    pub(crate) timer: Timer,
    /// The next block of a long quota is to be written down.
    pub(crate) block: bool,
    /// The store is to be called.
    pub(crate) calls: bool,
    /// Learned changes, for the log.
    pub(crate) changes: Changes,
}

/// Usually few at once: each slot matures at an instant of its own.
pub(crate) type Grants<T> = SmallVec<[Grant<T>; 2]>;

/// A slot for a request that has waited.
pub(crate) struct Grant<T> {
    pub(crate) ticket: T,
    pub(crate) slot: Box<Slot>,
    pub(crate) waited: Duration,
}

/// The change to the lane's only timer. When it fires, the state is [woken](super::State::woken).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The timer stays as it is, set or not.
    Keep,
    /// The timer was not set, and has to fire at this instant.
    Set(Instant),
    /// The timer is set to a later instant than needed, and has to fire now.
    Ring,
}

/// The decision on a request that asks for a slot.
pub(crate) enum Decision {
    /// The request leaves now.
    Send(Box<Slot>),
    /// The request may [join the queue](super::State::enqueued).
    Wait(QueueOffer),
    /// The request may not even wait.
    Refuse(Refusal),
}

/// A place in the queue offered to a request: valid while the lock is held.
pub(crate) struct QueueOffer {
    pub(super) line: LineKey,
    pub(super) drawn: Option<Box<Drawn>>,
    /// When the slot is expected to mature.
    pub(crate) expected: Instant,
    /// Number of requests expected to leave before it.
    pub(crate) ahead: u32,
}

/// While no request waits, a timer that fires within this time stays set.
const DOZE: Duration = Duration::from_secs(1);

// === impl State ===

impl<T> State<T> {
    /// Handles the timer, which was due at `due`, or at `now` if it was told to [ring](Timer::Ring).
    pub(crate) fn woken(&mut self, now: Instant, due: Instant) -> Effects<T> {
        let mut grants = Grants::new();
        self.refuse_late(now);
        let next = self.give(now, due, &mut grants).min(self.next_look());
        self.next_wakeup = (!self.queue.is_empty()).then_some(next);
        let timer = self.next_wakeup.map_or(Timer::Keep, Timer::Set);
        self.finish(grants, timer)
    }

    /// Returns whether events since the last effects may have caused any. While no request waits, hardly any event
    /// does.
    pub(crate) fn has_effects(&self) -> bool {
        !self.queue.is_empty()
            || self.next_wakeup.is_some()
            || !self.changes.is_empty()
            || !self.evicted.is_empty()
            || self.fleet.as_ref().is_some_and(|fleet| fleet.is_calling())
            || self.budget.is_calling()
    }

    /// Returns the effects of the events since the last call: grants matured slots, and sets the timer for the next
    /// slot.
    pub(crate) fn effects(&mut self, now: Instant) -> Effects<T> {
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
        let (changes, evicted) = (std::mem::take(&mut self.changes), std::mem::take(&mut self.evicted));
        Effects { grants, evicted, timer, block, calls, changes }
    }
}
