//! What the end of a pause says: how many are served in what time.

use super::{
    Cycle, KNOWN, RateEstimator,
    belief::Belief,
    closing::Closing,
    grounds::Held,
    windows::{self, ROUNDED},
};
use crate::learn::grounds::Basis;

/// Whether the end of a pause ends the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    No,
    /// Yes, and it was too short to tell of a window.
    Early,
    Yes,
}

/// The last pause was a penalty: how many were before it, one soon after the other, and the rate that it has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Penalty {
    times: i32,
    settled: f64,
}

/// The end of a pause that was no short one: when it was over, how many had been served since the one before, and how long that was.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowEnd {
    over: f64,
    lasted: f64,
    served: f64,
    length: f64,
    /// It was believed to be a window that ended there.
    believed: bool,
}

/// How many requests were served in what time. Times are in seconds.
#[derive(Clone, Copy, Debug)]
struct Measured {
    served: f64,
    /// From their beginning until requests were served again, and until the last one was refused.
    length: f64,
    last: f64,
}

/// For how long a rate that an API reported itself is not tried again; shorter if it reported it by a wait of a second,
/// to which waits are rounded up.
pub(super) const KEPT: f64 = 600.0;
/// A wait up to this, rounded up, may be none that the API has reckoned.
const TEXT: f64 = 5.5;
const BRIEFLY: f64 = 20.0;
const SHORT: f64 = 2.0;
/// Fewer than this in a cycle: one was served, and those that came with it were not.
const ONE_BY_ONE: f64 = 2.0;
/// Fewer in less than a moment are a bucket's last ones, and tell no window.
const SOME: f64 = 3.0;
const MOMENT: f64 = 0.5;
/// Where so many were refused, as a share of those that were served, it shows whether refused requests count as well.
const MANY: f64 = 0.1;
/// Fewer requests than this do not make a rate while none waits.
const FEW: f64 = 10.0;
/// A pause that takes less than this share of the time that is known says that the rate was a little too high.
const SMALL: f64 = 0.12;
/// A lane that is younger, in seconds, has served bursts mostly.
const YOUNG: f64 = 15.0;
/// A rate is proven if so much of it was served over so many windows.
const MOST_OF: f64 = 0.8;
const PROOF: f64 = 20.0;
/// A pause says that what is configured, or proven, is too much only if there was another one this
/// short a time before, in seconds, or in ten times its own length.
const SOON: f64 = 60.0;
/// And if that was not shorter than by this.
const ALIKE: f64 = 0.25;
/// A pause that takes this share of a window was none of a bucket.
const OF_WINDOW: f64 = 0.3;
/// A shorter pause is none of these.
const LONG_ENOUGH: f64 = 2.0;
/// What differs by less than this share is as it was before.
const AS_BEFORE: f64 = 0.1;
/// By so much less than is configured leaves, and for how long until more is tried, where one request came too soon after
/// another one. That is more room between them than most ways vary by: they are not refused again and again. What timers are
/// late by comes on top of it, since nothing of that is caught up then.
const APART: f64 = 0.03;
const APART_FOR: f64 = 300.0;
/// By so much less leaves than was refused for a time that is the same whatever was refused; by twice as much each time, up to
/// the most, if that was too much again within that time. It is kept for so many times as long: it costs as much each time that more
/// is tried. Where fewer are served it may be the time for which one of them counts.
const PENALIZED: f64 = 0.05;
const MOST_PENALIZED: f64 = 0.2;
const KEPT_TIMES: f64 = 20.0;
const SEVERAL: f64 = 5.0;
/// The time that is known where a share is refused whatever the rate is, so that a longer pause is another matter.
const LONG: f64 = 60.0;

