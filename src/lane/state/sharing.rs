//! The fleet's side of a lane, where several andantes share its limits.

use std::sync::Arc;

use super::{State, WaitingRequest, turn::LineKey, usage::unsaid};
use crate::{
    clock::Instant,
    fleet::{AskedPause, Entry, Lease, Pause, PoolGrant},
    lane::order::Queue,
    limit::{ShareReport, Source, Unit},
};

/// What the store knows a lane by.
#[derive(Clone, Debug, Default)]
pub(in crate::lane) struct SharedNames {
    /// Its limits.
    pub(in crate::lane) pools: Arc<str>,
    /// Its pauses.
    pub(in crate::lane) pauses: Arc<str>,
}

impl<T> State<T> {
    /// Its configured limits are shared from now on: nothing leaves that no token was granted for.
    pub(in crate::lane) fn share(&mut self, now: Instant, lease: Lease) {
        self.budget.share(lease);
        self.budget.share_in_flight(now, self.policy.shared_in_flight());
        self.pauses = Some(Box::default());
        self.rechecks = true;
    }

    /// Whether the store is to be called. True once for each reason.
    pub(in crate::lane) fn calls(&mut self) -> bool {
        let paused = self.pauses.as_mut().is_some_and(|pauses| pauses.calls());
        self.budget.calls() || paused
    }

    /// What the next call reports of this lane, by its `names`; with `reports`, all that it holds.
    pub(in crate::lane) fn speak(&mut self, now: Instant, names: &SharedNames, reports: bool) -> ShareReport {
        self.rechecks = true;
        let Self { budget, queue, policy, usual, .. } = self;
        let waits = |unit| backlog(queue, unit, unsaid(policy, usual, unit));
        let mut spoken = budget.speak(now, &names.pools, waits, reports);
        let waiting = u32::try_from(waits(Unit::REQUESTS).min(queue.len() as u64)).unwrap_or(u32::MAX);
        budget.speak_in_flight(now, &names.pools, waiting, reports, &mut spoken);
        let Some(pauses) = &mut self.pauses else { return spoken };
        ShareReport { pauses: pauses.speak(now, &names.pauses, self.learned.pauses(now), reports), ..spoken }
    }

    /// What the store gave.
    pub(in crate::lane) fn given<'a>(&mut self, now: Instant, given: impl Iterator<Item = (&'a Entry, &'a PoolGrant)>) {
        self.budget.given(now, given);
        self.pauses.iter_mut().for_each(|pauses| pauses.heard());
        self.rechecks = true;
    }

    /// The store did not reply to what was said.
    pub(in crate::lane) fn unheard(&mut self, now: Instant, entries: &[Entry]) {
        self.budget.unheard(now, entries);
        self.pauses.iter_mut().for_each(|pauses| pauses.unheard());
    }

    /// The store tells of this `pause` of `budget`, or of all if that has no name.
    pub(in crate::lane) fn told_of_pause(&mut self, now: Instant, budget: &str, pause: &Pause) {
        let Some(pauses) = &mut self.pauses else { return };
        let changes = if pause.left > 0 {
            let asked = AskedPause { budget: budget.into(), until: pause.until(now), cause: pause.cause };
            pauses.told(now, budget, asked.until);
            self.learned.told_of_pause(now, &asked)
        } else {
            let ended = pauses.told_of_end(budget);
            ended.map(|until| self.learned.told_of_end(now, budget, until)).unwrap_or_default()
        };
        self.note(changes);
        (self.rechecks, self.unwritten) = (true, true);
    }

    /// An answer may have asked for a pause, which the others are told of at once.
    pub(super) fn share_pauses(&mut self, now: Instant) {
        if let Some(pauses) = &mut self.pauses {
            pauses.asked(now, &self.learned.pauses(now));
        }
    }

    /// An operator forgets what was learned: the pauses that others know of end as well.
    pub(super) fn end_pauses(&mut self, now: Instant) {
        self.pauses.iter_mut().for_each(|pauses| pauses.end(now));
    }

    /// Everything that was held is the store's again.
    pub(in crate::lane) fn lose_shares(&mut self, now: Instant) {
        self.budget.lose_shares(now);
        self.pauses.iter_mut().for_each(|pauses| pauses.lost());
        self.rechecks = true;
    }

    /// The store asks for a call because of `pool`. Returns whether that is a pool of this lane.
    pub(in crate::lane) fn hinted(&mut self, now: Instant, pool: &str, turn: bool) -> bool {
        let ours = self.budget.hinted(now, pool, turn);
        self.rechecks |= ours;
        ours
    }

    /// The lease holds again, or is over.
    pub(in crate::lane) fn leased(&mut self) {
        self.rechecks = true;
    }

    /// What it holds, for the store that this process leaves: nothing leaves any more.
    pub(in crate::lane) fn leave(&mut self, now: Instant) -> Vec<Entry> {
        self.budget.leave(now)
    }
}

/// How much of `unit` waits in `queue`, where each request takes `unsaid` that does not say how much.
fn backlog<T>(queue: &Queue<LineKey, WaitingRequest<T>>, unit: Unit, unsaid: u32) -> u64 {
    let counts = |line: &LineKey| line.scope.includes(Source::Config);
    queue.units(unit, counts).saturating_add(queue.unsaid(unit, counts).saturating_mul(unsaid.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        lane::order::{Claim, Turn},
        learn::RouteKey,
        limit::{Cost, Scope},
    };

    #[test]
    fn one_that_says_little_does_not_hide_what_others_need() {
        let (mut queue, tokens) = (Queue::new(), Unit::named("tokens").unwrap());
        let mut wait = |cost: Cost, metered| {
            let (since, deadline) = (Instant::START, Instant::FAR);
            let ticket = WaitingRequest { grant: (), kind: RouteKey::NONE, metered, since, deadline, drawn: None };
            let line = LineKey { scope: Scope::NONE, paused: None, metered };
            queue.enqueue(line, &[], Claim::USUAL, cost, Turn::New, ticket);
        };
        (0..3).for_each(|_| wait(Cost::MIN.open(), true));
        wait(Cost::MIN.with(tokens, 5), true);
        wait(Cost::MIN.with(tokens, 0), false);
        assert_eq!(backlog(&queue, tokens, 100), 3 * 100 + 5);
        assert_eq!(backlog(&queue, Unit::REQUESTS, 0), 5);
    }
}
