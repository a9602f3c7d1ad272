//! What requests usually take of a unit, where only their answers say it.
//!
//! What takes much takes long: an answer that is still under way when most are over will say more than they do. So what one
//! will take is the mean of those that lasted at least as long as it has up to now, which for one that leaves is the mean of all;
//! and one that has lasted longer than any goes on as the longest did.
//! Beyond that a single one may take more, and the one or the other does: by so much a window may be exceeded. In a fleet such
//! errors of its members add up by the root of how many they are, so that each leaves out no more than the root of its part of
//! that.

use std::time::Duration;

use super::Amount;

/// What requests took of one unit lately, as their answers said.
#[derive(Clone, Debug, Default)]
pub struct UsualAmount {
    /// The last of them, in a ring, and how long each lasted, if that is known.
    used: Vec<(u32, Option<Duration>)>,
    next: usize,
    /// So much was used in the mean, and so much, or less, by 95 of 100.
    mean: f64,
    most: u32,
    /// From the shortest on, how long each lasted, and what those that lasted at least as long used in the mean.
    lasted: Vec<(Duration, f64)>,
}

/// How many answers are remembered.
const REMEMBERED: usize = 64;
/// Of so few answers nothing is concluded: the shortest are there first.
const FEW: usize = 16;
/// Before that, at least such a part of what the smallest window holds is reserved.
const GUESS: u32 = 10;
/// What has lasted so many times as long as the longest is not being made any more: an answer that hangs takes no more than others.
const HANGS: u32 = 4;

// === impl UsualAmount ===

impl UsualAmount {
    /// A request has used so much, and lasted so long from when it left until its answer said that, if that is known.
    pub fn remember(&mut self, used: u32, lasted: Option<Duration>) {
        put(&mut self.used, &mut self.next, (used, lasted));
        let mut sorted: Vec<_> = self.used.iter().map(|(used, _)| *used).collect();
        sorted.sort_unstable();
        self.most = sorted[enough_for_most(sorted.len())];
        self.mean = sorted.iter().map(|used| f64::from(*used)).sum::<f64>() / sorted.len() as f64;
        let known = self.used.iter().filter_map(|(used, lasted)| Some((lasted.as_ref().copied()?, f64::from(*used))));
        self.lasted.clear();
        self.lasted.extend(known);
        self.lasted.sort_unstable_by_key(|(lasted, _)| *lasted);
        let mut longer = 0.0;
        for (count, (_, used)) in (1..).zip(self.lasted.iter_mut().rev()) {
            longer += *used;
            *used = longer / f64::from(count);
        }
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
    pub fn reserve(&self, under_way: usize, part: f64, least: Option<Amount>) -> u32 {
        let beyond = (f64::from(self.most) - self.mean).max(0.0) * (1.0 - part.sqrt());
        let before = under_way as f64;
        let amount = self.mean() + beyond * ((before + 1.0).sqrt() - before.sqrt());
        let guess = least.filter(|_| self.is_guess()).map_or(0, |least| least.get() / GUESS);
        (amount.ceil() as u32).max(guess)
    }

    /// What those that are under way will take, of which each has lasted so long up to now; the first of them for longest.
    pub fn of_lasting(&self, lasting: impl Iterator<Item = Duration>) -> f64 {
        let mut longer = self.lasted.len();
        let of_one = |lasts: Duration| {
            while longer > 0 && self.lasted[longer - 1].0 >= lasts {
                longer -= 1;
            }
            match (self.lasted.get(longer), self.lasted.last()) {
                (Some((_, used)), _) => *used,
                // None has lasted as long: it goes on as that did which has lasted longest.
                (None, Some((longest, used))) if lasts <= *longest * HANGS => used * lasts.div_duration_f64(*longest),
                _ => self.mean(),
            }
        };
        lasting.map(of_one).sum()
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
        (1..=most).for_each(|used| usual.remember(used, None));
        usual
    }

    /// The mean of 1 to 60 is 30.5, and 57 of 60 are no more than 57.
    #[test]
    fn the_errors_of_a_fleets_members_are_together_as_large_as_that_of_one_andante() {
        let usual = of_up_to(60);
        let reserve = |under_way, part| usual.reserve(under_way, part, Amount::new(20_000));
        assert_eq!([0, 1, 100].map(|under_way| reserve(under_way, 1.0)), [31; 3]);
        // Of four that have a quarter each, each leaves out a half of what one alone would: √4 of such errors are one. Of nine that
        // are under way there, with one more, three times as much as of one that is alone.
        let quarter: u32 = (0..9).map(|under_way| reserve(under_way, 0.25)).sum();
        assert_eq!(reserve(0, 0.25), 44, "30.5 + 26.5 / 2, rounded up");
        let due = 9.0 * 30.5 + 3.0 * 26.5 / 2.0;
        assert!((due..due + 9.0).contains(&f64::from(quarter)), "{quarter}, and {due} is due");
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
        (0..63).for_each(|_| usual.remember(10, None));
        usual.remember(10_000, None);
        assert_eq!(usual.mean().round(), 166.0);
        assert_eq!((usual.reserve(0, 1.0, None), usual.reserve(5, 1.0, None)), (167, 167));
    }

    /// Ten answers of 100 lasted a second, and ten of 1,000 ten seconds.
    #[test]
    fn what_lasts_longer_than_the_short_ones_takes_what_the_long_ones_do() {
        let mut usual = UsualAmount::default();
        for (used, seconds) in [(100, 1), (1000, 10)].repeat(10) {
            usual.remember(used, Some(Duration::from_secs(seconds)));
        }
        let of = |lasted: &[f64]| usual.of_lasting(lasted.iter().copied().map(Duration::from_secs_f64));
        assert_eq!(
            [0.0, 0.9, 1.1, 9.0, 11.0, 39.0].map(|lasted| of(&[lasted])),
            [550.0, 550.0, 1000.0, 1000.0, 1100.0, 3900.0]
        );
        assert_eq!(of(&[41.0]), 550.0, "it hangs");
        assert_eq!(of(&[41.0, 20.0, 5.0, 0.5]), 550.0 + 2000.0 + 1000.0 + 550.0);
        assert_eq!(
            (of(&[]), of_up_to(60).of_lasting([Duration::ZERO; 2].into_iter())),
            (0.0, 61.0),
            "how long they lasted is not known"
        );
    }
}
