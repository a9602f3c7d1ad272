//! Conclusions from the end of a pause: the number of requests served in a certain time.

use super::{
    Cycle, KNOWN, RateEstimator,
    belief::Belief,
    closing::Closing,
    grounds::Held,
    windows::{self, ROUNDED},
};
use crate::grounds::Basis;

/// Effect of the end of a pause on the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    No,
    /// Ends the cycle, which was too short to show a window.
    Early,
    Yes,
}

/// Penalty as the reason of the last pause: number of penalties in short succession before it, and the resulting rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Penalty {
    times: i32,
    settled: f64,
}

/// End of a pause that was not short: its time, and the requests and the time since the previous end.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowEnd {
    over: f64,
    lasted: f64,
    served: f64,
    length: f64,
    /// True if the pause was taken for the end of a window.
    believed: bool,
}

/// Number of requests served in a certain time. Times are in seconds.
#[derive(Clone, Copy, Debug)]
struct Measured {
    served: f64,
    /// Time from the first of them until requests were served again, and until the last one was refused.
    length: f64,
    last: f64,
}

/// Time for which a rate that an API reported by a wait is not raised. `BRIEFLY` replaces `KEPT` for waits up to
/// `SHORT`, since waits are rounded up to a second.
pub(super) const KEPT: f64 = 600.0;
/// Longest wait, rounded up, that may be a constant and not computed by the API.
const TEXT: f64 = 5.5;
const BRIEFLY: f64 = 20.0;
const SHORT: f64 = 2.0;
/// Served requests per cycle below which the API serves one at a time.
const ONE_BY_ONE: f64 = 2.0;
/// Requests below which a cycle shorter than `MOMENT` shows no window: they may be the last ones of a bucket.
const SOME: f64 = 3.0;
const MOMENT: f64 = 0.5;
/// Refused requests, as a share of served ones, from which a pause shows whether refused requests count as well.
const MANY: f64 = 0.1;
/// Number of requests below which no rate is concluded while none is queued.
const FEW: f64 = 10.0;
/// Pause, as a share of the known time, below which the rate was only slightly too high.
const SMALL: f64 = 0.12;
/// Age of a lane, in seconds, below which it has mostly served bursts.
const YOUNG: f64 = 15.0;
/// Share of a rate, and number of windows, whose service proves the rate.
const MOST_OF: f64 = 0.8;
const PROOF: f64 = 20.0;
/// Longest time, in seconds, between two pauses that show that a configured or proven rate is too high. Ten times the
/// pause counts as well.
const SOON: f64 = 60.0;
/// Smallest ratio of the earlier pause to the later one in such a pair.
const ALIKE: f64 = 0.25;
/// Pause, as a share of a window, that a bucket does not cause.
const OF_WINDOW: f64 = 0.3;
/// Shortest pause that may be the rest of a window.
const LONG_ENOUGH: f64 = 2.0;
/// Maximum relative difference of values that count as equal.
const AS_BEFORE: f64 = 0.1;
/// Reduction below the configured rate, and its time in seconds, after one request that came too soon after another.
/// The added distance exceeds the jitter of most paths, so requests are not refused again and again. Delays of timers
/// come on top of it, since slots are not caught up then.
const APART: f64 = 0.03;
const APART_FOR: f64 = 300.0;
/// Reduction of the rate after a penalty, a pause of constant length. The reduction doubles, up to the maximum, if the
/// next refusal follows within the length of the pause. The rate is kept for `KEPT_TIMES` the pause, because each try
/// costs as much again. If fewer than `SEVERAL` are served, the pause may be the time for which one request counts.
const PENALIZED: f64 = 0.05;
const MOST_PENALIZED: f64 = 0.2;
const KEPT_TIMES: f64 = 20.0;
const SEVERAL: f64 = 5.0;
/// Known time, in seconds, while a share is refused at any rate: a longer pause has another reason.
const LONG: f64 = 60.0;

