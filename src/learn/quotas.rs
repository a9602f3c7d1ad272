//! Quotas that an API reports, each with its remaining amount and the limit that follows from it.

mod fleet_windows;
mod one_less;
mod pauses;
mod quota;
mod reset_unit;
mod trust;

use std::time::Duration;

use andante_clock::Instant;
use andante_hint::{Bucket, Cause};
use andante_limit::{Budget, Charge, Cost, LimitSpec, Scope, Seq, Source};
use andante_policy::Spend;
use smallvec::SmallVec;

use self::{
    fleet_windows::FleetWindow,
    quota::{Born, Quota},
};
use super::{
    Grounds, Observation, Reason, RouteKey, allowance::Allowance, ledger::SentLog, scopes::Scopes,
    window_estimator::WindowEstimator,
};

/// All quotas that one API reports, and the quotas that each kind of request draws on.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotas {
    budgets: Vec<Quota>,
    scopes: Scopes,
    /// Send times of all requests.
    ledger: SentLog,
    /// Last request that was dispatched.
    newest: Seq,
    /// Requests that other members of the fleet send for each request of this process.
    others: f64,
    /// Windows that other members of the fleet have seen.
    of_fleet: Vec<FleetWindow>,
}

/// Remaining amount of one quota, for status output.
#[derive(Clone, Debug)]
pub struct QuotaSnapshot {
    /// Name that the API gives the quota.
    pub name: Option<Box<str>>,
    /// True if the quota counts requests.
    pub requests: bool,
    /// Remaining amount.
    pub left: f64,
    /// Units that fit into one window.
    pub limit: Option<f64>,
    /// Time until the reset.
    pub reset: Option<Duration>,
}

/// Conclusions from the numbers of one answer.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// New limits.
    pub(super) limits: SmallVec<[(LimitSpec, Grounds); 1]>,
    /// True if the limits learned from refusals are older than one of the new limits.
    pub(super) renewed: bool,
    /// True if all reported numbers are believed.
    pub(super) believed: bool,
    /// True if an empty quota explains the refusal, and blocks the requests that have to wait.
    pub(super) explains: bool,
    /// True if the refusal reports no quota while one is used up, so that no other limit is to blame.
    pub(super) spent: bool,
}

/// Largest limit that is enforced; windows count in 32 bits.
const MOST_UNITS: f64 = 1e9;
/// Minimum time that an unreported quota is remembered.
const FORGOTTEN: Duration = Duration::from_secs(60);

// === impl Quotas ===

impl Quotas {
    /// Quotas that a request of `kind` draws on.
    pub(super) fn scope(&self, kind: &RouteKey) -> Scope {
        self.scopes.of(kind)
    }

    /// Quotas that most kinds of requests draw on.
    pub(super) fn usual(&self) -> Scope {
        self.scopes.usual()
    }

    /// Version that changes when a kind of request turns out to draw on other quotas than expected.
    pub(super) fn version(&self) -> u64 {
        self.scopes.version()
    }

    /// Sets this process's share of what the fleet sends.
    pub(super) fn set_part(&mut self, part: f64) {
        self.others = 1.0 / part.clamp(1e-6, 1.0) - 1.0;
    }

    /// This process's share of what the fleet sends.
    pub(super) fn part(&self) -> f64 {
        1.0 / (1.0 + self.others)
    }

    /// When all quotas of `scope` let a request of `cost` leave.
    pub(super) fn earliest(&self, now: Instant, cost: &Cost, scope: Scope, spend: Spend) -> Instant {
        self.within(scope).fold(now, |at, one| {
            let left = one.left.earliest(now, *cost, one.unanswered, one.part(self.part()), spend);
            at.max(one.gate.earliest(now)).max(left)
        })
    }

    /// End of the time in which no request of `scope` leaves because one of its quotas is empty or pauses.
    pub(super) fn closed(&self, now: Instant, scope: Scope) -> Option<(Instant, Reason)> {
        let empty = self.within(scope).filter_map(|one| Some((one.left.empty_until(now)?, Reason::Exhausted)));
        let paused = self.within(scope).filter_map(|one| one.gate.until());
        empty.chain(paused).max_by_key(|(until, _)| *until)
    }

