//! How many requests may be under way at once.

#[cfg(test)]
mod tests;

use crate::{learn::grounds::AtOnceGrounds, limit::Seq};

/// A bound on unanswered requests: one for the start, and one if the API refuses more.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    /// Grows by one with each that is served: twice as many after each answer.
    start: f64,
    known: Known,
    hypothesis: Hypothesis,
    /// What was tried first, and how many were served since.
    tried: f64,
    served: f64,
    lowered: u32,
    /// How many were refused since one was served that left after the `first` of them, and what was known before that.
    in_a_row: u32,
    first: Seq,
    before: Known,
    /// How often one of as many as may be under way was refused and others were served then, since all were refused for a time.
    alone: u32,
    /// All were refused for a time, before it was known that others are served beside one that is refused.
    doubted: bool,
}

/// What refusals have shown.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    cap: Option<f64>,
    /// How many were under way when the one was refused that has set the cap, how many were served since, and whether the
    /// API said that it was that: for people.
    refused: u32,
    kept: u32,
    said: bool,
    /// As many were refused, again and again: how often more than once. The next try takes twice as long each time.
    ceiling: u32,
    in_vain: u32,
    /// How many were served since the last such refusal that had as many under way.
    beyond: u32,
}

/// A request that was served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) seq: Seq,
    /// How many were under way when it left, itself included.
    pub(super) crowd: u32,
    /// Whether nothing was refused so far.
    pub(super) before_any_refusal: bool,
    /// Whether the cycle has lasted much longer than an answer takes.
    pub(super) cycle_is_long: bool,
}

/// Whether the API limits how many there are at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hypothesis {
    Open,
    /// It does.
    Confirmed,
    /// It does not.
    Refuted,
}

/// How many leave at once when nothing is known.
const FIRST: f64 = 8.0;
/// By so much it grows with each that is served, until one is refused: so few of a window's end are refused.
const SLOWLY: f64 = 0.2;
/// The same after a pause.
const AGAIN: f64 = 1.0;
/// One more is tried after so many times as many as may be under way.
const SELDOM: f64 = 20.0;
/// A limit of concurrency that stays is tried so much more seldom, as a power of two.
const IN_VAIN: u32 = 4;
/// Where so many times the cap were served, that was no chance.
const MANY_OF: f64 = 4.0;
/// Where so many were refused alone it stays a limit of how many at once though it refuses all for a time.
const PROVEN: u32 = 3;
/// More than so many in a row, and than this part of the cap, are all.
const SOME: f64 = 2.0;
const ALL: f64 = 0.25;
/// One that is refused alone disproves a smaller cap. It may be an outage where it is larger.
const FEW: f64 = 3.0;
/// So large a part of the cap, and fewer, are far below it.
const FAR: f64 = 0.6;
/// Where so many times the cap were served after one was refused, that one was alone.
const OTHERS: f64 = 2.0;
/// More are no stampede any more.
const MANY: f64 = 1024.0;

// === impl Known ===

impl Known {
    /// One of `refused` was refused, so that there is a lower `cap`.
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
    /// A configured rate is known to be a rate, and no limit of concurrency.
    pub(super) fn unlimited() -> Self {
        Self { start: MANY, hypothesis: Hypothesis::Refuted, ..Self::default() }
    }

    /// It was found that `most` may be under way.
    pub(super) fn known(most: u32) -> Self {
        let known = Known { cap: Some(most.max(1).into()), refused: most.saturating_add(1), ..Known::default() };
        Self { start: MANY, known, hypothesis: Hypothesis::Confirmed, alone: PROVEN, ..Self::default() }
    }

    /// How many there may be.
    pub(super) fn most(&self) -> f64 {
        let start = if self.start >= MANY { f64::INFINITY } else { self.start };
        self.known.cap.map_or(start, |cap| start.min(cap.floor())).max(1.0)
    }

    /// How many there may be for good.
    pub(super) fn cap(&self) -> Option<u32> {
        self.known.cap.map(|cap| cap.max(1.0) as u32)
    }

    /// What the cap rests on.
    pub(super) fn grounds(&self) -> Option<AtOnceGrounds> {
        let Known { refused, kept: served, said, .. } = self.known;
        Some(AtOnceGrounds { most: self.cap()?, refused, served, said, certain: self.is_certain() })
    }

    pub(super) fn is_open(&self) -> bool {
        self.hypothesis == Hypothesis::Open
    }

