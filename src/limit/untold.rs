//! Requests under way of which only the answers tell what they take.

use std::collections::VecDeque;

use super::{Cost, Seq, Unit, UsualAmount};
use crate::clock::Instant;

/// Those that draw on one budget.
#[derive(Debug, Default)]
pub struct Untold {
    units: Vec<UntoldUnit>,
}

/// Those of which nobody knows how much of one unit they take.
#[derive(Debug)]
struct UntoldUnit {
    unit: Unit,
    /// When each has left, and what is reserved for it; in the order in which they have left.
    requests: VecDeque<(Seq, Instant, u32)>,
    /// What is reserved for all of them.
    reserved: u64,
}

// === impl Untold ===

impl Untold {
    /// One leaves at `now`, for which this much is reserved.
    pub fn leaves(&mut self, seq: Seq, cost: &Cost, now: Instant) {
        for unit in cost.reserved() {
            let amount = cost.of(unit).map_or(0, |amount| amount.get());
            let of_unit = self.of_unit(unit);
            of_unit.requests.push_back((seq, now, amount));
            of_unit.reserved += u64::from(amount);
        }
    }

    /// When this one has left, if nobody knows yet what it has taken of `unit`.
    pub fn left(&self, seq: Seq, unit: Unit) -> Option<Instant> {
        let of_unit = self.units.iter().find(|other| other.unit == unit)?;
        Some(of_unit.requests[of_unit.place(seq)?].1)
    }

    /// It is known what this one has taken of `unit`, or nobody will ever know it.
    pub fn told(&mut self, seq: Seq, unit: Unit) {
        let of_unit = self.of_unit(unit);
        if let Some((.., reserved)) = of_unit.place(seq).and_then(|place| of_unit.requests.remove(place)) {
            of_unit.reserved -= u64::from(reserved);
        }
    }

    /// How many there are of which nobody knows how much of `unit` they take.
    pub fn count(&self, unit: Unit) -> usize {
        self.units.iter().find(|other| other.unit == unit).map_or(0, |of_unit| of_unit.requests.len())
    }

    /// The units of which something is reserved for one that is under way.
    pub fn units(&self) -> impl Iterator<Item = Unit> {
        self.units.iter().filter(|of_unit| !of_unit.requests.is_empty()).map(|of_unit| of_unit.unit)
    }

    /// By how much less of `unit` is reserved for all of them than they will take, as `usual` has it of those that lasted as long as
    /// these have up to `now`.
    pub fn lack(&self, unit: Unit, usual: &UsualAmount, now: Instant) -> u32 {
        let Some(of_unit) = self.units.iter().find(|other| other.unit == unit) else { return 0 };
        let likely = usual.of_lasting(of_unit.requests.iter().map(|(_, left, _)| now.since(*left)));
        (likely - of_unit.reserved as f64).ceil().max(0.0) as u32
    }

    fn of_unit(&mut self, unit: Unit) -> &mut UntoldUnit {
        let at = self.units.iter().position(|other| other.unit == unit).unwrap_or_else(|| {
            self.units.push(UntoldUnit { unit, requests: VecDeque::new(), reserved: 0 });
            self.units.len() - 1
        });
        &mut self.units[at]
    }
}

// === impl UntoldUnit ===

impl UntoldUnit {
    fn place(&self, seq: Seq) -> Option<usize> {
        self.requests.binary_search_by_key(&seq, |(seq, ..)| *seq).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Ten answers of 100 lasted a second, and ten of 1,000 ten seconds; 550 each is reserved.
    #[test]
    fn those_that_last_lack_what_they_take_more_than_is_reserved() {
        let unit = Unit::named("out-tokens").unwrap();
        let at = |seconds| Instant::START + Duration::from_secs(seconds);
        let mut usual = UsualAmount::default();
        for (used, seconds) in [(100, 1), (1000, 10)].repeat(10) {
            usual.remember(used, Some(Duration::from_secs(seconds)));
        }
        let mut untold = Untold::default();
        for (seq, amount, left) in [(1, 550, 0), (2, 550, 3), (7, 2000, 3)] {
            untold.leaves(seq, &Cost::MIN.reserving(unit, amount), at(left));
        }
        // All of 3,000, of which 3,100 are reserved.
        assert_eq!((untold.count(unit), untold.lack(unit, &usual, at(5))), (3, 0));
        assert_eq!(untold.left(7, unit), Some(at(3)));
        untold.told(7, unit);
        assert_eq!((untold.lack(unit, &usual, at(1)), untold.lack(unit, &usual, at(3))), (0, 450));
        assert_eq!(untold.lack(unit, &usual, at(5)), 900);
        assert_eq!((untold.left(7, unit), untold.left(1, unit)), (None, Some(at(0))));
        [7, 1, 2].into_iter().for_each(|seq| untold.told(seq, unit));
        assert_eq!((untold.count(unit), untold.lack(unit, &usual, at(5)), untold.units().count()), (0, 0, 0));
    }
}
