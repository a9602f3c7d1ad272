//! Permits, and the tickets of requests that wait for one.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use andante_clock::Instant;
use andante_learn::AnswerReport;
use andante_order::{QueuePlace, Turn};
use tokio::sync::oneshot;

use super::Lane;
use crate::{
    request::{AdmitRequest, Refusal},
    state::{End, Slot, Usage},
};

/// The right to send one request now, settled with the outcome.
///
/// Dropped before a connection is made for it and before [`sent`](Self::sent), it goes back to the lane as if it had
/// never been taken. Once a SYN or a byte has left, the API may have counted it. A drop then settles it as answered at
/// that moment: limits pace connections, too.
#[must_use = "a permit dropped unsent goes back to the lane"]
#[derive(Debug)]
pub struct Permit {
    lane: Arc<Lane>,
    slot: Box<Slot>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Held,
    /// A connection for its request is being made, or exists.
    Connecting,
    Sent(Instant),
    Answered,
    /// The lane has the slot back.
    Over,
}

/// A lane's reply to a request that asks for a slot.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// Send now.
    Send(Permit),
    /// Wait for a permit.
    Wait(Waiting),
    /// The request must not wait.
    Refuse(Refusal),
}

/// The ticket of a waiting request: becomes a permit, or is evicted from a full queue. Dropped, it leaves the queue at
/// once and costs no slot.
#[derive(Debug)]
#[must_use]
pub struct Waiting {
    pub(super) lane: Arc<Lane>,
    pub(super) place: QueuePlace,
    pub(crate) grant: oneshot::Receiver<Box<Outcome>>,
    /// True if the lane has decided on it.
    pub(super) answered: bool,
    /// When the slot is expected to mature.
    pub expected: Instant,
    /// Number of requests expected to leave before it, as of its arrival.
    pub ahead: u32,
}

/// The outcome of a ticket. Boxed when handed over: while the request waits, there is no room for it.
pub(crate) type Outcome = Result<Permit, Dismissal>;

/// Why a request no longer stands in a queue.
#[derive(Debug)]
pub(crate) enum Dismissal {
    /// It is refused.
    Refused(Refusal),
    /// The request waits in another lane, which has absorbed its own.
    Moved(Waiting),
}

// === impl Permit ===

impl Permit {
    pub(super) fn new(lane: Arc<Lane>, slot: Box<Slot>) -> Self {
        Self { lane, slot, stage: Stage::Held }
    }

    /// Records that a connection is being made for the request: from here on a drop spends the slot.
    pub fn connecting(&mut self) {
        if self.stage == Stage::Held {
            self.stage = Stage::Connecting;
        }
    }

    /// Records that no connection was made, or that the request is not sent on it: the slot counts as unused again.
    pub fn not_connected(&mut self) {
        if self.stage == Stage::Connecting {
            self.stage = Stage::Held;
        }
    }

    fn is_unsent(&self) -> bool {
        matches!(self.stage, Stage::Held | Stage::Connecting)
    }

    /// Records that the request is being written, on a connection that is ready.
    pub fn sent(&mut self) {
        self.sent_at(self.lane.now());
    }

    /// Records that the request is being written at `now`.
    pub fn sent_at(&mut self, now: Instant) {
        if self.is_unsent() {
            self.stage = Stage::Sent(now);
            self.lane.sent(now, &self.slot);
        }
    }

    /// Returns whether the request may not be sent any more, because the lease under which it was taken is over.
    pub fn has_lapsed(&self) -> bool {
        self.is_unsent() && self.slot.leased && self.lane.has_lapsed()
    }

    /// Takes back a send: the request was not written or not processed, and goes to another connection. Returns whether
    /// its slot is still valid. After a whole window it is not, and the request needs [another one](Self::renew).
    #[must_use = "without a slot it may not be sent"]
    pub fn recall(&mut self) -> bool {
        if let Stage::Sent(_) = self.stage {
            self.stage = Stage::Held;
            return self.lane.recalled(&self.slot);
        }
        self.is_unsent()
    }

