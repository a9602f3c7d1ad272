//! What requests used, as their answers report it, and what is reserved for new ones.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{End, Slot, State, numbers};
use crate::{
    clock::Instant,
    limit::{Cost, Unit, UsualAmount, enough_for_most, put},
    policy::Policy,
};

/// What requests used of one unit lately.
pub(super) struct Usual {
    unit: Unit,
    /// By requests that draw on the narrower rule of this name, which limits that unit; by all if it has none.
    rule: Option<Arc<str>>,
    pub(super) amount: UsualAmount,
    /// What the last streams used, and how many bytes they were; in a ring.
    streams: Vec<(u32, u64)>,
    next_stream: usize,
    /// What the last requests used whose length was known, per byte of it; in a ring.
    per_byte: Vec<f32>,
    next_length: usize,
}

/// What an answer used is believed up to so many times what the smallest window of its unit holds. Answers of several
/// times a minute's tokens exist.
const WINDOWS: u32 = 4;
/// Of fewer streams nothing is concluded.
const ENOUGH: usize = 8;
/// By so many times less what was used for each byte must vary than what was used: of eight streams by chance it does once in 4,000
/// times for what has nothing to do with their length, and would once in twelve if less were enough.
const CLEARLY: f64 = 4.0;
/// What varies by less than a hundredth is about the same, whatever the length.
const ALIKE: f64 = 1e-4;

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

impl<T> State<T> {
    /// The answer of this slot's request has said what it used.
    pub(in crate::lane) fn used(&mut self, now: Instant, slot: &mut Slot, usage: &Usage) {
        for &(unit, said) in &usage.said {
            let used = said.min(self.most(slot, unit));
            self.settle(now, slot, unit, used);
            self.usual(unit, None).remember(used, usage);
            if let Some(rule) = self.strictest(slot, unit).cloned() {
                self.usual(unit, Some(rule)).remember(used, usage);
            }
        }
        for &(unit, least) in &usage.at_least {
            let passed = usage.streamed.and_then(|bytes| self.usual(unit, None).of_bytes(bytes));
            // What nothing is known of keeps its reservation, unless more was used already.
            let reserved = self.kept(slot, unit);
            let most = self.most(slot, unit);
            match passed {
                Some(passed) => self.settle(now, slot, unit, passed.max(least).min(most)),
                None if least > reserved => self.settle(now, slot, unit, least.min(most)),
                None => {}
            }
        }
        self.changed(slot);
    }

    /// This slot's request was sent and has ended. What no answer has said stays what was reserved, but a guess counts no more.
    /// How much the API had made of an answer that never came nobody is told: it counts as others do, once one has told it, and
    /// as what was guessed before.
    pub(super) fn ends_untold(&mut self, now: Instant, slot: &mut Slot, end: End) {
        let unsaid: SmallVec<[Unit; Cost::MOST]> = slot.charge.cost.reserved().collect();
        for unit in unsaid {
            if end == End::Unanswered && self.usual_for(slot, unit).is_none() {
                continue;
            }
            let kept = self.kept(slot, unit);
            if slot.charge.cost.of(unit).is_some_and(|reserved| reserved.get() != kept) {
                self.settle(now, slot, unit, kept);
            }
        }
    }

    /// What counts for a request of this slot whose answer does not say what it used of `unit`: what was reserved, but where that
    /// was a guess no more than the mean of the answers that have said it.
    fn kept(&self, slot: &Slot, unit: Unit) -> u32 {
        let cost = &slot.charge.cost;
        let reserved = cost.of(unit).map_or(0, |reserved| reserved.get());
        if cost.reserved().all(|reserved| reserved != unit) {
            return reserved;
        }
        match self.usual_for(slot, unit) {
            Some(usual) if !usual.amount.is_guess() => reserved,
            usual => reserved.min(usual.map_or(1.0, |usual| usual.amount.mean()).ceil() as u32),
        }
    }

    /// What requests like that of this slot used of `unit`, or all if that is not known.
    fn usual_for(&self, slot: &Slot, unit: Unit) -> Option<&Usual> {
        let rule = self.strictest(slot, unit);
        usual_of(&self.usual, unit, rule.map(|name| &**name)).or_else(|| usual_of(&self.usual, unit, None))
    }

