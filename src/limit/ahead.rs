//! Blocks of a long quota that are persisted before they are spent.
//!
//! After a kill, the use of the last block is unknown, so all of it counts as used. A kill costs at most one block, and
//! no quota is ever exceeded.

use std::time::Duration;

use super::Amount;

/// Limits with windows of at least this length are spent in blocks. Shorter windows soon return what a kill loses.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// Largest block, as a share of the quota (`1 / SHARE`) and of its rest (`1 / SHARE_OF_REST`).
const SHARE: u32 = 100;
const SHARE_OF_REST: u32 = 10;
/// Largest block, in units.
const MOST: u32 = 1000;

/// Units that a limit may spend before more of them have to be persisted.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenAhead {
    /// Units taken so far, and the total of units that the persisted record covers.
    taken: u64,
    written: u64,
    /// Total of units that the record made last covers, once it is written.
    promised: u64,
    /// The next block is requested when at most this many persisted units are left.
    low: u64,
    /// The next block has been requested.
    asked: bool,
    /// Largest cost that was refused for lack of persisted units.
    need: u32,
}

/// Size of a block for a quota of `count` units with `left` units left.
pub(super) fn block(count: u32, left: u32) -> u32 {
    (count / SHARE).min(left / SHARE_OF_REST).clamp(1, MOST)
}

// === impl WrittenAhead ===

impl WrittenAhead {
    /// Returns true if `cost` more units are not persisted yet, and then remembers the need.
    pub(super) fn lacks(&mut self, cost: Amount) -> bool {
        let lacks = self.taken + u64::from(cost.get()) > self.written;
        if lacks {
            self.need = self.need.max(cost.get());
        }
        lacks
    }

    /// Returns true if the next block should be requested.
    pub(super) fn is_low(&self) -> bool {
        !self.asked && (self.need > 0 || self.written.saturating_sub(self.taken) <= self.low)
    }

    /// Marks the next block as requested.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    pub(super) fn take(&mut self, cost: Amount) {
        self.taken += u64::from(cost.get());
    }

    pub(super) fn return_unused(&mut self, cost: Amount) {
        self.taken = self.taken.saturating_sub(cost.get().into());
    }

    /// Prepares a record that contains all units taken so far. Returns how many further units the record must promise,
    /// for blocks of this size.
    pub(super) fn promise(&mut self, block: u32) -> u32 {
        let block = block.max(self.need);
        self.low = u64::from(block / 2);
        self.promised = self.taken + u64::from(block);
        block
    }

    /// Marks the record that was made last as written.
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
