//! One quota that an API reports.

mod keep;
mod others;
mod refill;
mod refused;
mod silence;

use std::{num::NonZeroU32, time::Duration};

use andante_clock::Instant;
use andante_hint::{Bucket, Cause, Dialect};
use andante_limit::{Budget, Charge, LimitSpec, Rate, Seq, Source, Unit};
use andante_policy::Spend;
use smallvec::SmallVec;

use self::{
    others::OthersWindow,
    refill::{ROUNDED, Refill, Report},
    refused::Books,
};
use super::{
    MOST_UNITS,
    one_less::OneLess,
    reset_unit::ResetUnit,
    trust::{CountChange, Credibility, QuotaClaim},
};
use crate::{
    Grounds, Observation, allowance::Allowance, gate::Gate, grounds::ReportedEvidence, ledger::SentLog,
    window_estimator::WindowEstimator,
};

/// Share of a limit that other senders may use without being noticed.
const OTHERS: f64 = 0.02;
/// Longest window of other senders that is simply waited out.
const SHORT: Duration = Duration::from_secs(60);

/// A quota that an API reports: its remaining amount, and its reset.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    pub(super) id: u8,
    /// Reported window, which distinguishes quotas without a name.
    pub(super) window: Option<Duration>,
    pub(super) left: Allowance,
    /// Closed while the API asks to wait for the quota.
    pub(super) gate: Gate,
    pub(super) window_estimator: WindowEstimator,
    pub(super) ledger: SentLog,
    trust: Credibility,
    pub(super) refill: Refill,
    unit: ResetUnit,
    one_less: OneLess,
    /// Last request dispatched before the first report. Later requests count if they draw on the quota.
    newest: Seq,
    /// Requests in flight that may draw on the quota, and that no answer has reported on yet.
    pub(super) unanswered: u32,
    /// Limits that were logged lately, and the start of that period.
    news: (SmallVec<[LimitSpec; 1]>, Instant),
    /// True while a limit of the lane enforces the quota.
    pub(super) kept: bool,
    pub(super) heard: Instant,
    /// True if served answers report the quota. A quota that only refusals report is never dormant.
    common: bool,
    /// Number of returns from dormancy; each doubles the time that the quota may be silent.
    woken: u32,
    dormant: bool,
    /// End of even pacing, which is used because the API counts differently from us.
    even_until: Instant,
    others: OthersWindow,
    /// Last request that was dispatched and draws on the quota.
    taken: Seq,
    /// Consecutive refusals that the quota explains, and the last request that had left at the latest of them.
    refusals: (u32, Seq),
    said: ReportStats,
}

/// Source of the reports, and what confirmed them, as evidence for people.
#[derive(Clone, Copy, Debug)]
struct ReportStats {
    dialect: Dialect,
    /// Number of answers that have reported the quota, and number of new windows that were seen to begin.
    answers: u32,
    resets: u32,
}

/// State known when a quota is first reported.
#[derive(Clone, Debug)]
pub(super) struct Born {
    pub(super) id: u8,
    /// Last request that was dispatched.
    pub(super) newest: Seq,
    /// Number of requests in flight; each may draw on the quota.
    pub(super) unanswered: u32,
    /// Send times of all requests; each may have drawn on the quota.
    pub(super) ledger: SentLog,
    /// Known window of another quota of this name.
    pub(super) window_estimator: WindowEstimator,
}

// === impl Quota ===

impl Quota {
    pub(super) fn new(born: Born, bucket: &Bucket, answer: &Observation<'_>) -> Self {
        Self {
            id: born.id,
            window: bucket.window,
            left: Allowance::new(bucket, answer.charge.seq, answer.at),
            gate: Gate::default(),
            window_estimator: born.window_estimator,
            ledger: born.ledger,
            trust: Credibility::default(),
            refill: Refill::default(),
            unit: ResetUnit::default(),
            one_less: OneLess::default(),
            newest: born.newest,
            unanswered: born.unanswered,
            news: (SmallVec::new(), answer.at),
            kept: false,
            heard: answer.at,
            common: false,
            woken: 0,
            dormant: false,
            even_until: Instant::START,
            others: OthersWindow::default(),
            taken: born.newest,
            refusals: (0, 0),
            said: ReportStats { dialect: answer.heard.hint.dialect, answers: 0, resets: 0 },
        }
    }

    /// Evidence for `limit`, which follows from this quota.
    pub(super) fn grounds(&self, limit: &LimitSpec) -> Grounds {
        let ReportStats { dialect, answers, resets } = self.said;
        let (count, window) = (self.trust.agreement(), limit.rate.per);
        let window_said = self.window == Some(window);
        let limit = f64::from(limit.rate.count.get());
        Grounds::Said(ReportedEvidence { dialect, limit, answers, window, window_said, resets, count })
    }

    /// Records that a request was dispatched that draws on the quota.
    pub(super) fn take(&mut self, now: Instant, seq: Seq) {
        self.unanswered += 1;
        self.taken = seq;
        self.gate.take(now, seq);
        self.left.take(now, seq);
        self.ledger.sent(now);
    }

