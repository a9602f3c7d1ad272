//! How many requests an API serves at once without a queue of its own, found from how long its answers take. Pure: it is
//! told how long each answer took, and reads no clock.
//!
//! The law is that of Netflix's [concurrency-limits] (`Gradient2Limit`) and of Envoy's [adaptive concurrency]:
//!
//! ```text
//! gradient = clamp(1.1 · unloaded / recent, 0.5, 1)        unloaded, recent: mean times to an answer's head
//! limit    = 0.8 · limit + 0.2 · (gradient · limit + √limit)
//! ```
//!
//! An API with k workers answers after `unloaded · limit / k` once they are busy. So the limit settles where
//! `limit = 1.1 k + √limit`: √limit and a tenth of k wait in the API, and its workers are never idle.
//!
//! Netflix takes a long mean for `unloaded`. Where a queue is never empty, as here, that mean creeps up to `recent`, and the
//! limit grows for ever. As Envoy does, `unloaded` is measured under few requests instead: in a *probe* half as many may
//! leave as before, until enough have. If half as many are answered in half the time, the workers are still all busy, and
//! the probe goes on with half of that.
//!
//! Answers are counted in *cohorts*, of requests that left one after the other: whatever is answered within some time would
//! have too many of the quick ones.
//!
//! [concurrency-limits]: https://github.com/Netflix/concurrency-limits
//! [adaptive concurrency]: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/adaptive_concurrency_filter

mod cohort;
mod mean;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use self::{cohort::Cohort, mean::Mean};
use crate::limit::Seq;

/// The limit, and what it is found from.
#[derive(Clone, Debug)]
pub struct GradientLimit {
    limit: f64,
    stage: Stage,
    /// How long answers take while few requests are under way.
    unloaded: Option<Mean>,
    /// What the last cohort at the whole limit took, and what the limit was.
    recent: Option<Level>,
    cohort: Cohort,
    newest: Option<Seq>,
    /// Cohorts since the last probe, and the largest limit of that time.
    cohorts: u32,
    largest: f64,
    /// How many cohorts in a row have met no queue, and how many a far longer one than is allowed.
    quiet: u32,
    crowded: u32,
    /// What left before this says nothing of the limit as it is since the last refusal.
    lowered: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The limit doubles with each cohort that meets no queue.
    SlowStart,
    Steady,
    /// No more than `most` may be under way while those of a cohort leave; `above` is what was measured last, with more.
    Probe {
        most: u32,
        above: Level,
        first: bool,
    },
}

/// How long answers took with so many requests under way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    under_way: u32,
    seconds: f64,
}

/// What the limit rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientGrounds {
    unloaded: Option<f64>,
    recent: Option<f64>,
    probes: bool,
}

/// How many leave at once when nothing is known.
const FIRST: f64 = 4.0;
/// Envoy's default for `max_concurrency_limit`.
const MOST: f64 = 1000.0;
/// Netflix's default for `smoothing`.
const SMOOTHING: f64 = 0.2;
/// Both let the limit fall by no more than half at once: outliers are filtered.
const STEEPEST: f64 = 0.5;
/// Answers may take so much longer than unloaded ones before the limit falls, for what varies anyway: Envoy's `buffer`.
const BUFFER: f64 = 0.1;
/// A limit with more than this share of its fall before it is too large by far.
const FAR: f64 = 0.75;
/// So many cohorts in a row make sure of it: what they say holds at once, and is not smoothed.
const SURE: u32 = 2;
/// Netflix's `backoffRatio` where it goes by refusals alone (`AIMDLimit`).
const BACKOFF: f64 = 0.9;
/// So many cohorts are between two probes, or fewer if the limit has fallen by more than this share: a fall that has another
/// reason than a queue ends so.
const BETWEEN: u32 = 100;
const FALLEN: f64 = 0.6;
const SETTLED: u32 = 5;
/// Half as many requests that are served at this share of the pace have all workers busy too.
const BUSY: f64 = 0.85;
/// What is answered sooner was not asked of the API: `WindowedLimit` leaves out the same.
const SOONEST: Duration = Duration::from_micros(100);

