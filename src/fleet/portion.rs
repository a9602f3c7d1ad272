//! A member's part of the quotas that an API reports, where no part is configured. The store divides the quotas by
//! demand, as it divides tokens, and lends none.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use smallvec::SmallVec;

use super::{
    refresh::refresh_from,
    words::{Entry, Micros, PoolGrant},
};

/// Limits that an API reports for one lane.
#[derive(Debug)]
pub struct ReportedLimits {
    /// Requests per second that the API allows, if known.
    pub rate: Option<f64>,
    /// This member's findings about the limits.
    pub word: Box<str>,
}

/// A member's part of what an API allows one lane.
#[derive(Clone, Debug)]
pub struct Portion {
    /// Name of the pool that defines the part.
    pool: Arc<str>,
    part: f64,
    /// Larger parts, in the order in which they take effect: by then the other members have heard of their smaller
    /// parts.
    rises: SmallVec<[Rise; 2]>,
    state: Stage,
    /// Pools that are given up, without a confirmation by the store yet.
    ended: Vec<Arc<str>>,
    /// The first call to the store is due.
    calls: bool,
    /// When the portion is next reported to the store.
    refresh_at: Instant,
    /// Last known number of members in the fleet; 0 if unknown.
    members: u32,
    used: Used,
}

/// A larger part, and when it takes effect.
#[derive(Clone, Copy, Debug)]
struct Rise {
    part: f64,
    at: Instant,
}

/// Use of the portion.
#[derive(Clone, Copy, Debug)]
struct Used {
    /// Start of the measurement, and requests that have left since.
    since: Instant,
    left: u32,
    /// Part that would have been enough in the measurement before.
    before: f64,
    /// Requests that left or were refused since the last report, and the number that had waited or were refused.
    lately: u32,
    waited: u32,
    /// When the last request asked or left.
    at: Instant,
}

/// State of the portion at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Unknown to the store; no requests are sent.
    Idle,
    /// Not reported yet.
    Begun,
    /// A call in flight reports the portion.
    Asking,
    /// The store knows the last report.
    Known,
}

/// Number of parts into which an API's quota is divided.
const PARTS: u32 = 10_000;
/// By then every member that uses the quota has called again: reports follow each 1.25 s.
const HEARD: Duration = Duration::from_millis(1500);
/// Minimum duration of a measurement.
const MEASURED: Duration = Duration::from_secs(1);
/// A portion unused for this long is given up.
const IDLE: Duration = Duration::from_secs(10);
/// Factor by which a member without waiting requests may exceed its use without asking first.
const SPARE: f64 = 1.25;
/// Part of an equal share that is retained for requests to come: a larger part takes [`HEARD`].
const KEPT: f64 = 0.5;
/// A measurement covers the time of this many slots: a single request is no rate.
const SLOTS: f64 = 10.0;
/// The store withholds nothing of a portion, so any window will do.
const WINDOW: Micros = 1_000_000;

// === impl Portion ===

impl Default for Portion {
    fn default() -> Self {
        Self {
            pool: "".into(),
            part: 1.0,
            rises: SmallVec::new(),
            state: Stage::Idle,
            ended: Vec::new(),
            calls: false,
            refresh_at: Instant::START,
            members: 0,
            used: Used::new(Instant::START, 1.0),
        }
    }
}

impl Portion {
    /// This member's part of what an API allows.
    pub fn part(&self) -> f64 {
        self.part
    }

    /// Sets the known number of `members` in the fleet; 0 changes nothing.
    pub fn count(&mut self, members: u32) {
        self.members = if members > 0 { members } else { self.members };
    }

    /// Records that a request leaves, and whether it had to wait. The store is told if the API `reports` anything.
    pub fn take(&mut self, now: Instant, waited: bool, reports: bool) {
        self.begin(now, reports);
        self.used.left = self.used.left.saturating_add(1);
        self.used.count(waited);
        self.grow(now);
    }

    /// Records that a request cannot leave: the request waits, or is `refused`.
    pub fn lack(&mut self, now: Instant, refused: bool, reports: bool) {
        self.begin(now, reports);
        if refused {
            self.used.count(true);
        }
    }

