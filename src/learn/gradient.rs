//! Estimates from response times how many requests an API serves at once without a queue of its own. Pure: the caller
//! reports how long each answer took, and nothing here reads a clock.
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
//! Netflix takes a long mean for `unloaded`. With a queue that is never empty, as here, that mean creeps up to
//! `recent`, and the limit grows forever. Like Envoy, this module measures `unloaded` under few requests instead: in a
//! *probe*, half as many may leave as before, until enough have. If half as many are answered in half the time, all
//! workers are still busy, and the probe halves the number again.
//!
//! Answers are counted in *cohorts* of requests that left one after the other. A sample by time would contain too many
//! quick answers.
//!
//! [concurrency-limits]: https://github.com/Netflix/concurrency-limits
//! [adaptive concurrency]: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/adaptive_concurrency_filter

mod cohort;
mod mean;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use andante_limit::Seq;

use self::{cohort::Cohort, mean::Mean};

/// The limit, and the measurements behind it.
#[derive(Clone, Debug)]
pub struct GradientLimit {
    limit: f64,
    stage: Stage,
    /// Response time while few requests are in flight.
    unloaded: Option<Mean>,
    /// Response time of the last cohort at the whole limit, and that limit.
    recent: Option<Level>,
    cohort: Cohort,
    newest: Option<Seq>,
    /// Cohorts since the last probe, and the largest limit in that time.
    cohorts: u32,
    largest: f64,
    /// Consecutive cohorts that have met no queue, and consecutive cohorts that have met a queue far longer than
    /// allowed.
    quiet: u32,
    crowded: u32,
    /// First request whose answer says something about the limit since the last refusal.
    lowered: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The limit doubles with each cohort that meets no queue.
    SlowStart,
    Steady,
    /// While the requests of a cohort leave, at most `most` may be in flight. `above` is the last measurement, with
    /// more.
    Probe {
        most: u32,
        above: Level,
        first: bool,
    },
}

/// Response time with a certain number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    under_way: u32,
    seconds: f64,
}

/// Evidence for the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientEvidence {
    unloaded: Option<f64>,
    recent: Option<f64>,
    probes: bool,
}