    /// Returns the slot unused, and asks for another one before `deadline`, in front of requests that have not been
    /// sent yet.
    pub fn renew(&mut self, deadline: Instant) -> Admission {
        let Slot { charge, kind, claim, port, .. } = *self.slot;
        let draws = self.slot.draws();
        let ask = AdmitRequest { cost: charge.cost, kind, claim, deadline, turn: Turn::Resent, draws, port };
        // The connection that was made carries the request with another slot.
        self.not_connected();
        // Settled here and not in `drop`, which would be too late for a lane that lets one request through at a time.
        self.settle(self.lane.now());
        self.lane.admit(ask)
    }

    /// Records the answer's head. The request stays in flight until the permit is dropped.
    ///
    /// `written` is when its last byte was written: counted from [`sent`](Self::sent), a process that was stopped in
    /// between would count from too early.
    pub fn answered(&mut self, heard: &AnswerReport<'_>, written: Instant) {
        self.answered_at(self.lane.now(), heard, written);
    }

    /// Records the answer's head at `now`. Returns how long the API took, as `andante_upstream_seconds` counts it;
    /// `None` if that has been counted before.
    pub fn answered_at(&mut self, now: Instant, heard: &AnswerReport<'_>, written: Instant) -> Option<Duration> {
        let Stage::Sent(at) = self.stage else { return None };
        let sent = at.max(written);
        self.stage = Stage::Answered;
        self.lane.answered(now, &self.slot, sent, heard);
        Some(now.since(sent))
    }

    /// Applies the usage that the answer reported. Once: the answer's last report counts.
    pub fn used(&mut self, usage: &Usage) {
        if self.stage == Stage::Answered && !(usage.said.is_empty() && usage.at_least.is_empty()) {
            self.lane.used(&mut self.slot, usage);
        }
    }

    /// Records that the upstream could not be reached, broke off, or timed out: the drop that follows settles the rest.
    pub fn broke(&self) {
        if self.is_unsent() || matches!(self.stage, Stage::Sent(_)) {
            self.lane.broke(&self.slot);
        }
    }

    /// Settles the permit at `now`, when its request is over: the lane gets it back.
    pub fn settle(&mut self, now: Instant) {
        if self.stage == Stage::Connecting {
            self.sent_at(now);
        }
        let end = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Held | Stage::Connecting => End::Unsent,
            Stage::Sent(_) => End::Unanswered,
            Stage::Answered => End::Answered,
            Stage::Over => return,
        };
        self.lane.settled(now, &mut self.slot, end);
    }

    /// The slot of a permit that was not delivered, for the lane to take back.
    pub(super) fn into_slot(mut self) -> Box<Slot> {
        self.stage = Stage::Over;
        Box::new(self.slot.take())
    }

    /// The lane that granted it.
    pub fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            self.settle(self.lane.now());
        }
    }
}

// === impl Waiting ===

impl Waiting {
    /// Leaves the queue because the deadline has passed. `None` if it has its slot by now, or
    /// waits in another lane.
    pub fn give_up(&mut self) -> Option<Refusal> {
        let refusal = self.lane.gave_up(self.place)?;
        self.answered = true;
        Some(refusal)
    }
}

impl Future for Waiting {
    type Output = Result<Permit, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let said = ready!(Pin::new(&mut self.grant).poll(cx));
            self.answered = true;
            return Poll::Ready(match *said.expect("a lane keeps a ticket until it is served, evicted or left") {
                Ok(permit) => Ok(permit),
                Err(Dismissal::Refused(refusal)) => Err(refusal),
                Err(Dismissal::Moved(waiting)) => {
                    *self = waiting;
                    continue;
                }
            });
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.answered {
            self.lane.left(self.place);
        }
    }
}
