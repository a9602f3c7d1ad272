//! An arriving request: sent at once, queued, or refused with a `Retry-After`.

use std::time::Duration;

use andante_clock::Instant;
use andante_order::{Bands, QueuePlace, Turn};
use smallvec::SmallVec;

use super::{
    Decision, QueueOffer, State, WaitingRequest,
    eta::Asking,
    numbers,
    slot::Leaving,
    sub_limits::{Drawn, SubLimits},
    turn::LineKey,
};
use crate::request::{AdmitRequest, PreviewDecision, Refusal};

impl<T> State<T> {
    /// Decides on a request that asks for a slot.
    pub(crate) fn asked(&mut self, now: Instant, ask: &AdmitRequest) -> Decision {
        if self.is_given() {
            return Decision::Refuse(Refusal::HandedOver);
        }
        self.learned.asked(&ask.kind, now);
        self.advance_places(now);
        self.places.asked(&ask.claim);
        let mut considered = self.consider(now, ask);
        let (drawn, cost, line) = &mut considered;
        let asking = Asking { ask, cost, line, drawn: drawn.as_deref() };
        let decision = self.decide(now, asking);
        if !matches!(decision, PreviewDecision::Refuse(_)) {
            self.returns.returned(ask.claim.client);
        }
        match decision {
            PreviewDecision::Send => {
                // Waiting requests wait for other limits, so this one overtakes none that could leave.
                let AdmitRequest { kind, claim, port, .. } = ask;
                let (scope, drawn, port) = (line.scope, drawn.take(), *port);
                Decision::Send(self.take(now, Leaving { cost, kind, claim, scope, since: now, due: now, drawn, port }))
            }
            PreviewDecision::Refuse(refusal) => {
                self.stats.refused += 1;
                self.share_lacking(now, true);
                Decision::Refuse(refusal)
            }
            PreviewDecision::Wait { expected, ahead } => {
                self.make_room(now, ask, drawn.as_deref());
                self.share_lacking(now, false);
                Decision::Wait(QueueOffer { line: *line, expected, ahead, drawn: drawn.take() })
            }
        }
    }

    /// Enqueues the request that accepts this `offer`.
    pub(crate) fn enqueued(&mut self, now: Instant, ask: &AdmitRequest, offer: QueueOffer, ticket: T) -> QueuePlace {
        let QueueOffer { line, drawn, .. } = offer;
        let longest = drawn.as_deref().map_or(Duration::MAX, SubLimits::max_wait).min(self.policy.max_wait);
        self.enter(ask, line, drawn, now, ask.deadline.min(now + longest), ticket)
    }

    /// Enqueues a request that has waited since `since` and may wait until `deadline`.
    pub(super) fn enter(
        &mut self,
        ask: &AdmitRequest,
        line: LineKey,
        mut drawn: Option<Box<Drawn>>,
        since: Instant,
        deadline: Instant,
        grant: T,
    ) -> QueuePlace {
        // The answer will report amounts that the request has not declared.
        let cost = if self.policy.leaves_open(&ask.cost) { ask.cost.open() } else { ask.cost };
        if let Some(drawn) = &mut drawn {
            self.sub_limits.enqueued(drawn, &self.queue.resolve(&ask.claim), cost, ask.turn);
        }
        let budgets: SmallVec<[u32; 4]> = numbers(&drawn).into();
        let (kind, metered) = (ask.kind, line.metered);
        let ticket = WaitingRequest { grant, kind, metered, since, deadline, drawn, port: ask.port };
        self.queue.enqueue(line, &budgets, ask.claim, cost, ask.turn, ticket)
    }

    /// Returns `refusal` with a `Retry-After` behind those of the refusals before it. With `passed`, more urgent requests
    /// take the places that become free.
    pub(super) fn come_back(&mut self, now: Instant, asking: Asking<'_>, refusal: Refusal, passed: bool) -> Refusal {
        let Asking { ask, cost, line, drawn } = asking;
        if ask.turn == Turn::Resent {
            return refusal;
        }
        // A place in a full queue that something more urgent takes is not free.
        let slower = if passed && !matches!(refusal, Refusal::TooLong { .. }) {
            Bands::stretched_by(self.queue.inflow_above(ask.claim.urgency))
        } else {
            1.0
        };
        let next = now + refusal.retry_after().mul_f64(slower);
        let own = self.budget.interval(cost, line.scope);
        let spacing = drawn.map_or(own, |drawn| own.max(self.sub_limits.interval(drawn, ask.cost))).mul_f64(slower);
        let due = self.returns.add(now, asking.returns_to(), ask.claim.client, next, spacing);
        refusal.with_retry_after(due.since(now).max(Duration::from_millis(1)))
    }
}