impl WindowEnd {
    /// Whether a window has ended here as it has `before`: as many were served in it, or it took as long, and it was used up well
    /// before its end.
    fn repeats(&self, before: &Self) -> bool {
        let alike = |one: f64, other: f64| (one - other).abs() <= AS_BEFORE * one.max(other);
        let is_long = self.lasted >= SMALL * self.length && before.lasted >= ALIKE * self.lasted;
        is_long && self.served >= FEW && (alike(self.length, before.length) || alike(self.served, before.served))
    }
}

impl RateEstimator {
    /// A probe that left at `sent` was served: the API accepts requests again.
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
            // Served again with fewer under way: perhaps it is how many at once. That is tried first.
            (self.belief, self.told_length) = (None, None);
            return Ends::Yes;
        }
        let outage = |belief: &Belief| now - closing.at > 5.0 * belief.span.max(1.0);
        if closing.overload && !closing.consistent && self.belief.as_ref().is_some_and(outage) {
            return Ends::Yes;
        }
        if self.belief.is_none() && (cycle.served < 1.0 || !closing.pressed && cycle.served < FEW) {
            // Nothing makes no rate; and a client that sends little and is refused now and then would learn what it
            // sends, and not what it might send.
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

    /// A wait in whole seconds fits several usual windows, and the shortest was believed. If as many are served again as it
    /// was to hold, and one is refused, then it is a longer one.
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

    /// Long pauses that come again after as many requests, or after as long a time, are the rest of a window, and no outage; unless
    /// what was believed has been served for long, or is configured. Paced by such a window fewer are never served before the next
    /// long pause: if they are, it was an outage that repeats, and so may the next ones be.
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

    /// A pause that is as long as the last one, although the API asked for it so much sooner after what it followed, or later, is a
    /// penalty: a window would have ended so much sooner. It tells nothing of how much too much was sent. A little less is tried, if
    /// more than before was refused, or as much so soon.
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
        // A rate that has been kept for longer than it was not too much: something else is refused.
        let rate = if again || closing.rate > settled { (1.0 - cut) * closing.rate } else { closing.rate };
        let rate = belief.rate(now).min(rate);
        belief.settle(now, rate, (KEPT_TIMES * pause).min(KEPT));
        self.penalty = Some(Penalty { times, settled: rate });
        true
    }

    /// The rate was too high by a little: it is lowered by about as much as the pause has taken, and nothing else is
    /// concluded.
    fn corrects(&mut self, closing: &Closing, cycle: Cycle, now: f64, sent: f64) -> Option<Ends> {
        let belief = self.belief.as_mut().filter(|_| closing.consistent)?;
        let (pause, slot) = (sent - closing.at, 1.0 / belief.rate(now));
        if pause < (3.5 * slot).max(0.15) {
            // Served again at once: the one that was refused came too soon after another one.
            let apart = self.configured.map(|rate| (1.0 - APART) * rate);
            if let Some(rate) = apart.filter(|rate| *rate < belief.rate(now)) {
                belief.keep(APART_FOR);
                belief.holds_on(now, rate);
            }
            return Some(Ends::No);
        }
        let before = self.paused.replace((sent, pause));
        if self.configured.is_none() && !cycle.minor && counts_again(belief, cycle, pause / (sent - cycle.since)) {
            // Too much by more than what is lowered: the window is measured anew.
            return None;
        }
        let is_second = before
            .is_some_and(|(over, lasted)| lasted >= ALIKE * pause && closing.at - over <= (10.0 * pause).max(SOON));
        let proof = PROOF * belief.span.max(1.0);
        let proven = self.history.since(closing.at - proof) >= MOST_OF * proof * closing.rate;
        if !is_second && (self.configured.is_some() || proven) {
            // What was served until then was not too much, and in the pause nothing was sent.
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

    /// How many were served in the window that ends now, as far as can be known.
    fn measure(&self, closing: &Closing, cycle: Cycle, sent: f64) -> Measured {
        let Cycle { since, served, minor, .. } = cycle;
        let (length, pause) = (sent - since, sent - closing.at);
        let Some(belief) = self.belief.as_ref().filter(|_| minor) else {
            return Measured { served: served.max(1.0), length, last: closing.last - since };
        };
        // A window that is not shorter than the pause, and that may have begun before the cycle; a longer one than was
        // believed if that holds less.
        let contradicts = served < 0.5 * belief.count && length < 0.5 * belief.span;
        // It has served more than the probe that shows its end, if anything was known that long.
        let serves = |window: &f64| self.history.since(sent - window) >= SOME || *window >= sent - self.began;
        let window = if pause > belief.span {
            windows::from(pause).find(serves).unwrap_or(pause)
        } else if contradicts {
            windows::not_below(1.01 * belief.span)
        } else {
            belief.span
        };
        // It has ended between the last two probes, and may have begun when a pause ended.
        let began = closing.last - window..=sent - window;
        let began = if began.contains(&self.major) { self.major } else { sent - window };
        Measured { served: self.history.since(began).max(1.0), length: window, last: window }
    }

    /// The window that has begun before its first request was served, as those of a clock do: since the last one was refused.
    fn window_of_clock(&self, closing: &Closing, cycle: Cycle, measured: Measured, sent: f64) -> Option<f64> {
        let Measured { length, last, .. } = measured;
        let began = cycle.refused.filter(|_| !cycle.minor && sent - closing.at >= OF_WINDOW * length)?;
        windows::between(last, sent - began)
    }

    fn believe(&mut self, closing: &Closing, cycle: Cycle, measured: Measured, now: f64, sent: f64) {
        let Measured { served, length, last } = measured;
        let (took, pause) = (closing.at - cycle.since, sent - closing.at);
        // A first wait that was asked for and is over when a usual window is: those are the API's own words.
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
            // Longer than it had to be, perhaps: what was served over several such waits is served again.
            let long = windows::not_below(5.0 * pause).min(sent - self.began);
            let lately = self.history.since(sent - long);
            if lately / long > rate {
                rate = lately / long;
                self.held = Held::by(Basis::Lately { served: lately, over: long });
            }
        }
        // What has been served lately may be served again.
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
        // What another limit has refused before may count in this one (two limiters one behind the other).
        let with_refused = served + self.refused_before;
        let counts_refused = self.refused_before >= MANY * served && pause >= OF_WINDOW * length;
        let sure = closing.window || told.is_some() || clear && !counts_refused;
        let kept = asked.filter(|_| told.is_some()).map_or(0.0, |wait| if wait > SHORT { KEPT } else { BRIEFLY });
        // A short one may be a text that is the same always (Varnish has 5 s): that it is the window is tried once.
        let tried = self.belief.is_none() && kept == KEPT && asked.is_some_and(|wait| wait <= TEXT);
        self.belief = Some(if sure && !tried {
            Belief::of_window(rate, span, served, now).kept(kept)
        } else {
            // A wait that was asked for, or a first probe: only a lower bound is known.
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

/// As many were served as before, and then none for this share of the time: in a window that the one before was a part of.
fn counts_again(belief: &Belief, cycle: Cycle, paused: f64) -> bool {
    paused >= OF_WINDOW && cycle.served == belief.count
}

/// One request was served, as one was before. What the pause took since is the probe's own step: a bucket that serves one at
/// a time has had the next one ready for a while.
fn is_one_by_one(belief: &Belief, closing: &Closing, served: f64) -> bool {
    closing.window && closing.asked.is_none() && served.max(belief.count) < 2.0
}

/// A short stretch, after a wait that was asked for, does not overturn what a long one has taught.
fn falls_short(belief: &Belief, closing: &Closing, measured: Measured) -> bool {
    let less = !closing.window && !belief.is_rising() && measured.served < 0.5 * belief.count.max(8.0);
    less && closing.asked.is_some() && measured.last < 0.5 * belief.span.min(30.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 in each ten seconds, of which eight are pause; and 1,000 in an hour, with a restart of 30 s at its end.
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
