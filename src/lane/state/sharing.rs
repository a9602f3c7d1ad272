//! The fleet's side of a lane whose limits several andantes share.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_fleet::{AskedPause, Entry, FORGOTTEN, Lease, Pause, PoolGrant, Portion, ReportedLimits, SharedPauses};
use andante_learn::LearnedChange;
use andante_limit::{Part, Ready, ShareReport, Source, Unit};
use andante_order::Queue;

use super::{State, WaitingRequest, turn::LineKey, usual::unsaid_mean};

/// The names by which the store knows a lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedNames {
    /// Name of its limits.
    pub(crate) pools: Arc<str>,
    /// Name of its pauses.
    pub(crate) pauses: Arc<str>,
}

/// A shorter pause may be meant only for the refused client, as most APIs can announce only whole seconds.
const SHORT: Duration = Duration::from_secs(2);

/// State that a lane shares with other andantes, in addition to the configured limits.
#[derive(Debug, Default)]
pub(super) struct SharedMemory {
    /// The fleet's knowledge of the lane's pauses.
    pauses: SharedPauses,
    /// The share of the API's reported quota that is used here.
    portion: Portion,
    lease: Lease,
}

impl SharedMemory {
    /// Returns whether the store has to be called and was not yet.
    pub(super) fn is_calling(&self) -> bool {
        self.pauses.is_calling() || self.portion.is_calling()
    }

    /// Returns whether the store knows that this lane uses a share of the API's quota.
    pub(super) fn holds_portion(&self) -> bool {
        self.portion.is_known()
    }

    /// Returns whether other members are known.
    pub(super) fn has_others(&self) -> bool {
        self.lease.members() > 1
    }

    /// The lane's portion, updated to the number of members known now.
    fn portion(&mut self) -> &mut Portion {
        self.portion.count(self.lease.members());
        &mut self.portion
    }
}

impl<T> State<T> {
    /// Shares the lane's configured limits from now on: nothing leaves without a granted token.
    pub(crate) fn share(&mut self, now: Instant, lease: Lease) {
        self.fleet = Some(Box::new(SharedMemory { lease: lease.clone(), ..SharedMemory::default() }));
        self.budget.share(lease);
        self.budget.share_in_flight(now, self.policy.shared_in_flight());
        self.rechecks = true;
    }

    /// Takes the reasons to call the store. True once for each reason.
    pub(crate) fn calls(&mut self) -> bool {
        let memory = self.fleet.as_mut().is_some_and(|fleet| fleet.pauses.calls() | fleet.portion.calls());
        self.budget.calls() || memory
    }

    /// The report of this lane, under its `names`, for the next call. With `reports`, it lists everything that the lane
    /// holds.
    pub(crate) fn speak(&mut self, now: Instant, names: &SharedNames, reports: bool) -> ShareReport {
        self.rechecks = true;
        let Self { budget, queue, policy, usual, .. } = self;
        let waits = |unit| backlog(queue, unit, unsaid_mean(policy, usual, unit));
        let mut spoken = budget.speak(now, &names.pools, waits, reports);
        let waiting = u32::try_from(waits(Unit::REQUESTS).min(queue.len() as u64)).unwrap_or(u32::MAX);
        budget.speak_in_flight(now, &names.pools, waiting, reports, &mut spoken);
        let reported = self
            .is_reported()
            .then(|| ReportedLimits { rate: self.budget.reported_rate(), word: self.learned.found_windows() });
        let asked = self.told_pauses(now);
        let Some(fleet) = &mut self.fleet else { return spoken };
        spoken.entries.extend(fleet.portion().speak(now, &names.pauses, reported, !self.queue.is_empty(), reports));
        let next = spoken.next.min(fleet.portion.next_look(now));
        let pauses = fleet.pauses.speak(now, &names.pauses, asked, reports);
        self.use_part();
        ShareReport { pauses, next, ..spoken }
    }

