//! A budget that is shared with other processes: this process holds only some units of each limit at a time.

#[cfg(test)]
mod histories;
mod in_flight;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod tests;

use std::time::Duration;

use andante_clock::Instant;
use andante_fleet::{Entry, Lease, Micros, Pause, PoolGrant, Share, ShareNeed, micros};
use smallvec::SmallVec;

use self::in_flight::SharedInFlight;
use super::{Budget, Limit, Meters};
use crate::{Amount, Cost, Gcra, LimitSpec, Margin, Ready, Scope, Source, Unit, Window};

/// The fleet's side of a budget.
#[derive(Clone, Debug)]
pub(super) struct SharedBudget {
    lease: Lease,
    /// The lease held when the windows were last fitted to the usable units.
    leased: bool,
    /// The store has to be called: a limit needs more tokens or holds too many.
    calls: bool,
    /// Removed limits, and when their held tokens are free.
    ended: Vec<(Entry, Instant)>,
    /// Limit on requests in flight; `None` without one.
    in_flight: Option<Box<SharedInFlight>>,
    /// Moving average of the response time.
    took: Option<Duration>,
}

/// Report on a budget for one call to the store.
#[derive(Debug)]
pub struct ShareReport {
    /// Entries of the limits that are reported.
    pub entries: Vec<Entry>,
    /// Pauses of the lane that may be unknown to the store.
    pub pauses: Vec<Pause>,
    /// When to look again even if nothing happens.
    pub next: Instant,
}

/// Share of one limit that this process has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareUsage {
    /// Units that are here, free or in use.
    pub held: u32,
    /// Held units that may be used or given away now.
    pub free: u32,
    /// Units of this process beside the held ones, which the store never lends.
    pub own: u32,
    /// Units that this process is entitled to.
    pub target: f64,
    /// Other members want more than there is.
    pub wanted: bool,
    /// Time until a new store, or a store that has lost its state, gives out units of the limit.
    pub opens_in: Option<Duration>,
}

/// Assumed shortest way to an API that has not responded yet: longer than most.
const UNKNOWN_WAY: Duration = Duration::from_millis(300);

/// Need of a share that ends.
pub(super) const NO_NEED: ShareNeed = ShareNeed { speaks: true, want: 0, cost: 0, need: 0, demand: 0, ends: false };

/// Weight of the moving average: each response counts for `1 / ANSWERS`.
const ANSWERS: u32 = 16;

// === impl SharedBudget ===

impl SharedBudget {
    /// Records a response time.
    pub(super) fn observe(&mut self, took: Duration) {
        self.took = Some(self.took.map_or(took, |mean| mean - mean / ANSWERS + took / ANSWERS));
    }
}

// === impl Budget ===

impl Budget {
    /// Shares the configured limits from now on. The process holds nothing of any limit yet. Requests leave only while
    /// the `lease` holds, or as far as the lease allows use without the store. Requests sent so far concern only their
    /// sender.
    pub fn share(&mut self, lease: Lease) {
        let (leased, calls, ended, in_flight, took) = (false, false, Vec::new(), None, None);
        self.shared = Some(Box::new(SharedBudget { lease, leased, calls, ended, in_flight, took }));
        for limit in self.meters.windows_mut().filter(|limit| limit.source == Source::Config && limit.is_short()) {
            (limit.window, limit.gcra) = (Window::new(&limit.spec), Gcra::new(&limit.spec));
        }
        self.share_limits();
    }

    /// Returns true, once for each reason, if the store has to be called for this budget.
    pub fn calls(&mut self) -> bool {
        self.shared.as_mut().is_some_and(|shared| std::mem::take(&mut shared.calls))
    }

