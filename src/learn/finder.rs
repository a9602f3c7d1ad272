//! Finds the rate of an API that only refuses, and never says what it allows.
//!
//! What was accepted until a refusal, over the time until requests are accepted again, is no more than the limit: the
//! measured floor. From there the rate grows a little at a time, and falls by a share when that was too much (additive
//! increase, multiplicative decrease, as TCP does it), slower near a rate that has been too much before.

use std::{num::NonZeroU32, time::Duration};

use super::period;
use crate::{
    clock::Instant,
    limit::{LimitSpec, Rate, Unit},
};

/// What refusals have taught.
#[derive(Clone, Debug)]
pub(super) struct Finder {
    accepted: Accepted,
    /// What was accepted before the refusal for which no rate is known yet, and since when.
    pending: Option<(u32, Instant)>,
    found: Option<Found>,
    /// When the API refused last.
    refused: Instant,
    refusals: u32,
    /// The last request that had left by then: those up to it tell no more.
    before: Option<Unit>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    /// Requests per second.
    rate: f64,
    /// How many the API accepted in one go: what is never exceeded within the time that they take at that rate.
    count: NonZeroU32,
    /// The lowest rate that was too much lately.
    too_much: Option<f64>,
    /// Until when it does not grow.
    hold: Instant,
    /// When it was looked at last.
    seen: Instant,
    /// What it was when somebody was told last.
    told: f64,
    /// The API's own words have confirmed it: one refusal in a while is a matter of jitter.
    sure: bool,
}

/// How many requests were accepted in each of the last seconds.
#[derive(Clone, Debug)]
struct Accepted {
    /// When the present busy time began.
    since: Instant,
    last: Instant,
    counts: [u32; SECONDS],
}

const SECONDS: usize = 64;
/// Over so many seconds it is measured what an API accepts.
const LONG: u64 = 60;
const SHORT: u64 = 10;
/// After so long without a request a busy time is over.
const PAUSE: Duration = Duration::from_secs(10);
/// So few accepted requests do not make a rate, unless the API refuses again and again.
const FEW: u32 = 10;
const OFTEN: u32 = 3;
/// How much of a rate remains that was too much.
const DECREASE: f64 = 0.97;
/// The same if it was too much again soon after.
const SOON: f64 = 0.9;
/// How much of it remains at least, whatever was measured.
const LEAST: f64 = 0.7;
/// How long a rate is kept before it grows: one that was found, one that was too much, and one that the API's own
/// words confirm.
const HOLD_FOUND: Duration = Duration::from_secs(5);
const HOLD_LOWERED: Duration = Duration::from_secs(15);
const HOLD_TOLD: Duration = Duration::from_secs(600);
/// How much it grows per second, and how much near a rate that was too much.
const GROWTH: f64 = 0.03;
const SLOWLY: f64 = 0.002;
/// It grows for at most so long between two requests.
const SLOWEST: Duration = Duration::from_secs(30);
/// What was too much may be forgotten after so long.
const TOO_MUCH: Duration = Duration::from_secs(60);
/// Smaller changes are not worth a word.
const NOTABLE: f64 = 0.005;

// === impl Finder ===

impl Finder {
    pub(super) fn new(now: Instant) -> Self {
        let accepted = Accepted { since: now, last: now, counts: [0; SECONDS] };
        Self { accepted, pending: None, found: None, refused: now, refusals: 0, before: None }
    }

    /// The limit that it comes to.
    pub(super) fn limit(&self) -> Option<LimitSpec> {
        self.found.map(|found| found.limit())
    }

    /// The request `unit`, sent at `sent`, was served; another limit if that has told something.
    pub(super) fn served(&mut self, now: Instant, unit: Unit, sent: Instant) -> Option<LimitSpec> {
        self.accepted.add(now);
        if self.before.is_some_and(|before| unit <= before) {
            return None;
        }
        // The first one after a refusal: what came before took so long.
        let (count, since) = self.pending.take()?;
        self.found = Some(Found::new(count, sent.since(since), now, HOLD_FOUND));
        self.accepted.restart(now);
        self.limit()
    }