    /// Returns whether no window is configured for the API: then its reported quota is divided.
    fn is_unconfigured(&self) -> bool {
        self.policy.limits.is_empty()
    }

    /// Returns whether the API reports a quota that the fleet divides.
    fn is_reported(&self) -> bool {
        self.is_unconfigured() && (self.budget.reported_rate().is_some() || self.learned.is_counted())
    }

    /// Records a request that leaves, and whether it has `waited`.
    pub(super) fn share_taken(&mut self, now: Instant, waited: bool) {
        if self.fleet.is_none() || !self.is_unconfigured() {
            return;
        }
        let reports = self.is_reported();
        self.fleet.iter_mut().for_each(|fleet| fleet.portion().take(now, waited, reports));
        self.use_part();
    }

    /// Records a request that cannot leave now: it waits, or is `refused`.
    pub(super) fn share_lacking(&mut self, now: Instant, refused: bool) {
        if self.fleet.is_none() || !self.is_unconfigured() {
            return;
        }
        let reports = self.is_reported();
        self.fleet.iter_mut().for_each(|fleet| fleet.portion().lack(now, refused, reports));
        self.use_part();
    }

    /// Retires the lane, and returns the pools whose end another lane has to report.
    pub(super) fn portion_bequeathed(&mut self) -> Vec<Arc<str>> {
        self.fleet.as_mut().map_or_else(Vec::new, |fleet| fleet.portion.bequeathed())
    }

    /// Takes over the pools that another lane has given up but not reported as ended.
    pub(super) fn portion_inherited(&mut self, ended: &[Arc<str>]) {
        self.fleet.iter_mut().for_each(|fleet| fleet.portion.inherited(ended));
    }

    /// Applies this member's share of the reported quota, which may have changed.
    fn use_part(&mut self) {
        let Some(fleet) = &self.fleet else { return };
        let part = match self.is_unconfigured() {
            true => Part { own: fleet.portion.part(), equal: fleet.portion.equal() },
            false => Part::default(),
        };
        if part != self.budget.part() {
            self.budget.set_part(part);
            self.rechecks = true;
        }
        // An uncounted quota has no known parts: each member goes by what is left.
        self.learned.set_part(if self.is_reported() { part.own } else { 1.0 });
    }

