//! What refusals teach about the margin, and what is taken back of that.

use std::time::Duration;

use super::Budget;
use crate::{
    clock::Instant,
    limit::{Cost, Source},
};

impl Budget {
    /// The API refused what took `cost` and was sent at `sent`: if no other sender can have used up the limit, the margin is too
    /// small. `tries` says that it was to find out whether a pause is over, `wait` what the API asks for.
    pub fn refused(&mut self, now: Instant, sent: Instant, cost: Cost, tries: bool, wait: Option<Duration>) {
        // What was found by trying promises nothing.
        let Self { limits, margin, .. } = self;
        let kept = || limits.iter().filter(|limit| limit.source != Source::Estimated);
        let windows = || kept().map(|limit| limit.spec.rate.per);
        let Some((per, longest)) = windows().min().zip(windows().max()) else { return };
        // No window of ours is over so late: it is another matter.
        let other = wait.is_some_and(|wait| wait >= longest * 2);
        // During the first window the API may still count what another process sent before this one began.
        if other || sent.since(self.since) < per {
            return;
        }
        // Where fewer had left than a window holds, or the part of it that a fleet's member has, no margin would have helped. As
        // much as was refused may have come back meanwhile. What tries may take a lesson back.
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

    /// The API served what was sent at `sent`.
    pub fn served(&mut self, sent: Instant) {
        self.margin.served(sent);
    }
}
