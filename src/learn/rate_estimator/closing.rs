//! A pause after a refusal, and the time of the next probe.

use andante_limit::Seq;

use super::{AnsweredRequest, ApiRefusal, Cycle, Latency, seconds, windows::USUAL};

/// State of a pause. Times are in seconds.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    pub(super) at: f64,
    /// Last request that had left when the pause began.
    pub(super) newest: Seq,
    /// Send time of the last refused request.
    pub(super) last: f64,
    /// Number of refused probes.
    pub(super) tries: u32,
    /// True if a probe was refused with fewer in flight than any refused request before: concurrency is not the reason.
    pub(super) fewer_refused: bool,
    /// True if the API answered 503.
    pub(super) overload: bool,
    /// Wait that the API asked for.
    pub(super) asked: Option<f64>,
    /// Margin by which the pause is longer, so that the probe is not early.
    pub(super) later: f64,
    /// True if more requests were about to be sent.
    pub(super) pressed: bool,
    /// True if the estimated rate was slightly too high.
    pub(super) consistent: bool,
    /// True if the pause ends a window, as estimated, or like the previous window.
    pub(super) window: bool,
    /// Estimated rate.
    pub(super) rate: f64,
    /// Smallest number in flight with a refused request.
    pub(super) fewest: u32,
    /// Number of refused requests, including the first one and the probes.
    pub(super) refused: f64,
    /// Number of requests in flight that were served, and when the first of them was.
    pub(super) served_meanwhile: f64,
    pub(super) first_served: Option<f64>,
}

/// Shortest pause, and longest step.
const SHORTEST: f64 = 0.02;
const LONGEST: f64 = 300.0;
/// A step is at most the pause so far, or this if the pause is shorter: a cycle of hours says little about the pause.
const FIRST: f64 = 2.0;
/// Distance to the end of a window, as a share of a step, below which the end is skipped.
const NEAR: f64 = 0.05;
/// Shortest window with the extended step. A step is prolonged to the end of such a window if the next step would skip
/// that end, and lose a fifth of the time. Shorter windows may be seconds of a clock, or HAProxy's, which begin and end
/// differently.
const LONG: f64 = 60.0;
/// Distance to the end of a window, as a share of the window, that counts as near.
const SOON: f64 = 0.1;
/// Longest wait that an API asks for because of too much concurrency.
pub(super) const BRIEF: f64 = 2.0;
/// Longest pause that counts as none.
const AT_ONCE: f64 = 1.5;
/// Shortest step while all probes get 503.
const OUTAGE: f64 = 0.5;

// === impl Closing ===

impl Closing {
    /// Pause that begins with this refusal, without other knowledge.
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

    /// Records a refusal of a request that was in flight when the pause began, with `crowd` requests in flight.
    pub(super) fn also_refused(&mut self, crowd: u32) {
        self.fewest = self.fewest.min(crowd);
        self.refused += 1.0;
    }

    /// Records a refused probe, with `crowd` requests in flight.
    pub(super) fn refused(&mut self, sent: f64, crowd: u32, overload: bool) {
        self.tries += 1;
        self.fewer_refused |= crowd <= 1 || crowd < self.fewest;
        self.last = sent;
        self.overload |= overload;
        self.refused += 1.0;
    }

    /// Records that a request was served that may have been in flight.
    pub(super) fn also_served(&mut self, seq: Seq, now: f64) {
        self.served_meanwhile += 1.0;
        if seq <= self.newest {
            self.first_served.get_or_insert(now);
        }
    }

    /// Returns true if requests are served again because fewer are in flight. The probe at `sent` was served at once,
    /// or no request was refused after one of those in flight had been answered.
    pub(super) fn is_over_with_fewer(&self, sent: f64) -> bool {
        let is_brief = self.asked.is_none_or(|wait| wait <= BRIEF);
        !self.fewer_refused && (sent - self.at <= AT_ONCE || is_brief && self.first_served.is_some_and(|at| at <= sent))
    }

    /// Time of the next probe. The step is a quarter of the time since the `cycle` began, at most the pause so far, and
    /// never past the end of a common window. After all requests of the estimated `window` were served, probes after
    /// the first wait for its end if that is near: the first one has shown that the window does not slide.
    pub(super) fn next_probe(&self, now: f64, cycle: &Cycle, slot: f64, window: Option<f64>, way: &Latency) -> f64 {
        let margin = way.margin();
        let step = self.step(now, cycle, slot);
        let mut next = now + step;
        let passed_over = NEAR * self.step(next, cycle, slot);
        // The window began when the API received the first request, which may have taken longer than others.
        let since = cycle.since.max(cycle.counted - way.least / 2.0 - margin);
        for usual in USUAL {
            let end = since + usual + margin;
            let reach = if usual >= LONG { next + passed_over } else { next };
            if end > now + 0.02 && end > now + step * NEAR && end < reach {
                next = end;
            }
            // Probe once more if the last one was only just too early.
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

    /// Time without a probe, from `now` on.
    fn step(&self, now: f64, cycle: &Cycle, slot: f64) -> f64 {
        let base = if self.consistent { self.at } else { cycle.since };
        let step = ((now - base) / 4.0).min((now - self.at).max(FIRST)).max(slot).clamp(SHORTEST, LONGEST);
        // In an outage, the step is a tenth of the time that is lost anyway.
        if self.overload && self.tries > 0 { step.min(((now - self.at) / 10.0).max(OUTAGE)) } else { step }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use andante_clock::Instant;

    /// Refusal `at` seconds after the clock's start, of a request that left 50 ms before.
    fn begun(at: f64) -> Closing {
        let instant = |seconds: f64| Instant::START + Duration::from_secs_f64(seconds.max(0.0));
        let answered = AnsweredRequest { seq: 1, sent: instant(at - 0.05), at: instant(at), crowd: 1 };
        Closing::begun(answered, ApiRefusal::bare(1))
    }

    const WAY: Latency = Latency { usual: 0.05, least: 0.05 };

    /// After 57 s of a minute the remaining three seconds are waited for; after 50 s the remaining ten are not.
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

    /// An API without a limit may restart shortly before the end of a window that it does not have.
    #[test]
    fn the_end_of_a_long_window_is_not_waited_for_after_a_short_pause() {
        let failing = || Closing { overload: true, tries: 1, ..begun(42_680.0) };
        for (closing, window) in [(begun(42_680.0), None), (failing(), None), (failing(), Some(43_200.0))] {
            let next = closing.next_probe(42_681.0, &Cycle::begun(0.0), 0.4, window, &WAY);
            assert!(next < 42_684.0, "{next}");
        }
        // After a pause of half a day, no step is longer than five minutes.
        let next = begun(1000.0).next_probe(42_750.0, &Cycle::begun(0.0), 0.4, None, &WAY);
        assert!(next < 42_750.0 + 1.05 * LONGEST + 0.1, "{next}");
    }

    /// A window is used up at once, and the API refuses from then on: probes are answered 50 ms after they leave.
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
