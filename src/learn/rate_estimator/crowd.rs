//! How many requests may be under way at once.

use crate::learn::grounds::AtOnceGrounds;

/// A bound on unanswered requests: one for the start, and one if the API refuses more.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    /// Grows by one with each that is served: twice as many after each answer.
    start: f64,
    cap: Option<f64>,
    verdict: Verdict,
    /// What was tried first, and how many were served since.
    tried: f64,
    served: f64,
    lowered: u32,
    /// How many were under way when the one was refused that has set the cap, how many were served since, and whether the
    /// API said that it was that: for people.
    refused: u32,
    kept: u32,
    said: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Open,
    /// It is how many there are at once.
    Yes,
    /// It is not.
    No,
}

/// So many leave at once when nothing is known.
const FIRST: f64 = 8.0;
/// By so much it grows with each that is served, until one is refused: so few of a window's end are refused.
const SLOWLY: f64 = 0.2;
/// The same after a pause.
const AGAIN: f64 = 1.0;
/// More are no stampede any more.
const MANY: f64 = 1024.0;

// === impl Crowd ===

impl Default for Crowd {
    fn default() -> Self {
        Self {
            start: FIRST,
            cap: None,
            verdict: Verdict::Open,
            tried: 0.0,
            served: 0.0,
            lowered: 0,
            refused: 0,
            kept: 0,
            said: false,
        }
    }
}

impl Crowd {
    /// Who has configured a rate knows that it is one.
    pub(super) fn unlimited() -> Self {
        Self { start: MANY, verdict: Verdict::No, ..Self::default() }
    }

    /// How many there may be.
    pub(super) fn most(&self) -> f64 {
        let start = if self.start >= MANY { f64::INFINITY } else { self.start };
        self.cap.map_or(start, |cap| start.min(cap.floor())).max(1.0)
    }

    /// How many there may be for good.
    pub(super) fn cap(&self) -> Option<u32> {
        self.cap.map(|cap| cap.max(1.0) as u32)
    }

    /// What the cap rests on.
    pub(super) fn grounds(&self) -> Option<AtOnceGrounds> {
        let &Self { refused, kept: served, said, .. } = self;
        Some(AtOnceGrounds { most: self.cap()?, refused, served, said, certain: self.is_certain() })
    }

    pub(super) fn is_open(&self) -> bool {
        self.verdict == Verdict::Open
    }

    pub(super) fn is_certain(&self) -> bool {
        self.verdict == Verdict::Yes
    }

    /// A pause is over, and `unanswered` are under way.
    pub(super) fn start_again(&mut self, unanswered: u32) {
        self.start = AGAIN + f64::from(unanswered);
    }

    /// No more than the `unanswered` for the time being.
    pub(super) fn hold(&mut self, unanswered: u32) {
        self.start = self.start.min(f64::from(unanswered));
    }

    /// One of `crowd` was served, in a cycle that lasts for `long`.
    pub(super) fn served(&mut self, crowd: u32, first: bool, long: bool) {
        self.start = (self.start + if first { SLOWLY } else { 1.0 }).min(MANY);
        let Some(cap) = &mut self.cap else { return };
        self.kept = self.kept.saturating_add(1);
        if self.verdict == Verdict::Open {
            self.served += 1.0;
            if self.served > 4.0 * self.tried.max(4.0) && long {
                self.verdict = Verdict::Yes;
            }
        }
        if self.verdict == Verdict::Yes && f64::from(crowd) >= cap.floor() {
            *cap += 1.0 / (20.0 * cap.max(5.0));
        }
    }

    /// One of `crowd` was refused: whether fewer at once may be the answer to that.
    pub(super) fn fewer(&mut self, crowd: u32, soon: bool) -> bool {
        let Some(cap) = self.cap else { return false };
        let fewer = f64::from(crowd) - 1.0;
        match self.verdict {
            Verdict::Yes if crowd <= 1 => {
                (self.verdict, self.cap) = (Verdict::No, None);
                false
            }
            Verdict::Yes => {
                if f64::from(crowd) <= cap + 0.5 {
                    self.cap = Some(fewer.max(1.0));
                    (self.refused, self.kept, self.said) = (crowd, 0, false);
                }
                true
            }
            Verdict::Open if f64::from(crowd) > (0.6 * self.tried).max(1.0) && self.lowered < 5 && soon => {
                let fewer = fewer.min(cap);
                if fewer < 2.0 {
                    return false;
                }
                self.lowered += 1;
                (self.cap, self.served) = (Some(fewer), 0.0);
                (self.refused, self.kept, self.said) = (crowd, 0, false);
                true
            }
            _ => false,
        }
    }

    /// The API says that `crowd` at once are too many.
    pub(super) fn too_many(&mut self, crowd: u32) {
        let fewer = (f64::from(crowd) - 1.0).max(1.0);
        if !self.said || self.cap.is_none_or(|cap| fewer < cap) {
            (self.refused, self.kept, self.said) = (crowd, 0, true);
        }
        (self.verdict, self.cap) = (Verdict::Yes, Some(self.cap.map_or(fewer, |cap| cap.min(fewer))));
    }

    /// Refused although there were fewer: it is not that.
    pub(super) fn disproved(&mut self) {
        if self.verdict == Verdict::Open && self.cap.is_some() {
            (self.verdict, self.cap) = (Verdict::No, None);
        }
    }

    /// A probe was refused, one of `crowd`.
    pub(super) fn probe_refused(&mut self, crowd: u32, tries: u32, asked: bool) {
        let alone = crowd <= 1 && tries >= 3;
        if self.verdict == Verdict::Open && !asked || self.verdict == Verdict::Yes && alone {
            (self.verdict, self.cap) = (Verdict::No, None);
        }
    }

    /// A pause was over at once: tries fewer than `refused` at once, if that can be it; `served` of those under way were.
    pub(super) fn try_fewer(&mut self, refused: u32, served: f64) -> bool {
        let try_it = self.verdict == Verdict::Open && self.cap.is_none() && (refused > 2 || served > 2.0);
        if try_it {
            let cap = (f64::from(refused) - 1.0).max(served - 1.0).max(1.0);
            (self.cap, self.tried, self.served) = (Some(cap), cap, 0.0);
            (self.refused, self.kept, self.said) = (refused, 0, false);
        }
        try_it
    }
}
