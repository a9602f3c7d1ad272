//! What answers teach a lane: how much is left, when to pause, and how fast it may go when nobody says. Pure.

mod allowance;
mod breaker;
mod finder;
mod gate;
mod period;
mod routes;

use std::{num::NonZeroU32, time::Duration};

use smallvec::SmallVec;

use self::{allowance::Allowance, breaker::Breaker, finder::Finder, gate::Gate, period::Period};
pub use self::{
    gate::Reason,
    routes::{RouteKey, Routes},
};
use crate::{
    clock::Instant,
    hint::{Bucket, Cause, Hint, Signal},
    limit::{Budget, Cost, LimitSpec, Rate, Source, Unit},
    policy::{Policy, Spend, Trust},
};

/// What a lane has learned from its answers.
#[derive(Clone, Debug)]
pub struct Learned {
    spend: Spend,
    trust: Trust,
    /// `None`: a failing upstream is not left alone.
    breaker: Option<Breaker>,
    gate: Gate,
    /// Refusals without a time, one after the other.
    refusals: u32,
    budgets: Vec<(Allowance, Period)>,
    finder: Finder,
    /// The rate it had found when people were told last.
    told: Option<f64>,
    /// Requests that are under way, and of which no answer tells yet.
    unanswered: u32,
    parallel: Option<Parallel>,
    /// Whether the upstream has ever answered.
    answered: bool,
    /// How many requests may be sent again on top of those sent for the first time.
    extra: f64,
}

/// How many requests may be unanswered at once, for the time being.
#[derive(Clone, Copy, Debug)]
struct Parallel {
    most: f64,
    /// It was too many, and grows by one at a time. Otherwise a pause is over, and it doubles.
    careful: bool,
}

/// What became of a request, as far as a lane is concerned.
#[derive(Clone, Debug)]
pub struct Heard<'a> {
    /// What its answer said.
    pub hint: &'a Hint,
    /// Whether the upstream failed (5xx).
    pub failed: bool,
    /// What it was about.
    pub route: RouteKey,
}

impl Heard<'_> {
    /// Served, and nothing was said.
    pub const SERVED: Self = Heard { hint: &Hint::SILENT, failed: false, route: RouteKey::NONE };
}

/// What has changed by an answer, for people to be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Another limit holds, or none any more.
    Limit(Option<LimitSpec>),
    /// Nothing leaves until an answer says otherwise.
    Closed(Reason, Duration),
    /// The pause is over.
    Opened,
    /// One kind of request has to pause.
    Route(Duration),
    /// So many requests may be under way at once.
    Parallel(u32),
}

/// What an answer has changed: mostly nothing.
pub type Changes = SmallVec<[Change; 1]>;

/// This many budgets of one API are kept apart.
const MOST_BUDGETS: usize = 8;
/// The first pause after a refusal that names no time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The shortest one, if the pace is known.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// The longest one.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A ban that names no end.
const BAN: Duration = Duration::from_secs(900);
/// A reset told in whole seconds may be this much later.
const SECOND: Duration = Duration::from_secs(1);
/// For each request that is sent, so much of one may be sent again because the upstream fails.
const EXTRA: f64 = 0.2;
const EXTRA_AT_FIRST: f64 = 10.0;
const EXTRA_AT_MOST: f64 = 1000.0;
/// More unanswered requests than this are no stampede any more.
const CROWD: f64 = 512.0;

// === impl Learned ===

impl Learned {
    /// Nothing learned yet.
    pub fn new(policy: &Policy, now: Instant) -> Self {
        Self {
            spend: policy.spend,
            trust: policy.trust,
            breaker: policy.breaker.then(Breaker::default),
            gate: Gate::default(),
            refusals: 0,
            budgets: Vec::new(),
            finder: Finder::new(now),
            told: None,
            unanswered: 0,
            parallel: None,
            answered: false,
            extra: EXTRA_AT_FIRST,
        }
    }

    /// The first instant, not before `now`, at which all that was learned lets a request of `cost` leave;
    /// [`Instant::FAR`] if an answer must come first.
    pub fn earliest(&mut self, now: Instant, cost: Cost) -> Instant {
        if self.parallel.is_some_and(|parallel| f64::from(self.unanswered) + 1.0 > parallel.most) {
            return Instant::FAR;
        }
        let (gate, unanswered, spend) = (self.gate.earliest(now), self.unanswered, self.spend);
        self.budgets.iter_mut().fold(gate, |at, (left, _)| at.max(left.earliest(now, cost, unanswered, spend)))
    }

