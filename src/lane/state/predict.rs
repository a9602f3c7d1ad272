//! The decision on a request that asks: it leaves, waits or is refused.

use std::time::Duration;

use andante_clock::Instant;
use andante_limit::Cost;

use super::{
    State,
    blocked::Assume,
    eta::{Asking, Eta},
    room::WaitingRoom,
    sub_limits::{Drawn, SubLimits},
    turn::{LineKey, line_of},
};
use crate::request::{AdmitRequest, Preview, PreviewDecision, Refusal};

impl<T> State<T> {
    /// Inputs of the admission decision. Inlined: a result returned in memory would be read before it is fully written.
    #[inline(always)]
    pub(super) fn consider(&mut self, now: Instant, ask: &AdmitRequest) -> (Option<Box<Drawn>>, Cost, LineKey) {
        // Nearly all requests draw on no sub-limit.
        let draws = ask.draws.as_ref();
        let drawn = draws.map(|draws| self.sub_limits.find(draws, &self.budget, now, self.epoch));
        let cost = self.reserve(now, ask.cost, drawn.as_deref());
        let line = line_of(&self.learned, &ask.kind, cost.is_metered(), drawn.as_deref());
        (drawn, cost, line)
    }

    /// Decides whether a request that asks now leaves, waits or is refused, and when a refused request returns. Takes
    /// nothing yet.
    pub(super) fn decide(&mut self, now: Instant, asking: Asking<'_>) -> PreviewDecision {
        if self.passes(now, &asking.ask.claim, asking.cost, asking.line, asking.drawn.map_or(&[], Drawn::numbers)) {
            return PreviewDecision::Send;
        }
        let eta = self.eta(now, asking, Assume::Likely);
        match self.refusal(now, &eta, asking) {
            Some(refusal) => {
                let passed = self.is_passed();
                PreviewDecision::Refuse(self.come_back(now, asking, refusal, passed))
            }
            None => PreviewDecision::Wait { expected: eta.at, ahead: u32::try_from(eta.ahead).unwrap_or(u32::MAX) },
        }
    }

    /// The decision on a request that asked now, without a lasting effect.
    pub(crate) fn preview(&mut self, now: Instant, ask: &AdmitRequest) -> Preview {
        let (trial, returns) = (self.sub_limits.try_out(&ask.draws), self.returns.clone());
        let (drawn, cost, line) = &self.consider(now, ask);
        let mut decision = self.decide(now, Asking { ask, cost, line, drawn: drawn.as_deref() });
        // The end of a pause, or of the store's silence, may be unknown. Then no request is refused, and nothing is promised.
        if let PreviewDecision::Wait { expected, .. } = &mut decision {
            let store = if line.scope.is_apart() { now } else { self.store_ready(now).instant(now) };
            *expected = self.held_until(now).into_iter().fold((*expected).max(store), Instant::max);
        }
        self.returns = returns;
        let budgets =
            ask.draws.iter().flat_map(|draws| &**draws).map(|draw| self.sub_limits.usage_of(draw, now)).collect();
        self.sub_limits.end_trial(trial);
        Preview { decision, budgets }
    }

    /// Why a request may not wait for its expected slot.
    fn refusal(&mut self, now: Instant, eta: &Eta, asking: Asking<'_>) -> Option<Refusal> {
        let Asking { ask, drawn, .. } = asking;
        // The time at which a place in flight frees up is unknown, but it is not now.
        let least = if self.has_room(now) && self.places.has_place(&ask.claim) {
            Duration::ZERO
        } else {
            Duration::from_millis(1)
        };
        let wait = eta.at.since(now).max(least);
        let patience = ask.deadline.since(now).min(self.policy.max_wait);
        let patience = drawn.map_or(patience, |drawn| patience.min(SubLimits::max_wait(drawn)));
        // Refuse only if even the optimistic estimate misses the deadline.
        if wait > patience && self.eta(now, asking, Assume::Best).at.since(now).max(least) > patience {
            let room = eta.last.map_or(WaitingRoom::Lane, WaitingRoom::Budget);
            let ((waiting, _), rule) = (self.places(room), self.rule_of(room));
            let cap = self.learned.cap(&ask.kind).map(|renewed| renewed.since(now));
            return Some(Refusal::TooLong { waiting, rule, wait, patience, cap, retry_after: wait - patience });
        }
        self.has_no_place(now, asking, wait)
    }
}
