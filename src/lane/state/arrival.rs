//! An arriving request: sent at once, queued, or refused with a `Retry-After`.

use std::time::Duration;

use andante_clock::Instant;
use andante_order::{Bands, QueuePlace, Turn};
use smallvec::SmallVec;

use super::{
    Decision, QueueOffer, State, WaitingRequest, numbers,
    predict::{Asking, Before},
    returns::ReturnTo,
    slot::Leaving,
    slow::Counted,
    sub_limits::{Drawn, SubLimits},
};
use crate::request::{AdmitRequest, PreviewDecision, Refusal};

impl<T> State<T> {
    /// Decides on a request that asks for a slot.
    pub(crate) fn asked(&mut self, now: Instant, ask: &AdmitRequest) -> Decision {
        if self.is_given() {
            return Decision::Refuse(Refusal::HandedOver);
        }
        self.learned.asked(&ask.kind, now);
        self.goes_to(ask.port);
        self.advance_places(now);
        self.places.asked(&ask.claim);
        let mut considered = self.consider(now, ask);
        let (drawn, cost, line) = &mut considered;
        let asking = Asking { ask, cost, line, drawn: drawn.as_deref() };
        let decision = self.decide(now, asking);
        if ask.turn == Turn::New && !matches!(decision, PreviewDecision::Refuse(_)) {
            self.returns.kept(|| asking.returns_to(), ask.claim.client);
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
        let QueueOffer { line, mut drawn, .. } = offer;
        // The answer will report amounts that the request has not declared.
        let cost = if self.policy.leaves_open(&ask.cost) { ask.cost.open() } else { ask.cost };
        if let Some(drawn) = &mut drawn {
            self.sub_limits.enqueued(drawn, &self.queue.resolve(&ask.claim), cost, ask.turn);
        }
        let budgets: SmallVec<[u32; 4]> = numbers(&drawn).into();
        let longest = drawn.as_deref().map_or(Duration::MAX, SubLimits::max_wait).min(self.policy.max_wait);
        let deadline = ask.deadline.min(now + longest);
        let (kind, metered) = (ask.kind, line.metered);
        let ticket = WaitingRequest { grant: ticket, kind, metered, since: now, deadline, drawn, port: ask.port };
        self.queue.enqueue(line, &budgets, ask.claim, cost, ask.turn, ticket)
    }

    /// Returns `refusal` with a `Retry-After` behind all returns promised before. `before` is what precedes the request
    /// now. With `passed`, more urgent requests take the places that become free.
    pub(super) fn come_back(
        &mut self,
        now: Instant,
        asking: Asking<'_>,
        before: Before,
        refusal: Refusal,
        passed: bool,
    ) -> Refusal {
        if asking.ask.turn == Turn::Resent {
            return refusal;
        }
        // A place in a full queue that something more urgent takes is not free.
        let slower = match refusal {
            Refusal::TooLong { .. } => 1.0,
            _ if !passed => 1.0,
            _ => Bands::stretched_by(self.queue.inflow_above(asking.ask.claim.urgency)),
        };
        let next = now + refusal.retry_after().mul_f64(slower);
        let (to, mut ask) = (asking.returns_to(), asking.ask.clone());
        let before = match refusal {
            Refusal::TooLong { .. } => before,
            // Each departure frees a place in the queue, whichever request departs.
            _ => {
                ask.turn = Turn::Resent;
                Before::default()
            }
        };
        let asking = Asking { ask: &ask, ..asking };
        let mut returns = std::mem::take(&mut self.returns);
        let mut first = None;
        let waited = matches!(refusal, Refusal::GaveWay { .. });
        let due = returns.promise(now, to, ask.claim.client, waited, |returning| {
            if returning == 0 {
                return next;
            }
            let first = *first.get_or_insert_with(|| self.expected(now, asking, &before, 0, Counted::Likely).at);
            next + self.expected(now, asking, &before, returning, Counted::Likely).at.since(first).mul_f64(slower)
        });
        self.returns = returns;
        refusal.with_retry_after(due.since(now).max(Duration::from_millis(1)))
    }
}

// === impl Asking ===

impl Asking<'_> {
    /// The class, urgency and sub-limits that a refused request returns to.
    pub(super) fn returns_to(&self) -> ReturnTo {
        let budgets = self.drawn.map_or(&[][..], Drawn::numbers).into();
        ReturnTo { line: *self.line, urgency: self.ask.claim.urgency, budgets }
    }
}