    /// Until when nothing leaves, as far as is known, and why.
    pub fn closed(&self, now: Instant) -> Option<(Instant, Reason)> {
        self.gate.until().or_else(|| {
            let blocked = |(left, _): &(Allowance, Period)| {
                let empty = !left.explained && left.is_current(now) && left.left(now) < 1.0;
                left.reset.filter(|_| empty).map(|reset| (reset, Reason::Exhausted))
            };
            self.budgets.iter().filter_map(blocked).max_by_key(|(until, _)| *until)
        })
    }

    /// How far back a slot may have matured that is taken only now: not into a pause.
    pub fn catch_up(&self, now: Instant, usual: Duration) -> Duration {
        usual.min(now.since(self.gate.opened()))
    }

    /// A request was taken as `unit`; `waited` says that it had to wait for that.
    pub fn take(&mut self, now: Instant, unit: Unit, waited: bool, budget: &mut Budget) -> Changes {
        self.unanswered += 1;
        self.extra = (self.extra + EXTRA).min(EXTRA_AT_MOST);
        self.gate.take(unit);
        for (left, period) in &mut self.budgets {
            left.take(now, unit);
            period.sent(now);
        }
        match self.finder.grow(now).filter(|_| waited) {
            Some(limit) => self.found(budget, now, limit),
            None => Changes::new(),
        }
    }

    /// The answer to `unit`, which was sent at `sent`, is here.
    pub fn heard(&mut self, now: Instant, unit: Unit, sent: Instant, heard: &Heard<'_>, budget: &mut Budget) -> Changes {
        let Heard { hint, failed, .. } = heard;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.answered = true;
        let mut changes = Changes::new();
        let served = hint.cause == Cause::None;
        if !hint.buckets.is_empty() && self.trust != Trust::Waits && hint.signal != Signal::Informational {
            self.count(now, unit, served, &hint.buckets, budget, &mut changes);
        }
        match hint.cause {
            Cause::None if *failed => self.fail(now, unit, &mut changes),
            Cause::None => self.serve(now, unit, sent, budget, &mut changes),
            Cause::Overload => match hint.wait.filter(|wait| !wait.is_zero()) {
                Some(wait) => self.close(now, wait, Reason::RetryAfter, &mut changes),
                None => self.fail(now, unit, &mut changes),
            },
            Cause::Concurrency => {
                self.gate.served(now, unit);
                let most = (f64::from(self.unanswered) * 0.7).floor().max(1.0);
                self.parallel = Some(Parallel { most, careful: true });
                changes.push(Change::Parallel(most as u32));
            }
            Cause::Quota => self.refuse(now, sent, hint, budget, &mut changes),
        }
        if served && matches!(hint.signal, Signal::Throttled | Signal::Exhausted)
            && let Some(wait) = hint.retry_after
        {
            self.close(now, wait, Reason::RetryAfter, &mut changes);
        }
        changes
    }

    /// The request `unit` could not be sent, or broke off: the upstream has failed.
    pub fn broke(&mut self, now: Instant, unit: Unit) -> Changes {
        let mut changes = Changes::new();
        self.fail(now, unit, &mut changes);
        changes
    }

