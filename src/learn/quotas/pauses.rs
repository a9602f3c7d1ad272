//! Pauses of quotas, for the other members of a fleet, by the names that the API gives the quotas.

use andante_clock::Instant;
use andante_limit::Scope;

use super::{Quotas, quota::Quota};
use crate::Reason;

/// Longest name of a quota that is shared with the fleet.
const LONGEST_NAME: usize = 100;

impl Quotas {
    /// Pauses with their ends and reasons. A quota without a name that all kinds of requests draw on has the empty
    /// name, like the lane. Other quotas without a name cannot be identified elsewhere, so they are left out.
    pub(crate) fn pauses(&self, now: Instant) -> impl Iterator<Item = (&str, Instant, Reason)> {
        self.budgets.iter().filter_map(move |one| {
            let empty = one.left.empty_until(now).map(|until| (until, Reason::Exhausted));
            let (until, reason) = empty.into_iter().chain(one.gate.until()).max_by_key(|(until, _)| *until)?;
            let name = match one.left.name.as_deref() {
                Some(name) => Some(name).filter(|name| name.len() <= LONGEST_NAME),
                None => (self.scopes.count(Scope::only(one.id)).without == 0).then_some(""),
            };
            Some((name?, until, reason))
        })
    }

    /// When the empty or paused quotas of `scope` let a request leave again.
    pub(crate) fn opens(&self, now: Instant, scope: Scope) -> Instant {
        self.within(scope).fold(now, |at, one| {
            let paused = one.gate.until().map_or(now, |(until, _)| until);
            at.max(paused).max(one.left.opens(now).unwrap_or(now))
        })
    }

    /// Pauses the quotas called `name` until `until`. Returns true if that changes anything.
    pub(crate) fn close(&mut self, name: &str, now: Instant, until: Instant, reason: Reason) -> bool {
        self.called(name).fold(false, |changes, one| changes | one.gate.close(now, until, reason))
    }

    /// Ends pauses of the quotas called `name` up to `until`, and forgets that they were empty. Quotas without a name
    /// are called by the empty name.
    pub(crate) fn open(&mut self, name: &str, now: Instant, until: Instant) {
        for one in self.called(name) {
            if one.gate.until().is_some_and(|(own, _)| own <= until) {
                one.gate.open();
            }
            if one.left.empty_until(now).is_some_and(|own| own <= until) {
                one.left.start_over();
            }
        }
    }

    fn called(&mut self, name: &str) -> impl Iterator<Item = &mut Quota> {
        self.budgets.iter_mut().filter(move |one| one.left.name.as_deref().unwrap_or_default() == name)
    }
}
