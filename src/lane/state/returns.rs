//! `Retry-After` schedule for requests refused on arrival. With the same time for all, all would return then, and all
//! but one would be refused again.
//!
//! Each refusal promises a return behind the earlier promises that are still valid. A client that asks again before its
//! return gets the same promise. The workers of a client look alike: a request sooner after a refusal than any
//! `Retry-After` counts as another worker's.

use std::time::Duration;

use andante_clock::Instant;
use andante_order::{ClientId, Map, Urgency};
use smallvec::SmallVec;

use super::{room::WaitingRoom, turn::LineKey};

/// The promised returns; nearly always none.
#[derive(Clone, Debug, Default)]
pub(super) struct Returns(Option<Box<Promised>>);

/// The target of a return: requests of one urgency that the same limits block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReturnTo {
    pub(super) line: LineKey,
    pub(super) urgency: Urgency,
    /// The numbers of the sub-limits.
    pub(super) budgets: SmallVec<[u32; 2]>,
}

#[derive(Clone, Debug)]
struct Promised {
    to: Map<ReturnTo, OfLine>,
    count: usize,
    /// When expired promises were last removed.
    swept: Instant,
    /// Number of places reserved per urgency, as last counted, and the part of them that draws on each sub-limit.
    due: DuePlaces,
    due_at: Map<u32, DuePlaces>,
    counted: Instant,
}

type DuePlaces = [usize; Urgency::COUNT];

/// The promises of one class.
#[derive(Clone, Debug, Default)]
struct OfLine {
    of: Map<ClientId, SmallVec<[Promise; 1]>>,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    due: Instant,
    /// When the client was last told.
    told: Instant,
}

/// The most promises remembered for one lane. Clients with another promise may use only the first half. All further
/// requests get the time behind these.
const MOST: usize = 4096;
/// A promise stays valid this long after its time: `Retry-After` is in whole seconds, and some clients add a little.
const GRACE: Duration = Duration::from_secs(3);
/// A request that comes sooner is not a retry, but another request: `Retry-After` is at least a second.
const ANOTHER: Duration = Duration::from_millis(500);
/// No promise is later than this after the next turn. Clients with earlier promises may never come, and several
/// requests of one client may be one worker that does not wait between them. Where turns are further apart than this,
/// all requests of one client get the next turn.
const FARTHEST: Duration = Duration::from_secs(300);
/// The search for a free turn is accurate to one in this many.
const PRECISELY: usize = 64;
const SWEEPS: Duration = Duration::from_secs(1);
/// The time for which a place in the queue stays reserved for a client that is due: `Retry-After` is in whole seconds.
const KEPT: Duration = Duration::from_millis(1500);
const COUNTS: Duration = Duration::from_millis(100);

// === impl Returns ===

impl Returns {
    /// When a request of `client` that is refused `now` should return. `waited` means that it cannot be a retry. `at`
    /// returns the earliest time with so many returns before it.
    pub(super) fn promise(
        &mut self,
        now: Instant,
        to: ReturnTo,
        client: ClientId,
        waited: bool,
        at: impl FnMut(u64) -> Instant,
    ) -> Instant {
        self.sweep(now);
        let promised = self.0.get_or_insert_with(|| Promised::none(now).into());
        let room = MOST - promised.count;
        let mut none = OfLine::default();
        let line = match room {
            0 => promised.to.get_mut(&to).unwrap_or(&mut none),
            _ => promised.to.entry(to).or_default(),
        };
        let before = line.count;
        let again = if waited { None } else { line.again(now, client) };
        let due = match again {
            Some(place) => line.keep(now, client, place, at),
            None => line.promise(now, client, room, at),
        };
        promised.count += (line.count - before) as usize;
        due
    }

