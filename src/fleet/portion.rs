//! Which part of what an API reports is a member's, where nobody has configured how much that is: the store divides it by
//! demand, as it divides tokens, and lends none.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{
    refresh::refresh_from,
    words::{Entry, Micros, PoolGrant},
};
use crate::clock::Instant;

/// What an API reports of one lane's limits.
#[derive(Debug)]
pub struct ReportedLimits {
    /// How many requests a second it allows, if that is known.
    pub rate: Option<f64>,
    /// What this member has found out of it.
    pub word: Box<str>,
}

/// A member's part of what an API allows one lane.
#[derive(Clone, Debug)]
pub struct Portion {
    /// The name of the pool whose shares it goes by.
    pool: Arc<str>,
    part: f64,
    /// Larger parts, in the order in which they hold: others have heard by then that theirs are smaller.
    rises: SmallVec<[Rise; 2]>,
    state: Stage,
    /// Pools that are given up, of which the store has not said that it knows that.
    ended: Vec<Arc<str>>,
    /// Whether the store is to be called, for the first time.
    calls: bool,
    /// The store hears of it again then.
    refresh_at: Instant,
    /// How many members are in the fleet, as far as was ever known; 0 if nothing was.
    members: u32,
    used: Used,
}

/// A larger part, and from when on it holds.
#[derive(Clone, Copy, Debug)]
struct Rise {
    part: f64,
    at: Instant,
}

/// What is used of it.
#[derive(Clone, Copy, Debug)]
struct Used {
    /// How many requests have left since then.
    since: Instant,
    left: u32,
    /// The part that would have been enough in the time before that.
    before: f64,
    /// Requests that left, or were refused, since the store was told, and how many of them had waited, or were refused.
    lately: u32,
    waited: u32,
    /// When the last one asked or left.
    at: Instant,
}

/// What the store knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing, and nothing is sent.
    Idle,
    /// Nothing yet.
    Begun,
    /// A call is under way that speaks of it.
    Asking,
    /// What was said last.
    Known,
}

