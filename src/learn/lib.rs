//! What a lane learns from answers: quotas, pauses, and the rate of an API that reports none. Pure.

mod allowance;
mod breaker;
mod forget;
mod found;
mod gate;
mod gradient;
mod grounds;
mod kinds;
mod ledger;
mod observation;
mod pauses;
mod quotas;
mod rate_estimator;
mod record;
mod refusing;
mod route_key;
mod routes;
mod scopes;
mod serving;
mod window_estimator;

use std::time::Duration;

use andante_clock::Instant;
use andante_hint::{Cause, Hint, Signal, Strength};
use andante_limit::{Budget, Charge, Cost, Scope, Seq, Source};
use andante_policy::{Policy, Spend, Trust};

pub use self::quotas::QuotaSnapshot;
use self::{
    breaker::Breaker,
    gate::Gate,
    kinds::OwnLimits,
    quotas::Quotas,
    rate_estimator::{AnsweredRequest, RateEstimator},
    routes::Routes,
};
pub use self::{
    gate::Reason,
    gradient::{GradientEvidence, GradientLimit},
    grounds::{Grounds, OwnGroup, OwnLimit},
    observation::{AnswerReport, Changes, LearnedChange, Observation},
    record::LearnedRecord,
    route_key::{RouteKey, RouteName},
};

/// State that a lane has learned from its answers.
#[derive(Clone, Debug)]
pub struct Learned {
    spend: Spend,
    trust: Trust,
    /// Circuit breaker; `None` if the policy turns it off.
    breaker: Option<Breaker>,
    gate: Gate,
    /// Consecutive refusals that the API explains itself.
    waits: u32,
    /// Quotas that the API reports.
    told: Quotas,
    /// Kinds of requests that the API refuses although its quotas have room.
    routes: Routes,
    estimator: RateEstimator,
    /// Kinds of requests, and credentials, that have unreported limits of their own.
    kinds: OwnLimits,
    /// Learned rate that was reported last, in requests per second.
    reported_rate: Option<f64>,
    /// Learned concurrency limit that was reported last.
    reported_at_once: Option<f64>,
    /// Requests in flight that no answer has reported on yet.
    unanswered: u32,
    /// When the last request was dispatched.
    taken: Instant,
    /// True once the upstream has answered.
    answered: bool,
    /// Number of requests that may be retried, on top of first attempts.
    retry_budget: f64,
}

/// Largest extension of a pause that is not reported again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// First minimum pause for an API that refuses again after the pauses that it asked for.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// Largest minimum pause for such an API.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Pause after a ban that names no end.
const BAN: Duration = Duration::from_secs(900);
/// A reset reported in whole seconds may be this much later.
const SECOND: Duration = Duration::from_secs(1);
/// Retries that each sent request earns, for failures of the upstream.
const RETRY_SHARE: f64 = 0.2;
const EXTRA_AT_FIRST: f64 = 10.0;
const RETRY_BUDGET_MOST: f64 = 1000.0;
/// From this number of unanswered requests on, the client is taken to want more than it gets.
const CROWDED: u32 = 3;

/// How long the answer asks to wait, with a margin for whole seconds.
pub fn wait(hint: &Hint) -> Option<Duration> {
    let coarse = hint.retry_after.is_none() && hint.buckets.iter().any(|bucket| bucket.coarse);
    let later = if coarse { SECOND } else { hint.later };
    hint.wait.map(|wait| if wait.is_zero() { wait } else { wait + later })
}

// === impl Learned ===
impl Learned {
    /// State of a lane that has learned nothing yet.
    pub fn new(policy: &Policy) -> Self {
        Self {
            spend: policy.spend,
            trust: policy.trust,
            breaker: policy.breaker.then(Breaker::default),
            gate: Gate::default(),
            waits: 0,
            told: Quotas::default(),
            routes: Routes::default(),
            estimator: RateEstimator::new(configured(policy)),
            kinds: OwnLimits::default(),
            reported_rate: None,
            reported_at_once: None,
            unanswered: 0,
            taken: Instant::START,
            answered: false,
            retry_budget: EXTRA_AT_FIRST,
        }
    }