// === impl GradientLimit ===

impl Default for GradientLimit {
    fn default() -> Self {
        Self {
            limit: FIRST,
            stage: Stage::SlowStart,
            unloaded: None,
            recent: None,
            cohort: Cohort::of(FIRST as u32),
            newest: None,
            cohorts: 0,
            largest: FIRST,
            quiet: 0,
            crowded: 0,
            lowered: 0,
        }
    }
}

impl GradientLimit {
    /// How many may be under way.
    pub fn limit(&self) -> u32 {
        match self.stage {
            Stage::Probe { most, .. } if !self.cohort.has_left() => most,
            _ => (self.limit as u32).max(1),
        }
    }

    /// Whether nothing was found out yet.
    pub fn is_blank(&self) -> bool {
        self.unloaded.is_none()
    }

    /// What it rests on.
    pub fn grounds(&self) -> GradientGrounds {
        GradientGrounds {
            unloaded: self.unloaded.map(|mean| mean.mean()),
            recent: self.recent.map(|level| level.seconds),
            probes: matches!(self.stage, Stage::Probe { .. }),
        }
    }

    /// A request leaves, and this many are under way with it.
    pub fn took(&mut self, seq: Seq, under_way: u32) {
        self.newest = Some(seq);
        self.cohort.took(seq, under_way);
    }

    /// The head of its answer came after `took`.
    pub fn answered(&mut self, seq: Seq, took: Duration) {
        if took < SOONEST {
            return self.unmeasured(seq);
        }
        self.cohort.answered(seq, took.as_secs_f64());
        self.conclude();
    }

    /// Its answer says nothing of how busy the API is.
    pub fn unmeasured(&mut self, seq: Seq) {
        self.cohort.lost(seq, false);
        self.conclude();
    }

    /// Nobody waits for its answer any more.
    pub fn abandoned(&mut self, seq: Seq) {
        self.cohort.lost(seq, true);
        self.conclude();
    }

    /// The API was too busy to serve it.
    pub fn overloaded(&mut self, seq: Seq) {
        self.broke(seq);
        self.unmeasured(seq);
    }

    /// It broke off, or was not answered in time; its end is told beside. What follows from several that were under way
    /// together follows once.
    pub fn broke(&mut self, seq: Seq) {
        if seq >= self.lowered {
            self.back_off();
        }
    }

    fn back_off(&mut self) {
        self.limit = (self.limit * BACKOFF).max(1.0);
        self.lowered = self.newest.map_or(0, |newest| newest + 1);
        if self.stage != Stage::Steady {
            // What a probe has found so far is of another time.
            (self.stage, self.cohorts, self.largest) = (Stage::Steady, 0, self.limit);
            let limit = (self.limit as u32).max(1);
            self.cohort = Cohort::of(limit).after(limit);
        }
    }

    /// Draws the conclusion of a cohort that is complete.
    fn conclude(&mut self) {
        if !self.cohort.is_complete() {
            return;
        }
        let cohort = std::mem::replace(&mut self.cohort, Cohort::of(0));
        let moved = match cohort.mean() {
            Some(mean) => self.measured(&cohort, mean),
            None => {
                // Clients that leave before their answers have waited for a queue, too.
                if cohort.was_abandoned() {
                    self.back_off();
                }
                false
            }
        };
        let limit = (self.limit as u32).max(1);
        self.cohort = match self.stage {
            Stage::Probe { most, .. } => Cohort::of(most),
            // The first requests under a limit that has jumped meet the queue of the one before.
            _ if moved => Cohort::of(limit).after(limit),
            _ => Cohort::of(limit),
        };
    }

