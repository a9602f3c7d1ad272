//! The fleet's side of a lane, where several andantes share its limits.

use super::State;
use crate::{
    clock::Instant,
    fleet::{Entry, Lease, PoolGrant},
    limit::{ShareReport, Source, Unit},
};

impl<T> State<T> {
    /// Its configured limits are shared from now on: nothing leaves that no token was granted for.
    pub(in crate::lane) fn share(&mut self, lease: Lease) {
        self.budget.share(lease);
        self.rechecks = true;
    }

    /// Whether the store is to be called. True once for each reason.
    pub(in crate::lane) fn calls(&mut self) -> bool {
        self.budget.calls()
    }

    /// What the next call reports of this lane, by its `name`; with `reports`, all that it holds.
    pub(in crate::lane) fn speak(&mut self, now: Instant, name: &str, reports: bool) -> ShareReport {
        self.rechecks = true;
        let backlog = self.queue.units(Unit::REQUESTS, |line| line.scope.includes(Source::Config));
        self.budget.speak(now, name, backlog, reports)
    }

    /// What the store gave.
    pub(in crate::lane) fn given<'a>(&mut self, now: Instant, given: impl Iterator<Item = (&'a Entry, &'a PoolGrant)>) {
        self.budget.given(now, given);
        self.rechecks = true;
    }

    /// The store did not reply to what was said.
    pub(in crate::lane) fn unheard(&mut self, now: Instant, entries: &[Entry]) {
        self.budget.unheard(now, entries);
    }

    /// Everything that was held is the store's again.
    pub(in crate::lane) fn lose_shares(&mut self, now: Instant) {
        self.budget.lose_shares(now);
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
