//! What refusals have taught: brought into a lane's limits, and told people with what it rests on.

use super::{Changes, Grounds, Learned, LearnedChange, OwnLimit, RouteKey};
use crate::{
    clock::Instant,
    limit::{Budget, LimitSpec, LimitUsage, Source},
};

/// By how much what was found has to change to be worth a word.
const NEWS: f64 = 0.1;

/// Whether a rate, or how many at once, that was `found` is worth a log line, after `reported` was logged last.
pub(super) fn is_news(found: f64, reported: Option<f64>) -> bool {
    reported.is_none_or(|reported| (found / reported - 1.0).abs() >= NEWS)
}

impl Learned {
    /// Brings another limit than was known into `budget`, if refusals have taught one.
    #[inline(always)]
    pub(super) fn found(&mut self, now: Instant, kind: &RouteKey, budget: &mut Budget, changes: &mut Changes) {
        match self.estimator.at_once() {
            Some(most) => self.found_at_once(most.into(), changes),
            None => self.reported_at_once = None,
        }
        if let Some(limit) = self.estimator.change(now) {
            self.found_rate(now, limit, budget, changes);
        }
        self.kinds.found(kind, now, changes);
    }

    fn found_at_once(&mut self, most: f64, changes: &mut Changes) {
        if is_news(most, self.reported_at_once) {
            changes.extend(self.at_once().map(|(most, why)| LearnedChange::ConcurrencyLimit(most, Box::new(why))));
            self.reported_at_once = Some(most);
        }
    }

    #[cold]
    fn found_rate(&mut self, now: Instant, limit: Option<LimitSpec>, budget: &mut Budget, changes: &mut Changes) {
        let Some(limit) = limit else {
            budget.unlearn(Source::Estimated);
            self.reported_rate = None;
            return;
        };
        budget.learn(Source::Estimated, limit, &[]);
        let rate = limit.rate.per_second();
        if is_news(rate, self.reported_rate) {
            self.reported_rate = Some(rate);
            let grounds = self.estimator.rate_grounds(now);
            changes.extend(grounds.map(|grounds| LearnedChange::Limit(limit, Box::new(grounds))));
        }
    }

    /// What a limit rests on; `None` if it is configured.
    pub fn grounds(&self, limit: &LimitUsage, now: Instant) -> Option<Grounds> {
        match limit.source {
            Source::Config => None,
            Source::Advertised(id) => self.told.grounds(id, &limit.spec),
            Source::Estimated => self.estimator.rate_grounds(now),
        }
    }

    /// Whether a request is under way that tries whether the lane's pause is over.
    pub fn tries(&self) -> bool {
        self.gate.tries()
    }

    /// How many may be under way at once, and what that rests on.
    pub fn at_once(&self) -> Option<(u32, Grounds)> {
        self.estimator.at_once().zip(self.estimator.at_once_grounds())
    }

    /// The groups of requests that have limits of their own.
    pub fn own_limits(&self, now: Instant) -> Vec<OwnLimit> {
        self.kinds.looked_at(now)
    }
}
