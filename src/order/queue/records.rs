//! The queue's records of tickets, flow queues, classes and wait points.

use andante_clock::Instant;
use andante_limit::{Cost, Sum};

use super::super::{
    claim::Claim,
    ranking::{RankedAt, Ranking},
};

#[derive(Debug)]
pub(super) struct Ticket<T> {
    pub(super) ticket: T,
    pub(super) key: u64,
    pub(super) cost: Cost,
    pub(super) flow_queue: u32,
    pub(super) before: u32,
    pub(super) behind: u32,
}

/// A flow queue: the tickets of one flow in one class that draw on the same budgets.
#[derive(Debug)]
pub(super) struct FlowQueue {
    pub(super) claim: Claim,
    pub(super) line: u32,
    /// The number of its set of budgets.
    pub(super) set: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    /// The ticket that was last inserted between others. The next ones are likely to stand behind it.
    pub(super) finger: u32,
    /// The wait point where it is blocked; [`NONE`] while it is ready.
    pub(super) wait_point: u32,
    /// The rank among flow queues in the same place.
    pub(super) ranked: RankedAt,
    /// The wait point it last left to become ready, since one of its tickets was served; `NONE` if there is none.
    pub(super) from: u32,
    /// True if its turn came at one wait point while another was closed, since one of its tickets was served.
    pub(super) missed: bool,
}

#[derive(Debug)]
pub(super) struct Line<K> {
    pub(super) key: K,
    pub(super) flow_queues: u32,
    pub(super) units: Sum,
    pub(super) wait_point: u32,
}

/// A wait point: flow queues are blocked there because one class or budget is closed.
#[derive(Debug)]
pub(super) struct WaitPoint {
    pub(super) blocked: u32,
    pub(super) state: WaitPointState,
    /// The cost of the ticket for which it is closed: a ticket that costs as much or more cannot leave earlier.
    pub(super) cost: Option<Cost>,
    /// True if it is in the list of open wait points.
    pub(super) listed: bool,
    /// Ranks the flow queues blocked here; `None` if none ever was.
    pub(super) ranking: Option<Box<Ranking>>,
    /// The reservation of a slot, if there is one.
    pub(super) kept: Option<Box<Kept>>,
}

/// A slot reserved for a flow queue whose turn came at this wait point while another one was closed.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) flow_queue: u32,
    /// End of the reservation, unless the flow queue leaves before.
    pub(super) until: Instant,
    /// Latest end, if further wait points turn out to be closed.
    pub(super) end: Instant,
    /// Cost of its first ticket.
    pub(super) cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPointState {
    /// Open: flow queues are ready, or become ready in turn.
    Open,
    /// The next check is at this instant.
    Closed(Instant),
    /// Unused: no flow queue is blocked there. The wait point is removed once it is not listed.
    Gone,
}

// === impl WaitPoint ===

impl WaitPoint {
    /// A wait point without blocked flow queues.
    pub(super) const OPEN: Self =
        Self { blocked: 0, state: WaitPointState::Open, cost: None, listed: false, ranking: None, kept: None };

    /// The ranking of the flow queues blocked here.
    pub(super) fn ranking(&mut self) -> &mut Ranking {
        self.ranking.as_mut().expect("a flow queue is blocked here")
    }

    /// Removes a flow queue that is no longer blocked here.
    pub(super) fn remove(&mut self, at: RankedAt, claim: &Claim, flow_queue: u32, key: u64) {
        self.blocked -= 1;
        self.ranking().remove(at, claim, flow_queue, key);
    }
}
