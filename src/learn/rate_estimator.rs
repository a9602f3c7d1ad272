//! Finds out what an API allows that only refuses: how many requests a second, or how many at once.
//!
//! What was served from one refusal until requests are served again, over the time that this took, is a rate (a *cycle*).
//! From there the rate grows as CUBIC does (RFC 9438), and falls a little when it was too much. If requests are served
//! again at once when fewer are under way, it was not the rate but how many there were at once.

mod belief;
mod closing;
mod crowd;
mod grounds;
mod history;
mod latency;
mod record;
mod refusing;
mod reopening;
mod windows;

use std::{num::NonZeroU32, time::Duration};

pub(super) use self::record::EstimatorRecord;
use self::{
    belief::Belief,
    closing::Closing,
    crowd::{Crowd, Served},
    grounds::Held,
    history::RateHistory,
    latency::Latency,
    reopening::{Ends, Penalty, WindowEnd},
};
use crate::{
    clock::Instant,
    learn::grounds::Basis,
    limit::{LimitSpec, Rate, Seq},
};

/// What refusals have taught. Times are seconds since the clock's start.
#[derive(Clone, Debug, Default)]
pub(super) struct RateEstimator {
    way: Latency,
    cycle: Option<Cycle>,
    /// When the last cycle began that is not minor, and when the first did.
    major: f64,
    began: f64,
    history: RateHistory,
    /// Whether a refusal has told something, and how many were served since the last that did.
    refused: bool,
    served: f64,
    /// How many were refused and none served since.
    in_a_row: i32,
    /// How many were refused since the last cycle began that is not minor, until the last pause was over.
    refused_before: f64,
    /// When what was believed was last refused by a little.
    consistent: Option<f64>,
    closing: Option<Closing>,
    /// It has asked for a pause and served nothing so far: an outage, or too much at once, which one of those under way will
    /// show.
    unproven: Option<Closing>,
    /// When the last pause was over that was longer than a few slots, and how long it was.
    paused: Option<(f64, f64)>,
    /// What was served until the end of the last one that was no short one.
    ended: Option<WindowEnd>,
    /// Long pauses have repeated that were none of a window.
    interrupted: bool,
    /// The last wait that the API asked for, and how long it served before.
    waited: Option<(f64, f64)>,
    /// What that has taught, if it was a penalty.
    penalty: Option<Penalty>,
    /// The last request that had left when the API refused: those up to it tell no more.
    before: Option<Seq>,
    belief: Option<Belief>,
    /// How long it was until a wait was over that the API asked for, if the belief's window is the shortest that fits that.
    told_length: Option<f64>,
    /// What it rests on, for people.
    held: Held,
    crowd: Crowd,
    /// The configured rate: a belief that is not logged before refusals lower it.
    configured: Option<f64>,
    /// A share that is refused however slowly requests leave.
    noise: Option<f64>,
    /// The share that was refused of late.
    refusals: MovingShare,
    /// Slow start was refused too soon to tell.
    early: bool,
    /// It has failed, and served nothing since.
    failing: bool,
    /// When it was looked at last.
    seen: f64,
    told: Option<f64>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredRequest {
    pub(super) seq: Seq,
    pub(super) sent: Instant,
    pub(super) at: Instant,
    /// How many were under way when it left, itself included.
    pub(super) crowd: u32,
}

/// What is known of a refusal beside that.
#[derive(Clone, Copy, Debug)]
pub(super) struct ApiRefusal {
    /// The last request to have left.
    pub(super) newest: Seq,
    /// What the API asks to wait.
    pub(super) wait: Option<Duration>,
    /// By so much the wait is longer than it was told.
    pub(super) later: Duration,
    /// It was a 503.
    pub(super) overload: bool,
    /// More were about to be sent.
    pub(super) pressed: bool,
    /// Until now a request might leave closer than evenly to the one before: it may be that alone.
    pub(super) catches_up: bool,
}

/// A share of the last requests.
#[derive(Clone, Copy, Debug, Default)]
struct MovingShare(f64);

/// From the first request that was served after a pause on.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    since: f64,
    /// When the last request before it was refused, if it began with the end of a pause: a window may have begun since then.
    refused: Option<f64>,
    /// When the API had counted its first request, at the latest: when that was answered.
    counted: f64,
    served: f64,
    /// It began after a pause that told nothing of a window.
    minor: bool,
}

/// Faster rates than this need no pacing.
const UNLIMITED: f64 = 20_000.0;
/// Over how many seconds a limit is watched: requests that it spaces are not held back a second time.
const OVER: f64 = 10.0;
/// After so long without a request a cycle begins anew.
const IDLE: f64 = 10.0;
/// After how many seconds an unanswered request holds up no others: at least, at most, and before anything was refused.
const HANGS: f64 = 2.0;
const HANGS_LONG: f64 = 60.0;
const AT_FIRST: f64 = 0.025;
/// A share is a mean over about this many requests.
const OF: f64 = 64.0;
/// Smaller changes are not worth a word.
const NOTABLE: f64 = 0.005;
/// A rate that was delivered for this long may be believed of a part as well.
const KNOWN: f64 = 30.0;
/// For how long at most it grows between two looks.
const SLOWEST: f64 = 30.0;

