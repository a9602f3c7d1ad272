//! Reaction of a quota to a refusal although it should have had room.

use std::time::Duration;

use andante_clock::Instant;
use andante_limit::{Budget, LONGEST_PACE, LimitSpec, Source};
use andante_policy::Spend;

use super::{Quota, spec as spec_of};
use crate::Observation;

/// Windows, and maximum time, of even pacing after a refusal although our own count had room.
const EVEN_WINDOWS: u32 = 3;
const EVEN_AT_MOST: Duration = Duration::from_secs(600);
/// First pause after a refusal that a quota explains; each further consecutive pause is twice as long.
const SHORTEST_HOLD: Duration = Duration::from_millis(20);
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// How our own counts of a quota relate to a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Books {
    /// The limit was kept, and no other sender is known: the API counts differently from us, which does not matter with
    /// even pacing.
    Contradicted,
    /// The limit was not kept yet, or another sender is known: wait for the reset.
    Incomplete,
}

impl Quota {
    /// Handles a refusal because nothing is left. `books`: whether our own counts explain it.
    pub(super) fn refuse(&mut self, spec: LimitSpec, books: Books, answer: &Observation<'_>, budget: &mut Budget) {
        let now = answer.at;
        if answer.charge.seq <= self.refusals.1 {
            // The request was in flight before the last refusal.
            return;
        }
        self.refusals = (self.refusals.0 + 1, self.taken);
        if books == Books::Incomplete {
            return;
        }
        self.window_estimator.contradicted();
        if now < self.even_until {
            // Pacing is even already: the latency varies more than estimated.
            budget.refused(now, answer.sent, answer.charge.cost, false, None);
        }
        if spec.rate.per <= LONGEST_PACE {
            self.even_until = now + (spec.rate.per * EVEN_WINDOWS).min(EVEN_AT_MOST);
            budget.learn(
                Source::Advertised(self.id),
                spec_of(f64::from(spec.rate.count.get()), spec.rate.per, Spend::Even),
                &[],
            );
        }
        let hold = self.hold(spec, answer);
        let reset = self.left.reset.map_or(hold, |reset| reset.since(now)).max(SHORTEST_HOLD);
        self.left.hold(now + hold.min(reset));
    }

    /// Latest time at which a part of the used amount is replenished; a sliding quota is not full at the reset.
    pub(super) fn back_by(&self, spec: LimitSpec, window: Duration, answer: &Observation<'_>) -> Instant {
        let end = self.window_estimator.ends_by(window);
        if self.window_estimator.slides() { end.min(answer.at + self.hold(spec, answer)) } else { end }
    }

    /// Time until one or two units of a quota are replenished.
    fn hold(&self, spec: LimitSpec, answer: &Observation<'_>) -> Duration {
        let slots =
            (spec.rate.interval() * 2).min(spec.rate.per).max(SHORTEST_HOLD).max(answer.at.since(answer.sent) * 2);
        slots.mul_f64(2f64.powi(self.refusals.0.saturating_sub(3).min(20) as i32)).min(LONGEST_HOLD)
    }
}