    /// Pauses the quota of `bucket` until `until`, as an answer to a request of `kind` asks. Returns `None` without
    /// such a quota, and otherwise whether the pause changes anything.
    pub(super) fn pause(&mut self, bucket: &Bucket, kind: &RouteKey, now: Instant, until: Instant) -> Option<bool> {
        let reported = self.scopes.reported(kind).unwrap_or_default();
        let one = self.budgets.iter_mut().find(|one| one.is_called(bucket) && reported.has(one.id))?;
        Some(one.gate.close(now, until, Reason::RetryAfter))
    }

    /// Latest end of all pauses of quotas.
    pub(super) fn last_pause(&self) -> Option<Instant> {
        self.budgets.iter().filter_map(|one| one.gate.until()).map(|(until, _)| until).max()
    }

    /// Records that the request with this charge was not refused, which opens the quotas that it probed. Returns true
    /// if one was opened.
    pub(super) fn passed(&mut self, charge: Charge) -> bool {
        let tried = self.budgets.iter_mut().filter(|one| one.is_drawn_on(charge));
        let mut opened = false;
        for one in tried {
            opened |= one.gate.served(charge.seq);
        }
        opened
    }

    /// Records that a request was dispatched.
    pub(super) fn take(&mut self, now: Instant, charge: &Charge) {
        self.newest = charge.seq;
        self.ledger.sent(now);
        for one in self.budgets.iter_mut().filter(|one| charge.scope.has(one.id)) {
            one.take(now, charge.seq);
        }
    }

    /// Records that a request will get no answer. `sent`: the API may have counted it nevertheless.
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

    /// Evidence for the limit of the quota with this number.
    pub(super) fn grounds(&self, id: u8, limit: &LimitSpec) -> Option<Grounds> {
        self.budgets.iter().find(|one| one.id == id).map(|one| one.grounds(limit))
    }

    /// Returns true if no quota is known.
    pub(super) fn is_empty(&self) -> bool {
        self.budgets.is_empty()
    }

    /// Remaining amount of each quota with a current report.
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

    /// Returns true if some other kinds of requests do not draw on `bucket`, which an answer to a request of `kind`
    /// reports.
    pub(super) fn is_of_some_kinds(&self, bucket: &Bucket, kind: &RouteKey) -> bool {
        let mut alike = self.budgets.iter().filter(|one| one.is_called(bucket));
        if let Some(one) = alike.clone().find(|one| one.fits(bucket)) {
            return self.scopes.count(Scope::only(one.id)).without > 0;
        }
        // Other kinds draw on another quota of this name.
        let reported = self.scopes.reported(kind).unwrap_or_default();
        alike.any(|one| self.scopes.count(Scope::only(one.id)).with > usize::from(reported.has(one.id)))
    }

    /// Applies `buckets`, which an answer reports, and writes the resulting limits into `budget`. `under_way`: number
    /// of unanswered requests, including this one.
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
            // A limit of zero on a served request belongs to a dimension that is not used.
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

    /// Quotas that an answer with `buckets` could have reported, but that stay silent for long. The answer's kind no
    /// longer draws on them.
    fn silenced(&self, answer: &Observation<'_>, buckets: &[Bucket], told: Scope) -> Scope {
        let mut silent = Scope::NONE;
        for one in &self.budgets {
            if !told.has(one.id) && one.is_silent(answer.at) && buckets.iter().any(|bucket| one.is_called(bucket)) {
                silent = silent.and(Scope::only(one.id));
            }
        }
        silent
    }

    /// Index of the quota that `bucket` is about; creates it if it is new. Two limits under one name are two quotas.
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

    /// Returns true if a reported quota may soon turn out to allow more.
    pub(super) fn is_new(&self, now: Instant) -> bool {
        self.budgets.iter().any(|one| one.refill.is_new(now))
    }

    /// Forgets quotas that were not reported for long.
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

    /// Forgets the quota with the oldest report, unless it is still in force. Returns the freed number.
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