    pub(super) fn is_certain(&self) -> bool {
        self.hypothesis == Hypothesis::Confirmed && !self.doubted
    }

    /// A pause is over, and `unanswered` are under way.
    pub(super) fn start_again(&mut self, unanswered: u32) {
        self.start = AGAIN + f64::from(unanswered);
    }

    /// The same at a pace that has so many `under_way`.
    pub(super) fn start_with(&mut self, unanswered: u32, under_way: f64) {
        self.start = self.start.max(f64::from(unanswered) + under_way);
    }

    /// No more than the `unanswered` for the time being.
    pub(super) fn hold(&mut self, unanswered: u32) {
        self.start = self.start.min(f64::from(unanswered));
    }

    /// A request was served.
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
                // A few of them are, while the API is already done with another one whose answer is on its way.
                self.known.beyond = self.known.beyond.saturating_add(1);
                if f64::from(self.known.beyond) > MANY_OF * *cap {
                    self.known.in_vain = 0;
                }
            }
            let in_vain = if cap.floor() as u32 + 1 < self.known.ceiling { 0 } else { self.known.in_vain };
            // Where none was refused beside others that were served, the API may have another limit, or allow many more.
            let each = if self.known.ceiling == 0 { *cap } else { SELDOM * cap.max(5.0) * f64::from(1 << in_vain) };
            *cap += 1.0 / each;
        }
    }

    /// One of `crowd` was refused: whether fewer at once may be the answer to that.
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
                        // What was known is so no more. It grows until another one is refused.
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

    /// One of `crowd` was refused, and these are not too many: far fewer than are tried, or as few as a cap was lowered to that is
    /// doubted, or it was alone.
    fn is_disproved(&self, crowd: u32, cap: f64) -> bool {
        if self.hypothesis == Hypothesis::Open && f64::from(crowd) <= (FAR * self.tried).max(1.0) {
            return true;
        }
        let is_lowered = f64::from(self.known.refused) == cap.floor() + 1.0;
        self.hypothesis == Hypothesis::Confirmed && crowd <= 1 && cap < FEW
            || self.doubted && is_lowered && f64::from(self.blamed(crowd, cap)) <= cap.floor()
    }

    /// Not how many at once was refused, but all for a time. If that comes a second time it is not how many at once, unless others
    /// were served beside those that were refused.
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

    /// Another one is refused. So many in a row are not too many at once: it is another limit, or an outage.
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

    /// How many at once a refusal of one of `crowd` shows to be too many. While as many are tried as were refused before,
    /// it is those: the one that is refused may have left before the last of them.
    fn blamed(&self, crowd: u32, cap: f64) -> u32 {
        if cap.floor() as u32 >= self.known.ceiling { crowd.max(self.known.ceiling) } else { crowd }
    }

    /// One of `crowd` was refused while as many as `cap` might be under way. What is refused right after it was lowered may
    /// have met what was not over for the API yet: it is no other ceiling.
    fn hits(&mut self, crowd: u32, cap: f64) {
        self.known.beyond = 0;
        if crowd == self.known.ceiling {
            self.known.in_vain = (self.known.in_vain + 1).min(IN_VAIN);
        } else if crowd > self.known.ceiling || f64::from(self.known.kept) > MANY_OF * cap {
            (self.known.ceiling, self.known.in_vain) = (crowd, 0);
        }
    }

    /// The API says that `crowd` at once are too many.
    pub(super) fn too_many(&mut self, crowd: u32) {
        let crowd = self.known.cap.map_or(crowd, |cap| self.blamed(crowd, cap));
        let fewer = (f64::from(crowd) - 1.0).max(1.0);
        if !self.known.said || self.known.cap.is_none_or(|cap| fewer < cap) {
            self.hits(crowd, self.known.cap.unwrap_or(fewer));
            (self.known.refused, self.known.kept, self.known.said) = (crowd, 0, true);
        }
        (self.hypothesis, self.known.cap) =
            (Hypothesis::Confirmed, Some(self.known.cap.map_or(fewer, |cap| cap.min(fewer))));
        // Those are the API's own words.
        (self.in_a_row, self.doubted, self.alone) = (0, false, self.alone.max(PROVEN));
    }

    /// One was refused with fewer under way than any before it, and the API had not asked for a wait.
    pub(super) fn fewer_refused(&mut self) {
        if self.hypothesis == Hypothesis::Open && self.known.cap.is_none() {
            self.refute();
        }
    }

    /// A pause was over at once: tries fewer than `refused` at once, if that can be it; `served` of those under way were.
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