impl WindowEnd {
    /// Returns true if the window ended like the one `before`: with as many requests or the same length, and used up
    /// well before its end.
    fn repeats(&self, before: &Self) -> bool {
        let alike = |one: f64, other: f64| (one - other).abs() <= AS_BEFORE * one.max(other);
        let is_long = self.lasted >= SMALL * self.length && before.lasted >= ALIKE * self.lasted;
        is_long && self.served >= FEW && (alike(self.length, before.length) || alike(self.served, before.served))
    }
}

impl RateEstimator {
    /// Handles the first served probe, which left at `sent`: the API accepts requests again.
    pub(super) fn reopens(&mut self, now: f64, sent: f64) -> Ends {
        let Some(mut closing) = self.closing.take() else { return Ends::No };
        let Some(cycle) = self.cycle else { return Ends::Yes };
        if self.lengthens(&closing, cycle, now) {
            return Ends::Yes;
        }
        if self.penalizes(&closing, cycle, now, sent) {
            return Ends::Early;
        }
        if let Some(measured) = self.repeats(&closing, sent) {
            closing.window = true;
            self.believe(&closing, cycle, measured, now, sent);
            return Ends::Yes;
        }
        if let Some(ends) = self.corrects(&closing, cycle, now, sent) {
            return ends;
        }
        if self.crowd.is_certain() {
            return Ends::Yes;
        }
        let several = closing.fewest > 2 || closing.served_meanwhile > 2.0;
        if several && closing.is_over_with_fewer(sent) && self.crowd.try_fewer(closing.fewest, closing.served_meanwhile)
        {
            // Requests are served again with fewer in flight, so a concurrency limit is tried first.
            (self.belief, self.told_length) = (None, None);
            return Ends::Yes;
        }
        let outage = |belief: &Belief| now - closing.at > 5.0 * belief.span.max(1.0);
        if closing.overload && !closing.consistent && self.belief.as_ref().is_some_and(outage) {
            return Ends::Yes;
        }
        if self.belief.is_none() && (cycle.served < 1.0 || !closing.pressed && cycle.served < FEW) {
            // No requests make no rate. A client that sends little, and is refused now and then, would learn its own
            // rate and not the limit.
            return Ends::Yes;
        }
        let measured = self.measure(&closing, cycle, sent);
        if let Some(belief) = self.belief.as_mut().filter(|belief| falls_short(belief, &closing, measured)) {
            belief.restart(now, 0.93 * closing.rate);
            return Ends::Early;
        }
        self.believe(&closing, cycle, measured, now, sent);
        Ends::Yes
    }

    /// Replaces the estimated window by the next longer one that fits the API's wait in whole seconds. Applies if a
    /// request was refused after about as many were served as the shorter window holds. Returns true if it did.
    fn lengthens(&mut self, closing: &Closing, cycle: Cycle, now: f64) -> bool {
        let Some((belief, length)) = self.belief.as_ref().zip(self.told_length) else { return false };
        let Belief { span, count, .. } = *belief;
        let Some(longer) = windows::asked_for(length, span) else { return false };
        if closing.asked.is_none() || closing.tries > 0 || !(0.75..1.25).contains(&(cycle.served / count)) {
            return false;
        }
        let (took, pause) = (closing.at - cycle.since, now - closing.at);
        self.held = Held::by(Basis::Cycle { served: cycle.served, took, pause });
        self.belief = Some(Belief::of_window(count / longer, longer, count, now).kept(BRIEFLY));
        true
    }

    /// Detects long pauses that repeat after as many requests, or after the same time: they are the rest of a window
    /// and no outage. A configured rate, or one that was served for long, is not overturned. With pacing by such a
    /// window, fewer requests before the next long pause show a repeated outage. Further pauses then show no windows
    /// either.
    fn repeats(&mut self, closing: &Closing, sent: f64) -> Option<Measured> {
        let lasted = sent - closing.at;
        if lasted < LONG_ENOUGH {
            return None;
        }
        let since = self.ended.map_or(self.began, |before| before.over);
        let (served, length) = (self.history.since(since), sent - since);
        let end = WindowEnd { over: sent, lasted, served, length, believed: false };
        let before = self.ended.replace(end)?;
        self.interrupted |= before.believed && served < (1.0 - AS_BEFORE) * before.served;
        let belief = self.belief.as_ref().filter(|_| self.configured.is_none() && !self.interrupted)?;
        let span = belief.span.max(1.0);
        let proof = (PROOF * span).min(closing.at - self.began).max(span);
        let served_for_long = self.history.since(closing.at - proof) >= MOST_OF * proof * closing.rate;
        let repeats = !served_for_long && end.repeats(&before);
        self.ended = Some(WindowEnd { believed: repeats, ..end });
        repeats.then_some(Measured { served, length, last: closing.last - since })
    }

