//! How much of each limit is kept for urgent requests.

use std::{fmt, num::NonZeroU32};

/// How much of each limit is kept for requests that are urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    percent: u8,
    /// How many andantes have a part of the rest each, where a store shares the limits themselves.
    members: NonZeroU32,
}

// === impl Reserve ===

impl Reserve {
    /// From this urgency on, requests leave the reserve alone.
    pub const PATIENT: u8 = 2;
    /// The largest, in percent.
    pub const MOST: u8 = 90;

    /// `percent` of each limit; `None` if that is nothing, or more than [`MOST`](Self::MOST).
    pub fn new(percent: u8) -> Option<Self> {
        (1..=Self::MOST).contains(&percent).then_some(Self { percent, members: NonZeroU32::MIN })
    }

    /// The same, where each of so many andantes has its part of what is not kept.
    pub fn among(self, members: NonZeroU32) -> Self {
        Self { members, ..self }
    }

    /// What others may use of a limit of `count`: rounded down, so that something is kept of all but the last one.
    pub fn rest(self, count: NonZeroU32) -> NonZeroU32 {
        let rest = u64::from(count.get()) * u64::from(100 - self.percent) / 100;
        u32::try_from(rest).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
    }

    /// The part of one andante of what others may use of a limit that a store shares; `None` if that is nothing.
    pub fn part(self, count: NonZeroU32) -> Option<NonZeroU32> {
        NonZeroU32::new(self.rest(count).get() / self.members)
    }
}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_rounded_down_so_that_something_is_kept() {
        let rest = |count, percent| Reserve::new(percent).unwrap().rest(NonZeroU32::new(count).unwrap()).get();
        // 4.5, 9, 0.9 of which there is at least one, 500 · 0.9, and all that a u32 holds.
        assert_eq!([5, 10, 1, 500].map(|count| rest(count, 10)), [4, 9, 1, 450]);
        assert_eq!(rest(u32::MAX, 10), 3_865_470_565);
        assert_eq!((Reserve::new(0), Reserve::new(91)), (None, None));
    }
}
