//! What requests usually take of a unit, where only their answers say it.
//!
//! Several that are under way together seldom all take as much as the largest do. So, as an insurance has it, what is reserved
//! for all of them is what they take in the mean, and more by the square root of how many they are (and by what the mean itself is
//! uncertain, that of 64 answers: for many that is more). What a single one may take
//! beyond its mean is left out: by so much a window may be exceeded, however many are under way. In a fleet the errors of its
//! members add up by the root of how many they are, so that each leaves out the root of its part of that.

use super::Amount;

/// What requests took of one unit lately, as their answers said.
#[derive(Clone, Debug, Default)]
pub struct UsualAmount {
    /// The last of them, in a ring.
    used: Vec<u32>,
    next: usize,
    /// So much, or less, was used by 95 of 100, and so much in the mean.
    most: u32,
    mean: f64,
}

/// How many answers are remembered.
const REMEMBERED: usize = 64;
/// Of so few answers nothing is concluded: the shortest are there first.
const FEW: usize = 16;
/// Before that, at least such a part of what the smallest window holds is reserved.
const GUESS: u32 = 10;

// === impl UsualAmount ===

impl UsualAmount {
    /// A request has used so much.
    pub fn remember(&mut self, used: u32) {
        put(&mut self.used, &mut self.next, used);
        let mut sorted = self.used.clone();
        sorted.sort_unstable();
        self.most = sorted[enough_for_most(sorted.len())];
        self.mean = sorted.iter().map(|used| f64::from(*used)).sum::<f64>() / sorted.len() as f64;
    }

    /// Whether so few answers have told it that what is reserved is a guess.
    pub fn is_guess(&self) -> bool {
        self.used.len() < FEW
    }

    /// What a request takes in the mean.
    pub fn mean(&self) -> f64 {
        self.mean.max(1.0)
    }

    /// What to reserve for one more beside so many `under_way`. The smallest limit of the unit is `least`; where only a `part` of
    /// it is due here, others elsewhere have the rest.
    pub fn reserve(&self, under_way: u32, part: f64, least: Option<Amount>) -> u32 {
        let beyond = (f64::from(self.most) - self.mean).max(0.0);
        // The mean itself is known as well as so many answers tell it.
        let answers = self.used.len().max(1) as f64;
        let spread = |count: f64| (count * (1.0 + count / answers)).sqrt();
        let before = f64::from(under_way);
        let amount = self.mean() + beyond * (spread(before + 1.0) - spread(before).max(part.sqrt()));
        let guess = least.filter(|_| self.is_guess()).map_or(0, |least| least.get() / GUESS);
        (amount.ceil() as u32).max(guess)
    }
}

/// Which of so many, from the least on, suffices for 95 of 100.
pub fn enough_for_most(count: usize) -> usize {
    (count * 95).div_ceil(100).saturating_sub(1)
}

/// Puts `value` into a ring of what is remembered.
pub fn put<V>(ring: &mut Vec<V>, next: &mut usize, value: V) {
    match ring.get_mut(*next) {
        Some(place) => *place = value,
        None => ring.push(value),
    }
    *next = (*next + 1) % REMEMBERED;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of 1 to `most`.
    fn of_up_to(most: u32) -> UsualAmount {
        let mut usual = UsualAmount::default();
        (1..=most).for_each(|used| usual.remember(used));
        usual
    }

    /// The mean of 1 to 60 is 30.5, and 57 of 60 are no more than 57.
    #[test]
    fn several_together_reserve_their_mean_and_what_they_may_take_beyond_that_together_more_than_one() {
        let usual = of_up_to(60);
        let mut all = 0.0;
        for before in 0..100_u32 {
            let reserved = f64::from(usual.reserve(before, 1.0, Amount::new(20_000)));
            all += reserved;
            let count = f64::from(before) + 1.0;
            // The standard error of a sum of so many, where the mean is known of 60 others.
            let due = count * 30.5 + (57.0 - 30.5) * ((count + count * count / 60.0).sqrt() - 1.0);
            assert!(all >= due && all <= due + count, "{all} for {count}, and {due} were due");
        }
    }

    /// Of four that have a quarter each, each leaves out a half of what one alone would: √4 of such errors are one.
    #[test]
    fn the_errors_of_a_fleets_members_are_together_as_large_as_that_of_one_andante() {
        let usual = of_up_to(60);
        let error = |part| 57.0 - f64::from(usual.reserve(0, part, None));
        assert!((error(0.25) * 2.0 - error(1.0)).abs() <= 2.0, "{} and {}", error(0.25), error(1.0));
    }

    #[test]
    fn a_few_answers_do_not_say_what_is_usual() {
        let reserve = |answers| of_up_to(answers).reserve(0, 1.0, Amount::new(20_000));
        assert_eq!([0, 1, 15, 16].map(reserve), [2000, 2000, 2000, 9]);
        assert_eq!((of_up_to(0).reserve(0, 1.0, None), of_up_to(0).reserve(3, 1.0, Amount::new(1))), (1, 1));
    }

    #[test]
    fn what_is_rare_does_not_lower_what_is_reserved() {
        let mut usual = UsualAmount::default();
        (0..63).for_each(|_| usual.remember(10));
        usual.remember(10_000);
        assert_eq!(usual.mean().round(), 166.0);
        assert_eq!((usual.reserve(0, 1.0, None), usual.reserve(5, 1.0, None)), (167, 167));
    }
}