/// Number of requests that leave at once before anything is known.
const FIRST: f64 = 4.0;
/// Envoy's default for `max_concurrency_limit`.
const MOST: f64 = 1000.0;
/// Netflix's default for `smoothing`.
const SMOOTHING: f64 = 0.2;
/// Largest fall of the limit per cohort, in both models: filters outliers.
const STEEPEST: f64 = 0.5;
/// Share by which answers may take longer than unloaded ones before the limit falls, to allow for jitter: Envoy's
/// `buffer`.
const BUFFER: f64 = 0.1;
/// Share of a settled limit's gradient below which the limit is far too large.
const FAR: f64 = 0.75;
/// Number of consecutive cohorts with the same result that is applied at once, without smoothing.
const SURE: u32 = 2;
/// Netflix's `backoffRatio` for limits by refusals alone (`AIMDLimit`).
const BACKOFF: f64 = 0.9;
/// Cohorts between two probes. A limit below the share `FALLEN` of its maximum is probed sooner, so that a fall for
/// another reason than a queue ends.
const BETWEEN: u32 = 100;
const FALLEN: f64 = 0.6;
const SETTLED: u32 = 5;
/// Share of the throughput above which half as many requests still keep all workers busy.
const BUSY: f64 = 0.85;
/// Shortest response time of the API itself: `WindowedLimit` leaves out shorter ones as well.
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
    /// Number of requests that may be in flight.
    pub fn limit(&self) -> u32 {
        match self.stage {
            Stage::Probe { most, .. } if !self.cohort.has_left() => most,
            _ => (self.limit as u32).max(1),
        }
    }

    /// Returns true if nothing was measured yet.
    pub fn is_blank(&self) -> bool {
        self.unloaded.is_none()
    }

    /// Evidence for the limit.
    pub fn grounds(&self) -> GradientEvidence {
        GradientEvidence {
            unloaded: self.unloaded.map(|mean| mean.mean()),
            recent: self.recent.map(|level| level.seconds),
            probes: matches!(self.stage, Stage::Probe { .. }),
        }
    }

    /// Records that a request leaves, with `under_way` requests in flight including this one.
    pub fn took(&mut self, seq: Seq, under_way: u32) {
        self.newest = Some(seq);
        self.cohort.took(seq, under_way);
    }

    /// Records that the head of the request's answer arrived after `took`.
    pub fn answered(&mut self, seq: Seq, took: Duration) {
        if took < SOONEST {
            return self.unmeasured(seq);
        }
        self.cohort.answered(seq, took.as_secs_f64());
        self.conclude();
    }

    /// Records an answer that says nothing about the API's load.
    pub fn unmeasured(&mut self, seq: Seq) {
        self.cohort.lost(seq, false);
        self.conclude();
    }

    /// Records that the client has left before its answer.
    pub fn abandoned(&mut self, seq: Seq) {
        self.cohort.lost(seq, true);
        self.conclude();
    }

    /// Records that the API was too busy to serve the request.
    pub fn overloaded(&mut self, seq: Seq) {
        self.broke(seq);
        self.unmeasured(seq);
    }

    /// Records that the request broke off or timed out; its end is reported separately. Several failures of requests
    /// that were in flight together count once.
    pub fn broke(&mut self, seq: Seq) {
        if seq >= self.lowered {
            self.back_off();
        }
    }

    fn back_off(&mut self) {
        self.limit = (self.limit * BACKOFF).max(1.0);
        self.lowered = self.newest.map_or(0, |newest| newest + 1);
        if self.stage != Stage::Steady {
            // The results of a probe so far are outdated.
            (self.stage, self.cohorts, self.largest) = (Stage::Steady, 0, self.limit);
            let limit = (self.limit as u32).max(1);
            self.cohort = Cohort::of(limit).after(limit);
        }
    }

    /// Evaluates a complete cohort.
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

    /// Applies the result of a cohort. Returns true if the limit has jumped.
    fn measured(&mut self, cohort: &Cohort, mean: Mean) -> bool {
        if let Stage::Probe { most, above, first } = self.stage {
            return self.probed(cohort, mean, most, above, first);
        }
        let unloaded = *self.unloaded.get_or_insert(mean);
        let level = Level { under_way: (self.limit as u32).max(1), seconds: mean.mean() };
        self.recent = Some(level);
        // Netflix: no conclusion while less than half of the limit is used.
        if cohort.most() * 2 < level.under_way {
            return false;
        }
        let is_used = cohort.most() >= level.under_way;
        let is_stale = mean.mean() < unloaded.mean() && unloaded.with(mean) == mean;
        if is_stale && self.stage == Stage::Steady && self.cohorts >= SETTLED {
            // Few requests are not answered later than many, except by chance: `unloaded` was measured while the API
            // was slow.
            self.probe(level, false);
            return false;
        }
        let gradient = (1.0 + BUFFER) * unloaded.mean() / mean.mean();
        let allowed = self.limit.sqrt();
        // Gradient at which the limit settles.
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

    /// Begins a probe with half as many requests, to measure the response time with them.
    fn probe(&mut self, above: Level, first: bool) {
        self.stage = Stage::Probe { most: (above.under_way / 2).max(1), above, first };
    }

    /// Applies the result of a cohort of a probe.
    fn probed(&mut self, cohort: &Cohort, mean: Mean, most: u32, above: Level, first: bool) -> bool {
        let level = Level { under_way: most, seconds: mean.mean() };
        if most > 1 && cohort.most() >= most && level.pace() >= BUSY * above.pace() {
            self.probe(level, first);
            return false;
        }
        let unloaded = self.unloaded.map_or(mean, |known| known.with(mean));
        self.unloaded = Some(unloaded);
        if let Some(Level { under_way, seconds }) = self.recent.filter(|_| first) {
            // The doubling has gone too far.
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
    /// Requests per second, by Little's law.
    fn pace(self) -> f64 {
        f64::from(self.under_way) / self.seconds
    }
}

// === impl GradientEvidence ===

impl fmt::Display for GradientEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        match (self.recent, self.unloaded) {
            (Some(recent), Some(unloaded)) => {
                write!(f, "answers take {}, and {} while few are in flight", time(recent), time(unloaded))?;
            }
            _ => f.write_str("too few answers yet")?,
        }
        if self.probes { f.write_str("; just now fewer, to see what they take then") } else { Ok(()) }
    }
}
