//! The store's side of the ledger: the tokens that each member holds of each pool. `store/ledger/sync.lua` does the
//! same inside a Redis, and a test checks that both give equal replies.

mod pauses;
mod pool;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::{pauses::PauseBook, pool::TokenPool};
use andante_fleet::{
    Division, Entry, Epoch, Extent, MemberId, Micros, PoolGrant, RESPONSE_LATENESS, Reply, Sync, WakeUp, stretched,
};

/// State of a store.
#[derive(Clone, Debug, Default)]
pub struct Book {
    founded: Option<Founding>,
    members: BTreeMap<MemberId, MemberRow>,
    /// Members by the end of their leases.
    leases: BTreeSet<(Micros, MemberId)>,
    pools: BTreeMap<Arc<str>, TokenPool>,
    /// Number of members with each division.
    divisions: BTreeMap<Division, u32>,
    pauses: PauseBook,
}

/// The epoch, and the store's own clock.
#[derive(Clone, Debug)]
struct Founding {
    epoch: Epoch,
    /// The server process that has known everything since the epoch began.
    run: String,
    /// The store's time: it never runs ahead of what members confirm.
    time: Micros,
    /// The server's clock at the last call, how often it was set back, and the time that was not believed.
    wall: Micros,
    resets: u32,
    lost: Micros,
    /// Until then the replaced store may still answer, so this one answers no call. The other store may have given up a
    /// member's lease and tokens, and lent the tokens again, while this one would prolong or lend them.
    begins: Micros,
    /// Until then members report what they hold. A window later, every token is accounted for.
    claims_until: Micros,
    lease: Micros,
}

#[derive(Clone, Debug)]
struct MemberRow {
    seq: u64,
    /// The store's time at the last call, how often the clock had been set back by then, and the time not believed.
    at: Micros,
    resets: u32,
    lost: Micros,
    lease_end: Micros,
    division: Division,
    pools: BTreeSet<Arc<str>>,
}

/// Assumed maximum time between two calls if no member reports the time.
const UNKNOWN: Micros = 400_000;
/// Maximum duration of a call beyond the time that a member reports.
const ON_THE_WAY: Micros = 100_000;
/// The store lets a lease end later than the member does.
const GUARD: Micros = 500_000;
/// Maximum number of expired members that one call handles.
const SOME: usize = 8;

/// Id of an epoch. A late call may found an epoch more than once: the server's time makes these ids differ.
fn name_of(nonce: u32, wall: Micros) -> u32 {
    (Micros::from(nonce) + wall).rem_euclid(1 << 32) as u32
}

impl Book {
    /// A store of a fleet in which no member holds anything, as declared by its operator.
    pub fn declared_new(run: &str, wall: Micros, lease: Micros, nonce: u32) -> Self {
        let epoch = Epoch { counter: 1, id: nonce };
        let claims_until = -Self::EVER;
        let founding =
            Founding { epoch, run: run.to_owned(), time: 0, wall, resets: 0, lost: 0, begins: 0, claims_until, lease };
        Self { founded: Some(founding), ..Self::default() }
    }

    /// A time longer than any window.
    const EVER: Micros = 1 << 50;

    /// Executes a call at the server's time `wall`, by the server process `run`.
    pub fn sync(&mut self, call: &Sync, wall: Micros, run: &str) -> (Reply, Vec<WakeUp>) {
        let mut hints = Vec::new();
        let reply = self.execute(call, wall, run, &mut hints);
        (reply, hints)
    }

