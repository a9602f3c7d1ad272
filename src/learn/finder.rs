//! Finds out what an API allows that only refuses: how many requests a second, or how many at once.
//!
//! What was served from one refusal until requests are served again, over the time that this took, is a rate (a *cycle*).
//! From there the rate grows as CUBIC does (RFC 9438), and falls a little when it was too much. If requests are served
//! again at once when fewer are under way, it was not the rate but how many there were at once.

mod belief;
mod closing;
mod crowd;
mod history;

use std::{num::NonZeroU32, time::Duration};

use self::{belief::Belief, closing::Closing, crowd::Crowd, history::History};
use crate::{
    clock::Instant,
    limit::{LimitSpec, Rate, Unit},
};

/// What refusals have taught. Times are seconds since the clock's start.
#[derive(Clone, Debug)]
pub(super) struct Finder {
    way: Way,
    cycle: Option<Cycle>,
    /// When the last one began that is not minor.
    major: f64,
    history: History,
    began: f64,
    /// When a request was refused last that told something, and how many were served since.
    refused: f64,
    served: f64,
    /// When what was believed was last refused by a little.
    consistent: f64,
    closing: Option<Closing>,
    /// The last request that had left when the API refused: those up to it tell no more.
    before: Option<Unit>,
    belief: Option<Belief>,
    crowd: Crowd,
    /// What is configured: a belief that is not worth a word before refusals lower it.
    configured: Option<f64>,
    /// Of the last refusals that were an overload, how many ended in a rate.
    overloads: u32,
    /// Cycles, one after the other, that fall short of what is believed.
    odd: u32,
    /// A share that is refused however slowly requests leave.
    noise: Option<f64>,
    /// The share that was refused of late.
    refusals: f64,
    /// When slow start was last refused too soon to tell.
    early: bool,
    /// When it was looked at last.
    seen: f64,
    told: Option<f64>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) unit: Unit,
    pub(super) sent: Instant,
    pub(super) at: Instant,
    /// How many were under way when it left, itself included.
    pub(super) crowd: u32,
}

/// What is known of a refusal beside that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The last request to have left.
    pub(super) newest: Unit,
    /// What the API asks to wait.
    pub(super) wait: Option<Duration>,
    /// It was a 503.
    pub(super) overload: bool,
    /// More were about to be sent.
    pub(super) pressed: bool,
}

/// How long an answer takes.
#[derive(Clone, Copy, Debug)]
struct Way {
    usual: f64,
    least: f64,
}

/// From the first request that was served after a pause on.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    since: f64,
    served: f64,
    /// It began after a pause that told nothing of a window.
    minor: bool,
}

/// Whether the end of a pause ends the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    No,
    /// Yes, and it was too short to tell of a window.
    Early,
    Yes,
}

/// A limit that people choose has one of these windows, in seconds.
const USUAL: [f64; 18] = [
    0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 43_200.0,
    86_400.0,
];
/// Faster than this nobody needs to be paced.
const UNLIMITED: f64 = 20_000.0;
/// A limit is watched over so many seconds: what it spaces is not held back a second time.
const OVER: f64 = 10.0;
/// What an API says in whole seconds is so much later at most.
const ROUNDED: f64 = 1.15;
/// What it says itself is not tried again for so long.
const KEPT: f64 = 600.0;
/// So few do not make a rate if nobody waits.
const FEW: f64 = 10.0;
/// After so long without a request a cycle begins anew.
const IDLE: f64 = 10.0;
/// So long an answer may take at least.
const HANGS: f64 = 2.0;
const HANGS_LONG: f64 = 60.0;
const AT_FIRST: f64 = 0.025;
/// Smaller changes are not worth a word.
const NOTABLE: f64 = 0.005;
/// For so long at most it grows between two looks.
const SLOWEST: f64 = 30.0;

// === impl Finder ===

