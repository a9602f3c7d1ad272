//! The budgets that an API tells of, each with what is left of it and the limit that it comes to.

mod one;

use std::{num::NonZeroU32, time::Duration};

use smallvec::SmallVec;

use self::one::One;
use super::{RouteKey, allowance::Allowance, period::Period};
use crate::{
    clock::Instant,
    hint::Bucket,
    limit::{Budget, Cost, LimitSpec, Rate, Source, Unit},
    policy::Spend,
};

/// All budgets that one API tells of.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    budgets: Vec<One>,
    /// The number of the latest.
    next: u8,
    /// The first request of all, and how many were sent since.
    sent: Option<(Instant, u32)>,
}

/// What is left of one budget, for people to look at.
#[derive(Clone, Debug)]
pub struct Left {
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

/// This many budgets of one API are kept apart.
const MOST: usize = 8;
/// A larger limit is none; windows count in 32 bits.
const MOST_UNITS: f64 = 1e9;
/// What was not heard of for so long is gone.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// What others have taken the place of is gone as well, after so many answers.
const SILENT: u32 = 32;
/// This many kinds are remembered.
const KINDS: usize = 8;

// === impl Told ===

impl Told {
    /// When all of them let a request of `cost` leave.
    pub(super) fn earliest(&self, now: Instant, cost: Cost, unanswered: u32, spend: Spend) -> Instant {
        let binding = self.budgets.iter().filter(|one| one.binds);
        binding.fold(now, |at, one| at.max(one.left.earliest(now, cost, unanswered, spend)))
    }

    /// Until when nothing leaves because one is empty.
    pub(super) fn empty(&self, now: Instant) -> Option<Instant> {
        self.budgets.iter().filter(|one| one.binds).filter_map(|one| one.left.empty_until(now)).max()
    }

    /// A request was taken as `unit`.
    pub(super) fn take(&mut self, now: Instant, unit: Unit) {
        self.sent.get_or_insert((now, 0)).1 += 1;
        for one in &mut self.budgets {
            one.left.take(now, unit);
            one.period.sent(now);
        }
    }

    /// The request `unit` will bring no answer. `sent` says that it was sent all the same, and may have been counted.
    pub(super) fn ended(&mut self, unit: Unit, sent: bool) {
        self.budgets.iter_mut().for_each(|one| one.left.ended(unit, sent));
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.budgets.is_empty()
    }

    /// Whether any of them is kept by a limit.
    pub(super) fn has_limits(&self) -> bool {
        self.budgets.iter().any(|one| one.kept)
    }

    /// What is left of each, as far as that still holds.
    pub(super) fn left(&self, now: Instant) -> Vec<Left> {
        let current =
            self.budgets.iter().filter(|one| one.binds).map(|one| &one.left).filter(|left| left.is_current(now));
        let left = |left: &Allowance| Left {
            name: left.name.clone(),
            requests: left.requests,
            left: left.left(now),
            limit: left.limit,
            reset: left.reset.map(|reset| reset.since(now)),
        };
        current.map(left).collect()
    }

    /// Whether `bucket`, of which a request of `kind` is told, is a budget of this kind alone: others have another one of
    /// the same name.
    pub(super) fn is_of_kind(&self, bucket: &Bucket, kind: RouteKey) -> bool {
        let others_are_told = |fits: bool| {
            let mut alike = self.budgets.iter().filter(|one| one.is_called(bucket) && one.fits(bucket) == fits);
            alike.any(|one| one.kinds.iter().any(|known| *known != kind))
        };
        others_are_told(false) && !others_are_told(true)
    }