    /// Applies `policy` from now on, and keeps what was learned.
    pub fn reconfigure(&mut self, policy: &Policy) {
        (self.spend, self.trust) = (policy.spend, policy.trust);
        if policy.breaker != self.breaker.is_some() {
            self.breaker = policy.breaker.then(Breaker::default);
        }
        self.estimator.reconfigure(configured(policy));
    }

    /// Sets this member's share of what the fleet sends: it uses that share of the remaining quota.
    pub fn set_part(&mut self, part: f64) {
        self.told.set_part(part);
    }

    /// Number of requests in flight that no answer has reported on yet.
    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// Quotas of the API that a request of `kind` draws on.
    pub fn scope(&self, kind: &RouteKey) -> Scope {
        self.told.scope(kind)
    }

    /// Quotas of the API that most requests draw on.
    pub fn usual_scope(&self) -> Scope {
        self.told.usual()
    }

    /// Version that changes when a kind of request draws on other quotas than [`scope`](Self::scope) had said.
    pub fn scopes_version(&self) -> u64 {
        self.told.version()
    }

    /// End of the pause of `kind`, if that kind alone pauses.
    pub fn pause(&self, kind: &RouteKey) -> Option<Instant> {
        self.routes.pause(kind).max(self.kinds.pause(kind))
    }

    /// Key of the requests that pause together with `kind`, if that kind alone pauses.
    pub fn line(&self, kind: &RouteKey) -> Option<RouteKey> {
        self.kinds.line(kind, self.routes.pause(kind).is_some())
    }

    /// Time between two requests of `kind`, if that kind alone is paced.
    pub fn slot(&self, kind: &RouteKey) -> Duration {
        self.kinds.slot(kind)
    }

    /// Returns the first instant, not before `now`, at which everything learned lets a request of `cost` and `scope`
    /// leave. Pauses of the request's kind are ignored. [`Instant::FAR`] if an answer must come first.
    pub fn earliest(&mut self, now: Instant, cost: &Cost, scope: Scope) -> Instant {
        let opens = self.gate.earliest(now).max(self.told.earliest(now, cost, scope, self.spend));
        // Hanging requests must not block all others forever.
        let crowded = self.gate.is_open() && !self.estimator.has_room(self.unanswered);
        if crowded { opens.max(self.taken + self.estimator.hangs()) } else { opens }
    }

    /// Known end of the pause that blocks every request of `scope`, and its reason.
    pub fn closed(&self, now: Instant, scope: Scope) -> Option<(Instant, Reason)> {
        let told = self.told.closed(now, scope);
        self.gate.until().into_iter().chain(told).max_by_key(|(until, _)| *until)
    }

    /// Records that a request of `kind` asks for a permit.
    pub fn asked(&mut self, kind: &RouteKey, now: Instant) {
        self.kinds.asked(kind, now);
    }

    /// Records that a request of `kind` was dispatched; `waited` is true if it was queued before.
    pub fn take(
        &mut self,
        now: Instant,
        charge: &Charge,
        kind: &RouteKey,
        waited: bool,
        budget: &mut Budget,
    ) -> Changes {
        self.unanswered += 1;
        self.taken = now;
        self.retry_budget = (self.retry_budget + RETRY_SHARE).min(RETRY_BUDGET_MOST);
        self.gate.take(now, charge.seq);
        self.routes.take(kind, charge.seq, now);
        self.told.take(now, charge);
        // A request with a limit of its own says nothing about the lane's rate.
        if !self.kinds.is_own(kind) {
            self.estimator.take(now, waited);
        }
        self.kinds.take(kind, charge.seq, now, waited);
        let mut changes = Changes::new();
        self.found(now, kind, budget, &mut changes);
        changes
    }

