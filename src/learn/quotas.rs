//! The budgets that an API reports, each with what is left of it and the limit that follows.

mod fleet_windows;
mod one_less;
mod pauses;
mod quota;
mod reset_unit;
mod trust;

use std::time::Duration;

use smallvec::SmallVec;

use self::{
    fleet_windows::FleetWindow,
    quota::{Born, Quota},
};
use super::{
    Grounds, Observation, Reason, RouteKey, allowance::Allowance, ledger::SentLog, scopes::Scopes,
    window_estimator::WindowEstimator,
};
use crate::{
    clock::Instant,
    hint::{Bucket, Cause},
    limit::{Budget, Charge, Cost, LimitSpec, Scope, Seq, Source},
    policy::Spend,
};

/// All budgets that one API tells of, and which of them each kind of request draws on.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotas {
    budgets: Vec<Quota>,
    scopes: Scopes,
    /// All requests that were sent.
    ledger: SentLog,
    /// The last request that was taken.
    newest: Seq,
    /// For each request that this process sends, so many more are sent by others of the fleet.
    others: f64,
    /// The windows that others of the fleet have seen.
    of_fleet: Vec<FleetWindow>,
}

/// What is left of one budget, for people to look at.
#[derive(Clone, Debug)]
pub struct QuotaSnapshot {
    /// What the API calls it.
    pub name: Option<Box<str>>,
    /// Whether it counts requests.
    pub requests: bool,
    /// How much is left.
    pub left: f64,
    /// How much fits into a window.
    pub limit: Option<f64>,
    /// Time until it is reset.
    pub reset: Option<Duration>,
}

/// What an answer's numbers come to.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// The limits that are new.
    pub(super) limits: SmallVec<[(LimitSpec, Grounds); 1]>,
    /// Whether what refusals have taught is older news than one of these.
    pub(super) renewed: bool,
    /// Whether all of them are believed.
    pub(super) believed: bool,
    /// Whether a refusal is explained by a budget of which nothing is left, and that holds back what has to wait.
    pub(super) explains: bool,
    /// A refusal says nothing of budgets, and one of them is used up: it is no other limit's.
    pub(super) spent: bool,
}

/// A larger limit is none; windows count in 32 bits.
const MOST_UNITS: f64 = 1e9;
/// A budget that was not reported for this long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

// === impl Quotas ===

impl Quotas {
    /// The budgets that a request of `kind` draws on.
    pub(super) fn scope(&self, kind: &RouteKey) -> Scope {
        self.scopes.of(kind)
    }

    /// The budgets that most kinds of requests draw on.
    pub(super) fn usual(&self) -> Scope {
        self.scopes.usual()
    }

    /// Changes whenever a kind of request turns out to draw on other budgets than was expected.
    pub(super) fn version(&self) -> u64 {
        self.scopes.version()
    }

    /// This process sends so large a part of what the fleet sends.
    pub(super) fn set_part(&mut self, part: f64) {
        self.others = 1.0 / part.clamp(1e-6, 1.0) - 1.0;
    }

    /// How large a part that is.
    pub(super) fn part(&self) -> f64 {
        1.0 / (1.0 + self.others)
    }

    /// When all budgets of `scope` let a request of `cost` leave.
    pub(super) fn earliest(&self, now: Instant, cost: &Cost, scope: Scope, spend: Spend) -> Instant {
        self.within(scope).fold(now, |at, one| {
            let left = one.left.earliest(now, *cost, one.unanswered, one.part(self.part()), spend);
            at.max(one.gate.earliest(now)).max(left)
        })
    }

    /// Until when nothing of `scope` leaves because one of its budgets is empty, or pauses.
    pub(super) fn closed(&self, now: Instant, scope: Scope) -> Option<(Instant, Reason)> {
        let empty = self.within(scope).filter_map(|one| Some((one.left.empty_until(now)?, Reason::Exhausted)));
        let paused = self.within(scope).filter_map(|one| one.gate.until());
        empty.chain(paused).max_by_key(|(until, _)| *until)
    }

    /// An answer to a request of `kind` asks to wait until `until`, and is about `bucket`: all that draw on that pause.
    /// Says whether there is such a budget, and whether that changes anything.
    pub(super) fn pause(&mut self, bucket: &Bucket, kind: &RouteKey, now: Instant, until: Instant) -> Option<bool> {
        let reported = self.scopes.reported(kind).unwrap_or_default();
        let one = self.budgets.iter_mut().find(|one| one.is_called(bucket) && reported.has(one.id))?;
        Some(one.gate.close(now, until, Reason::RetryAfter))
    }