    /// Begins the use of the portion.
    fn begin(&mut self, now: Instant, reports: bool) {
        if self.state == Stage::Idle {
            // All known members may have begun.
            (self.state, self.part) = (Stage::Begun, self.equal());
            self.rises.clear();
            (self.used, self.refresh_at) = (Used::new(now, self.part), Instant::START);
        }
        if reports && self.state == Stage::Begun && self.refresh_at == Instant::START {
            (self.calls, self.refresh_at) = (true, now);
        }
        self.used.at = now;
    }

    /// Returns true if a call to the store is due.
    pub fn is_calling(&self) -> bool {
        self.calls
    }

    /// Returns true, once for each reason, if a call to the store is due.
    pub fn calls(&mut self) -> bool {
        std::mem::take(&mut self.calls)
    }

    /// Returns true if the store knows this portion, or may still know an earlier one.
    pub fn is_known(&self) -> bool {
        self.is_said() || !self.ended.is_empty()
    }

    fn is_said(&self) -> bool {
        matches!(self.state, Stage::Asking | Stage::Known)
    }

    /// Returns true if `pool` is the portion's pool.
    pub fn is_of(&self, pool: &str) -> bool {
        *self.pool == *pool
    }

    /// Builds the entries of the next call for the lane called `name`. `reported` are the API's limits, if any; `waits`
    /// says whether requests wait.
    pub fn speak(
        &mut self,
        now: Instant,
        name: &str,
        reported: Option<ReportedLimits>,
        waits: bool,
        reports: bool,
    ) -> Vec<Entry> {
        self.grow(now);
        self.calls = false;
        if self.state == Stage::Asking {
            return Vec::new();
        }
        if self.pool.strip_suffix(SUFFIX) != Some(name) {
            self.end();
            self.pool = format!("{name}{SUFFIX}").into();
            if self.is_said() {
                (self.state, self.refresh_at) = (Stage::Begun, now);
            }
        }
        let uses = self.state != Stage::Idle && (waits || now.since(self.used.at) <= IDLE);
        let mut said = None;
        match reported.filter(|_| uses) {
            Some(ReportedLimits { rate, word }) if now >= self.refresh_at || reports => {
                self.ended.retain(|gone| *gone != self.pool);
                let demand = self.demand(now, rate, waits);
                said = Some(Entry { word, ..entry(&self.pool, demand, None) });
                (self.state, self.refresh_at) = (Stage::Asking, refresh_from(now + Duration::from_nanos(1)));
            }
            Some(_) => {}
            None => {
                self.end();
                if !uses || self.is_said() {
                    (self.state, self.part) = (Stage::Idle, self.equal());
                    self.rises.clear();
                } else {
                    // The store is told once the API reports anything.
                    self.refresh_at = Instant::START;
                }
            }
        }
        said.into_iter().chain(self.ended.iter().map(|pool| entry(pool, 0, Some(0)))).collect()
    }

    /// Ends the portion of a lane that is merged into another. Returns its given-up pools, which the other lane
    /// reports.
    pub fn bequeathed(&mut self) -> Vec<Arc<str>> {
        self.end();
        self.state = Stage::Idle;
        std::mem::take(&mut self.ended)
    }

    /// Takes over pools that another portion has `ended` without the store's confirmation.
    pub fn inherited(&mut self, ended: &[Arc<str>]) {
        self.ended.extend(ended.iter().filter(|pool| **pool != self.pool).cloned());
        self.calls |= self.is_known();
    }

    /// Gives up the pool, and reports that until the store confirms.
    fn end(&mut self) {
        if self.is_said() && !self.ended.contains(&self.pool) {
            self.ended.push(self.pool.clone());
        }
    }

    /// When to look again if nothing happens.
    pub fn next_look(&self, now: Instant) -> Instant {
        let grows = self.rises.first().map_or(Instant::FAR, |rise| rise.at);
        let speaks = if self.state == Stage::Known { self.refresh_at } else { Instant::FAR };
        grows.min(speaks).max(now + Duration::from_millis(1))
    }