    /// Learns from an answer, and writes the limits that it reports into `budget`.
    pub fn heard(&mut self, seen: &Observation<'_>, budget: &mut Budget) -> Changes {
        let &Observation { heard: AnswerReport { hint, failed, .. }, charge, kind, sent, at: now, .. } = seen;
        if hint.signal == Signal::FatalQuota {
            return self.hear_hopeless(seen);
        }
        if hint.is_hearsay() {
            return self.hear_words(seen);
        }
        // A quota refusal: either the hint says so, or other requests are served all the time.
        let quota = hint.cause == Cause::Quota;
        // Other requests are served, and the answer does not report a general lack of capacity.
        let limits = hint.cause == Cause::Overload && hint.strength != Strength::Code && self.is_alive();
        let tells = self.trust != Trust::Waits && hint.signal != Signal::Informational;
        let buckets = if tells { &hint.buckets[..] } else { &[] };
        let claims = self.told.hear(seen, buckets, self.spend, budget, self.unanswered);
        self.unanswered = self.unanswered.saturating_sub(1);
        let matters = quota || matches!(hint.signal, Signal::Exhausted | Signal::Throttled);
        let refused = quota && hint.signal != Signal::Banned || limits;
        // `is_elsewhere` looks through all kinds, so ask it only if the result matters.
        let unseen = (matters || refused) && claims.believed && self.is_elsewhere(hint, &kind);
        let own = self.kinds.is_own(&kind);
        let alone = quota && !unseen && !claims.explains && !own && self.routes.is_alone(&kind);
        let inexplicable = refused && !unseen && !claims.explains && !own;
        let short = inexplicable && self.is_short(seen);
        let split = inexplicable && !short && self.splits(seen, alone);
        // If all kinds are refused, the kind is not the reason.
        let other_scope = matters && (unseen || alone && !split && !short) && self.routes.has_room(&kind, now);
        self.answered = true;
        let tries = self.gate.is_probe(charge.seq);
        let mut changes = Changes::new();
        if short {
            changes.extend(self.kinds.group_of(&kind).map(|group| LearnedChange::Apart(Box::new(group))));
        } else if split {
            self.blame_kind(&kind, &mut changes);
        }
        let served = hint.cause == Cause::None;
        if claims.renewed && self.estimator.forget() {
            budget.unlearn(Source::Estimated);
        }
        changes.extend(claims.limits.iter().map(|(limit, grounds)| LearnedChange::Limit(*limit, Box::new(*grounds))));
        match hint.cause {
            Cause::None if failed => self.fail(now, charge.seq, &mut changes),
            Cause::None => self.serve(seen, &mut changes),
            Cause::Overload if limits => self.refuse(seen, &claims, budget, &mut changes),
            Cause::Overload => self.hear_overload(seen, budget, &mut changes),
            Cause::Concurrency => {
                self.gate.served(charge.seq);
                if self.kinds.is_own(&kind) {
                    self.kinds.too_many(&kind);
                } else {
                    self.estimator.too_many(seen.crowd);
                }
            }
            // The lane's own limit is not the reason.
            Cause::Quota if other_scope && hint.signal != Signal::Banned => {
                if self.gate.served(charge.seq) {
                    self.open(&mut changes);
                }
            }
            Cause::Quota => self.refuse(seen, &claims, budget, &mut changes),
        }
        if served
            && !other_scope
            && matches!(hint.signal, Signal::Throttled | Signal::Exhausted)
            && let Some(wait) = hint.asked()
        {
            self.close(now, wait, Reason::RetryAfter, &mut changes);
        }
        self.found(now, &kind, budget, &mut changes);
        // Whatever the answer said, this request is no longer a probe.
        self.gate.ended(charge.seq);
        self.kinds.ended(&kind, charge.seq);
        if !quota {
            self.routes.served(&kind, sent);
        }
        if other_scope && (quota || hint.signal == Signal::Exhausted) {
            let asked = hint.asked().filter(|wait| !wait.is_zero()).zip(hint.buckets.first());
            match asked.and_then(|(wait, bucket)| Some((wait, self.told.pause(bucket, &kind, now, now + wait)?))) {
                // The quota already blocks all requests that draw on it.
                None if claims.explains => {}
                // The answer names a quota, so all requests that draw on it pause.
                Some((wait, news)) => changes.extend(news.then_some(LearnedChange::Route(wait))),
                None => {
                    let pause = self.routes.refused(&kind, wait(hint), sent, now);
                    changes.extend(pause.map(LearnedChange::Route));
                }
            }
        } else if quota {
            if !claims.explains {
                budget.refused(now, sent, charge.cost, tries, hint.wait);
            }
            // A ban has nothing to do with limits.
            if hint.signal != Signal::Banned {
                changes.push(LearnedChange::Unexplained { sent, at: now });
            }
        }
        changes
    }