    /// The request `unit` will not be answered any more. `sent` says that it may have been counted all the same.
    pub fn ended(&mut self, unit: Unit, sent: bool) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.gate.ended(unit);
        self.budgets.iter_mut().for_each(|(left, _)| left.ended(unit, sent));
    }

    /// Whether the upstream is left alone because it fails.
    pub fn is_broken(&self) -> bool {
        self.gate.until().is_some_and(|(_, reason)| reason == Reason::Breaker)
    }

    /// Whether one more request may be sent again although the upstream is in trouble: a share of all that are sent, so
    /// that an outage is not multiplied.
    pub fn may_retry(&mut self) -> bool {
        let may = self.extra >= 1.0 + EXTRA;
        if may {
            self.extra -= 1.0 + EXTRA;
        }
        may
    }

    /// How many of the last requests failed, and of how many; `None` without a breaker.
    pub fn failures(&self) -> Option<(u32, u32)> {
        self.breaker.as_ref().map(Breaker::failures)
    }

    /// What is left of each budget that the API tells of: name, left, limit, and time until its reset.
    pub fn budgets(&self, now: Instant) -> impl Iterator<Item = Left> {
        self.budgets.iter().filter(move |(left, _)| left.is_current(now)).map(move |(left, _)| Left {
            name: left.name.clone(),
            left: left.left(now),
            limit: left.limit,
            reset: left.reset.map(|reset| reset.since(now)),
        })
    }

    /// Whether nothing was learned.
    pub fn is_blank(&self) -> bool {
        self.budgets.is_empty() && self.gate.is_open() && self.finder.limit().is_none() && self.parallel.is_none()
    }

    /// Takes note of what the API says is left.
    fn count(
        &mut self,
        now: Instant,
        unit: Unit,
        served: bool,
        buckets: &[Bucket],
        budget: &mut Budget,
        changes: &mut Changes,
    ) {
        for bucket in buckets {
            let known = self.budgets.iter().position(|(left, _)| left.name == bucket.name);
            let unanswered = self.unanswered;
            let (index, window) = match known {
                Some(index) => {
                    let (left, period) = &mut self.budgets[index];
                    let window = period.hear(bucket, unanswered, now);
                    left.hear(bucket, period.refills(), unit, served, now);
                    (index, window)
                }
                None if self.budgets.len() < MOST_BUDGETS => {
                    let mut period = Period::default();
                    let window = period.hear(bucket, unanswered, now);
                    self.budgets.push((Allowance::new(bucket, period.refills(), unit, now), period));
                    (self.budgets.len() - 1, window)
                }
                None => continue,
            };
            let (left, source) = (&self.budgets[index].0, Source::Told(index as u8));
            let limit = left.limit.filter(|limit| bucket.requests && *limit >= 1.0);
            let (Some(limit), Some(window)) = (limit, window.filter(|window| !window.is_zero())) else { continue };
            let spec = spec(limit, window, self.spend);
            let used = bucket.remaining.map_or(0.0, |remaining| (limit - remaining).clamp(0.0, limit));
            if budget.limit(source) != Some(spec) {
                budget.learn(source, spec, used as u32 + unanswered, now);
                changes.push(Change::Limit(Some(spec)));
                self.finder_is_done(budget);
            }
            let ours = f64::from(budget.used(source, now)) + f64::from(unanswered) + 1.0;
            self.budgets[index].0.explained = used <= ours;
        }
    }

    fn finder_is_done(&mut self, budget: &mut Budget) {
        if self.finder.forget() {
            budget.unlearn(Source::Found);
        }
    }

    fn serve(&mut self, now: Instant, unit: Unit, sent: Instant, budget: &mut Budget, changes: &mut Changes) {
        if let Some(breaker) = &mut self.breaker {
            breaker.served(now, self.gate.is_probe(unit));
        }
        if self.gate.served(now, unit) {
            self.refusals = 0;
            changes.push(Change::Opened);
            if self.parallel.is_none() && !budget.paces() {
                self.parallel = Some(Parallel { most: 1.0, careful: false });
            }
        }
        if let Some(parallel) = &mut self.parallel {
            parallel.most += if parallel.careful { 1.0 / parallel.most } else { 1.0 };
            if parallel.most > CROWD {
                self.parallel = None;
            }
        }
        if let Some(limit) = self.finder.served(now, sent) {
            changes.extend(self.found(budget, now, limit));
        }
    }

    fn fail(&mut self, now: Instant, unit: Unit, changes: &mut Changes) {
        if !self.answered {
            // Its name may be wrong: whoever asks for it should know soon.
            return;
        }
        let probe = self.gate.is_probe(unit) && self.is_broken();
        let pause = self.breaker.as_mut().and_then(|breaker| breaker.failed(now, probe));
        match pause {
            Some(pause) => self.close(now, pause, Reason::Breaker, changes),
            // What it was to find out, it has: the API answers, or is not reached, but it does not ask for a pause.
            None if self.gate.served(now, unit) => changes.push(Change::Opened),
            None => {}
        }
    }

    fn refuse(&mut self, now: Instant, sent: Instant, hint: &Hint, budget: &mut Budget, changes: &mut Changes) {
        let told = self.budgets.iter().enumerate().any(|(index, _)| budget.limit(Source::Told(index as u8)).is_some());
        let elsewhere = is_elsewhere(hint);
        // Numbers that have room do not explain a refusal: another limit does.
        let room = hint.buckets.iter().filter_map(|bucket| bucket.remaining).all(|left| left >= 1.0);
        if (!told || room) && !elsewhere && !matches!(hint.signal, Signal::Banned | Signal::FatalQuota)
            && let Some(limit) = self.finder.refused(now, sent, hint.wait.filter(|wait| !wait.is_zero()))
        {
            changes.extend(self.found(budget, now, limit));
        }
        // Not ours to count: what was under way when the gate was closed is refused as well.
        let (wait, reason) = match (hint.signal, hint.wait) {
            (Signal::FatalQuota, _) => return,
            (Signal::Banned, wait) => (wait.unwrap_or(BAN), Reason::Banned),
            (_, Some(wait)) if hint.retry_after.is_some() => (wait, Reason::RetryAfter),
            (_, Some(wait)) if !wait.is_zero() => {
                let coarse = hint.buckets.iter().any(|bucket| bucket.coarse);
                (if coarse { wait + SECOND } else { wait }, Reason::Exhausted)
            }
            _ if elsewhere => return,
            _ => {
                if self.gate.knows(sent) {
                    return;
                }
                (self.next_pause(budget), Reason::Refused)
            }
        };
        self.close(now, wait, reason, changes);
    }

    /// How long to pause when the API refuses and names no time: as long as a few slots, longer if it goes on refusing.
    fn next_pause(&mut self, budget: &Budget) -> Duration {
        let first = match budget.limit(Source::Found) {
            Some(found) => (found.rate.interval() * 2).clamp(SHORTEST_PAUSE, FIRST_PAUSE),
            None => FIRST_PAUSE,
        };
        let pause = first.mul_f64(1.5f64.powi(self.refusals.min(20) as i32)).min(LONGEST_PAUSE);
        self.refusals += 1;
        pause
    }

    fn close(&mut self, now: Instant, wait: Duration, reason: Reason, changes: &mut Changes) {
        let was = self.gate.until();
        if self.gate.close(now, now + wait, reason) {
            // What a moment more or less makes of the same pause is no news.
            let news = was.is_none_or(|(until, was)| was != reason || (now + wait).since(until) > FIRST_PAUSE);
            if news {
                changes.push(Change::Closed(reason, wait));
            }
        }
    }

    fn found(&mut self, budget: &mut Budget, now: Instant, limit: LimitSpec) -> Changes {
        if self.trust == Trust::Waits {
            return Changes::new();
        }
        budget.learn(Source::Found, limit, 0, now);
        // Small steps are no news.
        let (rate, told) = (limit.rate.per_second(), self.told.unwrap_or(f64::INFINITY));
        if (rate / told - 1.0).abs() < 0.1 {
            return Changes::new();
        }
        self.told = Some(rate);
        Changes::from_iter([Change::Limit(Some(limit))])
    }
}

