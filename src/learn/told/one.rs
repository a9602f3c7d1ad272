//! One of the budgets that an API tells of.

use std::{borrow::Cow, num::NonZeroU32, time::Duration};

use smallvec::SmallVec;

use super::MOST_UNITS;
use crate::{
    clock::Instant,
    hint::Bucket,
    learn::{Observation, allowance::Allowance, gate::Gate, period::Period},
    limit::{Budget, Charge, LimitSpec, Rate, Source, Unit},
    policy::Spend,
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
    /// Closed while the API asks to wait for it.
    pub(super) gate: Gate,
    pub(super) period: Period,
    /// The last request that was taken before it was heard of: whatever draws on it counts from there on.
    newest: Unit,
    /// Requests that may draw on it, are under way, and of which no answer tells yet.
    pub(super) unanswered: u32,
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

/// What is there already when a budget is heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Born {
    pub(super) id: u8,
    /// The last request that was taken.
    pub(super) newest: Unit,
    /// Requests under way, each of which may draw on it.
    pub(super) unanswered: u32,
}

// === impl One ===

impl One {
    pub(super) fn new(born: Born, bucket: &Bucket, answer: &Observation<'_>, period: Period) -> Self {
        Self {
            id: born.id,
            window: bucket.window,
            left: Allowance::new(bucket, answer.charge.unit, answer.at),
            gate: Gate::default(),
            period,
            newest: born.newest,
            unanswered: born.unanswered,
            silent: 0,
            news: (SmallVec::new(), answer.at),
            kept: false,
            said: None,
            heard: answer.at,
            thousandths: false,
        }
    }

    /// Whether the request with this charge is one of those that may draw on it.
    pub(super) fn counts(&self, charge: Charge) -> bool {
        charge.unit <= self.newest || charge.scope.has(self.id)
    }

    /// Whether the request with this charge was to draw on it. One that is older than it was to draw on another budget that
    /// had its number.
    pub(super) fn is_drawn_on(&self, charge: Charge) -> bool {
        charge.unit > self.newest && charge.scope.has(self.id)
    }

    /// Whether the API has asked to wait for it, and that is not over.
    pub(super) fn pauses(&self, now: Instant) -> bool {
        self.gate.until().is_some_and(|(until, _)| until > now)
    }

    /// An answer reports `bucket`, which is this one. Teaches `budget` the limit that it comes to, and says so if that is
    /// new.
    pub(super) fn hear(
        &mut self,
        bucket: &Bucket,
        answer: &Observation<'_>,
        spend: Spend,
        budget: &mut Budget,
    ) -> Option<LimitSpec> {
        let (now, source, thousandths) = (answer.at, Source::Told(self.id), self.thousandths);
        // The answer is not counted among those that are missing.
        let unanswered = self.unanswered.saturating_sub(u32::from(self.counts(answer.charge)));
        if answer.charge.unit > self.newest && !answer.charge.scope.has(self.id) {
            // It was expected to draw on others.
            budget.count(source, answer.charge.cost, answer.sent, now);
        }
        let bucket = self.in_seconds(bucket, now);
        if self.thousandths != thousandths {
            self.kept = false;
            budget.unlearn(source);
        }
        let window = self.period.hear(&bucket, now);
        self.left.hear(&bucket, self.period.refills(), answer.charge.unit, answer.is_served(), now);
        self.heard = now;
        let limit = self.left.limit.filter(|limit| bucket.requests && *limit >= 1.0)?;
        let used = bucket.remaining.map_or(0.0, |remaining| (limit - remaining).clamp(0.0, limit));
        let ours =
            |budget: &mut Budget, source| used <= f64::from(budget.used(source, now)) + f64::from(unanswered) + 1.0;
        let Some(window) = window.filter(|window| !window.is_zero()) else {
            // Until when nobody says: what was found out by refusals knows better.
            self.left.explained =
                bucket.reset.is_none() && budget.limit(Source::Found).is_some() && ours(budget, Source::Found);
            return None;
        };
        if bucket.remaining.is_none() && !self.kept {
            // What nobody counts may be for others, or for something else.
            return None;
        }
        let (spec, mut news) = (spec(limit, window, spend), None);
        if budget.limit(source) != Some(spec) {
            // What is under way will have been counted when it is answered, which will not take much longer.
            let later = now + (now.since(answer.sent) * 2).min(window / 10);
            // What others have used comes back at the reset, and not a window from now: the answers' own numbers hold until then.
            let ours = used.min(f64::from(self.period.sent_since()));
            budget.learn(source, spec, &[(ours as u32, now), (unanswered, later)]);
            self.kept = true;
            news = self.is_news(spec, now).then_some(spec);
        }
        self.left.explained = ours(budget, source);
        news
    }

    /// Whether `limit` is worth a word. A limit that alternates, as by answers for several accounts, is told at most once a
    /// minute.
    fn is_news(&mut self, limit: LimitSpec, now: Instant) -> bool {
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
    fn in_seconds<'a>(&mut self, bucket: &'a Bucket, now: Instant) -> Cow<'a, Bucket> {
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
