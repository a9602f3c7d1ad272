//! When those that are refused on arrival are told to come back: if all were told when the next one may, all would come then,
//! and all but one would be refused again.
//!
//! Each refusal promises a return behind those that have been promised and are not over. A client that asks again before its
//! return is told the same one. Nobody knows which of its workers asks: a request that comes sooner after a refusal than any
//! `Retry-After` is taken for another one of these.

use std::time::Duration;

use smallvec::SmallVec;

use super::turn::LineKey;
use crate::{
    clock::Instant,
    lane::order::{ClientId, Map, Urgency},
};

/// The returns that are promised; nearly always none.
#[derive(Clone, Debug, Default)]
pub(super) struct Returns(Option<Box<Promised>>);

/// What is returned to: requests of one urgency that the same things hold up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReturnTo {
    pub(super) line: LineKey,
    pub(super) urgency: Urgency,
    /// The numbers of the narrower budgets.
    pub(super) budgets: SmallVec<[u32; 2]>,
}

#[derive(Clone, Debug)]
struct Promised {
    to: Map<ReturnTo, OfLine>,
    count: usize,
    /// When those that are over were last forgotten.
    swept: Instant,
    /// For how many of each urgency a place is kept, as counted at some instant.
    due: [usize; Urgency::COUNT],
    counted: Instant,
}

/// What is promised to those of one line.
#[derive(Clone, Debug, Default)]
struct OfLine {
    of: Map<ClientId, SmallVec<[Promise; 1]>>,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    due: Instant,
    /// When it was told last.
    told: Instant,
}

/// As many are remembered for one lane, half of them only where a client has no other one. All further ones are told the time
/// behind these.
const MOST: usize = 4096;
/// A promise is over so long after its time: clients are told whole seconds, and some add a little.
const GRACE: Duration = Duration::from_secs(3);
/// One that asks again before this has not been told to wait: `Retry-After` is a second at least.
const ANOTHER: Duration = Duration::from_millis(500);
/// Nobody is told to come back later than this after the next turn: those that were told before may never come, and several
/// requests of one client may be one worker that does not wait between them. Where turns are further apart than this, all
/// requests of one client are told the next one.
const FARTHEST: Duration = Duration::from_secs(300);
const SWEEPS: Duration = Duration::from_secs(1);
/// For so long a place in the queue is kept for one that is to have returned: clients are told whole seconds.
const KEPT: Duration = Duration::from_millis(1500);
const COUNTS: Duration = Duration::from_millis(100);

// === impl Returns ===