    /// What follows from a cohort. Returns whether the limit has jumped.
    fn measured(&mut self, cohort: &Cohort, mean: Mean) -> bool {
        if let Stage::Probe { most, above, first } = self.stage {
            return self.probed(cohort, mean, most, above, first);
        }
        let unloaded = *self.unloaded.get_or_insert(mean);
        let level = Level { under_way: (self.limit as u32).max(1), seconds: mean.mean() };
        self.recent = Some(level);
        // Netflix: nothing is concluded while not even half of the limit is used.
        if cohort.most() * 2 < level.under_way {
            return false;
        }
        let is_used = cohort.most() >= level.under_way;
        let is_stale = mean.mean() < unloaded.mean() && unloaded.with(mean) == mean;
        if is_stale && self.stage == Stage::Steady && self.cohorts >= SETTLED {
            // Few are never answered later than many, but by chance: that was measured while the API was slow.
            self.probe(level, false);
            return false;
        }
        let gradient = (1.0 + BUFFER) * unloaded.mean() / mean.mean();
        let allowed = self.limit.sqrt();
        // Where the limit settles, this is the gradient.
        let settled = (1.0 - 1.0 / allowed.max(2.0)).max(STEEPEST);
        if self.stage == Stage::SlowStart {
            if gradient < settled || self.limit >= MOST {
                self.probe(level, true);
                return false;
            }
            self.limit = if is_used { (self.limit * 2.0).min(MOST) } else { self.limit };
            return is_used;
        }
        self.quiet = if gradient >= 1.0 { self.quiet + 1 } else { 0 };
        self.crowded = if gradient < FAR * settled { self.crowded + 1 } else { 0 };
        let smoothing = if self.quiet.max(self.crowded) >= SURE { 1.0 } else { SMOOTHING };
        let next = gradient.clamp(STEEPEST, 1.0) * self.limit + allowed;
        let next = self.limit + smoothing * (next - self.limit);
        if is_used || next < self.limit {
            self.limit = next.clamp(1.0, MOST);
        }
        self.largest = self.largest.max(self.limit);
        self.cohorts += 1;
        if self.cohorts >= BETWEEN || self.limit < FALLEN * self.largest && self.cohorts >= SETTLED {
            self.probe(level, false);
        }
        false
    }

    /// From now on half as many as before, to see what an answer takes then.
    fn probe(&mut self, above: Level, first: bool) {
        self.stage = Stage::Probe { most: (above.under_way / 2).max(1), above, first };
    }

    /// What follows from a cohort of a probe.
    fn probed(&mut self, cohort: &Cohort, mean: Mean, most: u32, above: Level, first: bool) -> bool {
        let level = Level { under_way: most, seconds: mean.mean() };
        if most > 1 && cohort.most() >= most && level.pace() >= BUSY * above.pace() {
            self.probe(level, first);
            return false;
        }
        let unloaded = self.unloaded.map_or(mean, |known| known.with(mean));
        self.unloaded = Some(unloaded);
        if let Some(Level { under_way, seconds }) = self.recent.filter(|_| first) {
            // What doubled has gone too far.
            let under_way = f64::from(under_way);
            let gradient = ((1.0 + BUFFER) * unloaded.mean() / seconds).clamp(STEEPEST / 2.0, 1.0);
            self.limit = self.limit.min(gradient * under_way + under_way.sqrt()).max(1.0);
        }
        (self.stage, self.cohorts, self.largest) = (Stage::Steady, 0, self.limit);
        (self.quiet, self.crowded) = (0, 0);
        true
    }
}

// === impl Level ===

impl Level {
    /// Requests a second, by Little's law.
    fn pace(self) -> f64 {
        f64::from(self.under_way) / self.seconds
    }
}

// === impl GradientGrounds ===

impl fmt::Display for GradientGrounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        match (self.recent, self.unloaded) {
            (Some(recent), Some(unloaded)) => {
                write!(f, "answers take {}, and {} while few are under way", time(recent), time(unloaded))?;
            }
            _ => f.write_str("too few answers yet")?,
        }
        if self.probes { f.write_str("; just now fewer, to see what they take then") } else { Ok(()) }
    }
}