    /// Returns true if a call to the store is due.
    pub fn is_calling(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.calls)
    }

    /// Builds the report of the lane called `name` for the next call; `backlog_of` returns the waiting units. Gifts are
    /// deducted. With `reports`, the report holds all that a store without state must know.
    pub fn speak(&mut self, now: Instant, name: &str, backlog_of: impl Fn(Unit) -> u64, reports: bool) -> ShareReport {
        let mut spoken = ShareReport { entries: Vec::new(), pauses: Vec::new(), next: Instant::FAR };
        let Some(mut shared) = self.shared.take() else { return spoken };
        let growths = self.growths(now);
        // Limit by limit, in one order for all members: two with one token of each kind would block each other.
        let (mut lacks_before, mut before, mut number) = (false, None, 0);
        for limit in in_order(&mut self.meters) {
            let alike = Some((limit.spec.rate.per, limit.spec.unit));
            number = if before == alike { number + 1 } else { 0 };
            before = alike;
            shared.ended.extend(limit.rename(now, name, number, &self.margin, &shared.lease));
            // Report the entry that held tokens of the same pool first: in one call, the one entry would free the
            // other.
            if shared.ended.iter().any(|(gone, _)| limit.share.as_ref().is_some_and(|share| share.pool == gone.pool)) {
                continue;
            }
            let lacks = limit.lacks(now, &self.margin);
            let backlog = if lacks_before { 0 } else { u32::try_from(backlog_of(limit.spec.unit)).unwrap_or(u32::MAX) };
            lacks_before |= lacks;
            // Limits of one unit each count the whole backlog; limits of other units that the backlog takes bound its
            // growth.
            let others = growths.iter().filter(|(unit, _)| *unit != limit.spec.unit && backlog_of(*unit) > 0);
            let others = others.map(|(_, growth)| *growth);
            let growth = others.fold(f64::MAX, f64::min);
            let usual = limit.share.as_ref().map_or(0, |share| share.usual());
            let stock = limit.stock(now, backlog, &self.margin, shared.took).at_most(growth, lacks, usual);
            let settle = limit.late(&self.margin) + way(&self.margin);
            let freed = limit.window.lingering(now, limit.margin(&self.margin)).1;
            let share = limit.share.as_mut().expect("only those that have one");
            let said = share.look(now, stock, shared.lease.holds(now), reports);
            if said.speaks {
                share.told(now, said);
                let lendable = shared.lease.lendable(limit.spec.rate.count.get());
                spoken.entries.push(entry(share, lendable, limit.spec.rate.per, settle, said));
            }
            spoken.next = spoken.next.min(share.next_look(now, stock, freed.unwrap_or(Instant::FAR)));
            limit.refit(now, &self.margin, &shared.lease);
        }
        let ended = shared.ended.drain(..);
        spoken.entries.extend(ended.map(|(entry, free)| Entry { ends: Some(micros(free.since(now))), ..entry }));
        shared.calls = false;
        self.shared = Some(shared);
        spoken
    }

    /// Applies the store's grants for the reported limits.
    pub fn given<'a>(&mut self, now: Instant, given: impl Iterator<Item = (&'a Entry, &'a PoolGrant)>) {
        for (entry, given) in given {
            // The grant may belong to a removed limit, although another limit has that pool now.
            let Some(share) = self.asking_of(&entry.pool) else { continue };
            if entry.ends.is_some() { share.ended() } else { share.heard(now, given.clone()) }
        }
        self.refit(now);
    }

    /// Records that no reply came to the report of these entries.
    pub fn unheard(&mut self, now: Instant, entries: &[Entry]) {
        for entry in entries {
            match self.asking_of(&entry.pool) {
                Some(share) => share.unheard(),
                None if entry.ends.is_none() => {}
                None => self.shared.iter_mut().for_each(|shared| {
                    // Later than reported, which is safe.
                    shared.ended.push((entry.clone(), now + duration(entry.ends.unwrap_or(0))));
                }),
            }
        }
    }

    /// Part of the configured limits of `unit` that this process is entitled to, if they are shared.
    pub fn due_part(&self, unit: Unit) -> Option<f64> {
        let shares =
            self.meters.windows().filter(|limit| limit.spec.unit == unit).filter_map(|limit| limit.share.as_ref());
        shares.map(|share| share.due_part()).reduce(f64::min)
    }

    /// Returns true if the store knows of anything that is held here.
    pub fn holds_shares(&self) -> bool {
        self.shared.iter().flat_map(|shared| &shared.in_flight).any(|in_flight| !in_flight.is_over())
            || self.meters.windows().any(|limit| limit.share.as_ref().is_some_and(|share| !share.is_over()))
            || self.shared.as_ref().is_some_and(|shared| !shared.ended.is_empty())
    }

    /// Returns true if the lease holds at `now`.
    pub fn is_leased(&self, now: Instant) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.lease.holds(now))
    }

    /// Earliest time at which the store permits requests under shared limits; other limits are ignored.
    /// [`Ready::OnEvent`] if the store does not answer and the lease is over; [`Ready::At`] while a store that is new, or
    /// has lost its state, withholds tokens.
    pub fn store_ready(&self, now: Instant) -> Ready {
        let Some(shared) = &self.shared else { return Ready::Now };
        let shares = || self.meters.windows().filter_map(|limit| limit.share.as_ref());
        if !shared.lease.holds(now) {
            let waits = !shared.lease.goes_on() && (shared.in_flight.is_some() || shares().next().is_some());
            return if waits { Ready::OnEvent } else { Ready::Now };
        }
        let in_flight = shared.in_flight.as_ref().and_then(|in_flight| in_flight.opens(now, &shared.lease));
        // A floor needs no tokens of the store.
        let opens = shares().filter(|share| share.own() == 0).filter_map(|share| share.opens()).chain(in_flight).max();
        opens.map_or(Ready::Now, |at| Ready::from(at, now))
    }

    /// Gives up all held tokens: this process is another member from now on.
    pub fn lose_shares(&mut self, now: Instant) {
        for share in self.meters.windows_mut().filter_map(|limit| limit.share.as_mut()) {
            share.ended();
        }
        if let Some(shared) = &mut self.shared {
            shared.ended.clear();
            shared.in_flight.iter_mut().for_each(|in_flight| in_flight.share().ended());
        }
        self.refit(now);
    }

    /// Handles the store's request for a call because of `pool`. Returns true if the pool belongs to this budget.
    pub fn hinted(&mut self, now: Instant, pool: &str, turn: bool) -> bool {
        let Some(share) = self.of_pool(pool) else { return false };
        share.hinted(now, turn);
        self.refit(now);
        true
    }

    /// Adds one token beyond the granted ones.
    #[cfg(test)]
    fn add_token(&mut self, now: Instant) {
        for share in self.meters.windows_mut().filter_map(|limit| limit.share.as_mut()) {
            let given = PoolGrant { holds: share.held() + 1, ..share.given().clone() };
            share.heard(now, given);
        }
        self.refit(now);
    }

    /// Gives up the shares of all limits, and returns them for the last call of this process.
    pub fn leave(&mut self, now: Instant) -> Vec<Entry> {
        let mut ended = Vec::new();
        let Some(shared) = &mut self.shared else { return Vec::new() };
        for limit in self.meters.windows_mut() {
            ended.extend(limit.end(now, &self.margin, &shared.lease));
        }
        ended.extend(shared.in_flight.as_mut().and_then(|gone| gone.end(now, &self.margin, &shared.lease)));
        self.refit(now);
        ended.into_iter().map(|(entry, free)| Entry { ends: Some(micros(free.since(now))), ..entry }).collect()
    }

    /// When to look again at a request of `cost` that lacks tokens; `None` if the tokens suffice.
    pub(super) fn lacks_tokens(&mut self, now: Instant, cost: &Cost, scope: Scope) -> Option<Ready> {
        let shared = self.shared.as_ref().filter(|_| !scope.is_apart())?;
        // Without a lease, no event announces that more may be used.
        if !shared.leased || !shared.lease.holds(now) {
            self.refit(now);
        }
        let Some(shared) = &mut self.shared else { return None };
        // Missing tokens of a limit are requested only once the earlier limits lack none.
        let (mut lacks, mut lacks_before, mut opens) = (false, false, Ready::OnEvent);
        for limit in in_order(&mut self.meters) {
            let Some(amount) = cost.of(limit.spec.unit) else {
                lacks_before |= limit.lacks(now, &self.margin);
                continue;
            };
            let (whole, used) = (limit.whole(amount).get(), limit.used(now, &self.margin));
            let Some(share) = &mut limit.share else { continue };
            let never = limit.window.count() < whole;
            lacks |= never;
            // Usage beyond a reservation may exceed the limit.
            if used.saturating_add(whole) > limit.window.count() {
                share.lack(now, whole);
                if !lacks_before {
                    shared.calls |= share.calls(now);
                    // Tokens that this process has not got come with a reply of the store.
                    if !never && let ready @ Ready::At(_) = limit.ready(now, amount, &self.margin) {
                        opens = ready;
                    }
                }
                lacks_before = true;
            } else {
                share.lack_is_over(now);
            }
        }
        lacks.then_some(opens)
    }

    /// Records that `amount` of `unit` was taken.
    pub(super) fn took_units(&mut self, now: Instant, unit: Unit, amount: Amount) {
        let Some(shared) = &mut self.shared else { return };
        for limit in self.meters.windows_mut().filter(|limit| limit.spec.unit == unit) {
            let whole = limit.whole(amount).get();
            let used = limit.used(now, &self.margin);
            let Some(share) = &mut limit.share else { continue };
            share.take(now, whole);
            share.uses(now, used);
            // Call before the limit runs dry: otherwise the next request would have to wait for the store.
            let low = limit.window.count().saturating_sub(used) <= limit.window.count() / 8;
            shared.calls |= low && share.calls(now) || share.waits();
            limit.refit(now, &self.margin, &shared.lease);
        }
    }

    /// Ends the share of a limit that is no longer configured.
    pub(super) fn end_share(&mut self, mut gone: Limit) {
        let Some(shared) = &mut self.shared else { return };
        if let Some(ended) = gone.end(self.last.unwrap_or(Instant::START), &self.margin, &shared.lease) {
            shared.ended.push(ended);
            shared.calls = true;
        }
    }

    /// Shares every limit that can be shared.
    pub(super) fn share_limits(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        for limit in self.meters.windows_mut().filter(|limit| limit.source == Source::Config && limit.is_short()) {
            if limit.share.is_none() {
                limit.share = Some(Box::new(limit.nothing_of("".into(), &shared.lease)));
                shared.calls = true;
            }
            limit.refit(self.last.unwrap_or(Instant::START), &self.margin, &shared.lease);
        }
    }

    /// Factor by which the usage of each shared limit would grow if only this process's due share bounded it.
    fn growths(&mut self, now: Instant) -> SmallVec<[(Unit, f64); 4]> {
        let shared = self.meters.windows_mut().filter_map(|limit| {
            let due = limit.share.as_ref()?.due()?;
            let used = limit.used(now, &self.margin);
            (used > 0).then(|| (limit.spec.unit, due / f64::from(used)))
        });
        shared.collect()
    }

    fn of_pool(&mut self, pool: &str) -> Option<&mut Share> {
        let in_flight = self.shared.iter_mut().flat_map(|shared| &mut shared.in_flight).map(|limit| limit.share());
        let mut shares = self.meters.windows_mut().filter_map(|limit| limit.share.as_deref_mut()).chain(in_flight);
        shares.find(|share| *share.pool == *pool)
    }

    /// The share of the pool, if a call in flight reports it.
    fn asking_of(&mut self, pool: &str) -> Option<&mut Share> {
        self.of_pool(pool).filter(|share| share.is_asking())
    }

    fn refit(&mut self, now: Instant) {
        let Some(shared) = &mut self.shared else { return };
        shared.leased = shared.lease.holds(now);
        for limit in self.meters.windows_mut().filter(|limit| limit.share.is_some()) {
            limit.refit(now, &self.margin, &shared.lease);
        }
    }
}