// === impl RateEstimator ===

impl RateEstimator {
    /// Knows nothing, or the `configured` rate in requests per second.
    pub(super) fn new(configured: Option<f64>) -> Self {
        Self {
            belief: configured.filter(|rate| rate.is_finite()).map(|rate| Belief::of_window(rate, 1.0, rate, 0.0)),
            crowd: if configured.is_some() { Crowd::unlimited() } else { Crowd::default() },
            configured,
            ..Self::default()
        }
    }

    /// Another rate is configured. What refusals have taught stays; what only the configuration said goes.
    pub(super) fn reconfigure(&mut self, configured: Option<f64>) {
        if self.configured == configured {
            return;
        }
        self.configured = configured;
        if self.is_blank() {
            let Self { belief, crowd, .. } = Self::new(configured);
            (self.belief, self.crowd) = (belief, crowd);
        }
    }

    /// The same way, and what is known of requests of one kind: `served` of them in a cycle that began at `since`.
    /// They are `share` of all: if that is most of them, what is known of all is known of them.
    pub(super) fn of_kind(&self, since: f64, served: f64, share: f64) -> Self {
        let cycle = Some(Cycle { served, ..Cycle::begun(since) });
        let mut kind = Self { way: self.way, cycle, began: since, major: since, seen: self.seen, ..Self::new(None) };
        let delivered = self.history.since(self.seen - KNOWN) / KNOWN;
        let proven = |belief: &&Belief| delivered > 0.5 * belief.rate(self.seen) && self.began + KNOWN < self.seen;
        if let Some(belief) = self.belief.as_ref().filter(proven).filter(|_| share > 0.5) {
            kind.belief = Some(Belief::of_window(share * delivered, belief.span, share * belief.count, self.seen));
            kind.held = Held::by(Basis::Share { served: share * delivered * KNOWN, over: KNOWN });
            kind.crowd = Crowd::unlimited();
        }
        kind
    }

    /// What was refused since `since` was none of this one's: all that it has concluded from it is void.
    pub(super) fn start_again(&mut self, since: f64) {
        let history = std::mem::take(&mut self.history);
        let cycle = Some(Cycle { served: history.since(since), ..Cycle::begun(since) });
        let Self { way, began, seen, told, configured, .. } = *self;
        *self = Self { way, cycle, major: since, began, seen, told, history, ..Self::new(configured) };
    }

    /// When the cycle began that is not over, in seconds.
    pub(super) fn cycle_began(&self) -> f64 {
        self.cycle.map_or(self.seen, |cycle| cycle.since)
    }

