//! Lessons about the margin from refusals, and their withdrawal.

use std::time::Duration;

use andante_clock::Instant;

use super::Budget;
use crate::{Cost, Source};

impl Budget {
    /// Records that the API refused a request of `cost` sent at `sent`. If no other sender can have used up the limit,
    /// the margin is too small. `tries` marks a probe for the end of a pause; `wait` is the delay that the API asks
    /// for.
    pub fn refused(&mut self, now: Instant, sent: Instant, cost: Cost, tries: bool, wait: Option<Duration>) {
        // An estimated limit promises nothing about windows.
        let Self { limits, margin, .. } = self;
        let kept = || limits.iter().filter(|limit| limit.source != Source::Estimated);
        let windows = || kept().map(|limit| limit.spec.rate.per);
        let Some((per, longest)) = windows().min().zip(windows().max()) else { return };
        // No window of ours lasts that long: the refusal has another reason.
        let other = wait.is_some_and(|wait| wait >= longest * 2);
        // During the first window the API may still count requests of another process, sent before this one began.
        if other || sent.since(self.since) < per {
            return;
        }
        // If fewer units had left than fill a window, or a fleet member's share of it, no margin would have helped. The
        // units freed since may be as many as the refused request takes. A probe may withdraw a lesson.
        let full = tries
            || limits.iter_mut().filter(|limit| limit.source != Source::Estimated).any(|limit| {
                let used = limit.window.used(now, limit.margin(margin));
                let cost = cost.of(limit.spec.unit).map(|amount| limit.whole(amount).get());
                cost.is_some_and(|cost| used.saturating_add(cost) >= limit.window.count())
            });
        if full {
            margin.refused(now, sent, per, tries);
        }
    }

    /// Records that the API served a request sent at `sent`.
    pub fn served(&mut self, sent: Instant) {
        self.margin.served(sent);
    }
}
