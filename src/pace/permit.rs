//! A slot in a request's hands.

use std::{mem, sync::Arc};

use super::{
    Lane,
    state::{End, Slot},
};
use crate::{clock::Instant, learn::Heard};

/// The right to send one request now, settled with what came back.
///
/// Dropped before [`sent`](Self::sent) it goes back to the lane as if it had never been taken. Once a byte has left, the
/// API may have counted the request, and a drop settles it as answered at that moment.
#[must_use = "a permit dropped unsent goes back to the lane"]
#[derive(Debug)]
pub struct Permit {
    lane: Arc<Lane>,
    slot: Slot,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Held,
    Sent(Instant),
    Answered,
}

// === impl Permit ===

impl Permit {
    pub(super) fn new(lane: Arc<Lane>, slot: Slot) -> Self {
        Self { lane, slot, stage: Stage::Held }
    }

    /// The request is being written, on a connection that is ready.
    pub fn sent(&mut self) {
        if self.stage == Stage::Held {
            self.stage = Stage::Sent(self.lane.sent(&self.slot));
        }
    }

    /// Not a byte of the request was written after all: it is to be sent on another connection.
    pub fn recall(&mut self) {
        if let Stage::Sent(_) = self.stage {
            self.stage = Stage::Held;
            self.lane.recall(&self.slot);
        }
    }

    /// The answer's head is here. The request stays in flight until the permit is dropped.
    ///
    /// `written` is when the request's last byte was: a process that was stopped between [`sent`](Self::sent) and the
    /// writing would otherwise count from too early.
    pub fn answered(&mut self, heard: &Heard<'_>, written: Instant) {
        if let Stage::Sent(at) = mem::replace(&mut self.stage, Stage::Answered) {
            self.lane.answered(&self.slot, at.max(written), heard);
        }
    }

    /// The upstream could not be reached, broke off, or has not answered in time: the drop that follows settles the rest.
    pub fn broke(&self) {
        if self.stage != Stage::Answered {
            self.lane.broke(&self.slot);
        }
    }

    /// The lane it came from.
    pub fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let end = match self.stage {
            Stage::Held => End::Unsent,
            Stage::Sent(_) => End::Unanswered,
            Stage::Answered => End::Answered,
        };
        self.lane.settle(&self.slot, end);
    }
}
