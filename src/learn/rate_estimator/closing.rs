//! A pause after a refusal, and when the next request tries whether it is over.

use super::{AnsweredRequest, ApiRefusal, Cycle, Latency, seconds, windows::USUAL};
use crate::limit::Seq;

/// Times are in seconds.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    pub(super) at: f64,
    /// The last request that had left by then.
    pub(super) newest: Seq,
    /// When the last one left that was refused.
    pub(super) last: f64,
    /// How many probes were refused.
    pub(super) tries: u32,
    /// One of these had fewer under way than any that was refused before it: they were not too many at once.
    pub(super) fewer_refused: bool,
    /// The API said 503.
    pub(super) overload: bool,
    /// The wait that the API asked for.
    pub(super) asked: Option<f64>,
    /// By so much longer it lasts, not to be early.
    pub(super) later: f64,
    /// More were about to be sent.
    pub(super) pressed: bool,
    /// What was believed has been too much by a little.
    pub(super) consistent: bool,
    /// It ends a window, as was believed or as the one before it did.
    pub(super) window: bool,
    /// What was believed.
    pub(super) rate: f64,
    /// The fewest that were under way with one that was refused.
    pub(super) fewest: u32,
    /// How many were refused, the first and the probes included.
    pub(super) refused: f64,
    /// How many were served that were under way, and when the first of them was.
    pub(super) served_meanwhile: f64,
    pub(super) first_served: Option<f64>,
}

/// No pause is shorter, and no step longer.
const SHORTEST: f64 = 0.02;
const LONGEST: f64 = 300.0;
/// No step is longer than the pause so far, or than this: a cycle that has lasted for hours says little of the pause.
const FIRST: f64 = 2.0;
/// The end of a window is passed over that comes within this share of a step.
const NEAR: f64 = 0.05;
/// A step is so much longer that ends with a window of this length or more that the next one would pass over, which would cost a
/// fifth of it. Shorter ones may be seconds of a clock, or HAProxy's, which begin and end otherwise.
const LONG: f64 = 60.0;
/// Within this share of a window its end is near.
const SOON: f64 = 0.1;
/// An API that is asked for too much at once asks for no longer pause.
pub(super) const BRIEF: f64 = 2.0;
/// A pause that is no longer is none.
const AT_ONCE: f64 = 1.5;
/// The shortest step while all probes get 503.
const OUTAGE: f64 = 0.5;

// === impl Closing ===

impl Closing {
    /// It begins with this refusal, of which nothing else is known.
    pub(super) fn begun(answered: AnsweredRequest, refusal: ApiRefusal) -> Self {
        Self {
            at: seconds(answered.at),
            newest: refusal.newest,
            last: seconds(answered.sent),
            tries: 0,
            fewer_refused: false,
            overload: refusal.overload,
            asked: refusal.wait.map(|wait| wait.as_secs_f64()),
            later: refusal.later.as_secs_f64(),
            pressed: refusal.pressed,
            consistent: false,
            window: false,
            rate: 0.0,
            fewest: answered.crowd,
            refused: 1.0,
            served_meanwhile: 0.0,
            first_served: None,
        }
    }

    /// Another one was refused, one of `crowd`, that was under way when it began.
    pub(super) fn also_refused(&mut self, crowd: u32) {
        self.fewest = self.fewest.min(crowd);
        self.refused += 1.0;
    }

    /// A probe was refused, one of `crowd`.
    pub(super) fn refused(&mut self, sent: f64, crowd: u32, overload: bool) {
        self.tries += 1;
        self.fewer_refused |= crowd <= 1 || crowd < self.fewest;
        self.last = sent;
        self.overload |= overload;
        self.refused += 1.0;
    }

    /// One that may have been under way was served.
    pub(super) fn also_served(&mut self, seq: Seq, now: f64) {
        self.served_meanwhile += 1.0;
        if seq <= self.newest {
            self.first_served.get_or_insert(now);
        }
    }

    /// Whether requests are served again since fewer are under way, the first of them left at `sent`: at once, or none was refused
    /// after one of those under way had been answered.
    pub(super) fn is_over_with_fewer(&self, sent: f64) -> bool {
        let is_brief = self.asked.is_none_or(|wait| wait <= BRIEF);
        !self.fewer_refused && (sent - self.at <= AT_ONCE || is_brief && self.first_served.is_some_and(|at| at <= sent))
    }

