//! What the queue knows of each ticket, and of what it stands in.

use super::super::{
    claim::Claim,
    ranking::{RankedAt, Ranking},
};
use crate::{
    clock::Instant,
    limit::{Cost, Sum},
};

#[derive(Debug)]
pub(super) struct Ticket<T> {
    pub(super) ticket: T,
    pub(super) key: u64,
    pub(super) cost: Cost,
    pub(super) strand: u32,
    pub(super) before: u32,
    pub(super) behind: u32,
}

/// The tickets of one flow in one line that draw on the same budgets.
#[derive(Debug)]
pub(super) struct Strand {
    pub(super) claim: Claim,
    pub(super) line: u32,
    /// The number of its set of budgets.
    pub(super) set: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    /// The ticket that was put between others last. Those that follow it are likely to stand behind it.
    pub(super) finger: u32,
    /// The spot where it is parked; [`NONE`] in the front.
    pub(super) spot: u32,
    /// Where it is ranked among those that stand in the same place.
    pub(super) ranked: RankedAt,
    /// The spot from which it went to the front last, since one of its tickets was served; `NONE` if it has not.
    pub(super) from: u32,
    /// Its turn came at one spot and another one was closed, since one of its tickets was served.
    pub(super) missed: bool,
}

#[derive(Debug)]
pub(super) struct Line<K> {
    pub(super) key: K,
    pub(super) strands: u32,
    pub(super) units: Sum,
    pub(super) spot: u32,
}

/// Where strands are parked because one thing is closed.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) parked: u32,
    pub(super) state: SpotState,
    /// The cost of the ticket for which it is closed: one that costs as much or more cannot leave earlier.
    pub(super) cost: Option<Cost>,
    /// Whether it is among the open ones.
    pub(super) listed: bool,
    /// Ranks what is parked here; `None` if nothing ever was.
    pub(super) ranking: Option<Box<Ranking>>,
    /// For which strand it is kept, and until when.
    pub(super) kept: Option<Box<Kept>>,
}

/// For which strand a slot is kept of what a spot is for: its turn was there while another spot was closed.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) strand: u32,
    /// Until then, if it does not leave before.
    pub(super) until: Instant,
    /// And until then if further spots turn out to be closed.
    pub(super) end: Instant,
    /// What the first of it costs.
    pub(super) cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpotState {
    /// Its strands stand in the front, or are let there.
    Open,
    /// It is looked at again then.
    Closed(Instant),
    /// Nothing is parked there any more. It is forgotten once it is not listed.
    Gone,
}
