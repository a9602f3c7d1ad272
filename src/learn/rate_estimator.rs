//! Estimates the limit of an API that only refuses: a rate, or a number of concurrent requests.
//!
//! A *cycle* lasts from the first request served after a pause until requests are served again after the next pause.
//! Its requests, divided by its length, are a rate. From there the rate grows like CUBIC (RFC 9438), and falls a little
//! when it was too high. If requests are served again as soon as fewer are in flight, the API limits concurrency and
//! not the rate.

mod belief;
mod closing;
mod configured;
mod crowd;
mod grounds;
mod history;
mod latency;
mod record;
mod refusing;
mod reopening;
mod windows;

use std::{num::NonZeroU32, time::Duration};

use andante_clock::Instant;
use andante_limit::{LimitSpec, Rate, Seq};

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
use crate::grounds::Basis;

/// Knowledge learned from refusals. Times are seconds since the clock's start.
#[derive(Clone, Debug, Default)]
pub(super) struct RateEstimator {
    way: Latency,
    cycle: Option<Cycle>,
    /// Start of the last cycle that is not minor, and start of the first cycle.
    major: f64,
    began: f64,
    history: RateHistory,
    /// True once a refusal was informative, and the number of requests served since the last such refusal.
    refused: bool,
    served: f64,
    /// Consecutive refusals without a served request.
    in_a_row: i32,
    /// Refusals between the start of the last cycle that is not minor and the end of the last pause.
    refused_before: f64,
    /// When the estimate was last found to be slightly too high.
    consistent: Option<f64>,
    closing: Option<Closing>,
    /// Refusals of an API that has asked for a pause and served nothing yet: an outage, or too much concurrency. The
    /// requests in flight will show which.
    unproven: Option<Closing>,
    /// End and length of the last pause that was longer than a few slots.
    paused: Option<(f64, f64)>,
    /// Window end shown by the last pause that was not short.
    ended: Option<WindowEnd>,
    /// True if long pauses have repeated that did not belong to a window.
    interrupted: bool,
    /// Last wait that the API asked for, and the time that it had served before.
    waited: Option<(f64, f64)>,
    /// Conclusion from that wait, if it was a penalty.
    penalty: Option<Penalty>,
    /// Last request that had left at the last refusal. Refusals of requests up to it say nothing new.
    before: Option<Seq>,
    belief: Option<Belief>,
    /// Time until the end of a wait that the API asked for, if the estimate's window is the shortest that fits it.
    told_length: Option<f64>,
    /// Evidence for the estimate.
    held: Held,
    crowd: Crowd,
    /// Configured rate: an estimate that is not logged before refusals lower it.
    configured: Option<f64>,
    /// Share of requests that is refused however slowly they leave.
    noise: Option<f64>,
    /// Share of recent requests that was refused.
    refusals: MovingShare,
    /// True if slow start was refused too soon to tell.
    early: bool,
    /// True if the API has failed and served nothing since.
    failing: bool,
    /// When the estimator was last used.
    seen: f64,
    told: Option<f64>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredRequest {
    pub(super) seq: Seq,
    pub(super) sent: Instant,
    pub(super) at: Instant,
    /// Number of requests in flight when this one left, itself included.
    pub(super) crowd: u32,
}

/// Facts about a refusal beside the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ApiRefusal {
    /// Last request that had left.
    pub(super) newest: Seq,
    /// Wait that the API asks for.
    pub(super) wait: Option<Duration>,
    /// Margin by which the wait is longer than the API said.
    pub(super) later: Duration,
    /// True for status 503.
    pub(super) overload: bool,
    /// True if more requests were about to be sent.
    pub(super) pressed: bool,
    /// True if a request could leave closer than one slot to the previous one, which may be the only reason.
    pub(super) catches_up: bool,
}

/// Moving share of recent requests.
#[derive(Clone, Copy, Debug, Default)]
struct MovingShare(f64);

/// Period that begins with the first request served after a pause.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    since: f64,
    /// When the last request before the cycle was refused, if the cycle began with the end of a pause. A window may
    /// have begun since then.
    refused: Option<f64>,
    /// Latest time at which the API counted the first request of the cycle: when it was answered.
    counted: f64,
    served: f64,
    /// True if the cycle began after a pause that said nothing about a window.
    minor: bool,
}

/// Rates above this, per second, need no pacing.
const UNLIMITED: f64 = 20_000.0;
/// Seconds over which the limit counts: requests that it spaces are not delayed a second time.
const OVER: f64 = 10.0;
/// Seconds without a request after which a new cycle begins.
const IDLE: f64 = 10.0;
/// Seconds after which an unanswered request no longer delays others: minimum, maximum, and before the first refusal.
const HANGS: f64 = 2.0;
const HANGS_LONG: f64 = 60.0;
const AT_FIRST: f64 = 0.025;
/// Number of requests that a moving share averages over.
const OF: f64 = 64.0;
/// Relative change of the rate below which the limit is not updated.
const NOTABLE: f64 = 0.005;
/// Seconds for which a rate must be delivered before a part of the requests may inherit it.
const KNOWN: f64 = 30.0;
/// Longest time, in seconds, that the rate grows between two requests.
const SLOWEST: f64 = 30.0;

// === impl RateEstimator ===

impl RateEstimator {
    /// Estimator without knowledge, or with the `configured` rate in requests per second.
    pub(super) fn new(configured: Option<f64>) -> Self {
        Self {
            belief: configured.filter(|rate| rate.is_finite()).map(|rate| Belief::of_window(rate, 1.0, rate, 0.0)),
            crowd: if configured.is_some() { Crowd::unlimited() } else { Crowd::default() },
            configured,
            ..Self::default()
        }
    }

