//! Interpretation of a refusal, and the pause after it.

use andante_limit::Seq;

use super::{
    AnsweredRequest, ApiRefusal, Cycle, RateEstimator,
    closing::{BRIEF, Closing},
    reopening::KEPT,
    seconds,
};

/// Meaning of a refusal for the estimated rate.
#[derive(Clone, Copy, Debug, Default)]
struct RefusalReading {
    /// The rate was slightly too high.
    consistent: bool,
    /// As many requests were served as the window holds.
    window: bool,
    /// A pause would not help.
    goes_on: bool,
}

/// Served requests after which a refusal only shows that the rate is slightly too high.
const ENOUGH: f64 = 40.0;
/// Share of a window's requests that counts as all. With even pacing this many are served shortly before the window's
/// end, whatever refuses then.
const ALL: f64 = 0.98;
/// Served requests in slow start below which a refusal says nothing yet.
const TOO_SOON: f64 = 6.0;
/// Longest window, in seconds, for which refusals may be random.
const SHORT: f64 = 5.0;
/// Largest share of refusals that is taken for random, whatever was measured.
const MOST_TOLERATED: f64 = 0.45;
/// Probability below which a run of refusals is not random.
const UNLIKELY: f64 = 0.01;
/// Shortest pause.
const SHORTEST: f64 = 0.02;

impl RateEstimator {
    /// Handles a refusal with an answer at `now`. Returns until when nothing may leave, if the refusal leads to a
    /// pause.
    pub(super) fn pause(&mut self, answered: AnsweredRequest, now: f64, refusal: ApiRefusal) -> Option<f64> {
        let AnsweredRequest { seq, crowd, .. } = answered;
        let wait = refusal.wait.map(|wait| wait.as_secs_f64());
        let sent = seconds(answered.sent);
        let slots = self.belief.as_ref().map_or(0.0, |belief| 2.0 / belief.rate(now));
        let cycle = self.cycle.unwrap_or(Cycle::begun(sent));
        let window = self.belief.as_ref().filter(|belief| !belief.is_rising() && cycle.served >= ALL * belief.count);
        let window = window.map(|belief| belief.span);
        if let Some(closing) = &mut self.closing {
            if seq <= closing.newest {
                closing.also_refused(crowd);
                return wait.filter(|_| closing.asked.is_some()).map(|wait| now + wait);
            }
            self.refusals.counts(true);
            closing.refused(sent, crowd, refusal.overload);
            if closing.fewer_refused && wait.is_none() {
                self.crowd.fewer_refused();
            }
            let until = closing.next_probe(now, &cycle, slots, window, &self.way);
            let more = 0.5 * (f64::from(closing.tries) - 2.0).max(0.0);
            return Some(wait.map_or(until, |wait| now + wait.max(more)));
        }
        if self.before.is_some_and(|before| seq <= before) {
            return None;
        }
        if self.crowd.fewer(seq, crowd, now - sent < 4.0 * self.way.usual) {
            return None;
        }
        let configured = self.belief.as_mut().zip(self.configured).filter(|_| !self.refused);
        let is_first = configured.map(|(belief, rate)| belief.holds_on(now, rate)).is_some();
        self.refusals.counts(true);
        self.in_a_row += 1;
        let rate = self.belief.as_ref().map_or(0.0, |belief| belief.rate(now));
        let reading = if is_first && refusal.catches_up {
            // The request may have come too close to the one before. Later requests keep their distance, so the
            // configured rate stays.
            RefusalReading { consistent: true, ..RefusalReading::default() }
        } else {
            self.judge(cycle, now, sent, wait.is_some())
        };
        (self.refused, self.served) = (true, 0.0);
        if reading.goes_on {
            return None;
        }
        if self.belief.is_some() {
            self.held.lowered.refused(rate, now);
        }
        let closing = Closing {
            consistent: reading.consistent,
            window: reading.window,
            rate,
            ..Closing::begun(answered, refusal)
        };
        let until = if reading.consistent {
            now + (slots / 2.0).max(SHORTEST)
        } else if self.belief.is_none() && self.crowd.is_open() {
            // The pause may be over once the requests in flight are answered.
            now + self.way.usual.max(0.03)
        } else {
            closing.next_probe(now, &cycle, slots, window, &self.way)
        };
        self.closing = Some(closing);
        self.before = Some(refusal.newest);
        Some(wait.map_or(until, |wait| now + wait))
    }

