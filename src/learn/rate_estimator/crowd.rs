//! Estimates the number of requests that may be in flight at once.

#[cfg(test)]
mod tests;

use andante_limit::Seq;

use crate::grounds::ConcurrencyEvidence;

/// A bound on unanswered requests: one for the start, and one if the API refuses more.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    /// Grows by one with each served request, so that it doubles with each round trip.
    start: f64,
    known: Known,
    hypothesis: Hypothesis,
    /// First cap that was tried, and number of requests served since.
    tried: f64,
    served: f64,
    lowered: u32,
    /// Refusals since a request later than `first` was served, and the knowledge before them.
    in_a_row: u32,
    first: Seq,
    before: Known,
    /// Refusals at the cap while other requests were served, since all were last refused for a time.
    alone: u32,
    /// True if all requests were refused for a time before it was known that others are served beside a refused one.
    doubted: bool,
}

/// Knowledge from refusals.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    cap: Option<f64>,
    /// Number in flight at the refusal that set the cap, number served since, and whether the API named concurrency as
    /// the reason. Evidence for people.
    refused: u32,
    kept: u32,
    said: bool,
    /// Number that was refused repeatedly, and how often beyond the first time; each doubles the time until the next
    /// try.
    ceiling: u32,
    in_vain: u32,
    /// Requests served since the last such refusal with as many in flight.
    beyond: u32,
}

/// A request that was served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) seq: Seq,
    /// Number of requests in flight when this one left, itself included.
    pub(super) crowd: u32,
    /// True if nothing was refused so far.
    pub(super) before_any_refusal: bool,
    /// True if the cycle has lasted much longer than a round trip.
    pub(super) cycle_is_long: bool,
}

/// Hypothesis that the API limits concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hypothesis {
    Open,
    /// The API limits concurrency.
    Confirmed,
    /// The API does not limit concurrency.
    Refuted,
}

/// Number of requests that may leave at once before anything is known.
const FIRST: f64 = 8.0;
/// Growth per served request before the first refusal: so only a few are refused at the end of a window.
const SLOWLY: f64 = 0.2;
/// Initial bound after a pause, on top of the requests in flight.
const AGAIN: f64 = 1.0;
/// Served requests, in multiples of the cap, before one more is tried.
const SELDOM: f64 = 20.0;
/// Largest exponent of two by which tries of a confirmed limit become rarer.
const IN_VAIN: u32 = 4;
/// Served requests, in multiples of the cap, that are no coincidence.
const MANY_OF: f64 = 4.0;
/// Number of single refusals after which the limit counts as concurrency, even if all requests are refused for a time.
const PROVEN: u32 = 3;
/// Refusals in a row, as a number and as a share of the cap, above which the API refuses everything.
const SOME: f64 = 2.0;
const ALL: f64 = 0.25;
/// Largest cap that a refusal of the only request disproves. With a larger one, it may be an outage.
const FEW: f64 = 3.0;
/// Share of the cap that counts as far below it.
const FAR: f64 = 0.6;
/// Served requests, in multiples of the cap, after which a refusal counts as a single one.
const OTHERS: f64 = 2.0;
/// Above this the bound is treated as unlimited.
const MANY: f64 = 1024.0;

// === impl Known ===

impl Known {
    /// Sets a lower `cap`, because a request was refused with `refused` in flight.
    fn lower(&mut self, cap: f64, refused: u32) {
        (self.cap, self.refused, self.kept, self.said) = (Some(cap), refused, 0, false);
    }
}

// === impl Crowd ===

impl Default for Crowd {
    fn default() -> Self {
        Self {
            start: FIRST,
            known: Known::default(),
            hypothesis: Hypothesis::Open,
            tried: 0.0,
            served: 0.0,
            lowered: 0,
            in_a_row: 0,
            first: 0,
            before: Known::default(),
            alone: 0,
            doubted: false,
        }
    }
}

impl Crowd {
    /// Bound for a configured rate, which is known not to be a concurrency limit.
    pub(super) fn unlimited() -> Self {
        Self { start: MANY, hypothesis: Hypothesis::Refuted, ..Self::default() }
    }

    /// Bound with a learned cap of `most` requests in flight.
    pub(super) fn known(most: u32) -> Self {
        let known = Known { cap: Some(most.max(1).into()), refused: most.saturating_add(1), ..Known::default() };
        Self { start: MANY, known, hypothesis: Hypothesis::Confirmed, alone: PROVEN, ..Self::default() }
    }

