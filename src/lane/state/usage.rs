//! What requests used, as their answers report it, and what is reserved for new ones.

use super::{Slot, State};
use crate::{
    clock::Instant,
    limit::{Budget, Cost, Unit},
    policy::Policy,
};

/// What requests used of one unit lately.
pub(super) struct Usual {
    unit: Unit,
    /// The last of them, in a ring.
    used: Vec<u32>,
    next: usize,
    /// So much, or less, was used by 95 of 100.
    most: u32,
    /// What the last streams used, and how many bytes they were; in a ring.
    streams: Vec<(u32, u64)>,
    next_stream: usize,
    /// What the last requests used whose length was known, per byte of it; in a ring.
    per_byte: Vec<f32>,
    next_length: usize,
}

/// How many answers are remembered.
const REMEMBERED: usize = 64;
/// What an answer used is believed up to so many times what the smallest window of its unit holds. Answers of several
/// times a minute's tokens exist.
const WINDOWS: u32 = 4;
/// Of fewer streams nothing is concluded.
const ENOUGH: usize = 8;

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
    pub(in crate::lane) fn used(&mut self, now: Instant, slot: &Slot, usage: &Usage) {
        for &(unit, said) in &usage.said {
            let used = said.min(self.most(slot, unit));
            self.settle(now, slot, unit, used);
            self.usual(unit).remember(used, usage);
        }
        for &(unit, least) in &usage.at_least {
            let passed = usage.streamed.and_then(|bytes| self.usual(unit).of_bytes(bytes));
            // What nothing is known of keeps its reservation, unless more was used already.
            let reserved = slot.charge.cost.of(unit).map_or(0, |reserved| reserved.get());
            let most = self.most(slot, unit);
            match passed {
                Some(passed) => self.settle(now, slot, unit, passed.max(least).min(most)),
                None if least > reserved => self.settle(now, slot, unit, least.min(most)),
                None => {}
            }
        }
        self.changed(slot);
    }

    /// How much of `unit` a request takes whose body has so many bytes: with what suffices per byte for 95 of 100. `None`
    /// before any answer has told it.
    pub(in crate::lane) fn of_length(&self, unit: Unit, bytes: u64) -> Option<u32> {
        self.usual.iter().find(|usual| usual.unit == unit)?.of_length(bytes)
    }

    /// What is [taken](reserved) for a request of this cost at `now`.
    pub(super) fn reserve(&mut self, now: Instant, cost: Cost) -> Cost {
        let alone = (self.under_way() == 0).then_some((&mut self.budget, now));
        reserved(&self.policy, &self.usual, cost, alone)
    }

    fn settle(&mut self, now: Instant, slot: &Slot, unit: Unit, used: u32) {
        let reserved = slot.charge.cost.of(unit).map_or(0, |reserved| reserved.get());
        self.stats.used.settle(unit, reserved.into(), used.into());
        self.budget.settle(slot.charge, unit, used, now);
        if let Some(drawn) = &slot.drawn {
            self.narrow.settle(drawn, unit, used, now);
        }
    }

    /// How much of `unit` an answer to this slot's request can have used: a body may repeat what its request has said,
    /// and a number that is made up must not stop a lane for long.
    fn most(&self, slot: &Slot, unit: Unit) -> u32 {
        let narrower = slot.drawn.iter().flat_map(|drawn| drawn.draws.iter()).map(|draw| &*draw.rule);
        let smallest = narrower.chain([&*self.policy]).filter_map(|policy| policy.least_of(unit)).min();
        smallest.map_or(u32::MAX, |count| count.get().saturating_mul(WINDOWS))
    }

    fn usual(&mut self, unit: Unit) -> &mut Usual {
        let at = self.usual.iter().position(|usual| usual.unit == unit).unwrap_or_else(|| {
            self.usual.push(Usual::new(unit));
            self.usual.len() - 1
        });
        &mut self.usual[at]
    }
}

/// What a request of this cost takes when it leaves. Of units that only its answer reports, it takes as much as
/// suffices for 95 of 100 requests. A request that is `alone` takes no more than is free: no other answer will come
/// that could show that less suffices.
pub(super) fn reserved(
    policy: &Policy,
    usual: &[Usual],
    cost: Cost,
    mut alone: Option<(&mut Budget, Instant)>,
) -> Cost {
    if policy.usage.is_empty() {
        return cost;
    }
    let mut most = |unit| {
        let most = unsaid(policy, usual, unit);
        let room = alone.as_mut().and_then(|(budget, now)| budget.room(unit, *now));
        room.map_or(most, |room| most.min(room.max(1)))
    };
    let open = policy.usage.iter().map(|source| source.unit).filter(|unit| !cost.says(*unit));
    open.fold(cost, |cost, unit| cost.with(unit, most(unit)))
}

