//! A member's relation to the store, and log lines about its changes.

use std::{num::NonZeroU32, time::Duration};

use tracing::{error, info, warn};

use super::FleetMember;
use crate::{
    clock::{Instant, log_seconds},
    fleet::{Mode, StoreDown},
    store::{Ledger, LedgerError},
};

/// Source of the budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// The store has not answered yet.
    #[default]
    Joining,
    /// The store is new or has forgotten its data: it withholds tokens that no member reports.
    Learning,
    /// The store shares the budgets.
    Shared,
    /// The store does not answer, and the lease still holds.
    Silent,
    /// The lease has ended: no request leaves.
    CutOff,
    /// The lease has ended: requests leave within the floor, which is never lent.
    Floor,
    /// The lease has ended: each member uses the share that it would have, and no store guards the sum.
    Open,
}

/// Remedy for the wait at a new store.
const NEW_STORE_HINT: &str = "for a new store, run `andante fleet init` before the first andante starts";
/// Problem that `/status` shows if there is no worse one.
const DIFFERING: &str = "others of the fleet have another fleet-size or floor";
/// Shortest time between two log lines about whether the store answers.
const QUIET: Duration = Duration::from_secs(2);

// === impl Standing ===

impl Standing {
    pub(super) const ALL: [Self; 7] =
        [Self::Joining, Self::Learning, Self::Shared, Self::Silent, Self::CutOff, Self::Floor, Self::Open];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Learning => "learning",
            Self::Shared => "shared",
            Self::Silent => "silent",
            Self::CutOff => "cut-off",
            Self::Floor => "floor",
            Self::Open => "open",
        }
    }
}

// === impl FleetMember ===

impl<L: Ledger> FleetMember<L> {
    /// Takes the fleet's `members`, as far as they are known. This member is among the owners of a floor, unless there
    /// are too many members.
    pub(super) fn take_seat(&self, now: Instant, members: u32, differing: u32) {
        let seated = self.lease.count(now, members, differing);
        let crowded = matches!(self.lease.down(), StoreDown::Floor(floor) if members > floor.members.get());
        let store = self.report.store.as_str();
        let mut last = self.report.last.lock();
        if crowded && !std::mem::replace(&mut last.crowded, crowded) {
            error!(store, members, seated, "there are more andantes than fleet-size: the last ones have no floor");
        }
        if differing > 0 && last.differing == 0 {
            error!(
                store,
                members,
                differing,
                seated,
                "others of the fleet have another fleet-size or floor: write the same for all, or limits that are divided \
                 may be exceeded; who comes to others with another floor has none"
            );
        }
        (last.crowded, last.differing) = (crowded, differing);
    }

    /// Logs this member's relation to the store, whenever that changes.
    pub(super) fn stand(&self, failed: Option<&LedgerError>) {
        let now = self.clock.now();
        let leased = self.lease.holds(now);
        let unheard = self.report.last.lock().id.is_none();
        if self.failures > 0 && unheard && !self.lease.goes_on() && now.since(self.began) >= self.member.lease_length()
        {
            // Assumes the configured number of members, because no store reports another one.
            let members = self.size.map_or(1, NonZeroU32::get);
            self.take_seat(now, members, 0);
        }
        let alone = match self.lease.down() {
            _ if !self.lease.goes_on() => Standing::CutOff,
            StoreDown::Wait => Standing::CutOff,
            StoreDown::Floor(_) => Standing::Floor,
            StoreDown::Open => Standing::Open,
        };
        let standing = match (self.failures > 0, self.member.mode()) {
            (true, Mode::Joining) if alone != Standing::CutOff => alone,
            (_, Mode::Joining) => Standing::Joining,
            (false, Mode::NotYet(_)) if !self.member.has_joined() && alone == Standing::CutOff => Standing::Joining,
            (true, _) | (false, Mode::Deposed | Mode::NotYet(_) | Mode::Disagreed(_)) if leased => Standing::Silent,
            (true, _) | (false, Mode::Deposed | Mode::NotYet(_) | Mode::Disagreed(_)) => alone,
            (false, Mode::Learning(_)) => Standing::Learning,
            (false, Mode::Member) => Standing::Shared,
        };
        let problem = match self.member.mode() {
            // An earlier answer is no news while the store does not answer.
            _ if failed.is_some() => failed.map(ToString::to_string),
            Mode::Deposed => Some("it is no longer the store that counts".to_owned()),
            Mode::NotYet(left) => {
                let left = left.as_secs_f64();
                Some(format!("it has taken another one's place, which may answer yet: it decides after {left:.1}s"))
            }
            Mode::Disagreed(lease) => Some(format!("the fleet has a lease of {lease:?}: write the same")),
            _ if self.report.last.lock().differing > 0 => Some(DIFFERING.to_owned()),
            _ => None,
        };
        let store = self.report.store.as_str();
        failed.iter().for_each(|_| self.report.metrics.failed());
        let mut last = self.report.last.lock();
        if failed.is_some() || self.failures == 0 {
            let first = last.problem.is_none();
            last.problem = problem;
            last.hint = failed.map(LedgerError::remedy).or((standing == Standing::Learning).then_some(NEW_STORE_HINT));
            if let (Some(problem), true, Standing::Joining) = (&last.problem, first, standing) {
                error!(
                    store,
                    problem,
                    hint = last.hint,
                    "cannot join the fleet: shared limits let nothing through until the store answers"
                );
            }
        }
        last.standing = standing;
        // A store that answers only sometimes is not worth two lines each time.
        let passing = matches!(standing, Standing::Silent | Standing::Shared);
        if last.logged == standing || passing && last.logged_at.is_some_and(|at| now.since(at) < QUIET) {
            return;
        }
        (last.logged, last.logged_at) = (standing, Some(now));
        let problem = last.problem.as_deref().unwrap_or("none");
        match standing {
            Standing::Joining => info!(store, "joining the fleet"),
            Standing::Learning => {
                let learns_for_s = self.lease.learns_until(now).map(|until| log_seconds(until.since(now)));
                warn!(
                    store,
                    learns_for_s,
                    hint = last.hint,
                    "the store is new, or has lost its data: tokens that no andante reports are given out a window later"
                );
            }
            Standing::Shared => info!(store, members = last.members, "limits are shared with the fleet"),
            Standing::Silent => {
                let lease_s = log_seconds(self.lease.until().since(now));
                warn!(
                    store,
                    problem,
                    lease_s,
                    hint = last.hint,
                    "the store does not answer: continuing with the held shares until the lease ends"
                );
            }
            Standing::CutOff => {
                error!(store, problem, hint = last.hint, "the lease is over: shared limits let nothing through");
            }
            Standing::Floor => {
                warn!(
                    store,
                    problem,
                    hint = last.hint,
                    "the lease is over: continuing with this andante's floor of each shared limit"
                );
            }
            Standing::Open => error!(
                store,
                problem,
                hint = last.hint,
                "the lease is over, and store-down is open: continuing without the store; the limits may be exceeded"
            ),
        }
    }
}
