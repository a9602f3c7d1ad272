//! The most lanes and keyed budgets of a process: names and keys come from requests, and cost memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// An idle lane takes about 16 KiB, an idle keyed budget about 1 KiB.
const LANE_BYTES: u64 = 16 * 1024;
const BUDGET_BYTES: u64 = 1024;
/// Lanes, and budgets, take up to this part of the process's memory.
const PART: u64 = 8;
/// The most lanes of a rule, and the most budgets, however much memory there is.
const MAX_LANES: u64 = 64 * 1024;
const MAX_BUDGETS: u64 = 1024 * 1024;

/// Bounds that all lanes of a process share.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// Lanes of one rule.
    pub(crate) lanes: usize,
    /// Budgets of all lanes.
    budgets: usize,
    open: AtomicUsize,
    /// Budgets forgotten to make room for others, since the last log line about them.
    forgotten: AtomicUsize,
}

/// The number of one lane's budgets, as part of the process's total.
#[derive(Debug, Default)]
pub(crate) struct OpenBudgets {
    capacity: Arc<Capacity>,
    count: usize,
}

// === impl Capacity ===

impl Capacity {
    /// The capacity of a process that may take `bytes`.
    pub(crate) fn of_memory(bytes: u64) -> Self {
        let (lanes, budgets) = (bytes / PART / LANE_BYTES, bytes / PART / BUDGET_BYTES);
        Self {
            lanes: lanes.min(MAX_LANES) as usize,
            budgets: budgets.min(MAX_BUDGETS) as usize,
            open: AtomicUsize::new(0),
            forgotten: AtomicUsize::new(0),
        }
    }

    /// Returns the number of budgets that were forgotten for others since the last call.
    pub(crate) fn take_forgotten(&self) -> usize {
        self.forgotten.swap(0, Ordering::Relaxed)
    }
}

impl Default for Capacity {
    /// As large as it ever is.
    fn default() -> Self {
        Self::of_memory(u64::MAX)
    }
}

// === impl OpenBudgets ===

impl OpenBudgets {
    /// An empty count for a lane of a process with this `capacity`.
    pub(crate) fn within(capacity: Arc<Capacity>) -> Self {
        Self { capacity, count: 0 }
    }

    /// Returns whether a new budget should replace an old one.
    pub(crate) fn is_full(&self) -> bool {
        self.capacity.open.load(Ordering::Relaxed) >= self.capacity.budgets
    }

    /// Sets the number of the lane's budgets.
    pub(crate) fn set(&mut self, count: usize) {
        let before = std::mem::replace(&mut self.count, count);
        self.capacity.open.fetch_add(count.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Records a forgotten budget whose limits may still have counted something.
    pub(crate) fn forgot(&self) {
        self.capacity.forgotten.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for OpenBudgets {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_256_mib_has_2048_lanes_and_32768_budgets() {
        let capacity = Arc::new(Capacity::of_memory(256 << 20));
        assert_eq!((capacity.lanes, capacity.budgets), (2048, 32_768));
        let (mut one, mut other) = (OpenBudgets::within(capacity.clone()), OpenBudgets::within(capacity.clone()));
        one.set(32_000);
        other.set(768);
        assert!(other.is_full());
        drop(one);
        assert!(!other.is_full());
        assert_eq!(capacity.open.load(Ordering::Relaxed), 768);
    }
}
