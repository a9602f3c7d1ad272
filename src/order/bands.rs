//! The choice of the urgency to serve: the most urgent one, and a guaranteed share for each lower one.

use smallvec::SmallVec;

use super::claim::{Comes, Urgency};

/// Amounts served per urgency, and the urgencies that wait.
#[derive(Debug, Default)]
pub struct Bands {
    /// A bit for each urgency that waits.
    waiting: u8,
    /// Total amount served.
    served: u64,
    /// An entry for each urgency seen: usually one. Each of ten thousand wait points has such a list.
    turns: SmallVec<[GuaranteedTurn; 1]>,
}

/// The guaranteed turn of an urgency.
#[derive(Clone, Copy, Debug)]
struct GuaranteedTurn {
    urgency: Urgency,
    /// The total served at which the turn is due.
    due: u64,
    /// The value of `due` that served requests alone give: a request that leaves unserved does not change it.
    paid: u64,
}

/// Each lower urgency that waits gets one slot after this many of others.
const GUARANTEE: u64 = 20;

// === impl Bands ===

impl Bands {
    /// Marks this urgency as waiting; its first request costs `cost`. The urgency earns no share for the time before.
    /// Requests moved here from another place keep their urgency's turn: otherwise they would lose each turn that comes
    /// while their class is closed.
    pub(super) fn enter(&mut self, urgency: Urgency, cost: u64, comes: Comes) {
        if !self.has(urgency.get()) {
            self.waiting |= 1 << urgency.get();
            if comes == Comes::New || self.turns.iter().all(|turn| turn.urgency != urgency) {
                let least = self.served + cost * GUARANTEE;
                let turn = self.turn(urgency);
                turn.due = turn.paid.max(least);
            }
        }
    }

    /// Marks this urgency as no longer waiting.
    pub(super) fn leave(&mut self, urgency: Urgency) {
        self.waiting &= !(1 << urgency.get());
    }

    /// Records a served request of this urgency.
    pub(super) fn charge(&mut self, urgency: Urgency, cost: u64) {
        self.served += cost;
        let paid = self.served + cost * GUARANTEE;
        *self.turn(urgency) = GuaranteedTurn { urgency, due: paid, paid };
    }

    /// The urgency whose turn it is.
    pub(super) fn next(&self) -> Option<Urgency> {
        let most = (!self.is_empty()).then(|| self.waiting.trailing_zeros() as u8)?;
        if self.waiting >> most == 1 {
            return Urgency::new(most);
        }
        let lower = (most + 1..Urgency::COUNT as u8).filter(|band| self.has(*band)).filter_map(Urgency::new);
        let due = lower.map(|band| (self.known_turn(band).due, band)).filter(|(due, _)| *due <= self.served).min();
        due.map_or(Urgency::new(most), |(_, band)| Some(band))
    }

    /// Returns whether no urgency waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The guaranteed share of a lower urgency that waits.
    pub(super) const SHARE: f64 = 1.0 / (GUARANTEE as f64 + 1.0);

    /// The amount served before the first request of this urgency has its guaranteed turn, for a request of `cost`.
    pub(super) fn until_guaranteed(&self, urgency: Urgency, cost: f64) -> f64 {
        let GuaranteedTurn { due, paid, .. } = self.known_turn(urgency);
        if self.has(urgency.get()) {
            return due.saturating_sub(self.served) as f64;
        }
        (cost * GUARANTEE as f64).max(paid.saturating_sub(self.served) as f64)
    }

    /// The amount served before a request with `own` of its urgency before it, if all waiting requests stay. `urgent`
    /// is the amount of higher urgency, and the fraction `inflow` of the served amount goes to its future arrivals. The
    /// first of its urgency has its guaranteed turn once `guaranteed` has been served; `lower` urgencies have theirs.
    pub(super) fn ahead(guaranteed: f64, own: f64, urgent: f64, lower: usize, inflow: f64) -> f64 {
        // All shares that are not guaranteed to lower urgencies go to these, and to arrivals meanwhile.
        let share = 1.0 - lower as f64 * Self::SHARE;
        let all = (urgent + own) / (share - inflow).max(f64::EPSILON);
        ((guaranteed + own * (GUARANTEE as f64 + 1.0)) / share).min(all)
    }