impl Finder {
    /// Knows nothing, or what is configured: so many requests a second.
    pub(super) fn new(configured: Option<f64>) -> Self {
        Self {
            way: Way { usual: 0.1, least: f64::INFINITY },
            cycle: None,
            major: 0.0,
            history: History::default(),
            began: 0.0,
            refused: f64::NEG_INFINITY,
            consistent: f64::NEG_INFINITY,
            served: 0.0,
            closing: None,
            before: None,
            belief: configured.filter(|rate| rate.is_finite()).map(|rate| Belief::of_window(rate, 1.0, rate, 0.0)),
            crowd: if configured.is_some() { Crowd::unlimited() } else { Crowd::new() },
            configured,
            overloads: 0,
            odd: 0,
            noise: configured.map(|_| 0.05),
            refusals: 0.0,
            early: false,
            seen: 0.0,
            told: None,
        }
    }

    /// Whether one more may be under way beside `unanswered`.
    pub(super) fn has_room(&self, unanswered: u32) -> bool {
        f64::from(unanswered) + 1.0 <= self.crowd.most()
    }

    /// A request that is not answered for so long does not hold up others.
    pub(super) fn hangs(&self) -> Duration {
        // At first, who answers slowly is only sent one after the other.
        duration(if self.is_new() { AT_FIRST } else { (4.0 * self.way.usual).clamp(HANGS, HANGS_LONG) })
    }

    /// Whether nothing was refused so far.
    fn is_new(&self) -> bool {
        self.refused.is_infinite() && self.closing.is_none() && self.crowd.cap().is_none()
    }

    /// How many may be under way at once, if that is known to matter.
    pub(super) fn at_once(&self) -> Option<u32> {
        self.crowd.cap()
    }

    /// Whether a rate or a number is believed in beyond what is configured.
    pub(super) fn is_blank(&self) -> bool {
        self.told.is_none() && self.crowd.cap().is_none() && self.closing.is_none()
    }

    /// A request leaves. `waited` says that it had to wait: then the rate may be too low.
    pub(super) fn take(&mut self, now: Instant, waited: bool) {
        let now = seconds(now);
        let begun = Cycle { since: now, served: 0.0, minor: false };
        if !waited && now - self.seen > IDLE && self.closing.is_none() {
            self.cycle = Some(begun);
        }
        if self.cycle.is_none() {
            (self.cycle, self.began, self.major) = (Some(begun), now, now);
        }
        if let Some(belief) = &mut self.belief {
            // A rate that nobody needs does not grow.
            let slot = 4.0 / belief.rate(now);
            let idle = now - self.seen - slot.clamp(1.0, SLOWEST);
            if !waited || idle > 0.0 {
                belief.rest(if waited { idle } else { now - self.seen });
            }
        }
        self.seen = now;
    }

    /// A request was served.
    pub(super) fn served(&mut self, answered: Answered) {
        let (sent, now) = (seconds(answered.sent), seconds(answered.at));
        self.way.took(now - sent);
        self.refusals -= self.refusals / 32.0;
        let cycle = *self.cycle.get_or_insert(Cycle { since: sent, served: 0.0, minor: false });
        let opening = self.closing.as_ref().is_some_and(|closing| answered.unit > closing.newest);
        let ends = if opening { self.open(now, sent) } else { Ends::No };
        self.cycle = Some(match ends {
            Ends::No => Cycle { served: cycle.served + 1.0, ..cycle },
            ends => Cycle { since: sent, served: 1.0, minor: ends == Ends::Early },
        });
        if ends == Ends::Yes {
            self.major = sent;
        }
        self.history.served(sent);
        self.served = if opening { 1.0 } else { self.served + 1.0 };
        if let Some(belief) = &mut self.belief {
            belief.delivered(now);
        }
        if let Some(closing) = &mut self.closing {
            closing.served_meanwhile += 1.0;
            return;
        }
        let age = now - self.cycle.map_or(now, |cycle| cycle.since);
        self.crowd.served(answered.crowd, self.is_new(), age > 3.0 * self.way.usual);
        if self.belief.as_mut().is_some_and(|belief| belief.served(now, sent, self.way.usual)) {
            self.belief = None;
        }
    }

