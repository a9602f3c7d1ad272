//! How many requests may be under way at once.

use crate::{learn::grounds::AtOnceGrounds, limit::Seq};

/// A bound on unanswered requests: one for the start, and one if the API refuses more.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    /// Grows by one with each that is served: twice as many after each answer.
    start: f64,
    cap: Option<f64>,
    hypothesis: Hypothesis,
    /// What was tried first, and how many were served since.
    tried: f64,
    served: f64,
    lowered: u32,
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
    /// How many were refused since one was served that left after the `first` of them, and the cap when that was.
    in_a_row: u32,
    first: Seq,
    before: f64,
    /// How often one was refused and the others were served, since a time when none was.
    alone: u32,
    /// Another limit may have refused what it was concluded from.
    doubted: bool,
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
const A_QUARTER: f64 = 0.25;
/// Where so many times the cap were served after one was refused, that one was alone.
const OTHERS: f64 = 2.0;
/// More are no stampede any more.
const MANY: f64 = 1024.0;

// === impl Crowd ===

impl Default for Crowd {
    fn default() -> Self {
        Self {
            start: FIRST,
            cap: None,
            hypothesis: Hypothesis::Open,
            tried: 0.0,
            served: 0.0,
            lowered: 0,
            refused: 0,
            kept: 0,
            said: false,
            ceiling: 0,
            in_vain: 0,
            beyond: 0,
            in_a_row: 0,
            first: 0,
            before: 0.0,
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
        let refused = most.saturating_add(1);
        let (cap, hypothesis) = (Some(most.into()), Hypothesis::Confirmed);
        Self { start: MANY, cap, hypothesis, refused, alone: PROVEN, ..Self::default() }
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
        let Some(cap) = &mut self.cap else { return };
        self.kept = self.kept.saturating_add(1);
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
            if served.crowd >= self.ceiling {
                // A few of them are, while the API is already done with another one whose answer is on its way.
                self.beyond = self.beyond.saturating_add(1);
                if f64::from(self.beyond) > MANY_OF * *cap {
                    self.in_vain = 0;
                }
            }
            let in_vain = if cap.floor() as u32 + 1 < self.ceiling { 0 } else { self.in_vain };
            // Where none was refused beside others that were served, the API may have another limit, or allow many more.
            let served = if self.ceiling == 0 { *cap } else { SELDOM * cap.max(5.0) * f64::from(1 << in_vain) };
            *cap += 1.0 / served;
        }
    }

    /// One of `crowd` was refused: whether fewer at once may be the answer to that.
    pub(super) fn fewer(&mut self, seq: Seq, crowd: u32, soon: bool) -> bool {
        let Some(cap) = self.cap else { return false };
        let is_alone = crowd <= 1 && self.hypothesis == Hypothesis::Open;
        if !is_alone && self.refuses_all(seq, crowd, cap) {
            self.doubt();
            return false;
        }
        if self.doubted && f64::from(crowd) < cap.floor() {
            return false;
        }
        match self.hypothesis {
            Hypothesis::Confirmed => {
                if f64::from(crowd) <= cap + 0.5 {
                    let crowd = self.blamed(crowd, cap);
                    self.hits(crowd, cap);
                    self.cap = Some((f64::from(crowd) - 1.0).max(1.0));
                    (self.refused, self.kept, self.said) = (crowd, 0, false);
                }
                true
            }
            Hypothesis::Open if f64::from(crowd) > (0.6 * self.tried).max(1.0) && self.lowered < 5 && soon => {
                self.lowered += 1;
                (self.cap, self.served) = (Some((f64::from(crowd) - 1.0).min(cap)), 0.0);
                (self.refused, self.kept, self.said) = (crowd, 0, false);
                true
            }
            _ => {
                self.refute();
                false
            }
        }
    }

    /// Not how many at once was refused, but all for a time. If that comes a second time it is not how many at once, unless others
    /// were served beside those that were refused.
    fn doubt(&mut self) {
        if self.doubted && self.alone < PROVEN {
            return self.refute();
        }
        self.doubted = self.alone < PROVEN;
        (self.cap, self.in_a_row, self.alone) = (Some(self.before), 0, 0);
    }

    fn refute(&mut self) {
        (self.hypothesis, self.cap) = (Hypothesis::Refuted, None);
    }

    /// Another one is refused. So many in a row are not too many at once: it is another limit, or an outage.
    fn refuses_all(&mut self, seq: Seq, crowd: u32, cap: f64) -> bool {
        if self.in_a_row == 0 {
            (self.first, self.before) = (seq, cap);
            self.alone += u32::from(f64::from(self.kept) > OTHERS * cap);
            self.doubted &= self.alone < PROVEN;
        }
        self.in_a_row += 1;
        crowd <= 1 || f64::from(self.in_a_row) > (A_QUARTER * self.before).max(SOME)
    }

    /// How many at once a refusal of one of `crowd` shows to be too many. While as many are tried as were refused before,
    /// it is those: the one that is refused may have left before the last of them.
    fn blamed(&self, crowd: u32, cap: f64) -> u32 {
        if cap.floor() as u32 >= self.ceiling { crowd.max(self.ceiling) } else { crowd }
    }

    /// One of `crowd` was refused while as many as `cap` might be under way. What is refused right after it was lowered may
    /// have met what was not over for the API yet: it is no other ceiling.
    fn hits(&mut self, crowd: u32, cap: f64) {
        self.beyond = 0;
        if crowd == self.ceiling {
            self.in_vain = (self.in_vain + 1).min(IN_VAIN);
        } else if crowd > self.ceiling || f64::from(self.kept) > MANY_OF * cap {
            (self.ceiling, self.in_vain) = (crowd, 0);
        }
    }