    /// Applies the store's reply.
    pub fn heard(&mut self, now: Instant, given: &PoolGrant) {
        if self.state != Stage::Asking {
            return;
        }
        self.state = Stage::Known;
        let part = given.target / f64::from(given.limit.max(1));
        // A store without state grants nothing for a while.
        if part.is_nan() || part <= 0.0 {
            return;
        }
        self.grow(now);
        // The first reply comes before the number of members is known, and is correct.
        let least = if self.members > 0 { self.equal() * KEPT } else { 0.0 };
        let part = part.clamp(least, 1.0);
        self.part = self.part.min(part);
        self.rises.iter_mut().for_each(|rise| rise.part = rise.part.min(part));
        // Pending larger parts stay pending; only the excess over them is new to the other members.
        self.rises.push(Rise { part, at: now + HEARD });
        let mut most = self.part;
        self.rises.retain(|rise| {
            let rises = rise.part > most;
            most = most.max(rise.part);
            rises
        });
    }

    /// Records the store's confirmation that `pool` is given up.
    pub fn heard_end(&mut self, pool: &str) {
        self.ended.retain(|gone| **gone != *pool);
    }

    /// Records that no reply came: the store may know the portion, whatever was reported.
    pub fn unheard(&mut self) {
        if self.state == Stage::Asking {
            (self.state, self.refresh_at) = (Stage::Known, Instant::START);
        }
    }

    /// Records that the store does not know this process any more.
    pub fn lost(&mut self) {
        self.ended.clear();
        if self.is_said() {
            (self.state, self.refresh_at, self.calls) = (Stage::Begun, Instant::START, true);
        }
    }

    /// Applies larger parts that have taken effect by now.
    fn grow(&mut self, now: Instant) {
        let due = self.rises.iter().take_while(|rise| rise.at <= now).count();
        if let Some(rise) = self.rises.drain(..due).next_back() {
            self.part = rise.part;
        }
    }

    /// Part of each member if all use equally much.
    pub fn equal(&self) -> f64 {
        1.0 / f64::from(self.members.max(1))
    }

    /// Demand of this member: everything if requests wait, otherwise its use plus a little. The demand keeps a minimum,
    /// so that new requests do not wait long: other members hear of them only [`HEARD`] later.
    fn demand(&mut self, now: Instant, rate: Option<f64>, waits: bool) -> u32 {
        let least = self.equal() * KEPT;
        let used = &mut self.used;
        let pressed = waits || used.waited > 0 && 2 * used.waited >= used.lately;
        (used.lately, used.waited) = (0, 0);
        let mut enough = used.before;
        if let Some(rate) = rate {
            let (took, slots) = (now.since(used.since), SLOTS / rate);
            let uses = SPARE * f64::from(used.left) / took.as_secs_f64().max(slots) / rate;
            enough = enough.max(uses);
            if took.as_secs_f64() >= slots.max(MEASURED.as_secs_f64()) {
                (used.since, used.left, used.before) = (now, 0, uses);
            }
        }
        if pressed { PARTS } else { ((enough.clamp(least, 1.0) * f64::from(PARTS)) as u32).max(1) }
    }
}

// === impl Used ===

impl Used {
    /// No use so far; `part` is assumed to be enough until more is known.
    fn new(since: Instant, part: f64) -> Self {
        Self { since, left: 0, before: part, lately: 0, waited: 0, at: since }
    }

    fn count(&mut self, waited: bool) {
        self.lately = self.lately.saturating_add(1);
        self.waited = self.waited.saturating_add(waited.into());
    }
}

fn entry(pool: &Arc<str>, demand: u32, ends: Option<Micros>) -> Entry {
    let (pool, limit, word) = (pool.clone(), PARTS, Box::default());
    Entry { pool, limit, per: WINDOW, settle: 0, holds: 0, want: 0, cost: 0, need: 0, demand, ends, word }
}

/// No limit's pool ends like this: there a number, or the name of a unit, ends the name.
const SUFFIX: &str = "\nreported";

#[cfg(test)]
mod tests;