    /// A request was refused. Says until when nothing is to leave, if that is a pause.
    pub(super) fn refused(&mut self, answered: Answered, refusal: Refusal) -> Option<Instant> {
        let now = seconds(answered.at);
        self.until(answered, now, refusal).map(|until| answered.at + duration(until - now))
    }

    /// A pause is over, whoever asked for it.
    pub(super) fn opened(&mut self, unanswered: u32) {
        self.crowd.start_again(unanswered);
    }

    /// The API says that there were too many at once, `crowd` of them.
    pub(super) fn too_many(&mut self, crowd: u32) {
        self.crowd.too_many(crowd);
    }

    /// Whether requests are served, so that a refusal is no outage.
    pub(super) fn is_alive(&self) -> bool {
        self.closing.is_some() || self.cycle.is_some_and(|cycle| cycle.served >= 1.0)
    }

    fn until(&mut self, Answered { unit, sent, crowd, .. }: Answered, now: f64, refusal: Refusal) -> Option<f64> {
        let Refusal { newest, overload, pressed, .. } = refusal;
        let wait = refusal.wait.map(|wait| wait.as_secs_f64());
        let sent = seconds(sent);
        let slot = self.belief.as_ref().map_or(0.0, |belief| 2.0 / belief.rate(now));
        let since = self.cycle.map_or(sent, |cycle| cycle.since);
        if let Some(closing) = &mut self.closing {
            if unit <= closing.newest {
                closing.fewest = closing.fewest.min(crowd);
                return wait.filter(|_| closing.asked).map(|wait| now + wait);
            }
            closing.refused(sent, overload);
            self.crowd.probe_refused(crowd, closing.tries, wait.is_some());
            let until = closing.next_probe(now, since, slot, self.way.margin());
            let more = 0.5 * (f64::from(closing.tries) - 2.0).max(0.0);
            return Some(wait.map_or(until, |wait| now + wait.max(more)));
        }
        if self.before.is_some_and(|before| unit <= before) {
            return None;
        }
        if self.crowd.fewer(crowd, now - sent < 4.0 * self.way.usual) {
            return None;
        }
        let cycle = self.cycle.unwrap_or(Cycle { since: sent, served: 0.0, minor: false });
        if let Some((belief, rate)) = self.belief.as_mut().zip(self.configured).filter(|_| self.refused.is_infinite()) {
            belief.holds_on(now, rate);
        }
        self.refusals += (1.0 - self.refusals) / 32.0;
        self.crowd.disproved();
        let was = self.belief.as_ref().map_or(0.0, |belief| belief.rate(now));
        let (mut consistent, mut window, mut noise) = (false, false, false);
        if let Some(belief) = &mut self.belief {
            let age = sent - cycle.since;
            noise = self.noise.is_some_and(|noise| self.refusals < 1.5 * noise + 0.03) && belief.span <= 5.0;
            if noise && self.served >= 1.0 && wait.is_none() {
                // A pause would not help.
                (self.served, self.refused) = (0.0, now);
                return None;
            }
            noise &= wait.is_some() && self.configured.is_some();
            if noise {
                // Obeyed, and nothing is concluded from it.
                consistent = true;
            } else if belief.is_rising() {
                if cycle.served >= 0.7 * belief.count && age < belief.span {
                    belief.holds(now);
                    window = true;
                } else if self.served < 6.0 && !self.early && self.noise.is_none() {
                    (self.early, consistent) = (true, true);
                    belief.rises_anew();
                } else {
                    (self.early, consistent) = (false, true);
                    belief.risen_too_far(now);
                }
            } else if cycle.served >= 0.7 * belief.count && age >= 0.7 * belief.span.min(30.0)
                || self.served >= 8.0 && belief.count < 8.0
                || self.served >= 40.0
                || now - self.consistent < f64::max(0.7 * belief.span.min(30.0), 30.0 / was)
            {
                self.consistent = now;
                consistent = true;
                if let Some(share) = belief.too_much(now, self.served, self.refusals) {
                    self.noise = Some(share);
                }
            }
        }
        (self.refused, self.served) = (now, 0.0);
        let closing = Closing {
            at: now,
            newest,
            last: sent,
            tries: 0,
            overload,
            asked: wait.is_some(),
            pressed,
            consistent,
            window,
            noise,
            rate: was,
            fewest: crowd,
            served_meanwhile: 0.0,
        };
        let until = if consistent {
            now + (slot / 2.0).max(0.02)
        } else if self.belief.is_none() && self.crowd.is_open() {
            now + self.way.usual.max(0.03)
        } else {
            closing.next_probe(now, cycle.since, slot, self.way.margin())
        };
        self.closing = Some(closing);
        self.before = Some(newest);
        Some(wait.map_or(until, |wait| now + wait))
    }

