//! A budget that is shared with other processes: of each of its limits only some units are ours at a time.

#[cfg(test)]
mod histories;
mod in_flight;
mod limit_share;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod tests;

use std::time::Duration;

use smallvec::SmallVec;

use self::in_flight::SharedInFlight;
use super::{Budget, Limit};
use crate::{
    clock::Instant,
    fleet::{Entry, Lease, Micros, Pause, PoolGrant, Share, ShareNeed, micros},
    limit::{Amount, Cost, Gcra, LimitSpec, Margin, Scope, Source, Unit, Window},
};

/// The fleet's side of a budget.
#[derive(Clone, Debug)]
pub(super) struct SharedBudget {
    lease: Lease,
    /// Whether the lease held when windows were fitted to what may be used.
    leased: bool,
    /// It needs more tokens of some limit, or holds too many: the store is to be called.
    calls: bool,
    /// Limits that were removed, and when the tokens held of them are free.
    ended: Vec<(Entry, Instant)>,
    /// The limit on how many may be under way; `None` without one.
    in_flight: Option<Box<SharedInFlight>>,
    /// How long an answer takes, in the mean of the last ones.
    took: Option<Duration>,
}

/// What a call reports of a budget to the store.
#[derive(Debug)]
pub struct ShareReport {
    /// One for each limit that is spoken of.
    pub entries: Vec<Entry>,
    /// Pauses of the lane that the store may not know of.
    pub pauses: Vec<Pause>,
    /// When to look again although nothing happens.
    pub next: Instant,
}

/// This process' share of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareUsage {
    /// How many units are here, free or in use.
    pub held: u32,
    /// Of these: what may be used or given away now.
    pub free: u32,
    /// How many are this process' beside them, which the store never lends.
    pub own: u32,
    /// How many are due to this process.
    pub target: f64,
    /// Others want more than there is.
    pub wanted: bool,
    /// How long the store, which is new or has forgotten, gives out nothing of it yet.
    pub opens_in: Option<Duration>,
}

/// The shortest way to an API from which no answer has come yet: longer than most are.
const UNKNOWN_WAY: Duration = Duration::from_millis(300);

/// An answer counts for such a part of the mean.
const ANSWERS: u32 = 16;

// === impl SharedBudget ===

impl SharedBudget {
    /// An answer took so long.
    pub(super) fn observe(&mut self, took: Duration) {
        self.took = Some(self.took.map_or(took, |mean| mean - mean / ANSWERS + took / ANSWERS));
    }
}

// === impl Budget ===

impl Budget {
    /// From now on the configured limits are shared: nothing is held of any yet, and nothing leaves unless the `lease`
    /// holds, or lets something be used without the store. What was sent so far concerns the process that sent it.
    pub fn share(&mut self, lease: Lease) {
        let (leased, calls, ended, in_flight, took) = (false, false, Vec::new(), None, None);
        self.shared = Some(Box::new(SharedBudget { lease, leased, calls, ended, in_flight, took }));
        for limit in self.limits.iter_mut().filter(|limit| limit.source == Source::Config && limit.is_short()) {
            (limit.window, limit.gcra) = (Window::new(&limit.spec), Gcra::new(&limit.spec));
        }
        self.share_limits();
    }

    /// Whether the store is to be called for this budget. True once for each reason.
    pub fn calls(&mut self) -> bool {
        self.shared.as_mut().is_some_and(|shared| std::mem::take(&mut shared.calls))
    }