    /// When the next request tries: after a quarter of the time that has passed since the `cycle` began, if the pause has
    /// lasted as long, and never past the end of a window that people choose. Where all that the `window` of a belief holds was
    /// served, and the first probe shows that it is not one that slides, it is at its end, if that is near.
    pub(super) fn next_probe(&self, now: f64, cycle: &Cycle, slot: f64, window: Option<f64>, way: &Latency) -> f64 {
        let margin = way.margin();
        let step = self.step(now, cycle, slot);
        let mut next = now + step;
        let passed_over = NEAR * self.step(next, cycle, slot);
        // The window has begun when the API had the first request, which may have taken longer than others.
        let since = cycle.since.max(cycle.counted - way.least / 2.0 - margin);
        for usual in USUAL {
            let end = since + usual + margin;
            let reach = if usual >= LONG { next + passed_over } else { next };
            if end > now + 0.02 && end > now + step * NEAR && end < reach {
                next = end;
            }
            // Once more, if it was only just too early.
            let again = since + usual * 1.01 + 2.0 * margin + 0.03;
            if (since + usual * 0.995..since + usual * 1.005 + margin).contains(&self.last) && again < next {
                next = again;
            }
        }
        if let Some(window) = window.filter(|_| self.tries > 0 && !self.overload) {
            let end = since + window + margin;
            if end - now < (SOON * window).min(LONGEST) {
                next = next.max(end);
            }
        }
        next.max(now)
    }

    /// For how long nothing tries, from `now` on.
    fn step(&self, now: f64, cycle: &Cycle, slot: f64) -> f64 {
        let base = if self.consistent { self.at } else { cycle.since };
        let step = ((now - base) / 4.0).min((now - self.at).max(FIRST)).max(slot).clamp(SHORTEST, LONGEST);
        // It may be an outage: a tenth of the time that is lost anyway.
        if self.overload && self.tries > 0 { step.min(((now - self.at) / 10.0).max(OUTAGE)) } else { step }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Instant;

    /// A refusal `at` that many seconds after the clock's start, of a request that left 50 ms before.
    fn begun(at: f64) -> Closing {
        let instant = |seconds: f64| Instant::START + Duration::from_secs_f64(seconds.max(0.0));
        let answered = AnsweredRequest { seq: 1, sent: instant(at - 0.05), at: instant(at), crowd: 1 };
        Closing::begun(answered, ApiRefusal::bare(1))
    }

    const WAY: Latency = Latency { usual: 0.05, least: 0.05 };

    /// Of a minute 57 s and 50 s are over: three seconds are waited for, ten are not.
    #[test]
    fn who_has_used_up_a_window_waits_for_its_end_if_that_is_near() {
        for (at, least, most) in [(57.0, 60.0, 60.5), (50.0, 50.1, 52.0)] {
            let mut closing = Closing { consistent: true, ..begun(at) };
            let first = closing.next_probe(at, &Cycle::begun(0.0), 0.4, Some(60.0), &WAY);
            assert!(first < at + 1.0, "the window may be one that slides: {first}");
            closing.refused(first, 1, false);
            let second = closing.next_probe(first + 0.05, &Cycle::begun(0.0), 0.4, Some(60.0), &WAY);
            assert!((least..most).contains(&second), "refused at {at} and {first}, again at {second}");
        }
    }

    /// An API that is not limited at all may be restarted shortly before a window ends that it knows nothing of.
    #[test]
    fn the_end_of_a_long_window_is_not_waited_for_after_a_short_pause() {
        let failing = || Closing { overload: true, tries: 1, ..begun(42_680.0) };
        for (closing, window) in [(begun(42_680.0), None), (failing(), None), (failing(), Some(43_200.0))] {
            let next = closing.next_probe(42_681.0, &Cycle::begun(0.0), 0.4, window, &WAY);
            assert!(next < 42_684.0, "{next}");
        }
        // A pause that has lasted for half a day: no step is longer than five minutes.
        let next = begun(1000.0).next_probe(42_750.0, &Cycle::begun(0.0), 0.4, None, &WAY);
        assert!(next < 42_750.0 + 1.05 * LONGEST + 0.1, "{next}");
    }

    /// All of a window is used up at once, and the API refuses from then on: probes are answered 50 ms after they leave.
    #[test]
    fn the_end_of_a_window_that_people_choose_is_not_passed_over() {
        for window in [60.0, 3600.0] {
            for first in 1..200 {
                let first = f64::from(first) * window / 256.0;
                let mut closing = begun(first);
                let (mut now, mut probe) = (first, 0.0);
                while probe < window {
                    probe = closing.next_probe(now, &Cycle::begun(0.0), 0.0, None, &WAY);
                    (now, closing.last) = (probe + 0.05, probe);
                }
                assert!(probe < 1.02 * window + 0.05, "{window} s, refused first at {first}: one tries at {probe}");
            }
        }
    }
}