    /// What requests of rules that are gone have used is usual of none any more.
    pub(super) fn forget_usual_of_gone_rules(&mut self) {
        let narrow = &self.narrow;
        self.usual.retain(|usual| usual.rule.as_deref().is_none_or(|rule| narrow.has_rule(rule)));
    }

    /// The narrower rule for this slot's request that limits `unit` most.
    fn strictest(&self, slot: &Slot, unit: Unit) -> Option<&Arc<str>> {
        let (number, _) = self.narrow.strictest(numbers(&slot.drawn), unit)?;
        Some(self.narrow.rule_name(number))
    }

    /// How much of `unit` a request takes whose body has so many bytes: with what suffices per byte for 95 of 100. `None`
    /// before any answer has told it.
    pub(in crate::lane) fn of_length(&self, unit: Unit, bytes: u64) -> Option<u32> {
        usual_of(&self.usual, unit, None)?.of_length(bytes)
    }

    fn settle(&mut self, now: Instant, slot: &mut Slot, unit: Unit, used: u32) {
        let reserved = slot.charge.cost.of(unit).map_or(0, |reserved| reserved.get());
        self.stats.used.settle(unit, reserved.into(), used.into());
        self.budget.settle(slot.charge, unit, used, now);
        if let Some(drawn) = &slot.drawn {
            self.narrow.settle(drawn, unit, used, now);
        }
        slot.charge.cost = slot.charge.cost.told(unit);
    }

    /// How much of `unit` an answer to this slot's request can have used: a body may repeat what its request has said,
    /// and a number that is made up must not stop a lane for long.
    fn most(&self, slot: &Slot, unit: Unit) -> u32 {
        let narrower = slot.drawn.iter().flat_map(|drawn| drawn.draws.iter()).map(|draw| &*draw.rule);
        let smallest = narrower.chain([&*self.policy]).filter_map(|policy| policy.least_of(unit)).min();
        smallest.map_or(u32::MAX, |count| count.get().saturating_mul(WINDOWS))
    }

    fn usual(&mut self, unit: Unit, rule: Option<Arc<str>>) -> &mut Usual {
        let at = self.usual.iter().position(|usual| usual.is_of(unit, rule.as_deref())).unwrap_or_else(|| {
            self.usual.push(Usual::new(unit, rule));
            self.usual.len() - 1
        });
        &mut self.usual[at]
    }
}

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

// === impl Usual ===

impl Usual {
    fn new(unit: Unit, rule: Option<Arc<str>>) -> Self {
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

    fn is_of(&self, unit: Unit, rule: Option<&str>) -> bool {
        self.unit == unit && self.rule.as_deref() == rule
    }

    /// Remembers what a whole answer `used`, which has said `usage`.
    fn remember(&mut self, used: u32, usage: &Usage) {
        self.amount.remember(used);
        if let Some(bytes) = usage.streamed.filter(|bytes| *bytes > 0) {
            put(&mut self.streams, &mut self.next_stream, (used, bytes));
        }
        if let Some(bytes) = usage.sent.filter(|bytes| *bytes > 0) {
            put(&mut self.per_byte, &mut self.next_length, used as f32 / bytes as f32);
        }
    }

    /// How much a request of so many bytes takes, if answers have told what others did; at least 1.
    fn of_length(&self, bytes: u64) -> Option<u32> {
        let mut sorted = self.per_byte.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let per_byte = sorted.get(enough_for_most(sorted.len()))?;
        // As saturating casts do.
        Some(((bytes as f64 * f64::from(*per_byte)).ceil() as u32).max(1))
    }

    /// How much `bytes` of a stream used, if use clearly depends on the length: what goes into a request is the same however
    /// much of the answer has come.
    fn of_bytes(&self, bytes: u64) -> Option<u32> {
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
            usual.remember(of_bytes as u32 + beside, &Usage { streamed: Some(bytes), ..Usage::default() });
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
            (0..ENOUGH).for_each(|_| usual.remember(used, &Usage { streamed: Some(bytes), ..Usage::default() }));
            assert_eq!(usual.of_bytes(bytes / 2), None, "all used {used}");
        }
    }
}