    /// Records an upstream failure: the request `seq` could not be sent, broke off, or timed out.
    pub fn broke(&mut self, now: Instant, seq: Seq) -> Changes {
        let mut changes = Changes::new();
        self.fail(now, seq, &mut changes);
        changes
    }

    /// Records that a request of `kind` will get no answer. `sent`: the API may have counted it nevertheless.
    pub fn ended(&mut self, now: Instant, charge: Charge, kind: &RouteKey, sent: bool) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.gate.ended(charge.seq);
        self.told.ended(charge, sent);
        self.kinds.ended(kind, charge.seq);
        if !sent {
            self.routes.return_unused(kind, charge.seq, now);
        }
    }

    /// Returns true if the circuit breaker blocks the upstream.
    pub fn is_broken(&self) -> bool {
        self.gate.until().is_some_and(|(_, reason)| reason == Reason::Breaker)
    }

    /// Returns true if requests are served, or were until they were refused.
    pub fn is_alive(&self) -> bool {
        self.estimator.is_alive()
    }

    /// Takes one retry from the retry budget, if it has one. The budget is a share of all sent requests, so that
    /// retries do not multiply an outage.
    pub fn may_retry(&mut self) -> bool {
        let may = self.retry_budget >= 1.0 + RETRY_SHARE;
        if may {
            self.retry_budget -= 1.0 + RETRY_SHARE;
        }
        may
    }

    /// Failed requests and all requests in the breaker's window; `None` without a breaker.
    pub fn failures(&self) -> Option<(u32, u32)> {
        self.breaker.as_ref().map(Breaker::failures)
    }

    /// Remaining amount of each quota that the API reports.
    pub fn budgets(&self, now: Instant) -> Vec<QuotaSnapshot> {
        self.told.left(now)
    }

    /// Returns true if nothing was learned.
    pub fn is_blank(&self) -> bool {
        self.told.is_empty() && self.gate.is_open() && self.estimator.is_blank() && self.kinds.is_empty()
    }

    /// End of the longest pause that was asked for: nothing may leave before it.
    pub fn last_pause(&self) -> Option<Instant> {
        self.gate
            .until()
            .map(|(until, _)| until)
            .max(self.routes.last_pause())
            .max(self.told.last_pause())
            .max(self.kinds.last_pause())
    }
}

fn answered(seen: &Observation<'_>) -> AnsweredRequest {
    let &Observation { charge, sent, at, crowd, .. } = seen;
    AnsweredRequest { seq: charge.seq, sent, at, crowd }
}

/// Lowest configured rate, in requests per second.
fn configured(policy: &Policy) -> Option<f64> {
    if policy.trust == Trust::Waits {
        return Some(f64::INFINITY);
    }
    policy.limits.iter().map(|limit| limit.rate.per_second()).min_by(f64::total_cmp)
}
