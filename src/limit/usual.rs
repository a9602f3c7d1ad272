//! What requests usually take of a unit, where only their answers say it.
//!
//! Where what takes much takes long, an answer that is still under way when most are over will say more than they did. So what
//! one will take is the mean of those that lasted at least as long as it has up to now, which for one that leaves is the mean of
//! all; and one that has lasted longer than any counts as the longest. What a single one may take beyond that is left out: by
//! so much a window may be exceeded, however many are under way.
//!
//! Where the time says nothing, and in a fleet, where none knows those of the others: several that are under way together seldom
//! all take as much as the largest do. So, as an insurance has it, what is reserved for all of them is what they take in the mean,
//! and more by the square root of how many they are (and by what the mean itself is uncertain, that of 64 answers: for many that is
//! more). In a fleet the errors of its members add up by the root of how many they are, so that each leaves out the root of its part
//! of what a single one may take.

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
/// The quarter that lasted longest must have used so many times as much as all did in the mean: otherwise that is chance, or what
/// they use does not grow with time, as the tokens of a prompt.
const GROWS: f64 = 4.0 / 3.0;
/// What has lasted so many times as long as the longest is not being made any more: an answer that hangs takes no more than others.
const HANGS: u32 = 3;

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

    /// Whether what lasts longer clearly uses more.
    pub fn tells_by_time(&self) -> bool {
        let longest = self.lasted.get(self.lasted.len() * 3 / 4);
        self.lasted.len() >= FEW && longest.is_some_and(|(_, used)| *used >= self.mean * GROWS)
    }

    /// What to reserve for one more beside so many `under_way`. The smallest limit of the unit is `least`; of one that is shared with
    /// others of a fleet a `part` is due here.
    pub fn reserve(&self, under_way: usize, part: Option<f64>, least: Option<Amount>) -> u32 {
        let beyond = (f64::from(self.most) - self.mean).max(0.0);
        // The mean itself is known as well as so many answers tell it.
        let answers = self.used.len().max(1) as f64;
        let spread = |count: f64| (count * (1.0 + count / answers)).sqrt();
        let before = under_way as f64;
        let more = match part {
            None if self.tells_by_time() => 0.0,
            part => beyond * (spread(before + 1.0) - spread(before).max(part.unwrap_or(1.0).sqrt())),
        };
        let guess = least.filter(|_| self.is_guess()).map_or(0, |least| least.get() / GUESS);
        ((self.mean() + more).ceil() as u32).max(guess)
    }

    /// What each of those under way will take that has lasted so long up to now, the first of them for longest; `None` of one that
    /// hangs.
    pub fn of_lasting(&self, lasting: impl Iterator<Item = Duration>) -> impl Iterator<Item = Option<f64>> {
        let mut longer = self.lasted.len();
        lasting.map(move |lasts| {
            while longer > 0 && self.lasted[longer - 1].0 >= lasts {
                longer -= 1;
            }
            let (longest, most) = self.lasted.last()?;
            let goes_on = || (lasts <= *longest * HANGS).then_some(*most);
            self.lasted.get(longer).map(|(_, used)| *used).or_else(goes_on)
        })
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

    /// As many of each amount, which lasted so many seconds.
    fn of(amounts: &[(u32, u64)]) -> UsualAmount {
        let mut usual = UsualAmount::default();
        for (used, seconds) in amounts.repeat(60 / amounts.len()) {
            usual.remember(used, Some(Duration::from_secs(seconds)));
        }
        usual
    }

    /// The mean of 1 to 60 is 30.5, and 57 of 60 are no more than 57.
    #[test]
    fn several_together_reserve_their_mean_and_what_they_may_take_beyond_that_together_more_than_one() {
        let usual = of_up_to(60);
        let mut all = 0.0;
        for before in 0..100 {
            let reserved = f64::from(usual.reserve(before, None, Amount::new(20_000)));
            all += reserved;
            let count = before as f64 + 1.0;
            // The standard error of a sum of so many, where the mean is known of 60 others.
            let due = count * 30.5 + (57.0 - 30.5) * ((count + count * count / 60.0).sqrt() - 1.0);
            assert!(all >= due && all <= due + count, "{all} for {count}, and {due} were due");
        }
    }

    /// Of four that have a quarter each, each leaves out a half of what one alone would: √4 of such errors are one.
    #[test]
    fn the_errors_of_a_fleets_members_are_together_as_large_as_that_of_one_andante() {
        let usual = of_up_to(60);
        let error = |part| 57.0 - f64::from(usual.reserve(0, Some(part), None));
        assert!((error(0.25) * 2.0 - error(1.0)).abs() <= 2.0, "{} and {}", error(0.25), error(1.0));
    }

    #[test]
    fn a_few_answers_do_not_say_what_is_usual() {
        let reserve = |answers| of_up_to(answers).reserve(0, None, Amount::new(20_000));
        assert_eq!([0, 1, 15, 16].map(reserve), [2000, 2000, 2000, 9]);
        assert_eq!((of_up_to(0).reserve(0, None, None), of_up_to(0).reserve(3, None, Amount::new(1))), (1, 1));
    }

    #[test]
    fn what_is_rare_does_not_lower_what_is_reserved() {
        let mut usual = UsualAmount::default();
        (0..63).for_each(|_| usual.remember(10, None));
        usual.remember(10_000, None);
        assert_eq!(usual.mean().round(), 166.0);
        assert_eq!((usual.reserve(0, None, None), usual.reserve(5, None, None)), (167, 167));
    }

    #[test]
    fn what_lasts_longer_than_the_short_ones_takes_what_the_long_ones_do() {
        let usual = of(&[(100, 1), (1000, 10)]);
        let of =
            |lasted: &[f64]| usual.of_lasting(lasted.iter().copied().map(Duration::from_secs_f64)).collect::<Vec<_>>();
        assert_eq!([0.0, 0.9, 1.1, 10.0].map(|lasts| of(&[lasts])[0].unwrap()), [550.0, 550.0, 1000.0, 1000.0]);
        assert_eq!(of(&[31.0, 20.0, 5.0, 0.5]), [None, Some(1000.0), Some(1000.0), Some(550.0)], "the first one hangs");
        let by_time = [None, Some(1.0)].map(|part| usual.reserve(8, part, None));
        assert!(
            by_time[0] == 550 && by_time[1] > 600,
            "{by_time:?}: in a fleet none knows how long those of others last"
        );
        assert_eq!(of_up_to(60).of_lasting([Duration::ZERO].into_iter()).next(), Some(None));
    }

    #[test]
    fn where_the_time_says_nothing_it_does_not_count() {
        assert!(of(&[(100, 1), (1000, 10)]).tells_by_time());
        assert!(of(&[(100, 1), (150, 1), (150, 1), (200, 10)]).tells_by_time(), "200 are 4/3 of 150");
        assert!(!of(&[(100, 1), (150, 1), (160, 1), (200, 10)]).tells_by_time());
        assert!(!of(&[(50, 1), (50, 2), (50, 10)]).tells_by_time(), "all use as much");
        assert!(!of(&[(1000, 1), (100, 10)]).tells_by_time() && !of_up_to(60).tells_by_time());
        let few =
            of(&[(100, 1), (1000, 10)]).used[..15].iter().fold(UsualAmount::default(), |mut few, (used, lasted)| {
                few.remember(*used, *lasted);
                few
            });
        assert!(!few.tells_by_time());
    }
}
