//! Limits learned from refusals: added to the lane's limits, and reported with their evidence.

use andante_clock::Instant;
use andante_limit::{Budget, LimitSpec, LimitUsage, Source};

use super::{Changes, Grounds, Learned, LearnedChange, OwnLimit, RouteKey};

/// Relative change from which a learned limit is logged again.
const NEWS: f64 = 0.1;

/// Returns true if a learned rate or concurrency limit is worth a log line, after `reported` was logged last.
pub(super) fn is_news(found: f64, reported: Option<f64>) -> bool {
    reported.is_none_or(|reported| (found / reported - 1.0).abs() >= NEWS)
}

impl Learned {
    /// Updates the learned limit in `budget`, if refusals have changed it.
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
            let grounds = self.estimator.rate_evidence(now);
            changes.extend(grounds.map(|grounds| LearnedChange::Limit(limit, Box::new(grounds))));
        }
    }

    /// Evidence for a limit; `None` if it is configured.
    pub fn grounds(&self, limit: &LimitUsage, now: Instant) -> Option<Grounds> {
        match limit.source {
            Source::Config => None,
            Source::Advertised(id) => self.told.grounds(id, &limit.spec),
            Source::Estimated => self.estimator.rate_evidence(now),
        }
    }

    /// Returns true if a probe of the lane's pause is in flight.
    pub fn tries(&self) -> bool {
        self.gate.tries()
    }

    /// Learned concurrency limit, and the evidence for it.
    pub fn at_once(&self) -> Option<(u32, Grounds)> {
        self.estimator.at_once().zip(self.estimator.concurrency_evidence())
    }

    /// Groups of requests that have limits of their own.
    pub fn own_limits(&self, now: Instant) -> Vec<OwnLimit> {
        self.kinds.looked_at(now)
    }
}