    /// Whether it is.
    pub fn is_calling(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.calls)
    }

    /// What the next call reports of the limits of the lane called `name`, where so much of each unit waits as
    /// `backlog_of` says. Gifts are taken off. With `reports`, it holds all that a store must know that has forgotten everything.
    pub fn speak(&mut self, now: Instant, name: &str, backlog_of: impl Fn(Unit) -> u64, reports: bool) -> ShareReport {
        let mut spoken = ShareReport { entries: Vec::new(), pauses: Vec::new(), next: Instant::FAR };
        let Some(mut shared) = self.shared.take() else { return spoken };
        let numbers = self.numbers();
        let growths = self.growths(now);
        // Tokens of one limit after those of the other, for all members alike: of two that have one of each sort, none would let
        // go of its own.
        let mut lacks_before = false;
        for at in self.in_order() {
            let limit = &mut self.limits[at];
            shared.ended.extend(limit.rename(now, name, numbers[at], &self.margin, &shared.lease));
            // The store must first hear of what was held of the same pool before: in one call the one entry would free
            // the other.
            if shared.ended.iter().any(|(gone, _)| limit.share.as_ref().is_some_and(|share| share.pool == gone.pool)) {
                continue;
            }
            let lacks = limit.lacks(now, &self.margin);
            let backlog = if lacks_before { 0 } else { u32::try_from(backlog_of(limit.spec.unit)).unwrap_or(u32::MAX) };
            lacks_before |= lacks;
            // Of limits of one unit each counts what waits as it is, and of another that of which it takes something.
            let others = growths.iter().filter(|(unit, _)| *unit != limit.spec.unit && backlog_of(*unit) > 0);
            let others = others.map(|(_, growth)| *growth);
            let growth = others.fold(f64::MAX, f64::min);
            let usual = limit.share.as_ref().map_or(0, |share| share.usual());
            let stock = limit.stock(now, backlog, &self.margin, shared.took).at_most(growth, lacks, usual);
            let settle = settle(limit, &self.margin);
            let freed = limit.window.lingering(now, self.margin.of(limit.spec.rate.per)).1;
            let share = limit.share.as_mut().expect("only those that have one");
            let said = share.look(now, stock, shared.lease.holds(now), reports);
            let ShareNeed { speaks, want, cost, need, demand, ends } = said;
            if speaks {
                share.told(now, said);
                let entry = Entry {
                    pool: share.pool.clone(),
                    limit: shared.lease.lendable(limit.spec.rate.count.get()),
                    per: micros(limit.spec.rate.per),
                    settle,
                    holds: share.held(),
                    want,
                    cost,
                    need,
                    demand,
                    ends: ends.then_some(0),
                    word: Box::default(),
                };
                spoken.entries.push(entry);
            }
            spoken.next = spoken.next.min(share.next_look(now, stock, freed));
            limit.refit(now, &self.margin, &shared.lease);
        }
        let ended = shared.ended.drain(..);
        spoken.entries.extend(ended.map(|(entry, free)| Entry { ends: Some(micros(free.since(now))), ..entry }));
        shared.calls = false;
        self.shared = Some(shared);
        spoken
    }

    /// What the store gave of the limits that were spoken of.
    pub fn given<'a>(&mut self, now: Instant, given: impl Iterator<Item = (&'a Entry, &'a PoolGrant)>) {
        for (entry, given) in given {
            // It may be of a limit that is gone, though another one is there that has the same pool.
            let Some(share) = self.asking_of(&entry.pool) else { continue };
            if entry.ends.is_some() { share.ended() } else { share.heard(now, given.clone()) }
        }
        self.refit(now);
    }

    /// No reply came to what was said of these.
    pub fn unheard(&mut self, now: Instant, entries: &[Entry]) {
        for entry in entries {
            match self.asking_of(&entry.pool) {
                Some(share) => share.unheard(),
                None if entry.ends.is_none() => {}
                None => self.shared.iter_mut().for_each(|shared| {
                    // Later than it was, which is safe.
                    shared.ended.push((entry.clone(), now + duration(entry.ends.unwrap_or(0))));
                }),
            }
        }
    }

    /// Which part of what is configured of `unit` is due to this process, if it is shared with others.
    pub fn due_part(&self, unit: Unit) -> Option<f64> {
        let shares =
            self.limits.iter().filter(|limit| limit.spec.unit == unit).filter_map(|limit| limit.share.as_ref());
        shares.map(|share| share.due_part()).reduce(f64::min)
    }

    /// Whether the store knows of anything that is held here.
    pub fn holds_shares(&self) -> bool {
        self.shared.iter().flat_map(|shared| &shared.in_flight).any(|in_flight| !in_flight.is_over())
            || self.limits.iter().any(|limit| limit.share.as_ref().is_some_and(|share| !share.is_over()))
            || self.shared.as_ref().is_some_and(|shared| !shared.ended.is_empty())
    }

    /// Whether the lease holds at `now`.
    pub fn is_leased(&self, now: Instant) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.lease.holds(now))
    }

    /// Nothing is held any more: this process is another member from now on.
    pub fn lose_shares(&mut self, now: Instant) {
        for share in self.limits.iter_mut().filter_map(|limit| limit.share.as_mut()) {
            share.ended();
        }
        if let Some(shared) = &mut self.shared {
            shared.ended.clear();
            shared.in_flight.iter_mut().for_each(|in_flight| in_flight.share().ended());
        }
        self.refit(now);
    }

    /// The store asks for a call because of `pool`. Returns whether that is a pool of this budget.
    pub fn hinted(&mut self, now: Instant, pool: &str, turn: bool) -> bool {
        let Some(share) = self.of_pool(pool) else { return false };
        share.hinted(now, turn);
        self.refit(now);
        true
    }

    /// One token more than were granted.
    #[cfg(test)]
    fn add_token(&mut self, now: Instant) {
        for share in self.limits.iter_mut().filter_map(|limit| limit.share.as_mut()) {
            let given = PoolGrant { holds: share.held() + 1, ..share.given().clone() };
            share.heard(now, given);
        }
        self.refit(now);
    }

    /// Gives up the shares of all limits, and returns them for the last call of this process.
    pub fn leave(&mut self, now: Instant) -> Vec<Entry> {
        let mut ended = Vec::new();
        let Some(shared) = &mut self.shared else { return Vec::new() };
        for limit in self.limits.iter_mut() {
            ended.extend(limit.end(now, &self.margin, &shared.lease));
        }
        ended.extend(shared.in_flight.as_mut().and_then(|gone| gone.end(now, &self.margin, &shared.lease)));
        self.refit(now);
        ended.into_iter().map(|(entry, free)| Entry { ends: Some(micros(free.since(now))), ..entry }).collect()
    }

    /// When a request of `cost` is to be looked at again that cannot leave for lack of tokens: [`Instant::FAR`] if the store has to
    /// be heard first. `None` if there are as many as it takes.
    pub(super) fn lacks_tokens(&mut self, now: Instant, cost: &Cost, scope: Scope) -> Option<Instant> {
        let shared = self.shared.as_ref().filter(|_| !scope.is_apart())?;
        // Without a lease no event tells when something else may be used.
        if !shared.leased || !shared.lease.holds(now) {
            self.refit(now);
        }
        let (order, Some(shared)) = (self.in_order(), &mut self.shared) else { return None };
        // What is not here is asked for only once all that is asked for before it is.
        let (mut lacks, mut lacks_before, mut opens) = (false, false, Instant::FAR);
        for at in order {
            let limit = &mut self.limits[at];
            let Some(amount) = cost.of(limit.spec.unit) else {
                lacks_before |= limit.lacks(now, &self.margin);
                continue;
            };
            let whole = limit.whole(amount).get();
            let Some(share) = &mut limit.share else { continue };
            let never = limit.window.count() < whole;
            lacks |= never;
            let used = limit.window.used(now, self.margin.of(limit.spec.rate.per));
            // What was used beyond its reservation may be more than there is.
            if used.saturating_add(whole) > limit.window.count() {
                share.lack(now, whole);
                if !lacks_before {
                    shared.calls |= share.calls(now);
                    if !never {
                        let at = limit.earliest(now, amount, &self.margin);
                        opens = if at > now { at } else { Instant::FAR };
                    }
                }
                lacks_before = true;
            } else {
                share.lack_is_over(now);
            }
        }
        lacks.then_some(opens)
    }

    /// A request has left.
    pub(super) fn took_tokens(&mut self, now: Instant, cost: Cost) {
        for (unit, amount) in cost.each() {
            self.took_units(now, unit, amount);
        }
    }

    /// So much of `unit` was taken.
    pub(super) fn took_units(&mut self, now: Instant, unit: Unit, amount: Amount) {
        let Some(shared) = &mut self.shared else { return };
        for limit in self.limits.iter_mut().filter(|limit| limit.spec.unit == unit) {
            let whole = limit.whole(amount).get();
            let used = limit.window.used(now, self.margin.of(limit.spec.rate.per));
            let Some(share) = &mut limit.share else { continue };
            share.take(now, whole);
            share.uses(now, used);
            // Before it runs dry, and not after: the next request would have to wait for the store.
            let low = limit.window.count().saturating_sub(used) <= limit.window.count() / 8;
            shared.calls |= low && share.calls(now) || share.waits();
            limit.refit(now, &self.margin, &shared.lease);
        }
    }

    /// A limit that was configured is so no more.
    pub(super) fn end_share(&mut self, mut gone: Limit) {
        let Some(shared) = &mut self.shared else { return };
        if let Some(ended) = gone.end(self.last.unwrap_or(Instant::START), &self.margin, &shared.lease) {
            shared.ended.push(ended);
            shared.calls = true;
        }
    }

    /// All that can be shared is.
    pub(super) fn share_limits(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        for limit in self.limits.iter_mut().filter(|limit| limit.source == Source::Config && limit.is_short()) {
            if limit.share.is_none() {
                limit.share = Some(Box::new(limit.nothing_of("".into(), &shared.lease)));
                shared.calls = true;
            }
            limit.refit(self.last.unwrap_or(Instant::START), &self.margin, &shared.lease);
        }
    }

    /// Which of those with its window and unit each limit is, the smallest first: all members of a fleet number them alike.
    fn numbers(&self) -> SmallVec<[usize; 4]> {
        let of = |at: usize| (self.limits[at].spec.rate.count, self.limits[at].spec.strict, at);
        let alike = |a: usize, b: usize| {
            let [a, b] = [&self.limits[a], &self.limits[b]];
            let same = (a.spec.rate.per, a.spec.unit) == (b.spec.rate.per, b.spec.unit);
            a.share.is_some() && b.share.is_some() && same
        };
        let all = 0..self.limits.len();
        all.clone().map(|at| all.clone().filter(|other| alike(*other, at) && of(*other) < of(at)).count()).collect()
    }

    /// How many times as much as now would be used of each limit that is shared, if only what is due to this process of it counted.
    fn growths(&mut self, now: Instant) -> SmallVec<[(Unit, f64); 4]> {
        let shared = self.limits.iter_mut().filter_map(|limit| {
            let due = limit.share.as_ref()?.due()?;
            let used = limit.window.used(now, self.margin.of(limit.spec.rate.per));
            (used > 0).then(|| (limit.spec.unit, due / f64::from(used)))
        });
        shared.collect()
    }

    /// The limits that are shared, in an order that is the same for all members.
    fn in_order(&self) -> SmallVec<[usize; 4]> {
        let mut shared: SmallVec<[usize; 4]> =
            (0..self.limits.len()).filter(|at| self.limits[*at].share.is_some()).collect();
        shared.sort_by_key(|at| {
            let LimitSpec { rate, unit, strict, .. } = self.limits[*at].spec;
            (rate.per, unit.name(), rate.count, strict)
        });
        shared
    }

    fn of_pool(&mut self, pool: &str) -> Option<&mut Share> {
        let in_flight = self.shared.iter_mut().flat_map(|shared| &mut shared.in_flight).map(|limit| limit.share());
        let mut shares = self.limits.iter_mut().filter_map(|limit| limit.share.as_deref_mut()).chain(in_flight);
        shares.find(|share| *share.pool == *pool)
    }

    /// The share of the pool, if a call under way reports it.
    fn asking_of(&mut self, pool: &str) -> Option<&mut Share> {
        self.of_pool(pool).filter(|share| share.is_asking())
    }

    fn refit(&mut self, now: Instant) {
        let Some(shared) = &mut self.shared else { return };
        shared.leased = shared.lease.holds(now);
        for limit in &mut self.limits {
            limit.refit(now, &self.margin, &shared.lease);
        }
    }
}

/// How long after it was sent a request may be counted, by an API to which the way is short for others.
fn settle(limit: &Limit, margin: &Margin) -> Micros {
    micros(limit.late(margin) + way(margin))
}

fn duration(of: Micros) -> Duration {
    Duration::from_micros(of.unsigned_abs())
}

fn way(margin: &Margin) -> Duration {
    margin.shortest().unwrap_or(UNKNOWN_WAY)
}