    /// The last instant until which any budget pauses.
    pub(super) fn last_pause(&self) -> Option<Instant> {
        self.budgets.iter().filter_map(|one| one.gate.until()).map(|(until, _)| until).max()
    }

    /// The request with this charge was answered, and not refused: what it tried is open. Says whether anything was.
    pub(super) fn passed(&mut self, charge: Charge) -> bool {
        let tried = self.budgets.iter_mut().filter(|one| one.is_drawn_on(charge));
        let mut opened = false;
        for one in tried {
            opened |= one.gate.served(charge.seq);
        }
        opened
    }

    /// A request was taken.
    pub(super) fn take(&mut self, now: Instant, charge: &Charge) {
        self.newest = charge.seq;
        self.ledger.sent(now);
        for one in self.budgets.iter_mut().filter(|one| charge.scope.has(one.id)) {
            one.take(now, charge.seq);
        }
    }

    /// A request will bring no answer. `sent` tells that the API may have counted it nevertheless.
    pub(super) fn ended(&mut self, charge: Charge, sent: bool) {
        if !sent {
            self.ledger.remove(Instant::FAR);
        }
        for one in self.budgets.iter_mut().filter(|one| one.counts(charge)) {
            one.unanswered = one.unanswered.saturating_sub(1);
            one.gate.ended(charge.seq);
            one.left.ended(charge.seq, sent);
            if !sent {
                one.ledger.remove(Instant::FAR);
            }
        }
    }

    /// What the limit of the budget with this number rests on.
    pub(super) fn grounds(&self, id: u8, limit: &LimitSpec) -> Option<Grounds> {
        self.budgets.iter().find(|one| one.id == id).map(|one| one.grounds(limit))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.budgets.is_empty()
    }

    /// What is left of each, as far as that still holds.
    pub(super) fn left(&self, now: Instant) -> Vec<QuotaSnapshot> {
        let current = self.budgets.iter().map(|one| &one.left).filter(|left| left.is_current(now));
        let left = |left: &Allowance| QuotaSnapshot {
            name: left.name.clone(),
            requests: left.requests,
            left: left.left(now),
            limit: left.limit,
            reset: left.reset.map(|reset| reset.since(now)),
        };
        current.map(left).collect()
    }

    /// Whether `bucket`, which an answer to a request of `kind` reports, is a budget that other kinds of requests do not
    /// draw on.
    pub(super) fn is_of_some_kinds(&self, bucket: &Bucket, kind: &RouteKey) -> bool {
        let mut alike = self.budgets.iter().filter(|one| one.is_called(bucket));
        if let Some(one) = alike.clone().find(|one| one.fits(bucket)) {
            return self.scopes.count(Scope::only(one.id)).without > 0;
        }
        // Others draw on another one of its name.
        let reported = self.scopes.reported(kind).unwrap_or_default();
        alike.any(|one| self.scopes.count(Scope::only(one.id)).with > usize::from(reported.has(one.id)))
    }

    /// An answer reports `buckets`, while `under_way` requests, itself included, are unanswered. Teaches `budget` the limits
    /// that they come to.
    pub(super) fn hear(
        &mut self,
        answer: &Observation<'_>,
        buckets: &[Bucket],
        spend: Spend,
        budget: &mut Budget,
        under_way: u32,
    ) -> Claims {
        let mut claims = Claims { believed: true, ..Claims::default() };
        let refused = answer.heard.hint.cause == Cause::Quota;
        if refused {
            self.ledger.remove(answer.sent);
        }
        if self.budgets.is_empty() && buckets.is_empty() {
            return claims;
        }
        self.forget(answer.at, budget);
        for one in self.budgets.iter_mut().filter(|one| refused && one.counts(answer.charge)) {
            one.ledger.remove(answer.sent);
        }
        let mut told = Scope::NONE;
        for bucket in buckets {
            // A budget of nothing that serves is a dimension that is not used.
            if answer.is_served() && bucket.limit == Some(0.0) {
                continue;
            }
            let Some(index) = self.find(bucket, answer, under_way, budget) else { continue };
            let one = &mut self.budgets[index];
            told = told.and(Scope::only(one.id));
            match Self::of_fleet(&self.of_fleet, bucket.name.as_deref(), bucket.limit) {
                Some((window, returns)) => one.window_estimator.told_by_fleet(window, returns, bucket),
                None => one.window_estimator.told_by_nobody(),
            }
            let limit = one.hear(bucket, answer, refused, spend, budget);
            claims.renewed |= limit.is_some() && !one.refill.is_found();
            claims.limits.extend(limit.map(|limit| (limit, one.grounds(&limit))));
            claims.believed &= one.is_believed();
            claims.explains |= refused && one.explains(bucket);
        }
        claims.spent = refused
            && buckets.is_empty()
            && self.budgets.iter().any(|one| one.counts(answer.charge) && one.is_spent(answer.at));
        let silent = self.silenced(answer, buckets, told);
        if answer.is_served() || !told.is_empty() {
            self.scopes.hear(&answer.kind, told, silent);
        }
        for one in self.budgets.iter_mut().filter(|one| silent.has(one.id)) {
            if self.scopes.count(Scope::only(one.id)).with == 0 {
                one.sleep(budget);
            }
        }
        for one in self.budgets.iter_mut().filter(|one| one.counts(answer.charge)) {
            one.unanswered = one.unanswered.saturating_sub(1);
            one.gate.ended(answer.charge.seq);
            if !told.has(one.id) {
                one.left.unmentioned(answer.charge.seq, answer.is_served());
            }
        }
        claims
    }

