//! Inflow: the rate at which requests of each urgency keep arriving while others wait. Less urgent requests wait for
//! future arrivals too, not only for the present queue. Workers that send the next request after each answer always
//! precede them.

use super::claim::Urgency;

/// Requests of each urgency that arrived and were served since the queue was last empty.
#[derive(Debug, Default)]
pub(super) struct Inflow {
    running: Interval,
    /// Served cost, over all urgencies, since the last arrival of each urgency.
    quiet: [u32; Urgency::COUNT],
    /// The share of each urgency in the last intervals.
    shares: [[f32; Urgency::COUNT]; INTERVALS],
}

/// Cost that arrived and was served per urgency, while about [`LENGTH`] was served overall.
#[derive(Debug, Default)]
struct Interval {
    came: [u32; Urgency::COUNT],
    served: [u32; Urgency::COUNT],
}

/// Long enough for each lower urgency to have its guaranteed turn, and for chance not to matter much.
const LENGTH: u32 = 32;
/// Arrivals in only one interval were a burst, and may not continue.
const INTERVALS: usize = 2;
/// An urgency that is absent for this many times its mean distance counts as gone: by chance, one distance in 50 is
/// longer (e^-4).
const GONE: f32 = 4.0;

// === impl Inflow ===

impl Inflow {
    /// Records the arrival of a waiting request of this urgency.
    pub(super) fn came(&mut self, urgency: Urgency, cost: u32) {
        let came = &mut self.running.came[usize::from(urgency.get())];
        *came = came.saturating_add(cost);
        self.quiet[usize::from(urgency.get())] = 0;
    }

    /// Records a served request.
    pub(super) fn served(&mut self, urgency: Urgency, cost: u32) {
        let served = &mut self.running.served[usize::from(urgency.get())];
        *served = served.saturating_add(cost);
        for quiet in &mut self.quiet {
            *quiet = quiet.saturating_add(cost);
        }
        if self.running.length() >= LENGTH {
            self.shares.rotate_right(1);
            self.shares[0] = std::mem::take(&mut self.running).shares();
        }
    }

    /// The share of the served cost that future arrivals of higher urgency take: the least of the last intervals, and 0
    /// until these are over. An urgency absent for several times its mean distance counts as gone: an interval is long
    /// where slots are far apart.
    pub(super) fn above(&self, urgency: Urgency) -> f64 {
        let goes_on = |(share, quiet): (&f32, &u32)| if *quiet as f32 * share <= GONE { *share } else { 0.0 };
        let above = |shares: &[f32; Urgency::COUNT]| {
            shares.iter().zip(&self.quiet).take(usize::from(urgency.get())).map(goes_on).sum::<f32>()
        };
        self.shares.iter().map(above).reduce(f32::min).map_or(0.0, f64::from)
    }
}

// === impl Interval ===

impl Interval {
    fn length(&self) -> u32 {
        self.served.iter().fold(0, |sum, served| sum.saturating_add(*served))
    }

    /// The cost that both arrived and was served. Arrivals that left unserved take nothing, and the present queue is
    /// counted elsewhere.
    fn shares(&self) -> [f32; Urgency::COUNT] {
        std::array::from_fn(|band| self.came[band].min(self.served[band]) as f32 / self.length() as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(inflow: &mut Inflow, urgency: Urgency, many: u32, comes_again: bool) {
        for _ in 0..many {
            inflow.served(urgency, 1);
            if comes_again {
                inflow.came(urgency, 1);
            }
        }
    }

    #[test]
    fn what_comes_again_and_again_is_in_the_way_of_what_is_less_urgent() {
        let mut inflow = Inflow::default();
        for _ in 0..4 {
            serve(&mut inflow, Urgency::MOST, 12, true);
            serve(&mut inflow, Urgency::USUAL, 4, true);
        }
        // The last arrival of the second interval comes after its end.
        let close = |share: f64, to: f64| (share - to).abs() <= 1.0 / 16.0;
        assert_eq!(inflow.above(Urgency::MOST), 0.0);
        assert!(close(inflow.above(Urgency::USUAL), 0.75), "{inflow:?}");
        assert!(close(inflow.above(Urgency::LEAST), 1.0), "{inflow:?}");
        // The urgent requests stop. Six slots without them are no chance, as they had three of four.
        serve(&mut inflow, Urgency::USUAL, 1, true);
        assert!(close(inflow.above(Urgency::USUAL), 0.75), "{inflow:?}");
        serve(&mut inflow, Urgency::USUAL, 1, true);
        assert_eq!(inflow.above(Urgency::USUAL), 0.0);
    }

    #[test]
    fn a_burst_is_not_taken_for_the_first_of_many() {
        let mut inflow = Inflow::default();
        (0..10_000).for_each(|_| inflow.came(Urgency::MOST, 1));
        for _ in 0..100 {
            serve(&mut inflow, Urgency::MOST, LENGTH / 2, false);
            assert_eq!(inflow.above(Urgency::LEAST), 0.0);
        }
    }
}
