//! How much keeps coming of each urgency while requests wait. What is less urgent waits for that too, and not only for what is
//! there: workers that send the next request once they have an answer are always in its way.

use super::claim::Urgency;

/// What has come of each urgency, and was served, since something waits.
#[derive(Debug, Default)]
pub(super) struct Inflow {
    running: Interval,
    /// What has been served of all since something of each urgency came.
    quiet: [u32; Urgency::COUNT],
    /// The share of each urgency in the last intervals.
    shares: [[f32; Urgency::COUNT]; INTERVALS],
}

/// What came and was served of each urgency, by cost, while about [`LENGTH`] was served of all.
#[derive(Debug, Default)]
struct Interval {
    came: [u32; Urgency::COUNT],
    served: [u32; Urgency::COUNT],
}

/// Long enough for each lower urgency to have its guaranteed turn, and for chance not to matter much.
const LENGTH: u32 = 32;
/// What came in one of them only was a burst, and may be all that comes.
const INTERVALS: usize = 2;
/// So many times the usual distance: by chance alone one of 50 is longer (e to the -4).
const GONE: f32 = 4.0;

// === impl Inflow ===

impl Inflow {
    /// A request of this urgency waits from now on.
    pub(super) fn came(&mut self, urgency: Urgency, cost: u32) {
        let came = &mut self.running.came[usize::from(urgency.get())];
        *came = came.saturating_add(cost);
        self.quiet[usize::from(urgency.get())] = 0;
    }

    /// One was served.
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

    /// Which share of what is served goes to what keeps coming and is more urgent than this: what it was in each of the last
    /// intervals, and nothing before these are over. What has not come for several times as long as it used to take comes no more:
    /// where slots are far apart, an interval is long.
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

    /// What both came and was served. What came and left again takes nothing, and what waits already is known.
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
        // Of the second interval the last one comes after its end.
        let close = |share: f64, to: f64| (share - to).abs() <= 1.0 / 16.0;
        assert_eq!(inflow.above(Urgency::MOST), 0.0);
        assert!(close(inflow.above(Urgency::USUAL), 0.75), "{inflow:?}");
        assert!(close(inflow.above(Urgency::LEAST), 1.0), "{inflow:?}");
        // It comes no more: it was three of four, so that six slots without it are no chance.
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