    /// The budgets that an answer with `buckets` might have told of, and that are silent for long: its kind does not draw on
    /// them any more.
    fn silenced(&self, answer: &Observation<'_>, buckets: &[Bucket], told: Scope) -> Scope {
        let mut silent = Scope::NONE;
        for one in &self.budgets {
            if !told.has(one.id) && one.is_silent(answer.at) && buckets.iter().any(|bucket| one.is_called(bucket)) {
                silent = silent.and(Scope::only(one.id));
            }
        }
        silent
    }

    /// The budget that `bucket` is about: a new one, if it was not heard of yet. Two limits under one name are two budgets.
    fn find(
        &mut self,
        bucket: &Bucket,
        answer: &Observation<'_>,
        under_way: u32,
        budget: &mut Budget,
    ) -> Option<usize> {
        let reported = self.scopes.reported(&answer.kind).unwrap_or_default();
        let alike = || self.budgets.iter().enumerate().filter(|(_, one)| one.is_called(bucket) && one.fits(bucket));
        if let Some((index, _)) = alike().find(|(_, one)| reported.has(one.id)).or_else(|| alike().next()) {
            let (newest, ledger) = (self.newest, &self.ledger);
            let born = |id| Born {
                id,
                newest,
                unanswered: under_way,
                ledger: ledger.clone(),
                window_estimator: WindowEstimator::default(),
            };
            self.budgets[index].wake(born);
            return Some(index);
        }
        let free = (0..Scope::MOST).find(|id| self.budgets.iter().all(|one| one.id != *id));
        let free = free.or_else(|| self.make_room(answer.at, budget))?;
        let other = self.budgets.iter().find(|one| one.is_called(bucket));
        let born = Born {
            id: free,
            newest: self.newest,
            unanswered: under_way,
            ledger: self.ledger.clone(),
            window_estimator: other
                .map_or_else(WindowEstimator::default, |other| WindowEstimator::like(&other.window_estimator)),
        };
        self.budgets.push(Quota::new(born, bucket, answer));
        Some(self.budgets.len() - 1)
    }

    /// Whether what is reported may soon turn out to be more.
    pub(super) fn is_new(&self, now: Instant) -> bool {
        self.budgets.iter().any(|one| one.refill.is_new(now))
    }

    /// Forgets what was not heard of for long.
    pub(super) fn forget(&mut self, now: Instant, budget: &mut Budget) {
        let mut gone = Scope::NONE;
        self.budgets.retain(|one| {
            let holds = one.gate.until().is_some() || one.left.is_current(now);
            let known = holds || one.refill.is_calm(now) || now.since(one.heard) < one.remembered().max(FORGOTTEN);
            if !known {
                budget.unlearn(Source::Advertised(one.id));
                gone = gone.and(Scope::only(one.id));
            }
            known
        });
        if !gone.is_empty() {
            self.scopes.forget(gone);
        }
    }

    /// Forgets the budget that was not heard of for longest, unless that is still in force; says which number is free then.
    fn make_room(&mut self, now: Instant, budget: &mut Budget) -> Option<u8> {
        let idle = self.budgets.iter().filter(|one| !one.left.is_current(now) && !one.pauses(now));
        let free = idle.min_by_key(|one| one.heard)?.id;
        self.budgets.retain(|one| one.id != free);
        self.scopes.forget(Scope::only(free));
        budget.unlearn(Source::Advertised(free));
        Some(free)
    }

    fn within(&self, scope: Scope) -> impl Iterator<Item = &Quota> {
        self.budgets.iter().filter(move |one| scope.has(one.id))
    }
}
