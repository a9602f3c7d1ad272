//! What was taken of one unit: a history of all units, and the units of long limits that are persisted ahead.

use andante_clock::Instant;

use super::{Amount, Cost, Seq, Unit, ahead::WrittenAhead, history::SpendHistory};

/// Units of one kind that a budget has spent, whatever its limits are.
#[derive(Clone, Debug)]
pub(super) struct UnitBook {
    pub(super) unit: Unit,
    /// When units were taken, for limits that are added later.
    pub(super) history: SpendHistory,
    /// Units that long limits may spend before the next record is persisted; `None` if none are persisted ahead.
    pub(super) ahead: Option<Box<WrittenAhead>>,
}

// === impl UnitBook ===

impl UnitBook {
    pub(super) fn new(unit: Unit) -> Self {
        Self { unit, history: SpendHistory::default(), ahead: None }
    }

    /// A book with a restored history.
    pub(super) fn restored(unit: Unit, history: &[(Instant, Instant, u64)]) -> Self {
        Self { history: SpendHistory::restored(history), ..Self::new(unit) }
    }

    /// Returns true if `cost` takes more than is persisted, and then remembers the need.
    pub(super) fn lacks(&mut self, cost: &Cost) -> bool {
        let Some(ahead) = &mut self.ahead else { return false };
        cost.of(self.unit).is_some_and(|amount| ahead.lacks(amount))
    }

    /// Records that `amount` units, numbered from `seq`, are taken at `now`.
    pub(super) fn take(&mut self, now: Instant, seq: Seq, amount: Amount) {
        self.history.take(now, seq, amount);
        self.ahead.iter_mut().for_each(|ahead| ahead.take(amount));
    }

    /// Removes `amount` units, numbered from `seq`, that are never used.
    pub(super) fn return_unused(&mut self, seq: Seq, amount: Amount) {
        self.history.return_unused(seq, amount);
        self.ahead.iter_mut().for_each(|ahead| ahead.return_unused(amount));
    }
}
