//! Waiting rooms: the lane, and each of its sub-limits.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{State, sub_limits::Drawn};

/// A place with a limited number of waiting requests: the lane, or the sub-limit with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitingRoom {
    Lane,
    Budget(u32),
}

impl<T> State<T> {
    /// The rooms of a request that draws on these budgets. Evicting a request from a sub-limit frees a place in the
    /// lane as well.
    pub(super) fn rooms(drawn: Option<&Drawn>) -> impl Iterator<Item = WaitingRoom> {
        let numbers: SmallVec<[u32; 4]> = drawn.map_or(&[][..], Drawn::numbers).into();
        numbers.into_iter().map(WaitingRoom::Budget).chain([WaitingRoom::Lane])
    }

    /// Number of requests waiting there, and the most that may.
    pub(super) fn places(&self, room: WaitingRoom) -> (usize, usize) {
        match room {
            WaitingRoom::Lane => (self.queue.len(), self.policy.max_waiting),
            WaitingRoom::Budget(number) => self.sub_limits.places(number),
        }
    }

    /// The rule of a sub-limit's room; `None` for the lane.
    pub(super) fn rule_of(&self, room: WaitingRoom) -> Option<Arc<str>> {
        match room {
            WaitingRoom::Lane => None,
            WaitingRoom::Budget(number) => Some(self.sub_limits.rule_name(number).clone()),
        }
    }

    /// Returns whether the room is full.
    pub(super) fn is_full(&self, room: WaitingRoom) -> bool {
        let (waiting, most) = self.places(room);
        waiting >= most
    }
}