    /// Records a pause that an API asks for before it has served anything. A long wait says nothing about concurrency:
    /// it may announce an outage in which some requests are served.
    pub(crate) fn unproven(&mut self, answered: AnsweredRequest, refusal: ApiRefusal) {
        if refusal.wait.is_none_or(|wait| wait.as_secs_f64() > BRIEF) {
            return;
        }
        match &mut self.unproven {
            Some(closing) if answered.seq <= closing.newest => closing.also_refused(answered.crowd),
            unproven => *unproven = Some(Closing::begun(answered, refusal)),
        }
    }

    /// Records that `seq` is served. If it was in flight when others were refused, the API has no outage. If a rate is
    /// estimated already, refusals before the first answer say nothing about it.
    pub(super) fn proves(&mut self, seq: Seq) {
        let knows_nothing = self.closing.is_none() && self.belief.is_none();
        if let Some(closing) = self.unproven.take().filter(|closing| knows_nothing && seq <= closing.newest) {
            (self.refused, self.before) = (true, Some(closing.newest));
            self.closing = Some(closing);
        }
    }

    /// Interprets a refusal of a request that left at `sent`, and lowers the estimate if it was too high.
    fn judge(&mut self, cycle: Cycle, now: f64, sent: f64, asked: bool) -> RefusalReading {
        let Some(belief) = &mut self.belief else { return RefusalReading::default() };
        let (age, rate) = (sent - cycle.since, belief.rate(now));
        let tolerated = |noise: &f64| self.refusals.0 < (1.25 * noise + 0.03).min(MOST_TOLERATED);
        let noise = self.noise.filter(|noise| tolerated(noise) && belief.span <= SHORT);
        if noise.is_some_and(|noise| noise.powi(self.in_a_row) > UNLIKELY) && !asked {
            return RefusalReading { goes_on: true, ..RefusalReading::default() };
        }
        if belief.is_rising() {
            if cycle.served >= 0.7 * belief.count && age < belief.span {
                belief.holds(now);
                if self.told_length.is_some() {
                    belief.keep(KEPT);
                }
                return RefusalReading { window: true, ..RefusalReading::default() };
            }
            self.early = self.served < TOO_SOON && !self.early && self.noise.is_none();
            if self.early {
                belief.rises_anew();
            } else {
                belief.risen_too_far(now);
            }
            return RefusalReading { consistent: true, ..RefusalReading::default() };
        }
        let whole = cycle.served >= 0.7 * belief.count && age >= 0.7 * belief.span.min(30.0);
        let lately = f64::max(0.7 * belief.span.min(30.0), 30.0 / rate);
        let again = self.consistent.is_some_and(|last| now - last < lately);
        let many = self.served >= 8.0 && belief.count < 8.0 || self.served >= ENOUGH;
        // A configured rate is lowered by a little first. If the pause is too long for that, the rate is measured
        // again.
        if !(whole || again || many || self.noise.is_some() || self.configured.is_some()) {
            return RefusalReading::default();
        }
        self.consistent = Some(now);
        if let Some(share) = belief.too_much(now, sent, self.served, self.refusals.0) {
            self.noise = Some(share);
        }
        RefusalReading { consistent: true, ..RefusalReading::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rate_estimator::{MovingShare, belief::Belief};
    use andante_clock::Instant;

    /// Answer to the request with this number: one leaves every 50 ms, and is answered 10 ms later.
    fn answered(number: u64) -> AnsweredRequest {
        let sent = Instant::START + Duration::from_millis(number * 50);
        AnsweredRequest { seq: number, sent, at: sent + Duration::from_millis(10), crowd: 1 }
    }

    fn refused(estimator: &mut RateEstimator, number: u64) -> Option<Instant> {
        estimator.refused(answered(number), ApiRefusal::bare(number))
    }

    #[test]
    fn what_is_refused_at_random_is_forgotten_when_it_stops() {
        let belief = Some(Belief::of_window(20.0, 1.0, 20.0, 0.0));
        let mut estimator =
            RateEstimator { belief, noise: Some(0.3), refusals: MovingShare(0.3), ..RateEstimator::new(None) };
        estimator.served(answered(0), false);
        assert_eq!(refused(&mut estimator, 1), None, "as often as ever");
        // A hundred in a row: with 30% random refusals that happens less than once in 10^15 times.
        (2..102).for_each(|number| estimator.served(answered(number), false));
        assert!(estimator.noise.is_none());
        assert!(refused(&mut estimator, 102).is_some());
    }

    /// nginx's `limit_req` without `burst` at 20/s refuses the second of two requests that arrive 49 ms apart. A rate
    /// measured from one request in 50 ms and a pause would be half of that. An additional 1.5 ms between two requests
    /// is enough: one in 51.5 ms is 19.4/s.
    #[test]
    fn one_refusal_soon_does_not_overturn_a_configured_rate() {
        let refusal = ApiRefusal { catches_up: true, ..ApiRefusal::bare(1) };
        let mut estimator = RateEstimator::new(Some(20.0));
        estimator.served(answered(0), false);
        assert!(estimator.refused(answered(1), refusal).is_some());
        // A slot passes before another request is tried.
        (3..20).for_each(|number| estimator.served(answered(number), false));
        let apart = estimator.change(answered(20).at).flatten().expect("there is more room between them");
        assert!((19.3..19.5).contains(&apart.rate.per_second()), "{apart}");
        // Once slots are not caught up any more, the rate itself is too high.
        let again = ApiRefusal { newest: 20, catches_up: false, ..refusal };
        assert!(estimator.refused(answered(20), again).is_some());
        estimator.served(answered(22), false);
        let lower = estimator.change(answered(22).at).flatten().expect("it is lower").rate.per_second();
        assert!((15.0..20.0).contains(&lower), "{lower}");
    }

    /// Estimator after a crowd of eight at once: five are served and three get 503, which arrives before the served
    /// answers. The API asks for a pause of so many seconds. In an `outage` none of the five is served either.
    fn after_a_first_crowd(mut estimator: RateEstimator, seconds: u64, outage: bool) -> RateEstimator {
        let ms = |of| Instant::START + Duration::from_millis(of);
        let answered = |seq: u64, sent, at| AnsweredRequest { seq, sent: ms(sent), at: ms(at), crowd: seq as u32 };
        let refusal = ApiRefusal { wait: Some(Duration::from_secs(seconds)), overload: true, ..ApiRefusal::bare(8) };
        (6..=8).for_each(|seq| estimator.unproven(answered(seq, 0, 5), refusal));
        let under_way = if outage { 0 } else { 5 };
        (1..=under_way).for_each(|seq| estimator.served(answered(seq, 0, 100), false));
        let then = seconds * 1000;
        estimator.served(AnsweredRequest { crowd: 1, ..answered(9, then + 5, then + 105) }, false);
        estimator
    }

    #[test]
    fn what_an_api_refuses_before_its_first_answer_is_a_refusal_if_it_serves_the_others() {
        let at_once = |seconds, outage| after_a_first_crowd(RateEstimator::new(None), seconds, outage).at_once();
        assert_eq!(at_once(1, false), Some(5), "there were too many of eight");
        assert_eq!(at_once(1, true), None, "an outage that is over says nothing of how many");
    }

    #[test]
    fn what_asks_for_a_long_pause_before_the_first_answer_says_nothing_of_a_rate() {
        let estimator = after_a_first_crowd(RateEstimator::new(None), 60, false);
        assert!(estimator.belief.is_none() && estimator.at_once().is_none());
    }

    #[test]
    fn a_rate_that_is_known_is_not_lost_by_what_is_refused_before_the_first_answer() {
        for rate in [5.0, 100.0] {
            let estimator = after_a_first_crowd(RateEstimator::new(Some(rate)), 1, false);
            let known = estimator.belief.map_or(0.0, |belief| belief.rate(1.2));
            assert!((0.95..=1.05).contains(&(known / rate)), "{known} of {rate}");
        }
    }

    #[test]
    fn a_run_of_refusals_is_not_chance() {
        let belief = Some(Belief::of_window(20.0, 1.0, 20.0, 0.0));
        let mut estimator =
            RateEstimator { belief, noise: Some(0.2), refusals: MovingShare(0.1), ..RateEstimator::new(None) };
        estimator.served(answered(0), false);
        // 0.2² is four in a hundred, 0.2³ is less than one.
        assert_eq!([1, 2].map(|number| refused(&mut estimator, number)), [None, None]);
        assert!(refused(&mut estimator, 3).is_some());
    }
}