impl Returns {
    /// When a request of `client`, which is refused `now`, is to return; `waited` says that it cannot be one that asks again.
    /// `at` says when it may with so many returns before it.
    pub(super) fn promise(
        &mut self,
        now: Instant,
        to: ReturnTo,
        client: ClientId,
        waited: bool,
        at: impl FnMut(u64) -> Instant,
    ) -> Instant {
        self.sweep(now);
        let new = || {
            Promised { to: Map::default(), count: 0, swept: now, due: [0; Urgency::COUNT], counted: Instant::START }
                .into()
        };
        let promised = self.0.get_or_insert_with(new);
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

    /// A request of `client` waits, or leaves: it is the one that was to return first.
    pub(super) fn kept(&mut self, to: impl FnOnce() -> ReturnTo, client: ClientId) {
        let Some(promised) = &mut self.0 else { return };
        let to = to();
        let Some(line) = promised.to.get_mut(&to) else { return };
        if let Some(own) = line.of.get_mut(&client) {
            let before = has_place(own, promised.counted);
            own.remove(0);
            let ends = before && !has_place(own, promised.counted);
            let due = &mut promised.due[usize::from(to.urgency.get())];
            *due -= usize::from(ends).min(*due);
            if own.is_empty() {
                line.of.remove(&client);
            }
            line.count -= 1;
            promised.count -= 1;
        }
        if promised.count == 0 {
            self.0 = None;
        }
    }

    /// For how many others a place is kept before a request of `client` that is so urgent; for none if it is due itself. Nobody has
    /// more than one in a line, however many returns it was promised. Amortised O(1) where ten a second and more are asked for.
    pub(super) fn places_kept(&mut self, now: Instant, urgency: Urgency, client: ClientId) -> usize {
        let Some(promised) = &mut self.0 else { return 0 };
        // It may stand in another line by now: what paused alone may be open, and other budgets be known.
        let mut own = promised.to.values().filter_map(|line| line.of.get(&client)).flatten();
        if own.any(|promise| promise.due <= now) {
            return 0;
        }
        if promised.counted + COUNTS <= now {
            (promised.due, promised.counted) = ([0; Urgency::COUNT], now);
            for (to, line) in &promised.to {
                let places = line.of.values().filter(|own| has_place(own, now)).count();
                promised.due[usize::from(to.urgency.get())] += places;
            }
        }
        promised.due[..=usize::from(urgency.get())].iter().sum()
    }

    /// Forgets promises that are over. O(promises), but once a second at most.
    fn sweep(&mut self, now: Instant) {
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

// === impl OfLine ===

impl OfLine {
    /// The place among those of `client` of the promise to one that asks again.
    fn again(&self, now: Instant, client: ClientId) -> Option<usize> {
        self.of.get(&client)?.iter().position(|promise| promise.told + ANOTHER <= now)
    }

    /// Tells one that asks again what it was told, or less.
    fn keep(&mut self, now: Instant, client: ClientId, place: usize, mut at: impl FnMut(u64) -> Instant) -> Instant {
        let most = behind(place as u64, self.of.len()).min(self.count - 1);
        let promise = &mut self.of.get_mut(&client).expect("it has been promised something")[place];
        let due = promise.due.min(at(most)).max(at(0));
        *promise = Promise { due, told: now };
        due
    }

    /// There is `room` for so many more.
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
            let place = own.partition_point(|promise| promise.due <= due);
            own.insert(place, Promise { due, told: now });
            self.count += 1;
        }
        due
    }
}

// === impl Promise ===

impl Promise {
    /// Whether a place is kept for it, at `now` or before all are counted again.
    fn is_due(&self, now: Instant) -> bool {
        self.due <= now + COUNTS && now < self.due + KEPT
    }
}

/// Whether a place is kept for the client of these promises.
fn has_place(own: &[Promise], now: Instant) -> bool {
    own.iter().any(|promise| promise.is_due(now))
}

/// How many go before one that has so many of its own client before it. By turns: of no other client more than of its own,
/// and one.
fn behind(own: u64, clients: usize) -> u64 {
    (own + 1) * clients as u64 - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{learn::RouteKey, limit::Scope};

    const SECOND: Duration = Duration::from_secs(1);

    fn client(number: u16) -> ClientId {
        let [high, low] = number.to_be_bytes();
        ClientId::of([10, 0, high, low].into())
    }

    fn to(paused: Option<RouteKey>) -> ReturnTo {
        let line = LineKey { scope: Scope::NONE, paused, metered: false };
        ReturnTo { line, urgency: Urgency::USUAL, budgets: SmallVec::new() }
    }

    /// What a client is told at `now` that may return at `base` at the earliest, where turns are `apart`.
    fn told(returns: &mut Returns, now: Instant, of: u16, base: Instant, apart: Duration) -> Duration {
        returns.promise(now, to(None), client(of), false, |ahead| base + apart * ahead as u32).since(now)
    }

    #[test]
    fn each_client_is_told_a_turn_of_its_own_and_keeps_it() {
        let mut returns = Returns::default();
        let base = Instant::START + SECOND * 10;
        for round in 0..9 {
            let now = Instant::START + SECOND * round;
            for of in 0..50 {
                let due = SECOND * 10 + SECOND * u32::from(of) / 10 - SECOND * round;
                assert_eq!(told(&mut returns, now, of, base, SECOND / 10), due, "{of} in round {round}");
            }
        }
        assert_eq!(returns.0.as_ref().unwrap().count, 50);
        // Five of them have been let in; the last one is no later for that than what is before it.
        (0..5).for_each(|of| returns.kept(|| to(None), client(of)));
        let now = Instant::START + SECOND * 10;
        assert_eq!(told(&mut returns, now, 49, base + SECOND / 2, SECOND / 10), SECOND * 49 / 10);
    }

    #[test]
    fn one_client_is_not_in_the_way_of_another() {
        let mut returns = Returns::default();
        let (now, base) = (Instant::START, Instant::START + SECOND);
        for place in 0..100 {
            assert_eq!(told(&mut returns, now, 1, base, SECOND), SECOND * (1 + place));
        }
        assert_eq!(told(&mut returns, now, 2, base, SECOND), SECOND * 2, "behind one of the other client");
        let other =
            returns.promise(now, to(Some(RouteKey::NONE)), client(1), false, |ahead| base + SECOND * ahead as u32);
        assert_eq!(other, base, "what pauses alone is returned to alone");
    }

    #[test]
    fn places_are_kept_for_those_that_are_due_and_not_for_long() {
        let mut returns = Returns::default();
        let base = Instant::START + SECOND;
        (0..20).for_each(|of| _ = told(&mut returns, Instant::START, of, base, SECOND));
        let due = |returns: &mut Returns, seconds: f64, of| {
            let now = Instant::START + SECOND.mul_f64(seconds);
            returns.places_kept(now, Urgency::USUAL, client(of))
        };
        assert_eq!(due(&mut returns, 0.5, 99), 0);
        assert_eq!(due(&mut returns, 1.2, 99), 1);
        assert_eq!(due(&mut returns, 1.2, 0), 0, "it is the one that is due");
        assert_eq!(due(&mut returns, 1.2, 1), 1, "it comes too early");
        assert_eq!(due(&mut returns, 2.2, 99), 2);
        returns.kept(|| to(None), client(0));
        assert_eq!(due(&mut returns, 2.2, 99), 1);
        assert_eq!(due(&mut returns, 5.7, 99), 1, "those at 2 s to 4 s have not come");
    }

    #[test]
    fn nobody_has_more_than_one_place_and_none_that_is_in_the_way_of_what_is_more_urgent() {
        let mut returns = Returns::default();
        let (now, base) = (Instant::START, Instant::START + SECOND);
        // Twenty a second are promised to one client, and one to another.
        let mut promise =
            |of| returns.promise(now, to(None), client(of), true, |n| base + SECOND.mul_f64(0.05) * n as u32);
        (0..100).for_each(|_| _ = promise(1));
        promise(2);
        let then = base + SECOND;
        assert_eq!(returns.places_kept(then, Urgency::USUAL, client(9)), 2);
        assert_eq!(returns.places_kept(then, Urgency::new(0).unwrap(), client(9)), 0);
        assert_eq!(returns.places_kept(then, Urgency::new(7).unwrap(), client(9)), 2);
    }

    #[test]
    fn those_that_never_come_back_put_nobody_off_by_more_than_five_minutes() {
        let mut returns = Returns::default();
        let minute = Duration::from_secs(60);
        let base = Instant::START + minute;
        let told: Vec<_> = (0..100).map(|of| told(&mut returns, Instant::START, of, base, minute)).collect();
        assert_eq!((told[0], told[4], told[99]), (minute, 5 * minute, 6 * minute));
    }

    #[test]
    fn whoever_does_not_wait_at_all_is_not_told_hours() {
        let mut returns = Returns::default();
        let hour = Duration::from_secs(3600);
        for tenth in 0..100 {
            let now = Instant::START + SECOND * tenth / 10;
            let told = told(&mut returns, now, 1, Instant::START + hour, hour);
            assert_eq!(told, hour - SECOND * tenth / 10);
        }
        // Where turns are closer, requests that come together are taken for several, up to five minutes after the next turn.
        let told: Vec<_> = (0..1000)
            .map(|_| told(&mut returns, Instant::START + SECOND * 9, 2, Instant::START + SECOND * 10, SECOND))
            .collect();
        assert_eq!((told[1].max(told[2]), *told.iter().max().unwrap()), (SECOND * 4, SECOND + FARTHEST));
    }

    #[test]
    fn what_is_over_is_forgotten_and_no_more_is_remembered_than_may_be() {
        let mut returns = Returns::default();
        let base = Instant::START + SECOND;
        for of in 0..10_000 {
            told(&mut returns, Instant::START, of, base, Duration::ZERO);
        }
        assert_eq!(returns.0.as_ref().unwrap().count, MOST);
        let now = base + GRACE;
        assert_eq!(told(&mut returns, now, 1, now + SECOND, SECOND), SECOND);
        assert_eq!(returns.0.as_ref().unwrap().count, 1);
        returns.kept(|| to(None), client(1));
        assert!(returns.0.is_none());
    }

    #[test]
    fn a_client_that_asks_for_many_does_not_use_up_what_is_remembered_of_others() {
        let mut returns = Returns::default();
        let (now, base, apart) = (Instant::START, Instant::START + SECOND, SECOND / 100);
        (0..MOST * 2).for_each(|_| _ = told(&mut returns, now, 1, base, apart));
        assert_eq!(returns.0.as_ref().unwrap().count, MOST / 2);
        // Each behind one of every other client.
        for other in 1..=200 {
            assert_eq!(told(&mut returns, now, 1 + other, base, apart), SECOND + apart * other.into());
        }
    }

    #[test]
    fn what_is_not_remembered_takes_no_memory() {
        let mut returns = Returns::default();
        let (now, base) = (Instant::START, Instant::START + SECOND);
        (0..4096).for_each(|of| _ = told(&mut returns, now, of, base, Duration::ZERO));
        for budget in 0..1000 {
            let to = ReturnTo { budgets: SmallVec::from_slice(&[budget]), ..to(None) };
            assert_eq!(returns.promise(now, to, client(1), false, |_| base), base);
        }
        assert_eq!(returns.0.as_ref().unwrap().to.len(), 1);
    }
}
