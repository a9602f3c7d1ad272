//! What a request asks of a lane, and what the lane says to it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{Lane, Permit};
use crate::{
    clock::Instant,
    lane::order::{Place, Turn},
    learn::RouteKey,
    limit::Cost,
};

/// What a request asks of a lane.
#[derive(Clone, Copy, Debug)]
pub struct AdmitRequest {
    /// What the request costs.
    pub cost: Cost,
    /// Its kind, by which the budgets are known that it draws on.
    pub kind: RouteKey,
    /// Until when it is willing to wait.
    pub deadline: Instant,
    /// Whether it has been sent before: then it goes in front of those that have not.
    pub again: bool,
}

/// What the lane says to it.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// Send now.
    Send(Permit),
    /// Wait for a permit.
    Wait(Waiting),
    /// It is no use to wait.
    Refuse(Refusal),
}

/// Why a request may not even wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As many wait as may wait.
    #[error("{waiting} requests wait already, which is as many as may")]
    Full {
        /// How many wait.
        waiting: usize,
        /// When the next place becomes free, at the latest.
        retry_after: Duration,
    },
    /// It would have to wait longer than it may.
    #[error("it would wait {wait:.1?} behind {waiting} others, longer than the {} it may", in_milliseconds(*patience))]
    TooLong {
        /// How many wait.
        waiting: usize,
        /// How long it would wait.
        wait: Duration,
        /// How long it may wait.
        patience: Duration,
        /// When a request like this one would be accepted.
        retry_after: Duration,
    },
}

/// A ticket in the hands of a request: becomes a permit. Dropped, it leaves the queue at once and costs no slot.
#[derive(Debug)]
#[must_use]
pub struct Waiting {
    pub(super) lane: Arc<Lane>,
    pub(super) place: Place,
    pub(super) grant: oneshot::Receiver<Permit>,
    pub(super) granted: bool,
    /// When the slot is expected to mature.
    pub expected: Instant,
}

// === impl AdmitRequest ===

impl AdmitRequest {
    /// Whom it stands in front of.
    pub(super) fn turn(&self) -> Turn {
        if self.again { Turn::Resent } else { Turn::New }
    }
}

// === impl Waiting ===

impl Future for Waiting {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let permit = ready!(Pin::new(&mut self.grant).poll(cx));
        self.granted = true;
        Poll::Ready(permit.expect("a lane keeps a ticket until it is served or left"))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.granted {
            self.lane.leave(self.place);
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// When to try again.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Full { retry_after, .. } | Self::TooLong { retry_after, .. } => *retry_after,
        }
    }
}

/// A time that has run for some microseconds already is shown as what it was.
fn in_milliseconds(time: Duration) -> String {
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    format!("{:?}", Duration::from_millis(millis))
}
