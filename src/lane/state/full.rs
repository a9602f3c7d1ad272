//! Full queues, of the lane or of one of its sub-limits: which waiting request is evicted for a new one.

use std::time::Duration;

use andante_clock::Instant;
use andante_order::{QueuePlace, Taken, Turn};

use super::{
    State, WaitingRequest, eta::Asking, returns::ReturnTo, room::WaitingRoom, sub_limits::Drawn, turn::line_of,
};
use crate::request::{AdmitRequest, Refusal};

/// An evicted request, and the reason.
pub(crate) struct Evicted<T> {
    pub(crate) ticket: T,
    pub(crate) refusal: Refusal,
}

/// When other requests arrive, requests that wait for sub-limits keep at most 1/`OF_OTHERS` of a full lane.
const OF_OTHERS: usize = 4;
/// A sub-limit that opens within this time does not count as blocking a request.
const SOON: Duration = Duration::from_secs(1);

impl<T> State<T> {
    /// Returns whether all places are taken, or reserved for clients that were told to return to this room by now, with
    /// the same or a higher urgency. Up to a quarter of the places is reserved, so that few slots are lost for clients
    /// that never return.
    fn is_full_for(&mut self, now: Instant, asking: Asking<'_>, room: WaitingRoom) -> bool {
        let (waiting, most) = self.places(room);
        let (free, reservable) = (most.saturating_sub(waiting), most / 4);
        if free > reservable || asking.ask.turn == Turn::Resent {
            return free == 0;
        }
        let budget = asking.drawn.and_then(|drawn| {
            let numbers = drawn.numbers().iter().zip(&*drawn.draws);
            numbers.into_iter().find(|(number, _)| room == WaitingRoom::Budget(**number)).map(|(_, draw)| draw.budget)
        });
        let urgency = asking.ask.claim.urgency;
        let counts = |to: &ReturnTo| to.urgency <= urgency && budget.is_none_or(|budget| to.budgets.contains(&budget));
        free <= self.returns.reserved(now, asking.ask.claim.client, counts).min(reservable)
    }

    /// The refusal of a request that would have to wait for `wait`, if it finds no place and can evict no other
    /// request.
    pub(super) fn has_no_place(&mut self, now: Instant, asking: Asking<'_>, wait: Duration) -> Option<Refusal> {
        let (mut refusal, mut latest) = (None, Duration::ZERO);
        for room in Self::rooms(asking.drawn) {
            if !self.is_full_for(now, asking, room) || self.victim(now, room, asking.ask, asking.drawn).is_some() {
                continue;
            }
            let (waiting, _) = self.places(room);
            let retry_after = self.until_next_slot(now, room).unwrap_or(wait);
            if refusal.is_none() || retry_after > latest {
                latest = retry_after;
                refusal = Some(Refusal::Full { waiting, rule: self.rule_of(room), retry_after });
            }
        }
        refusal
    }

    /// The waiting request that a new one evicts from `room`. In a full lane, requests blocked by sub-limits are
    /// evicted for a request whose own sub-limits have no queue and open soon. The latter would leave first. This ends
    /// when other requests have a quarter of the places.
    fn victim(
        &mut self,
        now: Instant,
        room: WaitingRoom,
        ask: &AdmitRequest,
        drawn: Option<&Drawn>,
    ) -> Option<QueuePlace> {
        let (claim, cost) = (&ask.claim, ask.cost);
        match room {
            WaitingRoom::Lane => self.queue.victim(claim, cost).or_else(|| {
                let budgets = drawn.map_or(&[][..], Drawn::numbers);
                let closed = self.sub_limits.closed(budgets, now, cost, &self.usual);
                let opens_soon = closed.is_none_or(|(_, until)| until <= now + SOON);
                let most = (self.policy.max_waiting / OF_OTHERS).max(1);
                if opens_soon { self.queue.victim_elsewhere(claim, budgets, most) } else { None }
            }),
            WaitingRoom::Budget(number) => {
                self.queue.victim_at(number, self.sub_limits.backlog_mut(number)?, claim, cost)
            }
        }
    }

    /// Time until the next slot there; `None` if an answer must come first.
    fn until_next_slot(&mut self, now: Instant, room: WaitingRoom) -> Option<Duration> {
        let next = match room {
            WaitingRoom::Lane => self.next_slot(now),
            WaitingRoom::Budget(number) => self.sub_limits.next_slot(number, now),
        };
        (next != Instant::FAR).then(|| next.since(now))
    }

    /// Returns whether more urgent requests take the places that become free: true in a full lane. The rate of arrivals
    /// at a sub-limit is unknown.
    pub(super) fn is_passed(&self) -> bool {
        self.is_full(WaitingRoom::Lane)
    }

    /// Makes room for a request that [may wait](Self::has_no_place) although all places are taken: evicts the request
    /// chosen by [`victim`](Self::victim).
    pub(super) fn make_room(&mut self, now: Instant, ask: &AdmitRequest, drawn: Option<&Drawn>) {
        for room in Self::rooms(drawn) {
            if self.is_full(room)
                && let Some(place) = self.victim(now, room, ask, drawn)
            {
                self.evict(now, room, place);
            }
        }
    }

    fn evict(&mut self, now: Instant, room: WaitingRoom, place: QueuePlace) {
        let (waiting, _) = self.places(room);
        // The time of the next answer is unknown, but it does not come now.
        let retry_after = self.until_next_slot(now, room).unwrap_or(Duration::from_millis(1));
        let Some(Taken { claim, cost, ticket }) = self.take_out(place) else { return };
        self.stats.refused += 1;
        let asked = ticket.ask(claim, cost);
        let WaitingRequest { kind, metered, ref drawn, .. } = ticket;
        let (cost, line) =
            (self.reserve(now, cost, drawn.as_deref()), line_of(&self.learned, &kind, metered, drawn.as_deref()));
        let refusal = Refusal::GaveWay { waiting, rule: self.rule_of(room), retry_after };
        let asking = Asking { ask: &asked, cost: &cost, line: &line, drawn: drawn.as_deref() };
        let refusal = self.come_back(now, asking, refusal, room == WaitingRoom::Lane);
        self.evicted.push(Evicted { ticket: ticket.grant, refusal });
    }
}
