//! The budgets that an API tells of, each with what is left of it and the limit that it comes to.

use std::{num::NonZeroU32, time::Duration};

use smallvec::SmallVec;

use super::{allowance::Allowance, period::Period};
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
    /// Numbers them.
    next: u8,
    /// The first request of all, and how many were sent since.
    sent: Option<(Instant, u32)>,
}

#[derive(Clone, Debug)]
struct One {
    id: u8,
    /// The window that was said, which tells budgets without a name apart.
    window: Option<Duration>,
    left: Allowance,
    period: Period,
    /// Whether a limit of a lane keeps it.
    kept: bool,
    /// What was said to be left until the reset, and when, to see seconds that are none.
    said: Option<(Duration, Instant)>,
    heard: Instant,
    /// Its resets are thousandths of what they seem.
    thousandths: bool,
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

// === impl Told ===

impl Told {
    /// When all of them let a request of `cost` leave.
    pub(super) fn earliest(&mut self, now: Instant, cost: Cost, unanswered: u32, spend: Spend) -> Instant {
        self.budgets.iter_mut().fold(now, |at, one| at.max(one.left.earliest(now, cost, unanswered, spend)))
    }

    /// Until when nothing leaves because one is empty.
    pub(super) fn empty(&self, now: Instant) -> Option<Instant> {
        self.budgets.iter().filter_map(|one| one.left.empty_until(now)).max()
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
        let current = self.budgets.iter().map(|one| &one.left).filter(|left| left.is_current(now));
        let left = |left: &Allowance| Left {
            name: left.name.clone(),
            requests: left.requests,
            left: left.left(now),
            limit: left.limit,
            reset: left.reset.map(|reset| reset.since(now)),
        };
        current.map(left).collect()
    }

    /// An answer to the request `unit`, which was sent at `sent`, tells of `buckets`, while `load.0` others are
    /// unanswered. Teaches `budget` the limits that they come to, and says which of them are new.
    pub(super) fn hear(
        &mut self,
        (sent, now): (Instant, Instant),
        unit: Unit,
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
            let Some(one) = self.find(bucket, unit, now) else { continue };
            let thousandths = one.thousandths;
            let bucket = one.in_seconds(bucket, now);
            if one.thousandths != thousandths {
                one.kept = false;
                budget.unlearn(Source::Told(one.id));
            }
            let window = one.period.hear(&bucket, now);
            one.left.hear(&bucket, one.period.refills(), unit, served, now);
            one.heard = now;
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
                news.push(spec);
            }
            one.left.explained = ours(budget, source);
        }
        news
    }

    /// The budget that `bucket` is about: a new one, if it was not heard of yet.
    fn find(&mut self, bucket: &Bucket, unit: Unit, now: Instant) -> Option<&mut One> {
        let same = |one: &One| {
            one.left.name == bucket.name
                && (one.window == bucket.window || one.window.is_none() || bucket.window.is_none())
        };
        if let Some(index) = self.budgets.iter().position(same) {
            return self.budgets.get_mut(index);
        }
        if self.budgets.len() >= MOST {
            return None;
        }
        self.budgets.push(One {
            id: self.next,
            window: bucket.window,
            left: Allowance::new(bucket, unit, now),
            period: self.sent.map_or_else(Period::default, |(began, sent)| Period::since(began, sent)),
            kept: false,
            said: None,
            heard: now,
            thousandths: false,
        });
        self.next = self.next.wrapping_add(1);
        self.budgets.last_mut()
    }

    fn forget(&mut self, now: Instant, budget: &mut Budget) {
        self.budgets.retain(|one| {
            let length = one.window.unwrap_or_default() * 3;
            let known = now.since(one.heard) < length.max(FORGOTTEN) || one.left.is_current(now);
            if !known {
                budget.unlearn(Source::Told(one.id));
            }
            known
        });
    }
}

// === impl One ===

impl One {
    /// `bucket` with a reset in seconds. Some APIs say thousandths and do not say so (Tiendanube): a reset that comes a
    /// thousand times faster than time passes is one of these.
    fn in_seconds(&mut self, bucket: &Bucket, now: Instant) -> Bucket {
        let mut bucket = bucket.clone();
        let Some(left) = bucket.reset else { return bucket };
        if let Some((before, at)) = self.said
            && !self.thousandths
            && before > left + Duration::from_secs(2)
            && left > Duration::from_secs(30)
        {
            let speed = (before - left).as_secs_f64() / now.since(at).as_secs_f64().max(1e-4);
            self.thousandths = (400.0..2500.0).contains(&speed);
            if self.thousandths {
                self.left.start_over();
                self.period = Period::default();
            }
        }
        if self.said.is_none_or(|(_, at)| now.since(at) > Duration::from_millis(5)) {
            self.said = Some((left, now));
        }
        if self.thousandths {
            bucket.reset = Some(left / 1000);
        }
        bucket
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