    /// A probe was served: the API accepts requests again. Says whether that ends the cycle.
    fn open(&mut self, now: f64, sent: f64) -> Ends {
        let Some(closing) = self.closing.take() else { return Ends::No };
        let Some(cycle) = self.cycle else { return Ends::Yes };
        let (mut length, mut last, mut served) = (sent - cycle.since, closing.last - cycle.since, cycle.served);
        let pause = sent - closing.at;
        if closing.consistent
            && let Some(belief) = &mut self.belief
        {
            let slot = 1.0 / belief.rate(now);
            if pause < (3.5 * slot).max(0.15) || closing.noise && closing.tries == 0 {
                return Ends::No;
            }
            let known = (2.0 * belief.span).max(300.0 * slot).max(30.0).min(sent - self.began).max(length);
            if pause < 0.12 * known || closing.overload && pause > 5.0 {
                let rate = self.history.since(sent - known) / known;
                let least = (1.0 - pause / belief.span.max(10.0)).clamp(0.85, 0.95);
                belief.restart(now, rate.clamp(least * closing.rate, 0.99 * closing.rate));
                return Ends::Early;
            }
        }
        if self.crowd.is_certain() {
            return Ends::Yes;
        }
        let soon = pause <= 1.5 && closing.tries == 0;
        if soon && self.crowd.try_fewer(closing.fewest, closing.served_meanwhile) {
            // Served at once with nothing under way: perhaps it is how many at once. That is tried first.
            self.belief = None;
            return Ends::Yes;
        }
        let outage = |belief: &Belief| now - closing.at > 5.0 * belief.span.max(1.0);
        if closing.overload && !closing.consistent && self.belief.as_ref().is_some_and(outage) {
            return Ends::Yes;
        }
        if let Some(belief) = self.belief.as_ref().filter(|_| cycle.minor) {
            // A window that is not shorter than the pause, and that may have begun before the cycle; a longer one than was
            // believed if that holds less.
            let contradicts = served < 0.5 * belief.count && length < 0.5 * belief.span;
            length = match () {
                () if pause > belief.span => usual_from(pause),
                () if contradicts => usual_from(1.01 * belief.span),
                () => belief.span,
            };
            // It has ended between the last two probes, and may have begun when a pause ended.
            let begun = closing.last - length..=sent - length;
            let begun = if begun.contains(&self.major) { self.major } else { sent - length };
            (last, served) = (length, self.history.since(begun));
        }
        let served = served.max(1.0);
        if !closing.pressed && served < FEW && self.belief.is_none() {
            // Who sends little and is refused now and then learns what he sends, and not what he might.
            return Ends::Yes;
        }
        let meant = USUAL.iter().rev().copied().find(|usual| *usual > last + 1e-9 && *usual <= length);
        // A first wait that was asked for and is over when a usual window is: those are the API's own words.
        let told = USUAL.into_iter().find(|usual| (0.98 * usual..usual + ROUNDED).contains(&length));
        let told = told.filter(|_| closing.asked && closing.tries == 0 && served >= FEW && !cycle.minor);
        let span = told.or(meant.filter(|usual| length - usual < 0.3 * length)).unwrap_or(length);
        if let Some(belief) = &mut self.belief {
            let short = |length: f64| length < 0.5 * belief.span.min(30.0);
            let falls_short = !closing.window && !belief.is_rising() && served < 0.5 * belief.count.max(8.0);
            if falls_short && (short(length) || closing.asked && short(last)) {
                self.odd += 1;
                if self.odd < 3 {
                    belief.restart(now, 0.93 * closing.rate);
                    return Ends::Early;
                }
            }
        }
        self.odd = 0;
        let mut rate = served / span.max(self.way.usual.min(0.01));
        if closing.asked && self.belief.is_some() {
            // Longer than it had to be, perhaps: what was served over several such waits is served again.
            let long = usual_from(5.0 * pause).min(sent - self.began);
            rate = rate.max(self.history.since(sent - long) / long);
        }
        // What has been served lately may be served again.
        let falls = rate < 0.5 * closing.rate && length < 10.0;
        let sure = closing.window
            || told.is_some()
            || !falls && last > 0.6 * length && (!closing.overload || self.overloads > 0);
        self.overloads += u32::from(closing.overload);
        self.belief = Some(if sure {
            Belief::of_window(rate, span, served, now).kept(if told.is_some() { KEPT } else { 0.0 })
        } else {
            // A wait that was asked for, or a first probe: only a lower bound is known.
            Belief::at_least(rate, span, served, now).below(if falls { closing.rate } else { f64::INFINITY })
        });
        Ends::Yes
    }