    /// Detects a penalty: a pause as long as the last one, although the time before it differs. The end of a window
    /// would have shifted by that difference. A penalty does not tell how much too much was sent. The rate falls a
    /// little, if it was higher than before, or as high so soon.
    fn penalizes(&mut self, closing: &Closing, cycle: Cycle, now: f64, sent: f64) -> bool {
        let (took, pause) = (closing.at - cycle.since, sent - closing.at);
        let last = std::mem::replace(&mut self.waited, closing.asked.map(|asked| (asked, took)));
        let before = self.penalty.take();
        let again = self.paused.is_some_and(|(over, _)| closing.at - over <= pause);
        let same = |(asked, last_took): (f64, f64)| {
            let wait = closing.asked.unwrap_or_default();
            let differs = (took - last_took).abs() > ROUNDED || before.is_some() && again;
            wait > SHORT && (wait - asked).abs() < ROUNDED / 2.0 && differs
        };
        let Some(belief) = self.belief.as_mut().filter(|_| last.is_some_and(same)) else { return false };
        let of_rate = closing.tries == 0 && !closing.window && cycle.served >= SEVERAL;
        if !of_rate || closing.overload && self.configured.is_some() {
            return false;
        }
        self.paused = Some((sent, pause));
        let settled = before.map_or(0.0, |before| before.settled);
        let times = before.filter(|_| again).map_or(0, |before| before.times + 1);
        let cut = (PENALIZED * 2f64.powi(times)).min(MOST_PENALIZED);
        // A rate that was kept for longer was not too high: another limit refuses.
        let rate = if again || closing.rate > settled { (1.0 - cut) * closing.rate } else { closing.rate };
        let rate = belief.rate(now).min(rate);
        belief.settle(now, rate, (KEPT_TIMES * pause).min(KEPT));
        self.penalty = Some(Penalty { times, settled: rate });
        true
    }

    /// Lowers a rate that was slightly too high by about the length of the pause, and concludes nothing else.
    fn corrects(&mut self, closing: &Closing, cycle: Cycle, now: f64, sent: f64) -> Option<Ends> {
        let belief = self.belief.as_mut().filter(|_| closing.consistent)?;
        let (pause, slot) = (sent - closing.at, 1.0 / belief.rate(now));
        if pause < (3.5 * slot).max(0.15) {
            // Served again at once: the refused request came too soon after another one.
            let apart = self.configured.map(|rate| (1.0 - APART) * rate);
            if let Some(rate) = apart.filter(|rate| *rate < belief.rate(now)) {
                belief.keep(APART_FOR);
                belief.holds_on(now, rate);
            }
            return Some(Ends::No);
        }
        let before = self.paused.replace((sent, pause));
        if self.configured.is_none() && !cycle.minor && counts_again(belief, cycle, pause / (sent - cycle.since)) {
            // The rate was too high by more than such a reduction, so the window is measured again.
            return None;
        }
        let is_second = before
            .is_some_and(|(over, lasted)| lasted >= ALIKE * pause && closing.at - over <= (10.0 * pause).max(SOON));
        let proof = PROOF * belief.span.max(1.0);
        let proven = self.history.since(closing.at - proof) >= MOST_OF * proof * closing.rate;
        if !is_second && (self.configured.is_some() || proven) {
            // The rate before the pause was not too high, and in the pause nothing was sent.
            self.began = sent;
            return Some(Ends::Yes);
        }
        let known = (2.0 * belief.span).max(300.0 * slot).max(30.0);
        let known = known.max(sent - cycle.since);
        if pause >= SMALL * self.noise.map_or(known, |_| LONG) {
            self.noise = None;
            if !(closing.overload && pause > 5.0) {
                return None;
            }
        }
        let known = known.min((sent - self.began).max(YOUNG)).max(sent - cycle.since);
        let rate = self.history.since(sent - known) / known;
        let least = (1.0 - pause / belief.span.max(10.0)).clamp(0.85, 0.95);
        belief.restart(now, rate.clamp(least * closing.rate, 0.99 * closing.rate));
        Some(Ends::Early)
    }