    /// The API says that `crowd` at once are too many.
    pub(super) fn too_many(&mut self, crowd: u32) {
        let crowd = self.cap.map_or(crowd, |cap| self.blamed(crowd, cap));
        let fewer = (f64::from(crowd) - 1.0).max(1.0);
        if !self.said || self.cap.is_none_or(|cap| fewer < cap) {
            self.hits(crowd, self.cap.unwrap_or(fewer));
            (self.refused, self.kept, self.said) = (crowd, 0, true);
        }
        (self.hypothesis, self.cap) = (Hypothesis::Confirmed, Some(self.cap.map_or(fewer, |cap| cap.min(fewer))));
    }

    /// One was refused with fewer under way than any before it, and the API had not asked for a wait.
    pub(super) fn fewer_refused(&mut self) {
        if self.hypothesis == Hypothesis::Open && self.cap.is_none() {
            self.refute();
        }
    }

    /// A pause was over at once: tries fewer than `refused` at once, if that can be it; `served` of those under way were.
    pub(super) fn try_fewer(&mut self, refused: u32, served: f64) -> bool {
        let try_it = self.hypothesis == Hypothesis::Open && self.cap.is_none();
        if try_it {
            let cap = (f64::from(refused) - 1.0).max(served - 1.0).max(1.0);
            (self.cap, self.tried, self.served) = (Some(cap), cap, 0.0);
            (self.refused, self.kept, self.said) = (refused, 0, false);
        }
        try_it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many were served, with so many under way.
    fn served(crowd: &mut Crowd, count: u32, at_once: u32) {
        let served = Served { seq: Seq::MAX, crowd: at_once, before_any_refusal: false, cycle_is_long: true };
        (0..count).for_each(|_| crowd.served(served));
    }

    #[test]
    fn one_more_that_is_tried_in_vain_does_not_cost_another() {
        let mut crowd = Crowd::known(5);
        crowd.hits(6, 5.0);
        served(&mut crowd, 112, 5);
        assert_eq!(crowd.cap(), Some(6), "one more for some hundred served: 6² = 5² + 110 / 10");
        // The one that the API refuses left as the fifth; the sixth has arrived before it.
        assert!(crowd.fewer(1, 5, true));
        assert_eq!(crowd.cap(), Some(5));
        // Refused again with five: that is news, the API allows fewer now.
        served(&mut crowd, 30, 5);
        assert!(crowd.fewer(1, 5, true));
        assert_eq!(crowd.cap(), Some(4));
    }

    /// The sixth of six is served now and then: the API was done with another one by then. Were that a sixth place, the next try
    /// would come as soon as the first did.
    #[test]
    fn one_that_is_served_beside_as_many_as_are_refused_is_no_place_for_more() {
        let mut crowd = Crowd::known(5);
        crowd.hits(6, 5.0);
        served(&mut crowd, 112, 5);
        served(&mut crowd, 1, 6);
        assert!(crowd.fewer(1, 6, true));
        // 5² + 112 / 10 = 6.02², and half as much for each that is served now.
        served(&mut crowd, 112, 5);
        assert_eq!(crowd.cap(), Some(5));
        served(&mut crowd, 1, 6);
        served(&mut crowd, 112, 5);
        assert_eq!(crowd.cap(), Some(6));
        // The API allows one more: it serves them all.
        served(&mut crowd, 200, 6);
        assert!(crowd.fewer(1, 7, true));
        assert_eq!(crowd.cap(), Some(6));
    }

    /// It is down, or a window is used up: none is served that left later.
    fn refuses_all(crowd: &mut Crowd) {
        let lowered = (1..=4).take_while(|seq| crowd.fewer(*seq, 5, true)).count();
        assert_eq!(lowered, 2, "a third in a row is no longer blamed on how many there are");
    }

    #[test]
    fn how_many_at_once_is_known_after_an_outage() {
        let mut crowd = Crowd::known(5);
        refuses_all(&mut crowd);
        assert_eq!((crowd.cap(), crowd.is_certain()), (Some(5), true));
        served(&mut crowd, 20, 5);
        refuses_all(&mut crowd);
        assert_eq!((crowd.cap(), crowd.is_certain()), (Some(5), false), "another one so soon may be a window");
        served(&mut crowd, 20, 5);
        refuses_all(&mut crowd);
        assert_eq!(crowd.cap(), None);
    }

    #[test]
    fn others_that_are_served_beside_those_that_are_refused_show_that_it_is_how_many_at_once() {
        let mut crowd = Crowd::known(5);
        refuses_all(&mut crowd);
        served(&mut crowd, 20, 5);
        for _ in 0..3 {
            assert!(crowd.fewer(1, 6, true));
            served(&mut crowd, 20, 5);
        }
        refuses_all(&mut crowd);
        assert_eq!((crowd.cap(), crowd.is_certain()), (Some(5), true));
    }

    #[test]
    fn a_try_that_the_api_itself_calls_too_many_does_not_cost_another_either() {
        let mut crowd = Crowd::default();
        crowd.too_many(6);
        served(&mut crowd, 112, 5);
        assert_eq!(crowd.cap(), Some(6));
        crowd.too_many(4);
        assert_eq!(crowd.cap(), Some(5));
    }
}