    /// An answer to the request `unit` of `kind`, which was sent at `sent`, tells of `buckets`, while `load.0` others are
    /// unanswered. Teaches `budget` the limits that they come to, and says which of them are new.
    pub(super) fn hear(
        &mut self,
        (sent, now): (Instant, Instant),
        (unit, kind): (Unit, RouteKey),
        served: bool,
        buckets: &[Bucket],
        load: (u32, Spend),
        budget: &mut Budget,
    ) -> SmallVec<[LimitSpec; 1]> {
        let (mut news, (unanswered, spend)) = (SmallVec::new(), load);
        self.forget(now, budget);
        for bucket in buckets {
            // A budget of nothing that serves is a dimension that is not used.
            if served && bucket.limit == Some(0.0) {
                continue;
            }
            let Some(index) = self.find(bucket, (unit, kind), now) else { continue };
            self.settle(index, bucket, budget);
            let one = &mut self.budgets[index];
            let thousandths = one.thousandths;
            let bucket = one.in_seconds(bucket, now);
            if one.thousandths != thousandths {
                one.kept = false;
                budget.unlearn(Source::Told(one.id));
            }
            let window = one.period.hear(&bucket, now);
            one.left.hear(&bucket, one.period.refills(), unit, served, now);
            one.heard = now;
            if !one.binds {
                continue;
            }
            let Some(limit) = one.left.limit.filter(|limit| bucket.requests && *limit >= 1.0) else { continue };
            let used = bucket.remaining.map_or(0.0, |remaining| (limit - remaining).clamp(0.0, limit));
            let ours =
                |budget: &mut Budget, source| used <= f64::from(budget.used(source, now)) + f64::from(unanswered) + 1.0;
            let Some(window) = window.filter(|window| !window.is_zero()) else {
                // Until when nobody says: what was found out by refusals knows better.
                one.left.explained =
                    bucket.reset.is_none() && budget.limit(Source::Found).is_some() && ours(budget, Source::Found);
                continue;
            };
            if bucket.remaining.is_none() && !one.kept {
                // What nobody counts may be for others, or for something else.
                continue;
            }
            let (source, spec) = (Source::Told(one.id), spec(limit, window, spend));
            if budget.limit(source) != Some(spec) {
                // What is under way will have been counted when it is answered, which will not take much longer.
                let later = now + (now.since(sent) * 2).min(window / 10);
                budget.learn(source, spec, &[(used as u32, now), (unanswered, later)]);
                one.kept = true;
                if one.is_news(spec, now) {
                    news.push(spec);
                }
            }
            one.left.explained = ours(budget, source);
        }
        news
    }

    /// The budget that `bucket` is about: a new one, if it was not heard of yet. A limit that another kind of request is
    /// told of is another budget's, unless it is seen to have changed for all.
    fn find(&mut self, bucket: &Bucket, (unit, kind): (Unit, RouteKey), now: Instant) -> Option<usize> {
        let alike = |one: &&One| one.is_called(bucket);
        let own = self.budgets.iter().filter(alike).find(|one| one.kinds.contains(&kind));
        let fitting = own.filter(|own| own.fits(bucket)).or_else(|| {
            // Nobody else has heard of the one whose limit has changed.
            let changed = own.filter(|own| own.kinds.len() == 1);
            self.budgets.iter().filter(alike).find(|one| one.fits(bucket)).or(changed)
        });
        let (own, fitting) = (own.map(|one| one.id), fitting.map(|one| one.id));
        for one in self.budgets.iter_mut().filter(|one| Some(one.id) == own && own != fitting) {
            one.kinds.retain(|known| *known != kind);
        }
        if let Some(index) = self.budgets.iter().position(|one| Some(one.id) == fitting) {
            let kinds = &mut self.budgets[index].kinds;
            if own != fitting && kinds.len() < KINDS {
                kinds.push(kind);
            }
            return Some(index);
        }
        if self.budgets.len() >= MOST {
            return None;
        }
        while self.budgets.iter().any(|one| one.id == self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let period = self.sent.map_or_else(Period::default, |(began, sent)| Period::since(began, sent));
        self.budgets.push(One::new(self.next, bucket, (unit, kind), period, now));
        Some(self.budgets.len() - 1)
    }

    /// `bucket` tells of the budget at `index`. Which of those of its name does the lane keep? Those that several kinds of requests
    /// are told of; or the only one.
    fn settle(&mut self, index: usize, bucket: &Bucket, budget: &mut Budget) {
        let only = self.budgets.iter().filter(|one| one.is_called(bucket)).count() == 1;
        for (at, one) in self.budgets.iter_mut().enumerate().filter(|(_, one)| one.is_called(bucket)) {
            one.silent = if at == index { 0 } else { one.silent + 1 };
            one.binds = only || one.kinds.len() > 1;
            if !one.binds && std::mem::take(&mut one.kept) {
                budget.unlearn(Source::Told(one.id));
            }
        }
    }

    fn forget(&mut self, now: Instant, budget: &mut Budget) {
        self.budgets.retain(|one| {
            let length = one.window.unwrap_or_default() * 3;
            let known = now.since(one.heard) < length.max(FORGOTTEN) || one.left.is_current(now);
            let known = known && one.silent < SILENT;
            if !known {
                budget.unlearn(Source::Told(one.id));
            }
            known
        });
    }
}

/// The limit that keeps a budget of `limit` per `window`.
fn spec(limit: f64, window: Duration, spend: Spend) -> LimitSpec {
    let count = NonZeroU32::new(limit.min(MOST_UNITS) as u32).unwrap_or(NonZeroU32::MIN);
    let burst = match spend {
        Spend::Even => 1,
        Spend::Mostly => count.get() - count.get() / 10,
        Spend::Greedy => count.get(),
    };
    let per = window.max(Duration::from_micros(u64::from(count.get())));
    LimitSpec { rate: Rate { count, per }, burst: NonZeroU32::new(burst), strict: false }
}
