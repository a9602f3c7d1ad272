//! The fleet's side of a lane, where several andantes share its limits.

use std::{sync::Arc, time::Duration};

use super::{State, WaitingRequest, turn::LineKey, usual::unsaid_mean};
use crate::{
    clock::Instant,
    fleet::{AskedPause, Entry, FORGOTTEN, Lease, Pause, PoolGrant, Portion, ReportedLimits, SharedPauses},
    lane::order::Queue,
    learn::LearnedChange,
    limit::{Part, ShareReport, Source, Unit},
};

/// What the store knows a lane by.
#[derive(Clone, Debug, Default)]
pub(in crate::lane) struct SharedNames {
    /// Its limits.
    pub(in crate::lane) pools: Arc<str>,
    /// Its pauses.
    pub(in crate::lane) pauses: Arc<str>,
}

/// A pause that is shorter may be meant for who was refused alone: whole seconds are the least that most APIs can say.
const SHORT: Duration = Duration::from_secs(2);

/// What a lane has in common with those of other andantes, beside what is configured.
#[derive(Debug, Default)]
pub(super) struct SharedMemory {
    /// What the fleet knows of its pauses.
    pauses: SharedPauses,
    /// Which part of what the API reports is used here.
    portion: Portion,
    lease: Lease,
}

impl SharedMemory {
    /// Whether the store is to be called and was not yet.
    pub(super) fn is_calling(&self) -> bool {
        self.pauses.is_calling() || self.portion.is_calling()
    }

    /// Whether the store knows that this lane uses what an API allows.
    pub(super) fn holds_portion(&self) -> bool {
        self.portion.is_known()
    }

    /// Whether other members are known.
    pub(super) fn has_others(&self) -> bool {
        self.lease.members() > 1
    }

    /// Its part, where as many members are in the fleet as are known now.
    fn portion(&mut self) -> &mut Portion {
        self.portion.count(self.lease.members());
        &mut self.portion
    }
}

impl<T> State<T> {
    /// Its configured limits are shared from now on: nothing leaves that no token was granted for.
    pub(in crate::lane) fn share(&mut self, now: Instant, lease: Lease) {
        self.fleet = Some(Box::new(SharedMemory { lease: lease.clone(), ..SharedMemory::default() }));
        self.budget.share(lease);
        self.budget.share_in_flight(now, self.policy.shared_in_flight());
        self.rechecks = true;
    }

    /// Whether the store is to be called. True once for each reason.
    pub(in crate::lane) fn calls(&mut self) -> bool {
        let memory = self.fleet.as_mut().is_some_and(|fleet| fleet.pauses.calls() | fleet.portion.calls());
        self.budget.calls() || memory
    }

    /// What the next call reports of this lane, by its `names`; with `reports`, all that it holds.
    pub(in crate::lane) fn speak(&mut self, now: Instant, names: &SharedNames, reports: bool) -> ShareReport {
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

    /// Whether nobody has configured what the API allows in a window: what it reports is divided then.
    fn is_unconfigured(&self) -> bool {
        self.policy.limits.is_empty()
    }

    /// Whether the API reports what of it is divided.
    fn is_reported(&self) -> bool {
        self.is_unconfigured() && (self.budget.reported_rate().is_some() || self.learned.is_counted())
    }

    /// A request leaves, and has waited, or not.
    pub(super) fn share_taken(&mut self, now: Instant, waited: bool) {
        if self.fleet.is_none() || !self.is_unconfigured() {
            return;
        }
        let reports = self.is_reported();
        self.fleet.iter_mut().for_each(|fleet| fleet.portion().take(now, waited, reports));
        self.use_part();
    }

    /// A request asks and cannot leave now: it waits, or is `refused`.
    pub(super) fn share_lacking(&mut self, now: Instant, refused: bool) {
        if self.fleet.is_none() || !self.is_unconfigured() {
            return;
        }
        let reports = self.is_reported();
        self.fleet.iter_mut().for_each(|fleet| fleet.portion().lack(now, refused, reports));
        self.use_part();
    }

    /// The lane is used no more: which pools another one says are given up.
    pub(super) fn portion_bequeathed(&mut self) -> Vec<Arc<str>> {
        self.fleet.as_mut().map_or_else(Vec::new, |fleet| fleet.portion.bequeathed())
    }

    /// What another lane has given up, and not said.
    pub(super) fn portion_inherited(&mut self, ended: &[Arc<str>]) {
        self.fleet.iter_mut().for_each(|fleet| fleet.portion.inherited(ended));
    }

    /// The part of what the API reports that is this member's may be another one by now.
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
        // Of what is not counted nobody says which part is whose: each goes by what is left.
        self.learned.set_part(if self.is_reported() { part.own } else { 1.0 });
    }

    /// What the store gave.
    pub(in crate::lane) fn given<'a>(&mut self, now: Instant, given: impl Iterator<Item = (&'a Entry, &'a PoolGrant)>) {
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

    /// The store did not reply to what was said.
    pub(in crate::lane) fn unheard(&mut self, now: Instant, entries: &[Entry]) {
        self.budget.unheard(now, entries);
        if let Some(fleet) = &mut self.fleet {
            fleet.pauses.unheard();
            if entries.iter().any(|entry| entry.ends.is_none() && fleet.portion.is_of(&entry.pool)) {
                fleet.portion.unheard();
            }
        }
    }

    /// The store tells of this `pause` of `budget`, or of all if that has no name.
    pub(in crate::lane) fn told_of_pause(&mut self, now: Instant, budget: &str, pause: &Pause) {
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

    /// An answer may have asked for a pause, which the others are told of at once.
    pub(super) fn share_pauses(&mut self, now: Instant) {
        if self.fleet.is_some() {
            let asked = self.told_pauses(now);
            self.fleet.iter_mut().for_each(|fleet| fleet.pauses.asked(now, &asked));
        }
    }

    /// The pauses that the others are told of. Where each goes for itself they are told of none that is short: it would end
    /// at the same time for all, who would all send then.
    fn told_pauses(&self, now: Instant) -> Vec<AskedPause> {
        let least = if self.budget.is_undivided() { SHORT } else { Duration::ZERO };
        let mut asked = self.learned.pauses(now);
        asked.retain(|pause| pause.until >= now + least);
        asked
    }

    /// An operator has what was learned forgotten at another member.
    fn told_to_forget(&mut self) {
        let changes = (!self.learned.is_blank()).then_some(LearnedChange::ForgottenByFleet);
        self.forget();
        self.note(changes.into_iter().collect());
    }

    /// An operator has what was learned forgotten here: the others forget it as well.
    pub(super) fn share_forgetting(&mut self, now: Instant) {
        self.fleet.iter_mut().for_each(|fleet| fleet.pauses.forget(now));
    }

    /// Everything that was held is the store's again.
    pub(in crate::lane) fn lose_shares(&mut self, now: Instant) {
        self.budget.lose_shares(now);
        if let Some(SharedMemory { pauses, portion, .. }) = self.fleet.as_deref_mut() {
            pauses.lost();
            portion.lost();
        }
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
fn backlog<T>(queue: &Queue<LineKey, WaitingRequest<T>>, unit: Unit, unsaid: f64) -> u64 {
    let counts = |line: &LineKey| line.scope.includes(Source::Config);
    queue.units(unit, counts).saturating_add((queue.unsaid(unit, counts) as f64 * unsaid).ceil() as u64)
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