    /// Removes the first promise of `client`, because one of its requests waits or leaves now.
    pub(super) fn kept(&mut self, to: impl FnOnce() -> ReturnTo, client: ClientId) {
        let Some(promised) = &mut self.0 else { return };
        let to = to();
        let Some(line) = promised.to.get_mut(&to) else { return };
        let mut ends = false;
        if let Some(own) = line.of.get_mut(&client) {
            let before = has_place(own, promised.counted);
            own.remove(0);
            ends = before && !has_place(own, promised.counted);
            if own.is_empty() {
                line.of.remove(&client);
            }
            line.count -= 1;
            promised.count -= 1;
        }
        if ends {
            promised.place_ends(&to);
        }
        if promised.count == 0 {
            self.0 = None;
        }
    }

    /// Number of places in `room` reserved for others, of the same or higher urgency, before a request of `client`; 0
    /// if the client is due itself. Each client has at most one place per class, however many returns it was promised.
    /// Amortised O(1) at ten or more requests a second.
    pub(super) fn places_kept(&mut self, now: Instant, urgency: Urgency, client: ClientId, room: WaitingRoom) -> usize {
        let Some(promised) = &mut self.0 else { return 0 };
        if promised.counted + COUNTS <= now {
            promised.count_due(now);
        }
        let due = match room {
            WaitingRoom::Lane => Some(&promised.due),
            WaitingRoom::Budget(number) => promised.due_at.get(&number),
        };
        let kept = due.map_or(0, |due| due[..=usize::from(urgency.get())].iter().sum());
        // The client may stand in another class by now: a kind's pause may have ended, and other budgets may be known.
        let lines = promised.to.iter().filter(|(to, _)| match room {
            WaitingRoom::Lane => true,
            WaitingRoom::Budget(number) => to.budgets.contains(&number),
        });
        let mut own = lines.filter_map(|(_, line)| line.of.get(&client)).flatten();
        if kept > 0 && own.any(|promise| promise.due <= now) { 0 } else { kept }
    }

    /// Returns whether a promise refers to the budget with this number, which must not be reassigned then. O(classes).
    pub(super) fn names(&self, budget: u32) -> bool {
        self.0.as_ref().is_some_and(|promised| promised.to.keys().any(|to| to.budgets.contains(&budget)))
    }

    /// Forgets expired promises. O(promises), but at most once a second.
    pub(super) fn sweep(&mut self, now: Instant) {
        let Some(promised) = self.0.as_mut().filter(|promised| promised.swept + SWEEPS <= now) else { return };
        promised.to.retain(|_, line| {
            line.of.retain(|_, own| {
                own.retain(|promise| promise.due + GRACE > now);
                !own.is_empty()
            });
            line.count = line.of.values().map(|own| own.len() as u64).sum();
            line.count > 0
        });
        promised.count = promised.to.values().map(|line| line.count as usize).sum();
        promised.swept = now;
        if promised.count == 0 {
            self.0 = None;
        }
    }
}

// === impl Promised ===

impl Promised {
    fn none(now: Instant) -> Self {
        let (to, due, due_at) = (Map::default(), DuePlaces::default(), Map::default());
        Self { to, count: 0, swept: now, due, due_at, counted: Instant::START }
    }

    /// Counts the reserved places. O(promises).
    fn count_due(&mut self, now: Instant) {
        (self.due, self.due_at, self.counted) = (DuePlaces::default(), Map::default(), now);
        for (to, line) in &self.to {
            let places = line.of.values().filter(|own| has_place(own, now)).count();
            let urgency = usize::from(to.urgency.get());
            self.due[urgency] += places;
            for budget in to.budgets.iter().filter(|_| places > 0) {
                self.due_at.entry(*budget).or_default()[urgency] += places;
            }
        }
    }

    /// Ends one reserved place, because its client has returned.
    fn place_ends(&mut self, to: &ReturnTo) {
        let urgency = usize::from(to.urgency.get());
        // More clients may be due than were counted.
        let one_less = |due: &mut DuePlaces| due[urgency] = due[urgency].saturating_sub(1);
        one_less(&mut self.due);
        for budget in &to.budgets {
            self.due_at.get_mut(budget).into_iter().for_each(one_less);
        }
    }
}

// === impl OfLine ===

impl OfLine {
    /// The position of the promise that `client` is retrying, among its promises.
    fn again(&self, now: Instant, client: ClientId) -> Option<usize> {
        self.of.get(&client)?.iter().position(|promise| promise.told + ANOTHER <= now)
    }