    /// Returns true if the request with this charge may draw on the quota.
    pub(super) fn counts(&self, charge: Charge) -> bool {
        charge.seq <= self.newest || charge.scope.has(self.id)
    }

    /// Returns true if the request with this charge was expected to draw on the quota. An older request drew on another
    /// quota that had this number.
    pub(super) fn is_drawn_on(&self, charge: Charge) -> bool {
        charge.seq > self.newest && charge.scope.has(self.id)
    }

    /// Returns true if a pause that the API has asked for lasts at `now`.
    pub(super) fn pauses(&self, now: Instant) -> bool {
        self.gate.until().is_some_and(|(until, _)| until > now)
    }

    /// Returns true if the quota's numbers are believed.
    pub(super) fn is_believed(&self) -> bool {
        self.trust.holds()
    }

    /// Returns true if `bucket`, a report of this quota, explains a refusal and says for how long nothing more may
    /// leave.
    pub(super) fn explains(&self, bucket: &Bucket) -> bool {
        let empty = bucket.remaining.is_some_and(|remaining| remaining < 1.0);
        empty
            && bucket.requests
            && self.trust.holds()
            && (self.kept || bucket.reset.is_some_and(|reset| !reset.is_zero()))
    }

    /// Returns true if nearly all of the quota was used at the last report. A refusal that names no quota is then
    /// attributed to it.
    pub(super) fn is_spent(&self, now: Instant) -> bool {
        let nearly = self.left.limit.map_or(0.0, |limit| limit * OTHERS);
        self.kept && self.trust.holds() && self.left.left(now) < 1.0 + nearly
    }

    /// Applies `bucket`, a report of this quota, and writes the resulting limit into `budget`. Returns the limit if it
    /// is new. `refused`: the request was refused.
    pub(super) fn hear(
        &mut self,
        bucket: &Bucket,
        answer: &Observation<'_>,
        refused: bool,
        spend: Spend,
        budget: &mut Budget,
    ) -> Option<LimitSpec> {
        let (now, source) = (answer.at, Source::Advertised(self.id));
        let part = budget.part_in(source);
        self.ledger.set_part(part);
        // Unanswered requests without this one.
        let unanswered = self.unanswered.saturating_sub(u32::from(self.counts(answer.charge)));
        if answer.charge.seq > self.newest && !answer.charge.scope.has(self.id) && !refused {
            // The request was expected to draw on other quotas.
            answer
                .charge
                .cost
                .of(Unit::REQUESTS)
                .into_iter()
                .for_each(|requests| budget.count(source, requests, answer.sent, now));
            self.ledger.add(answer.sent);
        }
        self.said.answers = self.said.answers.saturating_add(1);
        let (bucket, turned) = self.unit.in_seconds(bucket, answer.sent, now);
        // Other members of the fleet may have used one unit of a window.
        let bucket = if part < 1.0 { bucket } else { self.one_less.corrected(bucket, refused, now) };
        if turned {
            self.said.resets = 0;
            self.left.start_over();
            (self.window_estimator, self.trust) = (WindowEstimator::default(), Credibility::default());
            self.refill = Refill::default();
            self.dismiss(budget);
        }
        self.common |= answer.is_served();
        self.heard = now;
        self.judge(&bucket, answer, unanswered);
        let window = self.window_estimator.hear(&bucket, answer.sent, now, &self.ledger);
        let others = self.kept && !self.left.overruled;
        self.left.hear(&bucket, self.window_estimator.returns(), answer.charge.seq, now);
        self.left.overruled = !self.trust.holds();
        if self.left.overruled {
            self.dismiss(budget);
            return None;
        }
        let limit = self.left.limit.filter(|limit| bucket.requests && *limit >= 1.0)?;
        let used = bucket.remaining.map_or(0.0, |remaining| (limit - remaining).clamp(0.0, limit));
        let ours = |budget: &mut Budget, source, part: f64| {
            let ours = f64::from(budget.used(source, now)) + f64::from(unanswered) + 1.0;
            // The other members have sent in proportion to their shares, or all of their shares by now.
            used <= (ours / part).max(ours + limit * (1.0 - part)) + limit * OTHERS
        };
        let Some(window) = window.filter(|window| !window.is_zero()) else {
            // Without a reported reset, the rate learned from refusals is better evidence.
            self.left.overruled = bucket.reset.is_none()
                && budget.limit(Source::Estimated).is_some()
                && ours(budget, Source::Estimated, part);
            return None;
        };
        if bucket.remaining.is_none() && !self.kept {
            // Without a remaining amount, the limit may be for other clients, or for something else.
            return None;
        }
        self.look_for_bucket(&bucket, window, used, refused, answer, budget);
        if let Some(window) = self.refill.window(limit) {
            let news = self.keep(spec(limit, window, Spend::Even), used, unanswered, answer, budget);
            self.left.overruled = true;
            return news;
        }
        let even = now < self.even_until || self.may_be_bucket(&bucket, window);
        let spec = spec(limit, window, if even { Spend::Even } else { spend });
        // Requests that left before the first report were not limited by the quota.
        let keeps = self.kept && !others && answer.charge.seq > self.newest;
        let books = if keeps { Books::Contradicted } else { Books::Incomplete };
        if self.others.has_ended() {
            // Only the use since the reset counts now.
            budget.unlearn(source);
        }
        let news = self.keep(spec, used, unanswered, answer, budget);
        // A short window is soon over, and by then it shows whether the quota is replenished in parts.
        let of_others = window > SHORT && self.window_estimator.is_of_others();
        let ends = self.others.ends(now, self.left.over_by().filter(|end| of_others && *end > now));
        if ends > now {
            budget.set_end(source, (ends != Instant::FAR).then_some(ends));
        }
        // Where all of the quota is replenished at the reset, the API's report shows that first.
        let part = budget.part_known(source, limit, window);
        self.left.overruled = ends == Instant::FAR && ours(budget, source, part);
        self.left.resets_by(self.back_by(spec, window, answer));
        if refused && bucket.remaining.is_some_and(|remaining| remaining < 1.0) {
            self.refuse(spec, books, answer, budget);
        } else if answer.is_served() {
            self.refusals = (0, 0);
        }
        news
    }