    /// The request `unit` was refused when `newest` was the last one to have left, and the API asks to wait `wait`, if it
    /// does; another limit if that has told something. `pressed` says that more were about to be sent, and nothing else
    /// held them back.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        (unit, newest): (Unit, Unit),
        wait: Option<Duration>,
        pressed: bool,
    ) -> Option<LimitSpec> {
        if self.before.is_some_and(|before| unit <= before) {
            return None;
        }
        self.before = Some(newest);
        let again = now.since(self.refused) < PAUSE * 6;
        self.refusals = if again { self.refusals + 1 } else { 1 };
        let (count, since) = self.accepted.count(now, LONG);
        let previous = std::mem::replace(&mut self.refused, now);
        match &mut self.found {
            Some(found) => {
                if found.sure && now.since(previous) > HOLD_LOWERED * 2 {
                    return None;
                }
                let per_second =
                    |(count, since): (u32, Instant)| f64::from(count) / now.since(since).as_secs_f64().max(1.0);
                let between = now.since(previous);
                let soon = previous > found.hold - HOLD_LOWERED && between < HOLD_LOWERED / 3;
                let then = self.accepted.count(now, between.as_secs());
                let measured = if soon {
                    per_second((count, since))
                } else if now < found.hold && then.0 >= FEW && between * 2 > found.limit().rate.per {
                    // It has not grown since the last refusal: what was accepted from there to here is the limit.
                    per_second(then)
                } else {
                    // Over a minute it may be less than the limit, over a few seconds more.
                    per_second((count, since)).max(per_second(self.accepted.count(now, SHORT)))
                };
                let lower = (measured / found.rate).clamp(LEAST, if soon { SOON } else { DECREASE });
                found.too_much = Some(found.rate);
                found.rate *= lower;
                (found.hold, found.seen, found.told) = (now + HOLD_LOWERED, now, found.rate);
                self.limit()
            }
            // Who sends little and is refused now and then learns what he sends, and not what he might.
            None if count < FEW || !pressed && self.refusals < OFTEN => None,
            None => {
                let Some(wait) = wait else {
                    self.pending.get_or_insert((count, since));
                    return None;
                };
                // It says itself when there will be room again.
                // A burst, and then a wall: no other rate would do.
                let wall = pressed && count >= 2 * FEW && now.since(since) < wait * 2;
                let hold = if wall { HOLD_TOLD } else { HOLD_FOUND };
                let over = (now + wait).since(since);
                // Waits are rounded up to seconds, and by a clock that is not ours.
                let rounded = over.saturating_sub(Duration::from_millis(250));
                let over = period::near(rounded, wait >= Duration::from_secs(2)).unwrap_or(over);
                self.found = Some(Found::new(count, over, now, hold));
                self.accepted.restart(now + wait);
                self.limit()
            }
        }
    }

    /// Somebody waits for a slot at this rate: it may be too low. Another limit if it has grown notably.
    pub(super) fn grow(&mut self, now: Instant) -> Option<LimitSpec> {
        let found = self.found.as_mut()?;
        let dt = now.since(found.seen.max(found.hold)).min(SLOWEST).as_secs_f64();
        found.seen = now;
        if now < found.hold || dt <= 0.0 {
            return None;
        }
        let recent = now.since(self.refused) < TOO_MUCH;
        let near = recent && found.too_much.is_some_and(|bad| (0.95..1.05).contains(&(found.rate / bad)));
        found.rate *= (1.0 + if near { SLOWLY } else { GROWTH }).powf(dt);
        if found.rate < found.told * (1.0 + NOTABLE) {
            return None;
        }
        found.told = found.rate;
        self.limit()
    }

    /// The API says itself what it allows: what was found out is not needed.
    pub(super) fn forget(&mut self) -> bool {
        (self.pending, self.refusals) = (None, 0);
        self.found.take().is_some()
    }
}

// === impl Found ===

impl Found {
    fn new(count: u32, over: Duration, now: Instant, hold: Duration) -> Self {
        let count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        let rate = f64::from(count.get()) / over.as_secs_f64().max(1e-3);
        Self { rate, count, too_much: None, hold: now + hold, seen: now, told: rate, sure: hold == HOLD_TOLD }
    }