/// What an API allows is divided into so many parts.
const PARTS: u32 = 10_000;
/// By then all that use it have called once more: it is spoken of each 1.25 s.
const HEARD: Duration = Duration::from_millis(1500);
/// What is used is measured over so long at least.
const MEASURED: Duration = Duration::from_secs(1);
/// What is not used for that long is given up.
const IDLE: Duration = Duration::from_secs(10);
/// Who is not held up may use so much more without asking first.
const SPARE: f64 = 1.25;
/// Of an equal part so much is kept for requests that have not come yet: a larger one takes [`HEARD`].
const KEPT: f64 = 0.5;
/// What is used is measured over the time in which the API allows so many: a single request is no rate.
const SLOTS: f64 = 10.0;
/// The store withholds nothing of it: any window will do.
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
    /// What part of what an API allows is this member's.
    pub fn part(&self) -> f64 {
        self.part
    }

    /// So many `members` are in the fleet, as far as is known; 0 says nothing.
    pub fn count(&mut self, members: u32) {
        self.members = if members > 0 { members } else { self.members };
    }

    /// A request leaves, and had to wait, or not. The store hears of it if the API `reports` anything.
    pub fn take(&mut self, now: Instant, waited: bool, reports: bool) {
        self.begin(now, reports);
        self.used.left = self.used.left.saturating_add(1);
        self.used.count(waited);
        self.grow(now);
    }

    /// A request asks and cannot leave: it waits, or is `refused`.
    pub fn lack(&mut self, now: Instant, refused: bool, reports: bool) {
        self.begin(now, reports);
        if refused {
            self.used.count(true);
        }
    }

    /// It is used from now on.
    fn begin(&mut self, now: Instant, reports: bool) {
        if self.state == Stage::Idle {
            // As many may have begun as there are.
            (self.state, self.part) = (Stage::Begun, self.equal());
            self.rises.clear();
            (self.used, self.refresh_at) = (Used::new(now, self.part), Instant::START);
        }
        if reports && self.state == Stage::Begun && self.refresh_at == Instant::START {
            (self.calls, self.refresh_at) = (true, now);
        }
        self.used.at = now;
    }

    /// Whether the store is to be called and was not yet.
    pub fn is_calling(&self) -> bool {
        self.calls
    }

    /// Whether the store is to be called. True once for each reason.
    pub fn calls(&mut self) -> bool {
        std::mem::take(&mut self.calls)
    }

    /// Whether the store knows of it, or may still know of one before it.
    pub fn is_known(&self) -> bool {
        self.is_said() || !self.ended.is_empty()
    }

    fn is_said(&self) -> bool {
        matches!(self.state, Stage::Asking | Stage::Known)
    }

    /// Whether this is its pool.
    pub fn is_of(&self, pool: &str) -> bool {
        *self.pool == *pool
    }

    /// What the next call says of the lane called `name`, whose API `reported` this, or nothing, while some wait or not.
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
                    // The store hears of it once the API reports anything.
                    self.refresh_at = Instant::START;
                }
            }
        }
        said.into_iter().chain(self.ended.iter().map(|pool| entry(pool, 0, Some(0)))).collect()
    }

    /// It is used no more, and another one says so to the store: these are the pools that are given up.
    pub fn bequeathed(&mut self) -> Vec<Arc<str>> {
        self.end();
        self.state = Stage::Idle;
        std::mem::take(&mut self.ended)
    }

    /// What another one has `ended`, of which the store does not know that yet.
    pub fn inherited(&mut self, ended: &[Arc<str>]) {
        self.ended.extend(ended.iter().filter(|pool| **pool != self.pool).cloned());
        self.calls |= self.is_known();
    }

    /// The store is to forget its pool, and hears that until it says that it has.
    fn end(&mut self) {
        if self.is_said() && !self.ended.contains(&self.pool) {
            self.ended.push(self.pool.clone());
        }
    }

    /// When to look again although nothing happens.
    pub fn next_look(&self, now: Instant) -> Instant {
        let grows = self.rises.first().map_or(Instant::FAR, |rise| rise.at);
        let speaks = if self.state == Stage::Known { self.refresh_at } else { Instant::FAR };
        grows.min(speaks).max(now + Duration::from_millis(1))
    }

    /// The store's reply.
    pub fn heard(&mut self, now: Instant, given: &PoolGrant) {
        if self.state != Stage::Asking {
            return;
        }
        self.state = Stage::Known;
        let part = given.target / f64::from(given.limit.max(1));
        // A store that has forgotten says nothing for a while.
        if part.is_nan() || part <= 0.0 {
            return;
        }
        self.grow(now);
        // The first reply comes before it is known how many there are: what it says is right.
        let least = if self.members > 0 { self.equal() * KEPT } else { 0.0 };
        let part = part.clamp(least, 1.0);
        self.part = self.part.min(part);
        self.rises.iter_mut().for_each(|rise| rise.part = rise.part.min(part));
        // What was waited for goes on being waited for; what is more than that is new to the others.
        self.rises.push(Rise { part, at: now + HEARD });
        let mut most = self.part;
        self.rises.retain(|rise| {
            let rises = rise.part > most;
            most = most.max(rise.part);
            rises
        });
    }

    /// The store knows that `pool` is given up.
    pub fn heard_end(&mut self, pool: &str) {
        self.ended.retain(|gone| **gone != *pool);
    }

    /// No reply came: the store may know of it still, whatever was said.
    pub fn unheard(&mut self) {
        if self.state == Stage::Asking {
            (self.state, self.refresh_at) = (Stage::Known, Instant::START);
        }
    }

    /// The store knows this process no more.
    pub fn lost(&mut self) {
        self.ended.clear();
        if self.is_said() {
            (self.state, self.refresh_at, self.calls) = (Stage::Begun, Instant::START, true);
        }
    }

    /// A larger part may be in force by now.
    fn grow(&mut self, now: Instant) {
        let due = self.rises.iter().take_while(|rise| rise.at <= now).count();
        if let Some(rise) = self.rises.drain(..due).next_back() {
            self.part = rise.part;
        }
    }

    /// The part that each has where all use the same.
    pub fn equal(&self) -> f64 {
        1.0 / f64::from(self.members.max(1))
    }

    /// Everything, if it is held up; otherwise what it uses, and a little more. It is never so little that requests which come
    /// now would wait for long: the others have heard of them only [`HEARD`] later.
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
    /// Nothing, where `part` is thought to be enough as long as nothing else is known.
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

/// No limit's pool ends like this: those have numbers there, or names of units after them.
const SUFFIX: &str = "\nreported";

#[cfg(test)]
mod tests;