    /// Returns true if the window of `bucket` is known only from a few whole seconds, which a token bucket may report
    /// as well.
    fn may_be_bucket(&self, bucket: &Bucket, window: Duration) -> bool {
        let whole = bucket.reset.is_some_and(|reset| reset.subsec_nanos() == 0);
        whole && bucket.window.is_none() && window <= ROUNDED && !self.window_estimator.refills()
    }

    fn look_for_bucket(
        &mut self,
        bucket: &Bucket,
        window: Duration,
        used: f64,
        refused: bool,
        answer: &Observation<'_>,
        budget: &Budget,
    ) {
        let Some(limit) = bucket.limit.filter(|_| self.refill.is_found() || self.may_be_bucket(bucket, window)) else {
            return;
        };
        if refused {
            // With something left, another limit has refused the request.
            if bucket.remaining.is_none_or(|left| left < 1.0) {
                self.refill.refused(limit, answer.sent, answer.at);
            }
            return;
        }
        let rates = budget.rates(Unit::REQUESTS);
        let configured = rates.iter().filter(|(of, _)| *of == Source::Config).map(|(_, rate)| *rate).reduce(f64::min);
        self.refill.hear(&Report {
            limit,
            used,
            served: answer.is_served(),
            sent: answer.sent,
            now: answer.at,
            window,
            ledger: &self.ledger,
            configured,
        });
    }

    /// Compares an answer's report with what was sent.
    fn judge(&mut self, bucket: &Bucket, answer: &Observation<'_>, unanswered: u32) {
        let (Some(limit), Some(remaining)) = (bucket.limit, bucket.remaining) else { return };
        let claim = QuotaClaim {
            limit,
            remaining,
            reset: bucket.reset,
            served: answer.is_served(),
            refused: answer.heard.hint.cause == Cause::Quota,
            sent: answer.sent,
            now: answer.at,
            ledger: &self.ledger,
            unanswered,
            window: self.window_estimator.known(),
            began: self.window_estimator.began(),
            seen: self.window_estimator.seen(),
            refills: self.window_estimator.refills() || bucket.refills || self.refill.is_found(),
            requests: bucket.requests,
        };
        let change = self.trust.hear(&claim);
        self.others.answered(answer.sent, answer.at, change == CountChange::Restarted);
        match change {
            CountChange::Restarted => {
                self.said.resets = self.said.resets.saturating_add(1);
                let (used, sent, at) = (limit - remaining, answer.sent, answer.at);
                self.window_estimator.restarted(limit, used, bucket.reset, sent, at, &self.ledger);
            }
            CountChange::Risen => self.window_estimator.risen(),
            CountChange::Same => {}
        }
    }

    /// This process's share of the remaining quota; `part` is its share of quotas that the fleet divides.
    pub(super) fn part(&self, part: f64) -> f64 {
        if self.ledger.is_shared() { part } else { 1.0 }
    }

    /// Returns true if the quota has the name and the window of `bucket`.
    pub(super) fn is_called(&self, bucket: &Bucket) -> bool {
        self.left.name == bucket.name
            && (self.window == bucket.window || self.window.is_none() || bucket.window.is_none())
    }

    /// Returns true if the quota has the limit of `bucket`, as far as both are known.
    pub(super) fn fits(&self, bucket: &Bucket) -> bool {
        bucket.limit.is_none() || self.left.limit.is_none() || self.left.limit == bucket.limit
    }
}

/// Limit that enforces a quota of `limit` per `window`.
fn spec(limit: f64, window: Duration, spend: Spend) -> LimitSpec {
    let count = NonZeroU32::new(limit.min(MOST_UNITS) as u32).unwrap_or(NonZeroU32::MIN);
    let burst = match spend {
        Spend::Even => 1,
        Spend::Mostly => count.get() - count.get() / 10,
        Spend::Greedy => count.get(),
    };
    let per = window.max(Duration::from_micros(u64::from(count.get())));
    LimitSpec { burst: NonZeroU32::new(burst), ..Rate { count, per }.into() }
}