    /// The limit that has changed since this was asked last, if one has: `Some(None)` if there is none any more.
    pub(super) fn change(&mut self, now: Instant) -> Option<Option<LimitSpec>> {
        let now = seconds(now);
        let rate = self.belief.as_mut().map(|belief| belief.rate(now)).filter(|rate| *rate < UNLIMITED);
        // What is configured holds anyway, until it is refused.
        let rate = rate.filter(|rate| {
            self.configured.is_none_or(|most| self.refused.is_finite() && *rate < most * (1.0 - NOTABLE))
        });
        match (self.told, rate) {
            (None, None) => None,
            (Some(told), Some(rate)) if (rate / told - 1.0).abs() < NOTABLE => None,
            _ => {
                self.told = rate;
                Some(rate.map(limit))
            }
        }
    }

    /// The API says itself what it allows: what was found out is not needed. Says whether there was anything.
    pub(super) fn forget(&mut self) -> bool {
        self.belief = None;
        self.told.take().is_some()
    }
}

// === impl Way ===

impl Way {
    fn took(&mut self, took: f64) {
        self.usual += (took - self.usual) * 0.1;
        self.usual = self.usual.max(took * 0.9);
        self.least = self.least.min(took);
    }

    /// By so much two requests may come closer together than they left.
    fn margin(&self) -> f64 {
        (self.usual - self.least).clamp(0.002, 0.1)
    }
}

/// The shortest usual window that is not shorter than `pause`.
fn usual_from(pause: f64) -> f64 {
    USUAL.into_iter().find(|usual| *usual >= pause).unwrap_or(pause)
}

/// Evenly: nobody knows how large a burst may be.
fn limit(rate: f64) -> LimitSpec {
    let count = (rate * OVER).clamp(1.0, 1e6) as u32;
    let count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    let per = duration(f64::from(count.get()) / rate).clamp(Duration::from_micros(1), Duration::from_secs(86_400));
    LimitSpec { rate: Rate { count, per }, burst: Some(NonZeroU32::MIN), strict: false }
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

fn duration(of: f64) -> Duration {
    Duration::try_from_secs_f64(of.max(0.0)).unwrap_or(Duration::MAX)
}