    fn execute(&mut self, call: &Sync, wall: Micros, run: &str, hints: &mut Vec<WakeUp>) -> Reply {
        self.remember(call, wall, run);
        if self.founding().lease != call.terms.lease {
            return Reply::Disagreed(self.founding().lease);
        }
        self.advance(call, wall);
        if let left @ 1.. = self.founding().begins - self.founding().time {
            return Reply::NotYet(left);
        }
        if let Some(known) = call.epoch.filter(|known| call.leased && known.counter > self.founding().epoch.counter) {
            let founding = self.founding_mut();
            if founding.time >= founding.claims_until {
                return Reply::Deposed;
            }
            founding.epoch = Epoch { counter: known.counter + 1, id: name_of(call.nonce, wall) };
        }
        self.expire();
        let (now, epoch) = (self.founding().time, self.founding().epoch);
        let same = call.epoch == Some(epoch);
        let claims = !same && call.epoch.is_some() && call.leased && now < self.founding().claims_until;
        let new = call.epoch.is_none() && call.entries.iter().all(|entry| entry.holds == 0);
        let row = self.members.get(&call.member);
        if row.is_some_and(|row| call.seq <= row.seq) || row.is_none() && call.extent == Extent::Leaving {
            return Reply::Ignored;
        }
        if !(claims || new || same && row.is_some()) {
            return Reply::Reset;
        }
        if claims && call.extent == Extent::Some {
            return Reply::Report;
        }
        // Otherwise a pool in which the member holds unknown tokens would be lent to others.
        let unknown = |entry: &Entry| entry.holds > 0 && !self.has_row(call.member, &entry.pool);
        if !claims && call.entries.iter().any(unknown) {
            return Reply::Reset;
        }
        self.heard(call, now);
        // The member's own pauses are no news for it.
        let pauses = self.pauses.since(if same { call.pauses_known } else { 0 }, now);
        if self.pauses.hear(&call.pauses, now, call.terms.lease) {
            hints.push(WakeUp::Pauses);
        }
        let given = call.entries.iter().map(|entry| self.entry(call.member, entry, claims, hints)).collect();
        if call.extent == Extent::Leaving {
            self.dismiss(call.member);
        }
        let members = self.members.len() as u32;
        let differing = members - self.divisions.get(&call.terms.division).copied().unwrap_or(0).min(members);
        let learning = (self.founding().claims_until - now).max(0);
        Reply::Done { epoch, learning, members, differing, given, pauses_known: self.pauses.last(), pauses }
    }

    /// Begins an epoch if there is none, or if another process has taken over.
    fn remember(&mut self, call: &Sync, wall: Micros, run: &str) {
        if self.founded.as_ref().is_some_and(|founding| founding.run == run) {
            return;
        }
        let known = self.founded.as_ref().map_or(0, |founding| founding.epoch.counter);
        let theirs = call.epoch.filter(|_| call.leased).map_or(0, |epoch| epoch.counter);
        *self = Self::default();
        let begins = if call.terms.split > 0 { stretched(call.terms.split) + GUARD } else { 0 };
        self.founded = Some(Founding {
            epoch: Epoch { counter: known.max(theirs) + 1, id: name_of(call.nonce, wall) },
            run: run.to_owned(),
            time: 0,
            wall,
            resets: 0,
            lost: 0,
            begins,
            claims_until: begins + stretched(call.terms.lease) + GUARD,
            lease: call.terms.lease,
        });
    }

    /// Advances the store's time by at most what a member has seen pass, because the server's clock may be set. Time
    /// that was not counted is never made up for: leases noted meanwhile would end too early.
    fn advance(&mut self, call: &Sync, wall: Micros) {
        let row = self.members.get(&call.member).map(|row| (row.seq, row.at, row.resets, row.lost));
        let founding = self.founding_mut();
        let mut passed = wall - founding.wall;
        founding.wall = wall;
        if passed < 0 {
            passed = 0;
            founding.resets += 1;
        }
        let most = match (row, call.basis) {
            (Some((seq, at, resets, lost)), Some(basis))
                if seq == basis.seq && resets == founding.resets && call.seq > seq =>
            {
                at + stretched(basis.elapsed) + ON_THE_WAY - founding.time - (founding.lost - lost)
            }
            _ => UNKNOWN,
        };
        let goes_on = passed.min(most.max(0));
        founding.time += goes_on;
        founding.lost += passed - goes_on;
    }