    fn limit(&self) -> LimitSpec {
        let per =
            Duration::try_from_secs_f64(f64::from(self.count.get()) / self.rate).unwrap_or(Duration::from_secs(86_400));
        let rate = Rate { count: self.count, per: per.max(Duration::from_micros(u64::from(self.count.get()))) };
        // Evenly: nobody knows how large a burst may be.
        LimitSpec { rate, burst: Some(NonZeroU32::MIN), strict: false }
    }
}

// === impl Accepted ===

impl Accepted {
    fn add(&mut self, now: Instant) {
        if now.since(self.last) > PAUSE {
            self.restart(now);
        }
        let (from, to) = (second(self.last), second(now));
        for skipped in from + 1..=to.min(from + SECONDS as u64) {
            self.counts[skipped as usize % SECONDS] = 0;
        }
        self.last = self.last.max(now);
        self.counts[to as usize % SECONDS] += 1;
    }

    /// How many were accepted in the last `most` seconds of the present busy time, and since when.
    fn count(&self, now: Instant, most: u64) -> (u32, Instant) {
        let since = self.since.max(Instant::from_nanos(second(now).saturating_sub(most) * 1_000_000_000));
        let seconds = second(since)..=second(self.last);
        (seconds.rev().take(SECONDS).map(|second| self.counts[second as usize % SECONDS]).sum(), since)
    }

    fn restart(&mut self, now: Instant) {
        (self.since, self.last, self.counts) = (now, now, [0; SECONDS]);
    }
}

fn second(at: Instant) -> u64 {
    at.as_nanos() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(of: u64) -> Instant {
        Instant::START + Duration::from_millis(of)
    }

    fn per_second(limit: Option<LimitSpec>) -> f64 {
        limit.expect("a limit is known").rate.per_second()
    }

    #[test]
    fn what_was_accepted_until_there_is_room_again_is_the_rate() {
        let mut finder = Finder::new(ms(0));
        (1..=50).for_each(|at| assert_eq!(finder.served(ms(at), 0, ms(0)), None));
        assert_eq!(finder.refused(ms(51), (5, 8), None, true), None);
        assert_eq!(finder.refused(ms(52), (6, 9), None, true), None, "the same burst");
        let found = per_second(finder.served(ms(1025), 9, ms(1005)));
        assert!((48.0..50.0).contains(&found), "{found}");
    }

    #[test]
    fn a_wait_that_is_asked_for_tells_it_at_once_and_for_long() {
        let mut finder = Finder::new(ms(0));
        (1..=100).for_each(|at| assert_eq!(finder.served(ms(at), 0, ms(0)), None));
        let found = per_second(finder.refused(ms(120), (5, 8), Some(Duration::from_secs(10)), true));
        assert!((9.8..=10.0).contains(&found), "{found}");
        assert_eq!(finder.grow(ms(300_000)), None);
    }

    #[test]
    fn one_wait_after_a_few_requests_is_no_rate() {
        let mut finder = Finder::new(ms(0));
        (1..=3).for_each(|at| assert_eq!(finder.served(ms(at * 1000), 0, ms(at * 1000)), None));
        assert_eq!(finder.refused(ms(4000), (5, 8), Some(Duration::from_secs(60)), true), None);
        assert_eq!(finder.limit(), None);
    }

    #[test]
    fn it_grows_while_somebody_waits_and_falls_when_that_is_too_much() {
        let mut finder = Finder::new(ms(0));
        (1..=50).for_each(|at| _ = finder.served(ms(at), 0, ms(0)));
        finder.refused(ms(51), (5, 8), None, true);
        let found = per_second(finder.served(ms(1025), 9, ms(1005)));
        (20..140).for_each(|at| _ = finder.grow(ms(at * 100)));
        let grown = per_second(finder.limit());
        (20..140).for_each(|at| _ = finder.served(ms(at * 100), 9, ms(at * 100 - 20)));
        assert!(grown > found * 1.1, "{found} {grown}");
        let lowered = per_second(finder.refused(ms(14_000), (99, 100), None, true));
        assert!(lowered < grown * 0.98 && lowered > grown * LEAST - 0.1, "{grown} {lowered}");
    }
}
