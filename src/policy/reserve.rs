//! Share of each limit that is reserved for urgent requests.

use std::{fmt, num::NonZeroU32};

/// Share of each limit that is reserved for urgent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    percent: u8,
    /// Number of andantes that divide the unreserved rest, where a store shares the limits themselves.
    members: NonZeroU32,
}

// === impl Reserve ===

impl Reserve {
    /// From this urgency on, requests may not use the reserve.
    pub const PATIENT: u8 = 2;
    /// Largest reserve, in percent.
    pub const MOST: u8 = 90;

    /// `percent` of each limit; `None` if that is nothing, or more than [`MOST`](Self::MOST).
    pub fn new(percent: u8) -> Option<Self> {
        (1..=Self::MOST).contains(&percent).then_some(Self { percent, members: NonZeroU32::MIN })
    }

    /// Divides the unreserved rest among `members` andantes.
    pub fn among(self, members: NonZeroU32) -> Self {
        Self { members, ..self }
    }

    /// Unreserved part of a limit of `count`, rounded down and at least 1.
    pub fn rest(self, count: NonZeroU32) -> NonZeroU32 {
        let rest = u64::from(count.get()) * u64::from(100 - self.percent) / 100;
        u32::try_from(rest).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
    }

    /// Part of a single andante in the unreserved rest of a limit that a store shares; `None` if the part is
    /// nothing.
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
        // 4.5, 9, 0.9 (raised to 1), 500 · 0.9, and the largest u32.
        assert_eq!([5, 10, 1, 500].map(|count| rest(count, 10)), [4, 9, 1, 450]);
        assert_eq!(rest(u32::MAX, 10), 3_865_470_565);
        assert_eq!((Reserve::new(0), Reserve::new(91)), (None, None));
    }
}