    /// Number of requests served in the window that ends now, as far as it can be known.
    fn measure(&self, closing: &Closing, cycle: Cycle, sent: f64) -> Measured {
        let Cycle { since, served, minor, .. } = cycle;
        let (length, pause) = (sent - since, sent - closing.at);
        let Some(belief) = self.belief.as_ref().filter(|_| minor) else {
            return Measured { served: served.max(1.0), length, last: closing.last - since };
        };
        // The window is at least as long as the pause, and may have begun before the cycle. If the cycle is far shorter
        // than the estimate and holds far less, the window is longer than estimated.
        let contradicts = served < 0.5 * belief.count && length < 0.5 * belief.span;
        // The window has served more than the probe that shows its end, if the lane is old enough to know.
        let serves = |window: &f64| self.history.since(sent - window) >= SOME || *window >= sent - self.began;
        let window = if pause > belief.span {
            windows::from(pause).find(serves).unwrap_or(pause)
        } else if contradicts {
            windows::not_below(1.01 * belief.span)
        } else {
            belief.span
        };
        // The window has ended between the last two probes, and may have begun at the end of a pause.
        let began = closing.last - window..=sent - window;
        let began = if began.contains(&self.major) { self.major } else { sent - window };
        Measured { served: self.history.since(began).max(1.0), length: window, last: window }
    }

    /// Window of a clock, which begins before its first request was served: since the last request was refused.
    fn window_of_clock(&self, closing: &Closing, cycle: Cycle, measured: Measured, sent: f64) -> Option<f64> {
        let Measured { length, last, .. } = measured;
        let began = cycle.refused.filter(|_| !cycle.minor && sent - closing.at >= OF_WINDOW * length)?;
        windows::between(last, sent - began)
    }

