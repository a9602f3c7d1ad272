//! The limit in a lane's budget that enforces a quota.

use std::time::Duration;

use andante_clock::Instant;
use andante_limit::{Budget, LimitSpec, Source};
use smallvec::SmallVec;

use super::Quota;
use crate::Observation;

/// Minimum time before a change is logged again.
const NEWS: Duration = Duration::from_secs(60);
const WORDS: usize = 8;
/// Number of groups for requests that were sent before a limit was known.
const PARTS: u64 = 16;

impl Quota {
    /// Enforces `spec` in the lane's budget. Returns it if it is new.
    pub(super) fn keep(
        &mut self,
        spec: LimitSpec,
        used: f64,
        unanswered: u32,
        answer: &Observation<'_>,
        budget: &mut Budget,
    ) -> Option<LimitSpec> {
        let (now, source) = (answer.at, Source::Advertised(self.id));
        let before = budget.limit(source);
        if before == Some(spec) {
            return None;
        }
        if before.is_some_and(|before| before.rate == spec.rate) {
            budget.learn(source, spec, &[]);
            return None;
        }
        // Requests in flight will have been counted when they are answered, which will not take much longer.
        let later = now + (now.since(answer.sent) * 2).min(spec.rate.per / 10);
        let mut parts = self.sent_in(spec.rate.per, used, unanswered, answer);
        parts.push((unanswered, later));
        budget.unlearn(source);
        budget.learn(source, spec, &parts);
        self.kept = true;
        self.is_news(spec, now).then_some(spec)
    }

    /// Answered requests of the last `window`, at most `used`, in a few groups. Each group has the latest time at which
    /// the API counted it, if it took as long as `answer`. The usage of other senders is replenished at the reset, not
    /// one window later, so the answers' own numbers hold until then.
    fn sent_in(
        &self,
        window: Duration,
        used: f64,
        unanswered: u32,
        answer: &Observation<'_>,
    ) -> SmallVec<[(u32, Instant); 17]> {
        let (now, took) = (answer.at, answer.at.since(answer.sent));
        let end = self.ledger.count().saturating_sub(u64::from(unanswered));
        let ours = self.ledger.since(now - window).saturating_sub(u64::from(unanswered)).min(used as u64);
        let part = ours.div_ceil(PARTS).max(1);
        let (mut parts, mut first) = (SmallVec::new(), end - ours);
        while first < end {
            let next = (first + part).min(end);
            let counted = self.ledger.departed(next - 1).map_or(now, |departed| (departed + took).min(now));
            parts.push(((next - first) as u32, counted));
            first = next;
        }
        parts
    }

    /// Stops enforcing the quota.
    pub(in crate::quotas) fn dismiss(&mut self, budget: &mut Budget) {
        self.kept = false;
        budget.unlearn(Source::Advertised(self.id));
    }

    /// Returns true if `limit` should be logged. A limit that alternates, as with answers for several accounts, is
    /// logged at most once a minute.
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
}
