//! Blocks of a long quota that are written down before they are spent.
//!
//! Nobody knows how much of its last block a killed process has spent, so all of it counts as used. A kill costs at
//! most one block, and no quota is ever exceeded.

use std::time::Duration;

use super::{Amount, Cost, Unit};

/// Limits with windows of at least this length are spent in blocks. What a kill loses of a shorter one comes back soon.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// A block is at most this share of the quota, and of what is left of it.
const SHARE: u32 = 100;
const SHARE_OF_REST: u32 = 10;
/// And never more units than this.
const MOST: u32 = 1000;

/// How many units may be taken before more of them are written down.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenAhead {
    /// Units taken so far, and up to how many of them are written down.
    taken: u64,
    written: u64,
    /// The same once the record is written that was made last.
    promised: u64,
    /// From so few that are left on, the next block is asked for.
    low: u64,
    /// It has been asked for.
    asked: bool,
    /// The most that a request wanted and did not get.
    need: u32,
}

/// The block of a quota of `count` units of which `left` are left.
pub(super) fn block(count: u32, left: u32) -> u32 {
    (count / SHARE).min(left / SHARE_OF_REST).clamp(1, MOST)
}

/// Whether `cost` takes more of a unit than was written down.
pub(super) fn lacks(ahead: &mut [(Unit, WrittenAhead)], cost: &Cost) -> bool {
    let each = ahead.iter_mut().map(|(unit, ahead)| cost.of(*unit).is_some_and(|amount| ahead.lacks(amount)));
    each.fold(false, |any, lacks| any | lacks)
}

/// The units that `cost` takes of and that are written ahead, each with how much it takes.
pub(super) fn written_ahead<'a>(
    ahead: &'a mut Option<Vec<(Unit, WrittenAhead)>>,
    cost: &'a Cost,
) -> impl Iterator<Item = (&'a mut WrittenAhead, Amount)> {
    ahead.iter_mut().flatten().filter_map(|(unit, ahead)| Some((ahead, cost.of(*unit)?)))
}

// === impl WrittenAhead ===

impl WrittenAhead {
    /// Whether `cost` more must not be taken yet.
    pub(super) fn lacks(&mut self, cost: Amount) -> bool {
        let lacks = self.taken + u64::from(cost.get()) > self.written;
        if lacks {
            self.need = self.need.max(cost.get());
        }
        lacks
    }

    /// Whether the next block is to be asked for.
    pub(super) fn is_low(&self) -> bool {
        !self.asked && (self.need > 0 || self.written.saturating_sub(self.taken) <= self.low)
    }

    /// It is asked for.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    pub(super) fn take(&mut self, cost: Amount) {
        self.taken += u64::from(cost.get());
    }

    pub(super) fn return_unused(&mut self, cost: Amount) {
        self.taken = self.taken.saturating_sub(cost.get().into());
    }

    /// A record is made that has all in it which was taken so far. Says how many more it is to promise, of blocks of this
    /// size.
    pub(super) fn promise(&mut self, block: u32) -> u32 {
        let block = block.max(self.need);
        self.low = u64::from(block / 2);
        self.promised = self.taken + u64::from(block);
        block
    }

    /// The record that was made last is written.
    pub(super) fn written(&mut self) {
        self.written = self.written.max(self.promised);
        (self.asked, self.need) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_that_is_not_written_down() {
        let mut ahead = WrittenAhead::default();
        assert!(ahead.lacks(Amount::MIN) && ahead.is_low());
        ahead.ask();
        assert!(!ahead.is_low(), "once is enough");
        assert_eq!(ahead.promise(4), 4);
        assert!(ahead.lacks(Amount::MIN), "it is promised, and not written yet");
        ahead.written();
        for left in [3, 2] {
            ahead.take(Amount::MIN);
            assert_eq!(ahead.is_low(), left == 2, "{left} left of 4");
        }
        assert_eq!(ahead.promise(4), 4);
        ahead.take(Amount::MIN);
        ahead.take(Amount::MIN);
        assert!(ahead.lacks(Amount::MIN));
        ahead.written();
        assert!(!ahead.lacks(Amount::new(2).unwrap()), "two of the new block were taken before it was written");
        assert!(ahead.lacks(Amount::new(3).unwrap()));
        assert_eq!(ahead.promise(1), 3, "a request that costs more than a block needs it all");
    }

    #[test]
    fn a_block_is_small_beside_the_quota_and_smaller_towards_its_end() {
        assert_eq!((block(10_000, 10_000), block(10_000, 500), block(10_000, 9)), (100, 50, 1));
        assert_eq!((block(50, 50), block(u32::MAX, u32::MAX)), (1, 1000));
    }
}