    /// Estimator for requests of one kind, with the same latency. `served`: number of them in a cycle that began at
    /// `since`; `share`: their share of all requests. If they are the majority, they inherit the estimate for all.
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

    /// Discards all conclusions since `since`, because the refusals belonged to another limit.
    pub(super) fn start_again(&mut self, since: f64) {
        let history = std::mem::take(&mut self.history);
        let cycle = Some(Cycle { served: history.since(since), ..Cycle::begun(since) });
        let Self { way, began, seen, told, configured, .. } = *self;
        *self = Self { way, cycle, major: since, began, seen, told, history, ..Self::new(configured) };
    }

    /// Start of the running cycle, in seconds.
    pub(super) fn cycle_began(&self) -> f64 {
        self.cycle.map_or(self.seen, |cycle| cycle.since)
    }

    /// Estimated rate limit, in requests per second.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let rate = self.belief.as_ref().map(|belief| belief.rate(seconds(now)));
        rate.filter(|rate| *rate < UNLIMITED)
    }

    /// Returns true if one more request may be in flight beside `unanswered`.
    pub(super) fn has_room(&self, unanswered: u32) -> bool {
        f64::from(unanswered) + 1.0 <= self.crowd.most()
    }

    /// Time after which an unanswered request no longer delays others.
    pub(super) fn hangs(&self) -> Duration {
        // Before the first refusal, a slow API gets one request after the other.
        duration(if self.is_new() { AT_FIRST } else { (4.0 * self.way.usual).clamp(HANGS, HANGS_LONG) })
    }

    /// Records a 503 of an API that has served nothing: allows no more than `unanswered` requests until one is served.
    pub(super) fn failed(&mut self, unanswered: u32) {
        self.failing = true;
        self.crowd.hold(unanswered);
    }

    /// Returns true if nothing was refused so far.
    fn is_new(&self) -> bool {
        !self.failing && !self.refused && self.closing.is_none() && self.crowd.cap().is_none()
    }

    /// Learned concurrency limit, if there is one.
    pub(super) fn at_once(&self) -> Option<u32> {
        self.crowd.cap()
    }

    /// Returns true if nothing was learned beyond the configured rate.
    pub(super) fn is_blank(&self) -> bool {
        self.told.is_none() && self.crowd.cap().is_none() && self.closing.is_none()
    }

    /// Records that a request leaves. `waited`: the request was queued, so the rate may be too low.
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

    /// Records that a request was served. `beside`: only other requests were refused, and may still be refused.
    pub(super) fn served(&mut self, answered: AnsweredRequest, beside: bool) {
        let (sent, now) = (seconds(answered.sent), seconds(answered.at));
        self.way.took(now - sent);
        (self.failing, self.in_a_row) = (false, 0);
        self.proves(answered.seq);
        self.refusals.counts(false);
        // The random refusals have stopped.
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

    /// Handles a refusal. Returns until when nothing may leave, if the refusal leads to a pause.
    pub(super) fn refused(&mut self, answered: AnsweredRequest, refusal: ApiRefusal) -> Option<Instant> {
        let now = seconds(answered.at);
        self.pause(answered, now, refusal).map(|until| answered.at + duration(until - now))
    }

    /// Records the end of a pause of any kind.
    pub(super) fn opened(&mut self, unanswered: u32) {
        self.crowd.start_again(unanswered);
        if self.configured.is_some()
            && let Some(belief) = &self.belief
        {
            // With a known rate, the number of requests that it keeps in flight may leave at once.
            self.crowd.start_with(unanswered, 2.0 * self.way.usual * belief.rate(self.seen));
        }
    }

    /// Records that the API calls `crowd` concurrent requests too many.
    pub(super) fn too_many(&mut self, crowd: u32) {
        self.crowd.too_many(crowd);
    }

    /// Returns true if requests have been served, so that a refusal is no outage.
    pub(super) fn is_alive(&self) -> bool {
        self.closing.is_some() || !self.history.is_empty()
    }

    /// Limit, if it has changed since the last call; `Some(None)` if the limit is gone.
    pub(super) fn change(&mut self, now: Instant) -> Option<Option<LimitSpec>> {
        // The configured rate is enforced anyway, until a request is refused.
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

    /// Forgets the estimate, because the API reports its limits itself. Returns true if there was one.
    pub(super) fn forget(&mut self) -> bool {
        (self.belief, self.told_length) = (None, None);
        self.told.take().is_some()
    }
}

// === impl Cycle ===

impl Cycle {
    /// Cycle that begins at `since`, without any request served yet.
    fn begun(since: f64) -> Self {
        Self { since, refused: None, counted: since, served: 0.0, minor: false }
    }
}

#[cfg(test)]
impl ApiRefusal {
    /// Refusal that asks for nothing, where `newest` has left last and other requests are queued.
    fn bare(newest: Seq) -> Self {
        let (wait, later) = (None, Duration::ZERO);
        Self { newest, wait, later, overload: false, pressed: true, catches_up: false }
    }
}

// === impl MovingShare ===

impl MovingShare {
    /// Counts one more request, in or out of the share.
    fn counts(&mut self, is: bool) {
        self.0 += (f64::from(is) - self.0) / OF;
    }
}

/// Limit with even pacing, because the API's burst is unknown.
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