/// What is left of one budget, for people to look at.
#[derive(Clone, Debug)]
pub struct Left {
    /// What the API calls it.
    pub name: Option<Box<str>>,
    /// How much is left.
    pub left: f64,
    /// How much fits into a window.
    pub limit: Option<f64>,
    /// Time until it is reset.
    pub reset: Option<Duration>,
}

/// Whether a request was refused although what we can see had room: another limit has refused it, which we cannot see.
pub fn is_elsewhere(hint: &Hint) -> bool {
    let mut seen = hint.buckets.iter().filter_map(|bucket| bucket.remaining).peekable();
    hint.cause == Cause::Quota && hint.wait.is_none_or(|wait| wait.is_zero()) && seen.peek().is_some() && seen.all(|left| left >= 1.0)
}

/// The limit that keeps a budget of `limit` per `window`.
fn spec(limit: f64, window: Duration, spend: Spend) -> LimitSpec {
    let count = NonZeroU32::new(limit.min(f64::from(u32::MAX)) as u32).unwrap_or(NonZeroU32::MIN);
    let burst = match spend {
        Spend::Even => 1,
        Spend::Mostly => count.get() - count.get() / 10,
        Spend::Greedy => count.get(),
    };
    let per = window.max(Duration::from_micros(u64::from(count.get())));
    LimitSpec { rate: Rate { count, per }, burst: NonZeroU32::new(burst), strict: false }
}