/// How much of `unit` is taken for a request that does not say it: nothing, unless answers tell it.
pub(super) fn unsaid(policy: &Policy, usual: &[Usual], unit: Unit) -> u32 {
    if policy.usage.iter().all(|source| source.unit != unit) {
        return 0;
    }
    usual.iter().find(|usual| usual.unit == unit).map_or(1, |usual| usual.most.max(1))
}

/// How much of `unit` a request comes to in the mean that does not say it: nothing, unless answers tell it.
pub(super) fn unsaid_mean(policy: &Policy, usual: &[Usual], unit: Unit) -> f64 {
    if policy.usage.iter().all(|source| source.unit != unit) {
        return 0.0;
    }
    usual.iter().find(|usual| usual.unit == unit).map_or(1.0, |usual| usual.mean().max(1.0))
}

// === impl Usual ===

impl Usual {
    fn new(unit: Unit) -> Self {
        Self {
            unit,
            used: Vec::new(),
            next: 0,
            most: 0,
            streams: Vec::new(),
            next_stream: 0,
            per_byte: Vec::new(),
            next_length: 0,
        }
    }

    /// Remembers what a whole answer `used`, which has said `usage`.
    fn remember(&mut self, used: u32, usage: &Usage) {
        put(&mut self.used, &mut self.next, used);
        if let Some(bytes) = usage.streamed.filter(|bytes| *bytes > 0) {
            put(&mut self.streams, &mut self.next_stream, (used, bytes));
        }
        if let Some(bytes) = usage.sent.filter(|bytes| *bytes > 0) {
            put(&mut self.per_byte, &mut self.next_length, used as f32 / bytes as f32);
        }
        let mut sorted = self.used.clone();
        sorted.sort_unstable();
        self.most = sorted[enough_for_most(sorted.len())];
    }

    fn mean(&self) -> f64 {
        self.used.iter().map(|used| f64::from(*used)).sum::<f64>() / self.used.len().max(1) as f64
    }

    /// How much a request of so many bytes takes, if answers have told what others did; at least 1.
    fn of_length(&self, bytes: u64) -> Option<u32> {
        let mut sorted = self.per_byte.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let per_byte = sorted.get(enough_for_most(sorted.len()))?;
        // As saturating casts do.
        Some(((bytes as f64 * f64::from(*per_byte)).ceil() as u32).max(1))
    }

    /// How much `bytes` of a stream used, if use depends on the length more than it varies by itself: what goes into a
    /// request is the same however much of the answer has come.
    fn of_bytes(&self, bytes: u64) -> Option<u32> {
        let streams = || self.streams.iter().map(|(used, bytes)| (f64::from(*used), *bytes as f64));
        if self.streams.len() < ENOUGH
            || spread(streams().map(|(used, bytes)| used / bytes))? >= spread(streams().map(|(used, _)| used))?
        {
            return None;
        }
        let (used, length) = streams().fold((0.0, 0.0), |sum, stream| (sum.0 + stream.0, sum.1 + stream.1));
        // As saturating casts do: 0 at least, and `u32::MAX` at most.
        Some((bytes as f64 * used / length).ceil() as u32)
    }
}

/// Which of so many, from the least on, suffices for 95 of 100.
fn enough_for_most(count: usize) -> usize {
    (count * 95).div_ceil(100).saturating_sub(1)
}

/// Puts `value` into a ring.
fn put<V>(ring: &mut Vec<V>, next: &mut usize, value: V) {
    match ring.get_mut(*next) {
        Some(place) => *place = value,
        None => ring.push(value),
    }
    *next = (*next + 1) % REMEMBERED;
}

/// The variance of numbers, relative to the square of their mean; `None` if all of them are 0.
fn spread(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum, squares) = numbers
        .fold((0.0, 0.0, 0.0), |(count, sum, squares), number| (count + 1.0, sum + number, squares + number * number));
    (sum > 0.0).then(|| squares * count / (sum * sum) - 1.0)
}
