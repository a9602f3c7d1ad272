//! Requests that wait and cannot have their slots any more in the time that they may wait: a pause has begun, or a limit has
//! fallen. They are told so at once, and not when their time is over.

use std::time::Duration;

use super::{State, full::Displaced, predict::opens};
use crate::{
    clock::Instant,
    lane::{order::QueuePlace, request::Refusal},
    limit::Unit,
};

/// Whether what waits is to be looked at, and when that was done last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    delayed: bool,
    looked: Option<Instant>,
}

/// What waits is not looked at more often than this.
const LOOKS: Duration = Duration::from_secs(1);
/// So many of a strand are looked at one by one, and each of so many of those behind them.
const EACH: usize = 256;
const EVERY: usize = 32;

impl<T> State<T> {
    /// Something may have made requests wait for longer than they were told.
    pub(super) fn delayed(&mut self) {
        self.lateness.delayed = true;
    }

    /// When what waits is to be looked at again; [`Instant::FAR`] if nothing has delayed it.
    pub(super) fn next_look(&self) -> Instant {
        let Lateness { delayed, looked } = self.lateness;
        looked.filter(|_| delayed).map_or(Instant::FAR, |looked| looked + LOOKS)
    }

    /// Refuses those that wait and will certainly not have their slots in time: nothing is held against them but what holds
    /// them up, and those before them in their own strands. O(waiting), and only if something has [delayed](Self::delayed)
    /// them.
    pub(super) fn refuse_late(&mut self, now: Instant) {
        let Lateness { delayed, looked } = self.lateness;
        if !delayed || looked.is_some_and(|looked| looked + LOOKS > now) {
            return;
        }
        self.lateness = Lateness { delayed: false, looked: Some(now) };
        let waiting = self.queue.len();
        for (place, at) in self.late(now) {
            let Some(taken) = self.take_out(place) else { continue };
            let ticket = taken.ticket;
            let (wait, patience) = (at.since(ticket.since), ticket.deadline.since(ticket.since));
            let retry_after = at.since(now).saturating_sub(patience).max(Duration::from_millis(1));
            self.stats.refused += 1;
            let refusal = Refusal::TooLong { waiting, wait, patience, retry_after };
            self.displaced.push(Displaced { ticket: ticket.grant, refusal });
        }
    }

    /// Those that are late, and when they would leave at best.
    fn late(&mut self, now: Instant) -> Vec<(QueuePlace, Instant)> {
        // How long a pause without an end lasts is not known: it refuses nothing.
        let held = self.held_until(now).filter(|until| *until != Instant::FAR).unwrap_or(now);
        let Self { queue, budget, learned, narrow, .. } = self;
        let mut late = Vec::new();
        for strand in queue.strands() {
            let (mut before, mut at, mut projected) = (0, now, 0);
            for (index, (place, line, cost, ticket)) in strand.enumerate() {
                // What costs more says nothing of when one has its slot that costs less.
                if index < EACH || index % EVERY == 0 || cost.requests() < projected {
                    projected = cost.requests();
                    let from = opens(learned, now, line.scope, line.paused.as_ref()).max(held);
                    let ahead = |_, unit| if unit == Unit::REQUESTS { before } else { 0 };
                    at = budget.project(now, from, ahead, cost.unmetered(), line.scope);
                    if let Some(drawn) = &ticket.drawn {
                        at = at.max(narrow.project_least(drawn, now, from, before));
                    }
                }
                if at > ticket.deadline { late.push((place, at)) } else { before += u64::from(cost.requests()) }
            }
        }
        late
    }
}