    /// Number of requests that may be in flight now.
    pub(super) fn most(&self) -> f64 {
        let start = if self.start >= MANY { f64::INFINITY } else { self.start };
        self.known.cap.map_or(start, |cap| start.min(cap.floor())).max(1.0)
    }

    /// Learned concurrency limit.
    pub(super) fn cap(&self) -> Option<u32> {
        self.known.cap.map(|cap| cap.max(1.0) as u32)
    }

    /// Evidence for the cap.
    pub(super) fn grounds(&self) -> Option<ConcurrencyEvidence> {
        let Known { refused, kept: served, said, .. } = self.known;
        Some(ConcurrencyEvidence { most: self.cap()?, refused, served, said, certain: self.is_certain() })
    }

    pub(super) fn is_open(&self) -> bool {
        self.hypothesis == Hypothesis::Open
    }

    pub(super) fn is_certain(&self) -> bool {
        self.hypothesis == Hypothesis::Confirmed && !self.doubted
    }

    /// Restarts the growth after a pause, with `unanswered` requests in flight.
    pub(super) fn start_again(&mut self, unanswered: u32) {
        self.start = AGAIN + f64::from(unanswered);
    }

    /// Raises the start to the number of requests that a known rate keeps in flight.
    pub(super) fn start_with(&mut self, unanswered: u32, under_way: f64) {
        self.start = self.start.max(f64::from(unanswered) + under_way);
    }

    /// Allows no more than `unanswered` requests for now.
    pub(super) fn hold(&mut self, unanswered: u32) {
        self.start = self.start.min(f64::from(unanswered));
    }

    /// Records that a request was served.
    pub(super) fn served(&mut self, served: Served) {
        self.start = (self.start + if served.before_any_refusal { SLOWLY } else { 1.0 }).min(MANY);
        let Some(cap) = &mut self.known.cap else { return };
        self.known.kept = self.known.kept.saturating_add(1);
        if served.seq > self.first {
            self.in_a_row = 0;
        }
        if self.hypothesis == Hypothesis::Open {
            self.served += 1.0;
            if self.served > 4.0 * self.tried.max(4.0) && served.cycle_is_long {
                self.hypothesis = Hypothesis::Confirmed;
            }
        }
        if self.hypothesis == Hypothesis::Confirmed && f64::from(served.crowd) >= cap.floor() {
            if served.crowd >= self.known.ceiling {
                // A few are served while the answer to a completed request is still on its way.
                self.known.beyond = self.known.beyond.saturating_add(1);
                if f64::from(self.known.beyond) > MANY_OF * *cap {
                    self.known.in_vain = 0;
                }
            }
            let in_vain = if cap.floor() as u32 + 1 < self.known.ceiling { 0 } else { self.known.in_vain };
            // If no request was refused beside served ones, the API may have another limit, or allow many more.
            let each = if self.known.ceiling == 0 { *cap } else { SELDOM * cap.max(5.0) * f64::from(1 << in_vain) };
            *cap += 1.0 / each;
        }
    }

    /// Handles a refusal with `crowd` requests in flight. Returns true if less concurrency may be the answer.
    pub(super) fn fewer(&mut self, seq: Seq, crowd: u32, soon: bool) -> bool {
        let Some(cap) = self.known.cap else { return false };
        if self.is_disproved(crowd, cap) {
            self.refute();
            return false;
        }
        if self.refuses_all(seq, crowd, cap) {
            self.doubt();
            return false;
        }
        if self.doubted && f64::from(self.blamed(crowd, cap)) < cap.floor() {
            return false;
        }
        match self.hypothesis {
            Hypothesis::Confirmed => {
                if f64::from(crowd) <= cap + 0.5 {
                    let crowd = self.blamed(crowd, cap);
                    self.hits(crowd, cap);
                    if f64::from(crowd) <= FAR * cap {
                        // The former limit no longer holds. The cap grows until another request is refused.
                        (self.known.ceiling, self.known.in_vain) = (0, 0);
                    }
                    self.known.lower((f64::from(crowd) - 1.0).max(1.0), crowd);
                }
                true
            }
            Hypothesis::Open if self.lowered < 5 && soon => {
                self.lowered += 1;
                self.served = 0.0;
                self.known.lower((f64::from(crowd) - 1.0).min(cap), crowd);
                true
            }
            _ => {
                self.refute();
                false
            }
        }
    }

