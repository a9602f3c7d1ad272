//! Usage estimates for requests whose usage is known only from the answer.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_limit::{Budget, EstimatedAmount, PendingUsage, Unit, enough_for_most, put};
use andante_policy::Policy;

/// Usage reported by an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Total usage per unit.
    pub said: Vec<(Unit, u32)>,
    /// Lower bounds of usage per unit: the answer was cut short.
    pub at_least: Vec<(Unit, u32)>,
    /// Number of bytes received, if the answer was a stream that came as it was made.
    pub streamed: Option<u64>,
    /// Length of the request's body in bytes, if it was declared beforehand.
    pub sent: Option<u64>,
}

/// Recent usage of one unit.
pub(super) struct Usual {
    unit: Unit,
    /// Name of the narrower rule that limits this unit and that the requests draw on; `None` for all requests.
    pub(super) rule: Option<Arc<str>>,
    pub(super) amount: EstimatedAmount,
    /// Usage and length in bytes of the last streams; a ring.
    streams: Vec<(u32, u64)>,
    next_stream: usize,
    /// Usage per byte of the last requests of known length; a ring.
    per_byte: Vec<f32>,
    next_length: usize,
}

/// With fewer streams, nothing is concluded.
const ENOUGH: usize = 8;
/// Usage per byte must vary at least this many times less than usage. If usage is independent of length, eight streams
/// reach this by chance once in 4,000 times. If any smaller variance were enough, chance would suffice once in twelve.
const CLEARLY: f64 = 4.0;
/// Usage that varies by less than a hundredth counts as constant, whatever the length.
const ALIKE: f64 = 1e-4;

/// Mean use of `unit` by a request that does not declare it: 0 unless answers report it.
pub(super) fn unsaid_mean(policy: &Policy, usual: &[Usual], unit: Unit) -> f64 {
    if policy.usage.iter().all(|source| source.unit != unit) {
        return 0.0;
    }
    estimate_of(usual, unit, None).map_or(1.0, |usual| usual.amount.mean())
}

/// The usage estimate of `unit` for requests that draw on this narrower `rule`, or for all requests.
pub(super) fn estimate_of<'a>(usual: &'a [Usual], unit: Unit, rule: Option<&str>) -> Option<&'a Usual> {
    usual.iter().find(|usual| usual.is_of(unit, rule))
}

/// Makes `budget` keep room for what `pending_usage` requests will probably take at `now` beyond what already counts for them.
#[inline]
pub(super) fn set_outstanding(budget: &mut Budget, pending_usage: &PendingUsage, usual: &[Usual], now: Instant) {
    if pending_usage.is_blank() {
        return;
    }
    budget.set_outstanding(|unit, window| {
        pending_usage.lack(unit, window, now, |rule| estimate_of(usual, unit, rule).map(|usual| &usual.amount))
    });
}

// === impl Usual ===

impl Usual {
    pub(super) fn new(unit: Unit, rule: Option<Arc<str>>) -> Self {
        Self {
            unit,
            rule,
            amount: EstimatedAmount::default(),
            streams: Vec::new(),
            next_stream: 0,
            per_byte: Vec::new(),
            next_length: 0,
        }
    }

    pub(super) fn is_of(&self, unit: Unit, rule: Option<&str>) -> bool {
        self.unit == unit && self.rule.as_deref() == rule
    }

    /// Records that an answer `used` this amount, as reported in `usage`, and how long it lasted, if that is known.
    pub(super) fn remember(&mut self, used: u32, lasted: Option<Duration>, usage: &Usage) {
        self.amount.remember(used, lasted);
        if let Some(bytes) = usage.streamed.filter(|bytes| *bytes > 0) {
            put(&mut self.streams, &mut self.next_stream, (used, bytes));
        }
        if let Some(bytes) = usage.sent.filter(|bytes| *bytes > 0) {
            put(&mut self.per_byte, &mut self.next_length, used as f32 / bytes as f32);
        }
    }

    /// The amount that a request of this many bytes takes, if answers have reported others' usage; at least 1.
    pub(super) fn of_length(&self, bytes: u64) -> Option<u32> {
        let mut sorted = self.per_byte.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let per_byte = sorted.get(enough_for_most(sorted.len()))?;
        // A saturating cast.
        Some(((bytes as f64 * f64::from(*per_byte)).ceil() as u32).max(1))
    }

    /// The usage of `bytes` of a stream, if usage clearly depends on length. The input's share of usage is independent
    /// of how much of the answer has come.
    pub(super) fn of_bytes(&self, bytes: u64) -> Option<u32> {
        let streams = || self.streams.iter().map(|(used, bytes)| (f64::from(*used), *bytes as f64));
        let per_byte = spread(streams().map(|(used, bytes)| used / bytes))?;
        let of_all = spread(streams().map(|(used, _)| used))?;
        if self.streams.len() < ENOUGH || of_all < ALIKE || per_byte * CLEARLY >= of_all {
            return None;
        }
        let (used, length) = streams().fold((0.0, 0.0), |sum, stream| (sum.0 + stream.0, sum.1 + stream.1));
        // A saturating cast: at least 0, and at most `u32::MAX`.
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

    /// The estimate for 1,000 bytes after eight streams of up to 4,000 bytes. Each used an amount per byte from this
    /// range, and a random amount up to `beside` independent of length.
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
