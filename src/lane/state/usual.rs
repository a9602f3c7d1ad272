//! What is usual of requests of which only the answers say what they took.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Instant,
    limit::{Budget, Unit, Untold, UsualAmount, enough_for_most, put},
    policy::Policy,
};

/// What an answer has said that its request used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All that was used of these units.
    pub said: Vec<(Unit, u32)>,
    /// What was used of these at least: the answer was cut short.
    pub at_least: Vec<(Unit, u32)>,
    /// The bytes that have come, if they came as they were made: of a stream.
    pub streamed: Option<u64>,
    /// The bytes of the request's body, if it told them beforehand.
    pub sent: Option<u64>,
}

/// What requests used of one unit lately.
pub(super) struct Usual {
    unit: Unit,
    /// By requests that draw on the narrower rule of this name, which limits that unit; by all if it has none.
    pub(super) rule: Option<Arc<str>>,
    pub(super) amount: UsualAmount,
    /// What the last streams used, and how many bytes they were; in a ring.
    streams: Vec<(u32, u64)>,
    next_stream: usize,
    /// What the last requests used whose length was known, per byte of it; in a ring.
    per_byte: Vec<f32>,
    next_length: usize,
}

/// Of fewer streams nothing is concluded.
const ENOUGH: usize = 8;
/// By so many times less what was used for each byte must vary than what was used: of eight streams by chance it does once in 4,000
/// times for what has nothing to do with their length, and would once in twelve if less were enough.
const CLEARLY: f64 = 4.0;
/// What varies by less than a hundredth is about the same, whatever the length.
const ALIKE: f64 = 1e-4;

/// How much of `unit` a request comes to in the mean that does not say it: nothing, unless answers tell it.
pub(super) fn unsaid_mean(policy: &Policy, usual: &[Usual], unit: Unit) -> f64 {
    if policy.usage.iter().all(|source| source.unit != unit) {
        return 0.0;
    }
    usual_of(usual, unit, None).map_or(1.0, |usual| usual.amount.mean())
}

/// What is usual of `unit` for requests that draw on this narrower `rule`, or for all.
pub(super) fn usual_of<'a>(usual: &'a [Usual], unit: Unit, rule: Option<&str>) -> Option<&'a Usual> {
    usual.iter().find(|usual| usual.is_of(unit, rule))
}

/// There has to be room in `budget` for what these `untold` requests are likely to take of it more than counts for them at `now`.
#[inline]
pub(super) fn set_outstanding(budget: &mut Budget, untold: &Untold, usual: &[Usual], now: Instant) {
    if untold.is_blank() {
        return;
    }
    budget.set_outstanding(|unit, window| {
        untold.lack(unit, window, now, |rule| usual_of(usual, unit, rule).map(|usual| &usual.amount))
    });
}

// === impl Usual ===

impl Usual {
    pub(super) fn new(unit: Unit, rule: Option<Arc<str>>) -> Self {
        Self {
            unit,
            rule,
            amount: UsualAmount::default(),
            streams: Vec::new(),
            next_stream: 0,
            per_byte: Vec::new(),
            next_length: 0,
        }
    }

    pub(super) fn is_of(&self, unit: Unit, rule: Option<&str>) -> bool {
        self.unit == unit && self.rule.as_deref() == rule
    }

    /// Remembers what a whole answer `used`, which has said `usage`, and how long it lasted, if that is known.
    pub(super) fn remember(&mut self, used: u32, lasted: Option<Duration>, usage: &Usage) {
        self.amount.remember(used, lasted);
        if let Some(bytes) = usage.streamed.filter(|bytes| *bytes > 0) {
            put(&mut self.streams, &mut self.next_stream, (used, bytes));
        }
        if let Some(bytes) = usage.sent.filter(|bytes| *bytes > 0) {
            put(&mut self.per_byte, &mut self.next_length, used as f32 / bytes as f32);
        }
    }

    /// How much a request of so many bytes takes, if answers have told what others did; at least 1.
    pub(super) fn of_length(&self, bytes: u64) -> Option<u32> {
        let mut sorted = self.per_byte.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let per_byte = sorted.get(enough_for_most(sorted.len()))?;
        // As saturating casts do.
        Some(((bytes as f64 * f64::from(*per_byte)).ceil() as u32).max(1))
    }

    /// How much `bytes` of a stream used, if use clearly depends on the length: what goes into a request is the same however
    /// much of the answer has come.
    pub(super) fn of_bytes(&self, bytes: u64) -> Option<u32> {
        let streams = || self.streams.iter().map(|(used, bytes)| (f64::from(*used), *bytes as f64));
        let per_byte = spread(streams().map(|(used, bytes)| used / bytes))?;
        let of_all = spread(streams().map(|(used, _)| used))?;
        if self.streams.len() < ENOUGH || of_all < ALIKE || per_byte * CLEARLY >= of_all {
            return None;
        }
        let (used, length) = streams().fold((0.0, 0.0), |sum, stream| (sum.0 + stream.0, sum.1 + stream.1));
        // As saturating casts do: 0 at least, and `u32::MAX` at most.
        Some((bytes as f64 * used / length).ceil() as u32)
    }
}

/// The variance of numbers, relative to the square of their mean; `None` if all of them are 0.
fn spread(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum, squares) = numbers
        .fold((0.0, 0.0, 0.0), |(count, sum, squares), number| (count + 1.0, sum + number, squares + number * number));
    (sum > 0.0).then(|| squares * count / (sum * sum) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After eight streams of up to 4,000 bytes that used so much for each byte, from and to, beside so much whatever came.
    fn of_a_thousand_bytes(seed: u64, per_byte: (f64, f64), beside: u32) -> Option<u32> {
        let (mut dice, mut usual) = (fastrand::Rng::with_seed(seed), Usual::new(Unit::REQUESTS, None));
        for _ in 0..ENOUGH {
            let bytes = dice.u64(100..=4000);
            let of_bytes = bytes as f64 * (per_byte.0 + (per_byte.1 - per_byte.0) * dice.f64());
            let beside = if beside > 0 { dice.u32(100..=beside) } else { 0 };
            usual.remember(of_bytes as u32 + beside, None, &Usage { streamed: Some(bytes), ..Usage::default() });
        }
        usual.of_bytes(1000)
    }

    #[test]
    fn an_answer_that_is_cut_short_is_settled_by_its_length_and_not_what_has_gone_into_it() {
        // A fifth of a token a byte, a quarter more or less.
        let found = (0..1000).filter_map(|seed| of_a_thousand_bytes(seed, (0.15, 0.25), 0)).collect::<Vec<_>>();
        assert!(found.len() > 950 && found.iter().all(|used| (150..=250).contains(used)), "{}", found.len());
        let by_chance = (0..1000).filter(|seed| of_a_thousand_bytes(*seed, (0.0, 0.0), 4000).is_some()).count();
        assert!(by_chance <= 2, "{by_chance}");
        for (used, bytes) in (50..400).zip((100..).step_by(7)) {
            let mut usual = Usual::new(Unit::REQUESTS, None);
            (0..ENOUGH).for_each(|_| usual.remember(used, None, &Usage { streamed: Some(bytes), ..Usage::default() }));
            assert_eq!(usual.of_bytes(bytes / 2), None, "all used {used}");
        }
    }
}