/// The shared limits, in the same order for all members.
fn in_order(meters: &mut Meters) -> SmallVec<[&mut Limit; 4]> {
    let mut shared: SmallVec<[&mut Limit; 4]> = meters.windows_mut().filter(|limit| limit.share.is_some()).collect();
    shared.sort_by_key(|limit| {
        let LimitSpec { rate, unit, strict, .. } = limit.spec;
        (rate.per, unit.name(), rate.count, strict)
    });
    shared
}

/// Entry that reports `share` of a limit of `limit` units per `per`. An API that is close to other members may count a
/// request until `settle` after its sending.
pub(super) fn entry(share: &Share, limit: u32, per: Duration, settle: Duration, need: ShareNeed) -> Entry {
    let ShareNeed { want, cost, need, demand, ends, .. } = need;
    Entry {
        pool: share.pool.clone(),
        limit,
        per: micros(per),
        settle: micros(settle),
        holds: share.held(),
        want,
        cost,
        need,
        demand,
        ends: ends.then_some(0),
        word: Box::default(),
    }
}

/// Usage of `share`, of which `used` units count. The store gives out none before `opens`.
pub(super) fn usage(share: &Share, used: u32, now: Instant, opens: Option<Instant>) -> ShareUsage {
    let (held, own, given) = (share.held(), share.own(), share.given());
    let free = (held + own).saturating_sub(used);
    let opens_in = opens.map(|opens| opens.since(now));
    ShareUsage { held, free, own, target: given.target, wanted: given.wanted, opens_in }
}

pub(super) fn duration(of: Micros) -> Duration {
    Duration::from_micros(of.unsigned_abs())
}

pub(super) fn way(margin: &Margin) -> Duration {
    margin.shortest().unwrap_or(UNKNOWN_WAY)
}