    fn believe(&mut self, closing: &Closing, cycle: Cycle, measured: Measured, now: f64, sent: f64) {
        let Measured { served, length, last } = measured;
        let (took, pause) = (closing.at - cycle.since, sent - closing.at);
        // If the first requested wait ends with a common window, the API itself reports that window.
        let asked = closing.asked.filter(|wait| pause < wait + ROUNDED && closing.tries == 0);
        let told = windows::asked_for(length - closing.later, 0.0);
        let told = told.filter(|_| asked.is_some() && served >= FEW && !cycle.minor);
        self.told_length = told.map(|_| length - closing.later);
        let many_refused = self.belief.is_none() && closing.asked.is_none() && closing.refused >= MANY * served;
        let counting =
            many_refused.then(|| windows::counting_refusals(last, length, served, closing.refused)).flatten();
        let span = told.or(counting).or(windows::between(last, length));
        let span = span.or_else(|| self.window_of_clock(closing, cycle, measured, sent)).unwrap_or(length);
        let mut rate = served / span.max(self.way.usual.min(0.01));
        self.held = Held::by(if cycle.minor && self.belief.is_some() {
            Basis::Window { served, length, pause }
        } else {
            Basis::Cycle { served: cycle.served, took, pause }
        });
        if closing.asked.is_some() && self.belief.is_some() {
            // The waits may be longer than necessary: the rate over several such waits can be served again.
            let long = windows::not_below(5.0 * pause).min(sent - self.began);
            let lately = self.history.since(sent - long);
            if lately / long > rate {
                rate = lately / long;
                self.held = Held::by(Basis::Lately { served: lately, over: long });
            }
        }
        // A recently served rate can be served again.
        let lately = self.history.since(sent - KNOWN) / KNOWN;
        if self.belief.is_none() && rate < 0.5 * lately && length < KNOWN {
            self.held = Held::by(Basis::Lately { served: lately * KNOWN, over: KNOWN });
            self.belief = Some(Belief::at_least(lately, KNOWN, lately * KNOWN, now));
            return;
        }
        let falls = rate < 0.5 * closing.rate && length < 10.0;
        if let Some(belief) = self.belief.as_mut().filter(|belief| is_one_by_one(belief, closing, served)) {
            let rate = belief.rate(now);
            if served / span < 0.5 * rate {
                return belief.restart(now, rate);
            }
        }
        let many = served >= SOME || length >= MOMENT;
        let again = self.belief.as_ref().is_some_and(|belief| counts_again(belief, cycle, pause / length));
        let clear = (!falls || again) && many && last > 0.6 * length && !closing.overload;
        // Requests that another limit refused may count in this one, with two limiters in series.
        let with_refused = served + self.refused_before;
        let counts_refused = self.refused_before >= MANY * served && pause >= OF_WINDOW * length;
        let sure = closing.window || told.is_some() || clear && !counts_refused;
        let kept = asked.filter(|_| told.is_some()).map_or(0.0, |wait| if wait > SHORT { KEPT } else { BRIEFLY });
        // A short wait may be a constant (Varnish sends 5 s), so it is tried as a window only once.
        let tried = self.belief.is_none() && kept == KEPT && asked.is_some_and(|wait| wait <= TEXT);
        self.belief = Some(if sure && !tried {
            Belief::of_window(rate, span, served, now).kept(kept)
        } else {
            // After a wait that the API asked for, or a first probe, only a lower bound is known.
            let most = match (falls, counts_refused) {
                (true, _) => closing.rate,
                (false, true) => with_refused / span,
                (false, false) => f64::INFINITY,
            };
            let belief = Belief::at_least(rate, span, served, now).below(most);
            let alone =
                self.belief.is_none() && served < ONE_BY_ONE && asked.is_some_and(|wait| (1.0..=SHORT).contains(&wait));
            if alone { belief.one_by_one() } else { belief }
        });
    }
}

/// Returns true if as many were served as before and then none for a `paused` share of the time. The estimated window
/// is then a part of a longer one.
fn counts_again(belief: &Belief, cycle: Cycle, paused: f64) -> bool {
    paused >= OF_WINDOW && cycle.served == belief.count
}

/// Returns true if one request was served, like before. The rest of the pause is the probe's own step: a bucket of one
/// has been full for a while.
fn is_one_by_one(belief: &Belief, closing: &Closing, served: f64) -> bool {
    closing.window && closing.asked.is_none() && served.max(belief.count) < 2.0
}

/// Returns true if a short stretch after a requested wait would overturn the result of a long one.
fn falls_short(belief: &Belief, closing: &Closing, measured: Measured) -> bool {
    let less = !closing.window && !belief.is_rising() && measured.served < 0.5 * belief.count.max(8.0);
    less && closing.asked.is_some() && measured.last < 0.5 * belief.span.min(30.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 in each ten seconds, with eight seconds of pause; and 1,000 in an hour, with a restart of 30 s at its end.
    #[test]
    fn what_ends_as_it_did_before_is_a_window_and_restarts_each_hour_are_not() {
        let end = |served, length, lasted| WindowEnd { over: 0.0, lasted, served, length, believed: false };
        let window = end(100.0, 10.0, 8.0);
        assert!(window.repeats(&end(100.0, 25.0, 4.0)), "as many were served");
        assert!(window.repeats(&end(40.0, 9.9, 4.0)), "it took as long");
        assert!(!window.repeats(&end(40.0, 25.0, 4.0)));
        assert!(!window.repeats(&end(100.0, 10.0, 1.0)), "most of that one was left");
        assert!(!end(5.0, 10.0, 8.0).repeats(&end(5.0, 10.0, 8.0)), "five are few");
        assert!(!end(1000.0, 3600.0, 30.0).repeats(&end(1000.0, 3600.0, 30.0)));
    }
}