    /// The factor by which waits grow if the fraction `inflow` of the slots goes to higher urgencies; the guaranteed
    /// share bounds it.
    pub fn stretched_by(inflow: f64) -> f64 {
        1.0 / (1.0 - inflow).max(Self::SHARE)
    }

    fn has(&self, band: u8) -> bool {
        self.waiting & (1 << band) != 0
    }

    fn known_turn(&self, urgency: Urgency) -> GuaranteedTurn {
        let turn = self.turns.iter().find(|turn| turn.urgency == urgency);
        turn.copied().unwrap_or(GuaranteedTurn { urgency, due: 0, paid: 0 })
    }

    fn turn(&mut self, urgency: Urgency) -> &mut GuaranteedTurn {
        let known = self.turns.iter().position(|turn| turn.urgency == urgency);
        let index = known.unwrap_or_else(|| {
            self.turns.push(GuaranteedTurn { urgency, due: 0, paid: 0 });
            self.turns.len() - 1
        });
        &mut self.turns[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_urgency_gets_its_share_under_a_flood() {
        let mut bands = Bands::default();
        for urgency in [Urgency::MOST, Urgency::USUAL, Urgency::LEAST] {
            bands.enter(urgency, 1, Comes::New);
        }
        let mut served = [0u32; Urgency::COUNT];
        for _ in 0..2100 {
            let next = bands.next().unwrap();
            served[usize::from(next.get())] += 1;
            bands.charge(next, 1);
        }
        // Lower urgencies get one slot after each 20 of others.
        for (band, share) in [(0, 1900), (3, 100), (7, 100)] {
            assert!(served[band].abs_diff(share) <= 1, "{served:?}");
        }
    }

    /// 50 more urgent requests wait. The first of a lower urgency is behind 20 of them, the second behind 41 requests,
    /// including one of its own urgency.
    #[test]
    fn the_first_of_a_lower_urgency_waits_for_a_whole_turn() {
        let mut bands = Bands::default();
        let ahead =
            |bands: &Bands, own, urgent| Bands::ahead(bands.until_guaranteed(Urgency::USUAL, 1.0), own, urgent, 0, 0.0);
        bands.enter(Urgency::MOST, 1, Comes::New);
        assert_eq!(ahead(&bands, 0.0, 50.0), 20.0);
        assert_eq!(ahead(&bands, 0.0, 7.0), 7.0, "fewer than a turn wait");
        let beside_more = Bands::ahead(20.0, 0.0, 7.0, 0, 0.5);
        assert_eq!(beside_more, 14.0, "while these are served half as many come, and so on");
        assert_eq!(Bands::ahead(20.0, 0.0, 7.0, 0, 1.0), 20.0, "it has its turn all the same");
        bands.enter(Urgency::USUAL, 1, Comes::New);
        assert_eq!(ahead(&bands, 1.0, 50.0), 41.0);
        (0..15).for_each(|_| bands.charge(Urgency::MOST, 1));
        assert_eq!(ahead(&bands, 1.0, 35.0), 26.0, "five of the first turn are left");
    }

    #[test]
    fn one_that_comes_is_not_owed_a_share_of_the_past() {
        let mut bands = Bands::default();
        bands.enter(Urgency::MOST, 1, Comes::New);
        (0..1000).for_each(|_| bands.charge(Urgency::MOST, 1));
        bands.enter(Urgency::LEAST, 1, Comes::New);
        assert_eq!(bands.next(), Some(Urgency::MOST));
    }

    #[test]
    fn one_that_leaves_unserved_costs_the_next_one_nothing() {
        let mut bands = Bands::default();
        bands.enter(Urgency::USUAL, 1, Comes::New);
        bands.enter(Urgency::LEAST, 1000, Comes::New);
        bands.leave(Urgency::LEAST);
        bands.enter(Urgency::LEAST, 1, Comes::New);
        (0..20).for_each(|_| bands.charge(Urgency::USUAL, 1));
        assert_eq!(bands.next(), Some(Urgency::LEAST));
    }
}