    /// Applies the store's grants.
    pub(crate) fn given<'a>(&mut self, now: Instant, given: impl Iterator<Item = (&'a Entry, &'a PoolGrant)>) {
        let mut fleet = self.fleet.take();
        let mut word = None;
        let given = given.inspect(|(entry, grant)| match &mut fleet {
            Some(fleet) if entry.ends.is_some() => fleet.portion.heard_end(&entry.pool),
            Some(fleet) if fleet.portion.is_of(&entry.pool) => {
                fleet.portion().heard(now, grant);
                word = Some(&grant.word);
            }
            _ => {}
        });
        self.budget.given(now, given);
        if let Some(word) = word {
            self.learned.told_of_windows(word, &mut self.budget);
        }
        self.fleet = fleet;
        self.fleet.iter_mut().for_each(|fleet| fleet.pauses.heard());
        self.use_part();
        self.rechecks = true;
    }

    /// Handles a call without a reply from the store.
    pub(crate) fn unheard(&mut self, now: Instant, entries: &[Entry]) {
        self.budget.unheard(now, entries);
        if let Some(fleet) = &mut self.fleet {
            fleet.pauses.unheard();
            if entries.iter().any(|entry| entry.ends.is_none() && fleet.portion.is_of(&entry.pool)) {
                fleet.portion.unheard();
            }
        }
    }

    /// Handles a `pause` of `budget` reported by the store; an empty name means the whole lane.
    pub(crate) fn told_of_pause(&mut self, now: Instant, budget: &str, pause: &Pause) {
        let Some(SharedMemory { pauses, .. }) = self.fleet.as_deref_mut() else { return };
        if budget == FORGOTTEN {
            return self.told_to_forget();
        }
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

    /// Tells the other members at once of pauses that an answer may have asked for.
    pub(super) fn share_pauses(&mut self, now: Instant) {
        if self.fleet.is_some() {
            let asked = self.told_pauses(now);
            self.fleet.iter_mut().for_each(|fleet| fleet.pauses.asked(now, &asked));
        }
    }

    /// The pauses that other members learn of. Where each member paces itself, short pauses are not shared: they would
    /// end at the same time for all members, and all would send then.
    fn told_pauses(&self, now: Instant) -> Vec<AskedPause> {
        let least = if self.budget.is_undivided() { SHORT } else { Duration::ZERO };
        let mut asked = self.learned.pauses(now);
        asked.retain(|pause| pause.until >= now + least);
        asked
    }

    /// Forgets what was learned, because an operator asked another member to.
    fn told_to_forget(&mut self) {
        let changes = (!self.learned.is_blank()).then_some(LearnedChange::ForgottenByFleet);
        self.forget();
        self.note(changes.into_iter().collect());
    }

    /// Makes the other members forget what was learned, because an operator asked this one to.
    pub(super) fn share_forgetting(&mut self, now: Instant) {
        self.fleet.iter_mut().for_each(|fleet| fleet.pauses.forget(now));
    }

    /// Returns everything that was held to the store.
    pub(crate) fn lose_shares(&mut self, now: Instant) {
        self.budget.lose_shares(now);
        if let Some(SharedMemory { pauses, portion, .. }) = self.fleet.as_deref_mut() {
            pauses.lost();
            portion.lost();
        }
        self.rechecks = true;
    }

    /// Handles the store's request for a call because of `pool`. Returns whether `pool` belongs to this lane.
    pub(crate) fn hinted(&mut self, now: Instant, pool: &str, turn: bool) -> bool {
        let ours = self.budget.hinted(now, pool, turn);
        self.rechecks |= ours;
        ours
    }

    /// Earliest time at which the store permits requests under the lane's shared limits; other limits are ignored.
    pub(crate) fn store_ready(&self, now: Instant) -> Ready {
        self.budget.store_ready(now)
    }

    /// Records that the lease is valid again, or is over.
    pub(crate) fn leased(&mut self) {
        self.rechecks = true;
    }

    /// Everything that the lane holds, for the store that this process leaves: nothing leaves any more.
    pub(crate) fn leave(&mut self, now: Instant) -> Vec<Entry> {
        self.budget.leave(now)
    }
}

/// The amount of `unit` that waits in `queue`; a request that does not declare its amount counts as `unsaid`.
fn backlog<T>(queue: &Queue<LineKey, WaitingRequest<T>>, unit: Unit, unsaid: f64) -> u64 {
    let counts = |line: &LineKey| line.scope.includes(Source::Config);
    queue.units(unit, counts).saturating_add((queue.unsaid(unit, counts) as f64 * unsaid).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use andante_learn::RouteKey;
    use andante_limit::{Cost, Scope};
    use andante_order::{Claim, Turn};

    #[test]
    fn one_that_says_little_does_not_hide_what_others_need() {
        let (mut queue, tokens) = (Queue::new(), Unit::named("tokens").unwrap());
        let mut wait = |cost: Cost, metered| {
            let (since, deadline) = (Instant::START, Instant::FAR);
            let ticket =
                WaitingRequest { grant: (), kind: RouteKey::NONE, metered, since, deadline, drawn: None, port: 80 };
            let line = LineKey { scope: Scope::NONE, paused: None, metered };
            queue.enqueue(line, &[], Claim::USUAL, cost, Turn::New, ticket);
        };
        (0..3).for_each(|_| wait(Cost::MIN.open(), true));
        wait(Cost::MIN.with(tokens, 5), true);
        wait(Cost::MIN.with(tokens, 0), false);
        assert_eq!(backlog(&queue, tokens, 100.0), 3 * 100 + 5);
        assert_eq!(backlog(&queue, Unit::REQUESTS, 0.0), 5);
    }
}
