//! Usage estimate: amounts that requests take of a unit that only their responses report.
//!
//! Where larger amounts take longer, a response that outlasts most others will report more than they did. So the
//! estimate for a request in flight is the mean of responses that lasted at least as long as the request has up to now.
//! For a new request that is the mean of all; a request that outlasts every response counts as the longest. The excess
//! of a single request over the mean is left out: a window may be exceeded by that much, however many requests are in
//! flight.
//!
//! The duration does not help where it predicts nothing, and in a fleet, where no member knows the others' requests.
//! But concurrent requests seldom all take as much as the largest do. As in insurance, their total reservation is their
//! mean, plus an excess that grows with the square root of their number. The uncertainty of the mean itself, from 64
//! responses, adds to the excess, and dominates for many requests. In a fleet the members' errors add up by the square
//! root of their number. So each member leaves out a single request's excess times the square root of its share.

use std::time::Duration;

use super::Amount;

/// Usage of one unit that recent responses reported.
#[derive(Clone, Debug, Default)]
pub struct EstimatedAmount {
    /// Ring of the latest amounts, each with the request's duration if known.
    used: Vec<(u32, Option<Duration>)>,
    next: usize,
    /// Mean of the amounts, and the amount that 95 of 100 requests do not exceed.
    mean: f64,
    most: u32,
    /// Durations from the shortest on, each with the mean amount of responses that lasted at least as long.
    lasted: Vec<(Duration, f64)>,
}

/// Number of responses that are remembered.
const REMEMBERED: usize = 64;
/// Fewer responses than this are no evidence: the shortest arrive first.
const FEW: usize = 16;
/// While the estimate is a guess, at least `1 / GUESS` of the smallest window is reserved.
const GUESS: u32 = 10;
/// The quarter that lasted longest must exceed the overall mean by this factor. Otherwise the difference is chance, or
/// the usage does not grow with time, like a prompt's tokens.
const GROWS: f64 = 4.0 / 3.0;
/// A response that outlasts the longest by this factor is no longer being generated: a hanging response takes no more
/// than others.
const HANGS: u32 = 3;

// === impl EstimatedAmount ===

impl EstimatedAmount {
    /// Records a request's usage, and its duration from leaving until its response reported the usage, if known.
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

    /// Returns true if too few responses have reported usage, so that the reservation is a guess.
    pub fn is_guess(&self) -> bool {
        self.used.len() < FEW
    }

    /// Mean usage of a request, at least 1.
    pub fn mean(&self) -> f64 {
        self.mean.max(1.0)
    }

    /// Returns true if longer responses clearly use more.
    pub fn tells_by_time(&self) -> bool {
        let longest = self.lasted.get(self.lasted.len() * 3 / 4);
        self.lasted.len() >= FEW && longest.is_some_and(|(_, used)| *used >= self.mean * GROWS)
    }

    /// Amount to reserve for one more request beside `under_way` others. `least` is the unit's smallest limit. For a
    /// limit shared within a fleet, `part` is this member's share.
    pub fn reserve(&self, under_way: usize, part: Option<f64>, least: Option<Amount>) -> u32 {
        let beyond = (f64::from(self.most) - self.mean).max(0.0);
        // The mean itself is only as certain as the number of responses allows.
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

    /// Expected usage of in-flight requests by their durations up to now, longest first; `None` for a hanging request.
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

/// Index of the 95th percentile among `count` ascending values.
pub fn enough_for_most(count: usize) -> usize {
    (count * 95).div_ceil(100).saturating_sub(1)
}

/// Puts `value` into a ring of `REMEMBERED` values.
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

    /// An estimate from responses of 1 to `most`.
    fn of_up_to(most: u32) -> EstimatedAmount {
        let mut usual = EstimatedAmount::default();
        (1..=most).for_each(|used| usual.remember(used, None));
        usual
    }

    /// An estimate from equally many responses of each amount, with their durations in seconds.
    fn of(amounts: &[(u32, u64)]) -> EstimatedAmount {
        let mut usual = EstimatedAmount::default();
        for (used, seconds) in amounts.repeat(60 / amounts.len()) {
            usual.remember(used, Some(Duration::from_secs(seconds)));
        }
        usual
    }

    /// The mean of 1 to 60 is 30.5, and 57 of 60 amounts are at most 57.
    #[test]
    fn several_together_reserve_their_mean_and_what_they_may_take_beyond_that_together_more_than_one() {
        let usual = of_up_to(60);
        let mut all = 0.0;
        for before in 0..100 {
            let reserved = f64::from(usual.reserve(before, None, Amount::new(20_000)));
            all += reserved;
            let count = before as f64 + 1.0;
            // The standard error of a sum of `count` amounts, with a mean known from 60 others.
            let due = count * 30.5 + (57.0 - 30.5) * ((count + count * count / 60.0).sqrt() - 1.0);
            assert!(all >= due && all <= due + count, "{all} for {count}, and {due} were due");
        }
    }

    /// Each of four members with a quarter leaves out half of what one process would: √4 of such errors are one.
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
        let mut usual = EstimatedAmount::default();
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
        let few = of(&[(100, 1), (1000, 10)]).used[..15].iter().fold(
            EstimatedAmount::default(),
            |mut few, (used, lasted)| {
                few.remember(*used, *lasted);
                few
            },
        );
        assert!(!few.tells_by_time());
    }
}