    /// Returns true if a refusal with `crowd` in flight shows that concurrency is not the reason. The number is far
    /// below the tried one, is a lowered cap that is in doubt, or is one.
    fn is_disproved(&self, crowd: u32, cap: f64) -> bool {
        if self.hypothesis == Hypothesis::Open && f64::from(crowd) <= (FAR * self.tried).max(1.0) {
            return true;
        }
        let is_lowered = f64::from(self.known.refused) == cap.floor() + 1.0;
        self.hypothesis == Hypothesis::Confirmed && crowd <= 1 && cap < FEW
            || self.doubted && is_lowered && f64::from(self.blamed(crowd, cap)) <= cap.floor()
    }

    /// Handles a refusal of all requests for a time, which no concurrency limit causes. A second such time refutes the
    /// limit, unless other requests were served beside the refused ones.
    fn doubt(&mut self) {
        if self.doubted && self.alone < PROVEN {
            return self.refute();
        }
        self.doubted = self.alone < PROVEN;
        (self.known, self.in_a_row, self.alone) = (self.before, 0, 0);
    }

    fn refute(&mut self) {
        (self.hypothesis, self.known.cap) = (Hypothesis::Refuted, None);
        (self.in_a_row, self.doubted) = (0, false);
    }

    /// Counts a refusal. Returns true if there are so many in a row that another limit, or an outage, is the reason.
    fn refuses_all(&mut self, seq: Seq, crowd: u32, cap: f64) -> bool {
        if self.in_a_row == 0 {
            (self.first, self.before) = (seq, self.known);
            let others_served = f64::from(self.known.kept) > OTHERS * cap;
            self.alone += u32::from(others_served && f64::from(self.blamed(crowd, cap)) >= cap.floor());
            self.doubted &= self.alone < PROVEN;
        }
        self.in_a_row += 1;
        crowd <= 1 || f64::from(self.in_a_row) > (ALL * self.before.cap.unwrap_or(cap)).max(SOME)
    }

    /// Number of concurrent requests that a refusal with `crowd` in flight shows to be too many. If as many are tried
    /// as were refused before, it is that number: the refused request may have left before the last of them.
    fn blamed(&self, crowd: u32, cap: f64) -> u32 {
        if cap.floor() as u32 >= self.known.ceiling { crowd.max(self.known.ceiling) } else { crowd }
    }

    /// Records a refusal with `crowd` in flight, under a limit of `cap`. A refusal right after a reduction may be due
    /// to requests that the API still counts, so it sets no other ceiling.
    fn hits(&mut self, crowd: u32, cap: f64) {
        self.known.beyond = 0;
        if crowd == self.known.ceiling {
            self.known.in_vain = (self.known.in_vain + 1).min(IN_VAIN);
        } else if crowd > self.known.ceiling || f64::from(self.known.kept) > MANY_OF * cap {
            (self.known.ceiling, self.known.in_vain) = (crowd, 0);
        }
    }

    /// Records that the API calls `crowd` concurrent requests too many.
    pub(super) fn too_many(&mut self, crowd: u32) {
        let crowd = self.known.cap.map_or(crowd, |cap| self.blamed(crowd, cap));
        let fewer = (f64::from(crowd) - 1.0).max(1.0);
        if !self.known.said || self.known.cap.is_none_or(|cap| fewer < cap) {
            self.hits(crowd, self.known.cap.unwrap_or(fewer));
            (self.known.refused, self.known.kept, self.known.said) = (crowd, 0, true);
        }
        (self.hypothesis, self.known.cap) =
            (Hypothesis::Confirmed, Some(self.known.cap.map_or(fewer, |cap| cap.min(fewer))));
        // The API itself names concurrency as the reason.
        (self.in_a_row, self.doubted, self.alone) = (0, false, self.alone.max(PROVEN));
    }

    /// Records a refusal with fewer in flight than before, without a wait that the API asked for.
    pub(super) fn fewer_refused(&mut self) {
        if self.hypothesis == Hypothesis::Open && self.known.cap.is_none() {
            self.refute();
        }
    }

    /// Tries fewer than `refused` at once, if a pause was over at once. `served`: number of requests in flight that
    /// were served. Returns true if it does.
    pub(super) fn try_fewer(&mut self, refused: u32, served: f64) -> bool {
        let try_it = self.hypothesis == Hypothesis::Open && self.known.cap.is_none();
        if try_it {
            let cap = (f64::from(refused) - 1.0).max(served - 1.0).max(1.0);
            (self.tried, self.served) = (cap, 0.0);
            self.known.lower(cap, refused);
        }
        try_it
    }
}
