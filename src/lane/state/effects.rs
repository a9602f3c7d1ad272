//! What events lead to: decided by the state under the lane's lock, done by the driver once the lock is released.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Slot, turn::LineKey};
use crate::{clock::Instant, lane::request::Refusal, learn::Changes};

/// What the driver does after events. `T` is how a waiting request is told that it has its slot.
#[must_use = "slots that nobody gets are lost"]
pub(in crate::lane) struct Effects<T> {
    /// Slots to hand over.
    pub(in crate::lane) grants: Grants<T>,
    pub(in crate::lane) timer: Timer,
    /// What was learned, for the log.
    pub(in crate::lane) changes: Changes,
}

/// Few at once, mostly: each slot matures at an instant of its own.
pub(in crate::lane) type Grants<T> = SmallVec<[Grant<T>; 2]>;

/// A slot for a request that has waited.
pub(in crate::lane) struct Grant<T> {
    pub(in crate::lane) ticket: T,
    pub(in crate::lane) slot: Slot,
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
    Send(Slot),
    /// It may [join the queue](super::State::enqueued).
    Wait(QueueOffer),
    /// It may not even wait.
    Refuse(Refusal),
}

/// Where in the queue a request may wait: good as long as the lock is held.
pub(in crate::lane) struct QueueOffer {
    pub(super) line: LineKey,
    /// When the slot is expected to mature.
    pub(in crate::lane) expected: Instant,
}
