//! Where requests wait: in the lane, and for each of its narrower budgets.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{State, narrow::Drawn};

/// Where only so many requests may wait: all of a lane, or those that draw on the narrower budget with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitingRoom {
    Lane,
    Budget(u32),
}

impl<T> State<T> {
    /// Where a request waits that draws on these budgets. What gives way in a budget leaves a place in the lane as well.
    pub(super) fn rooms(drawn: Option<&Drawn>) -> impl Iterator<Item = WaitingRoom> {
        let numbers: SmallVec<[u32; 4]> = drawn.map_or(&[][..], Drawn::numbers).into();
        numbers.into_iter().map(WaitingRoom::Budget).chain([WaitingRoom::Lane])
    }

    /// How many wait there, and how many may.
    pub(super) fn places(&self, room: WaitingRoom) -> (usize, usize) {
        match room {
            WaitingRoom::Lane => (self.queue.len(), self.policy.max_waiting),
            WaitingRoom::Budget(number) => self.narrow.places(number),
        }
    }

    /// For which rule it waits there, if that is for some of the lane's requests.
    pub(super) fn rule_of(&self, room: WaitingRoom) -> Option<Arc<str>> {
        match room {
            WaitingRoom::Lane => None,
            WaitingRoom::Budget(number) => Some(self.narrow.rule_name(number).clone()),
        }
    }

    /// Whether as many wait there as may.
    pub(super) fn is_full(&self, room: WaitingRoom) -> bool {
        let (waiting, most) = self.places(room);
        waiting >= most
    }
}