    /// Gives a retry its old promise, or a sooner one. A client that could not be admitted when it was due gets a free
    /// turn. The next turn would be given to all late clients, and to each of them again and again.
    fn keep(&mut self, now: Instant, client: ClientId, place: usize, mut at: impl FnMut(u64) -> Instant) -> Instant {
        let most = behind(place as u64, self.of.len()).min(self.count - 1);
        let own = self.of.get_mut(&client).expect("it has been promised something");
        let promised = own.remove(place).due;
        let due = if promised > now { promised.min(at(most)).max(at(0)) } else { self.a_free_turn(now, at) };
        insert(self.of.entry(client).or_default(), Promise { due, told: now });
        due
    }

    /// Finds one of the first turns that no client was promised. Late clients that do not ask take no turn, as they may
    /// never come. Promises from long before the next turn, because of a pause, take none either: their clients will
    /// get a turn behind this one. O(promises × log), and few calls of `at`, which are expensive.
    fn a_free_turn(&self, now: Instant, mut at: impl FnMut(u64) -> Instant) -> Instant {
        let next = at(0);
        let takes_one = |due: &Instant| *due > now && *due + GRACE >= next;
        let mut promised: Vec<_> = self.of.values().flatten().map(|promise| promise.due).filter(takes_one).collect();
        promised.sort_unstable();
        let mut is_free = |turn: usize| {
            let due = at(turn as u64).min(next + FARTHEST);
            let taken = promised.partition_point(|other| *other <= due);
            (taken <= turn || due == next + FARTHEST).then_some(due)
        };
        let (mut taken, mut turn) = (0, 0);
        let mut due = loop {
            match is_free(turn) {
                Some(due) => break due,
                None => (taken, turn) = (turn, turn * 2 + 1),
            }
        };
        // The turn need not be the very first free one.
        while taken + 1 + turn / PRECISELY < turn {
            let middle = taken.midpoint(turn);
            match is_free(middle) {
                Some(sooner) => (turn, due) = (middle, sooner),
                None => taken = middle,
            }
        }
        due
    }

    /// Promises a return, if there is `room` for another promise.
    fn promise(&mut self, now: Instant, client: ClientId, room: usize, mut at: impl FnMut(u64) -> Instant) -> Instant {
        let own = self.of.get(&client).map_or(0, SmallVec::len) as u64;
        let (all, clients) = (self.count, self.of.len() + usize::from(own == 0));
        let (due, farthest) = (at(behind(own, clients).min(all)), at(0) + FARTHEST);
        if own > 0 {
            let first = behind(0, clients).min(all - own);
            let (from, next) = (at(first), at(first + 1));
            let most = if next > from + FARTHEST { from.min(farthest) } else { farthest };
            if due > most {
                return most;
            }
        }
        let due = due.min(farthest);
        if room > MOST / 2 || own == 0 && room > 0 {
            let own = self.of.entry(client).or_default();
            insert(own, Promise { due, told: now });
            self.count += 1;
        }
        due
    }
}

/// Inserts a promise among the client's others, which are in the order of their turns.
fn insert(own: &mut SmallVec<[Promise; 1]>, promise: Promise) {
    let place = own.partition_point(|other| other.due <= promise.due);
    own.insert(place, promise);
}

// === impl Promise ===

impl Promise {
    /// Returns whether a place is reserved for it, at `now` or before the next count.
    fn is_due(&self, now: Instant) -> bool {
        self.due <= now + COUNTS && now < self.due + KEPT
    }
}

/// Returns whether a place is reserved for the client of these promises.
fn has_place(own: &[Promise], now: Instant) -> bool {
    own.iter().any(|promise| promise.is_due(now))
}

/// Number of returns before one that has `own` of its client's before it. Clients take turns: from each other client at
/// most one more than that.
fn behind(own: u64, clients: usize) -> u64 {
    (own + 1) * clients as u64 - 1
}

#[cfg(test)]
mod tests;