    /// Withholds the tokens of members whose leases have ended.
    fn expire(&mut self) {
        let now = self.founding().time;
        for _ in 0..SOME {
            let Some(&(_, member)) = self.leases.first().filter(|(end, _)| end + GUARD < now) else { return };
            self.dismiss(member);
        }
    }

    /// Removes a member: the API may count the units that it held for a while.
    fn dismiss(&mut self, member: MemberId) {
        let Some(row) = self.members.remove(&member) else { return };
        self.leases.remove(&(row.lease_end, member));
        self.forget_of(row.division);
        let (now, claims_until) = (self.founding().time, self.founding().claims_until);
        for name in &row.pools {
            let Some(pool) = self.pools.get_mut(name) else { continue };
            let Some(row) = pool.drop_row(member) else { continue };
            let free = now + stretched(pool.per) + row.settle + GUARD;
            // Unreported tokens may be the same as the withheld ones.
            let opens = claims_until + stretched(pool.per) + RESPONSE_LATENESS;
            pool.withhold(row.holds, if now < opens { free.max(opens) } else { free });
        }
    }

    fn heard(&mut self, call: &Sync, now: Micros) {
        let &Founding { resets, lost, lease, .. } = self.founding();
        let lease_end = now + lease;
        let division = call.terms.division;
        if let Some(before) = self.members.get(&call.member).map(|row| row.division) {
            self.forget_of(before);
        }
        *self.divisions.entry(division).or_insert(0) += 1;
        let row = self.members.entry(call.member).or_insert_with(|| MemberRow {
            seq: 0,
            at: now,
            resets,
            lost,
            lease_end,
            division,
            pools: BTreeSet::new(),
        });
        self.leases.remove(&(row.lease_end, call.member));
        self.leases.insert((lease_end, call.member));
        (row.seq, row.at, row.resets, row.lost) = (call.seq, now, resets, lost);
        (row.lease_end, row.division) = (lease_end, division);
    }

    fn forget_of(&mut self, division: Division) {
        if let Some(members) = self.divisions.get_mut(&division) {
            *members -= 1;
            if *members == 0 {
                self.divisions.remove(&division);
            }
        }
    }

    fn entry(&mut self, member: MemberId, entry: &Entry, claims: bool, hints: &mut Vec<WakeUp>) -> PoolGrant {
        let (now, claims_until) = (self.founding().time, self.founding().claims_until);
        let pools = &mut self.members.get_mut(&member).expect("it was heard of just now").pools;
        let pool = self.pools.entry(entry.pool.clone()).or_insert_with(|| TokenPool::new(entry.per));
        pool.mature(now);
        // For an in-flight limit, `per` is the longest response time: members may be configured differently.
        pool.per = pool.per.max(entry.per);
        pool.open = now >= claims_until + stretched(pool.per) + RESPONSE_LATENESS;
        pool.hear(member, entry, claims);
        if let Some(ready) = entry.ends {
            pools.remove(&entry.pool);
            let row = pool.drop_row(member).expect("it was heard of just now");
            pool.withhold(row.holds, now + stretched(ready) + GUARD);
            if pool.is_empty() {
                self.pools.remove(&entry.pool);
            }
            return PoolGrant::default();
        }
        pools.insert(entry.pool.clone());
        pool.serve(member, entry, now, hints)
    }

    fn has_row(&self, member: MemberId, pool: &str) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.rows.contains_key(&member))
    }

    fn founding(&self) -> &Founding {
        self.founded.as_ref().expect("the first call founds the book")
    }

    fn founding_mut(&mut self) -> &mut Founding {
        self.founded.as_mut().expect("the first call founds the book")
    }

    /// Returns true if each pool's sums equal those of its rows.
    pub fn is_sound(&self) -> bool {
        self.pools.values().all(TokenPool::is_sound)
    }
}
