//! One of the budgets that an API tells of.

use std::{borrow::Cow, time::Duration};

use smallvec::SmallVec;

use crate::{
    clock::Instant,
    hint::Bucket,
    learn::{RouteKey, allowance::Allowance, period::Period},
    limit::{LimitSpec, Unit},
};

/// For so long the same is not told again, and not more than so many changes are.
const NEWS: Duration = Duration::from_secs(60);
const WORDS: usize = 8;

/// One budget.
#[derive(Clone, Debug)]
pub(super) struct One {
    pub(super) id: u8,
    /// The window that was said, which tells budgets without a name apart.
    pub(super) window: Option<Duration>,
    pub(super) left: Allowance,
    pub(super) period: Period,
    /// The kinds of requests that are told of it, as far as is remembered.
    pub(super) kinds: SmallVec<[RouteKey; 2]>,
    /// Whether the lane keeps it, and not only the one kind of request that is told of it.
    pub(super) binds: bool,
    /// How often others of its name were told of since.
    pub(super) silent: u32,
    /// The limits that people were told of lately, and since when that is.
    pub(super) news: (SmallVec<[LimitSpec; 1]>, Instant),
    /// Whether a limit of a lane keeps it.
    pub(super) kept: bool,
    /// What was said to be left until the reset, and when, to see seconds that are none.
    pub(super) said: Option<(Duration, Instant)>,
    pub(super) heard: Instant,
    /// Its resets are thousandths of what they seem.
    pub(super) thousandths: bool,
}

// === impl One ===

impl One {
    pub(super) fn new(id: u8, bucket: &Bucket, (unit, kind): (Unit, RouteKey), period: Period, now: Instant) -> Self {
        Self {
            id,
            window: bucket.window,
            left: Allowance::new(bucket, unit, now),
            period,
            kinds: SmallVec::from_slice(&[kind]),
            binds: true,
            silent: 0,
            news: (SmallVec::new(), now),
            kept: false,
            said: None,
            heard: now,
            thousandths: false,
        }
    }

    /// Whether `limit` is worth a word. What goes to and fro, as by answers for several accounts, is so once in a while.
    pub(super) fn is_news(&mut self, limit: LimitSpec, now: Instant) -> bool {
        let (told, since) = &mut self.news;
        if now.since(*since) > NEWS {
            (*told, *since) = (SmallVec::new(), now);
        }
        let new = told.len() < WORDS && !told.contains(&limit);
        if new {
            told.push(limit);
        }
        new
    }

    /// Whether it goes by the name and the window of `bucket`.
    pub(super) fn is_called(&self, bucket: &Bucket) -> bool {
        self.left.name == bucket.name
            && (self.window == bucket.window || self.window.is_none() || bucket.window.is_none())
    }

    /// Whether its limit is that of `bucket`, as far as both are known.
    pub(super) fn fits(&self, bucket: &Bucket) -> bool {
        bucket.limit.is_none() || self.left.limit.is_none() || self.left.limit == bucket.limit
    }

    /// `bucket` with a reset in seconds. Some APIs say thousandths and do not say so (Tiendanube): a reset that comes a
    /// thousand times faster than time passes is one of these.
    pub(super) fn in_seconds<'a>(&mut self, bucket: &'a Bucket, now: Instant) -> Cow<'a, Bucket> {
        let Some(left) = bucket.reset else { return Cow::Borrowed(bucket) };
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
            return Cow::Owned(Bucket { reset: Some(left / 1000), ..bucket.clone() });
        }
        Cow::Borrowed(bucket)
    }
}