    /// How many a second are believed to be allowed.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let rate = self.belief.as_ref().map(|belief| belief.rate(seconds(now)));
        rate.filter(|rate| *rate < UNLIMITED)
    }

    /// Whether one more may be under way beside `unanswered`.
    pub(super) fn has_room(&self, unanswered: u32) -> bool {
        f64::from(unanswered) + 1.0 <= self.crowd.most()
    }

    /// After how long an unanswered request does not hold up others.
    pub(super) fn hangs(&self) -> Duration {
        // At first, a slow API is sent one request after the other.
        duration(if self.is_new() { AT_FIRST } else { (4.0 * self.way.usual).clamp(HANGS, HANGS_LONG) })
    }

    /// An API that has served nothing answers 503: no more than the `unanswered` before something was served.
    pub(super) fn failed(&mut self, unanswered: u32) {
        self.failing = true;
        self.crowd.hold(unanswered);
    }

    /// Whether nothing was refused so far.
    fn is_new(&self) -> bool {
        !self.failing && !self.refused && self.closing.is_none() && self.crowd.cap().is_none()
    }

    /// How many may be under way at once, if that is known to matter.
    pub(super) fn at_once(&self) -> Option<u32> {
        self.crowd.cap()
    }

    /// Whether nothing is believed beyond the configured rate.
    pub(super) fn is_blank(&self) -> bool {
        self.told.is_none() && self.crowd.cap().is_none() && self.closing.is_none()
    }

    /// A request leaves. `waited` says that it had to wait: then the rate may be too low.
    pub(super) fn take(&mut self, now: Instant, waited: bool) {
        let now = seconds(now);
        if self.cycle.is_none() {
            (self.cycle, self.began, self.major) = (Some(Cycle::begun(now)), now, now);
        } else if !waited && now - self.seen > IDLE && self.closing.is_none() {
            self.cycle = Some(Cycle::begun(now));
        }
        if let Some(belief) = &mut self.belief {
            // A rate that is not used up does not grow.
            let used = if waited { (4.0 / belief.rate(now)).clamp(1.0, SLOWEST) } else { 0.0 };
            belief.rest(now - self.seen - used);
        }
        self.seen = now;
    }

    /// A request was served. `beside` says that others than those were refused, which may be refused still.
    pub(super) fn served(&mut self, answered: AnsweredRequest, beside: bool) {
        let (sent, now) = (seconds(answered.sent), seconds(answered.at));
        self.way.took(now - sent);
        (self.failing, self.in_a_row) = (false, 0);
        self.proves(answered.seq);
        self.refusals.counts(false);
        // What was refused at random is not any more.
        self.noise = self.noise.filter(|noise| self.refusals.0 > noise / 3.0);
        let mut cycle = *self.cycle.get_or_insert(Cycle::begun(sent));
        if cycle.served < 1.0 {
            cycle.counted = now;
        }
        let (refused, refusals) = self.closing.as_ref().map(|closing| (closing.last, closing.refused)).unzip();
        let opening = !beside && self.closing.as_ref().is_some_and(|closing| answered.seq > closing.newest);
        let ends = if opening { self.reopens(now, sent) } else { Ends::No };
        self.cycle = Some(match ends {
            Ends::No => Cycle { served: cycle.served + 1.0, ..cycle },
            ends => Cycle { since: sent, refused, counted: now, served: 1.0, minor: ends == Ends::Early },
        });
        if ends == Ends::Yes {
            (self.major, self.refused_before) = (sent, 0.0);
        } else if opening {
            self.refused_before += refusals.unwrap_or_default();
        }
        self.history.served(sent);
        self.served = if opening { 1.0 } else { self.served + 1.0 };
        if let Some(belief) = &mut self.belief {
            belief.delivered(now);
        }
        if let Some(closing) = &mut self.closing {
            closing.also_served(answered.seq, now);
            return;
        }
        let age = now - self.cycle.map_or(now, |cycle| cycle.since);
        self.crowd.served(Served {
            seq: answered.seq,
            crowd: answered.crowd,
            before_any_refusal: self.is_new(),
            cycle_is_long: age > 3.0 * self.way.usual,
        });
        if self.belief.as_mut().is_some_and(|belief| belief.served(now, sent, self.way.usual)) {
            (self.belief, self.told_length) = (None, None);
        }
    }

    /// A request was refused. Says until when nothing is to leave, if that is a pause.
    pub(super) fn refused(&mut self, answered: AnsweredRequest, refusal: ApiRefusal) -> Option<Instant> {
        let now = seconds(answered.at);
        self.pause(answered, now, refusal).map(|until| answered.at + duration(until - now))
    }

    /// A pause is over, whoever asked for it.
    pub(super) fn opened(&mut self, unanswered: u32) {
        self.crowd.start_again(unanswered);
        if self.configured.is_some()
            && let Some(belief) = &self.belief
        {
            // A pace is known: at once as many as it has under way.
            self.crowd.start_with(unanswered, 2.0 * self.way.usual * belief.rate(self.seen));
        }
    }

    /// The API says that there were too many at once, `crowd` of them.
    pub(super) fn too_many(&mut self, crowd: u32) {
        self.crowd.too_many(crowd);
    }

    /// Whether requests have been served, so that a refusal is no outage.
    pub(super) fn is_alive(&self) -> bool {
        self.closing.is_some() || !self.history.is_empty()
    }

    /// The limit that has changed since this was asked last, if one has: `Some(None)` if there is none any more.
    pub(super) fn change(&mut self, now: Instant) -> Option<Option<LimitSpec>> {
        // The configured rate holds anyway, until a request is refused.
        let belief = self.belief.as_ref().filter(|_| self.refused || self.configured.is_none());
        let rate = belief.map(|belief| belief.rate(seconds(now))).filter(|rate| *rate < UNLIMITED);
        let rate = rate.filter(|rate| self.configured.is_none_or(|most| *rate < most * (1.0 - NOTABLE)));
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
        (self.belief, self.told_length) = (None, None);
        self.told.take().is_some()
    }
}

// === impl Cycle ===

impl Cycle {
    /// One that begins at `since`, and in which nothing was served yet.
    fn begun(since: f64) -> Self {
        Self { since, refused: None, counted: since, served: 0.0, minor: false }
    }
}

#[cfg(test)]
impl ApiRefusal {
    /// One that asks for nothing, where `newest` has left last and others wait.
    fn bare(newest: Seq) -> Self {
        let (wait, later) = (None, Duration::ZERO);
        Self { newest, wait, later, overload: false, pressed: true, catches_up: false }
    }
}

// === impl MovingShare ===

impl MovingShare {
    /// One more is one of them, or is not.
    fn counts(&mut self, is: bool) {
        self.0 += (f64::from(is) - self.0) / OF;
    }
}

/// Evenly: it is not known how large a burst may be.
fn limit(rate: f64) -> LimitSpec {
    let count = (rate * OVER).clamp(1.0, 1e6) as u32;
    let count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    let per = duration(f64::from(count.get()) / rate).clamp(Duration::from_micros(1), Duration::from_secs(86_400));
    LimitSpec { burst: Some(NonZeroU32::MIN), ..Rate { count, per }.into() }
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

fn duration(of: f64) -> Duration {
    Duration::try_from_secs_f64(of.max(0.0)).unwrap_or(Duration::MAX)
}
