//! Usage reported by answers, and the amounts that count for requests without such a report.

use std::sync::Arc;

use andante_clock::Instant;
use andante_limit::{Cost, Unit};
use smallvec::SmallVec;

use super::{
    End, Slot, State, numbers,
    usual::{Usage, Usual, estimate_of},
};

/// A reported usage is believed up to this many times the smallest window of its unit. Real answers may use several
/// times a minute's tokens.
const WINDOWS: u32 = 4;

impl<T> State<T> {
    /// Applies the usage that the answer to this slot's request reported.
    pub(crate) fn used(&mut self, now: Instant, slot: &mut Slot, usage: &Usage) {
        for &(unit, said) in &usage.said {
            let used = said.min(self.most(slot, unit));
            let lasted = self.pending_since(slot, unit).map(|left| now.since(left));
            self.settle(now, slot, unit, used);
            let rule = self.strictest(slot, unit).cloned();
            // Requests that draw only on limits of their own are no evidence about the others.
            if rule.is_none() || !slot.charge.scope.is_apart() {
                self.usual(unit, None).remember(used, lasted, usage);
            }
            if let Some(rule) = rule {
                self.usual(unit, Some(rule)).remember(used, lasted, usage);
            }
        }
        for &(unit, least) in &usage.at_least {
            let passed = usage.streamed.and_then(|bytes| self.usual(unit, None).of_bytes(bytes));
            // Without evidence the reservation stays, unless more was used already.
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

    /// Settles the pending usage of a request that was sent and has ended without a report. A declared reservation
    /// stays; a guess no longer counts. The usage of an answer that never came is unknown: it counts like other
    /// requests' usage once one is reported, and as the guess before.
    pub(super) fn ends_pending(&mut self, now: Instant, slot: &mut Slot, end: End) {
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

    /// The amount of `unit` that counts if the answer does not report it: the reservation. If the reservation was a
    /// guess, at most the mean of the reported amounts counts.
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

    /// When this slot's request left, if its use of `unit` is still unknown.
    fn pending_since(&mut self, slot: &Slot, unit: Unit) -> Option<Instant> {
        let sub_limits = slot.drawn.as_ref().and_then(|drawn| self.sub_limits.pending_since(drawn, unit));
        sub_limits.or_else(|| self.pending_usage.left(slot.charge.seq, unit))
    }

    /// The usage estimate of `unit` for requests like that of this slot, or for all requests if there is none.
    fn usual_for(&self, slot: &Slot, unit: Unit) -> Option<&Usual> {
        let rule = self.strictest(slot, unit);
        estimate_of(&self.usual, unit, rule.map(|rule| &**rule)).or_else(|| estimate_of(&self.usual, unit, None))
    }

    /// Drops the usage estimates of rules that are gone.
    pub(super) fn forget_usual_of_gone_rules(&mut self) {
        let sub_limits = &self.sub_limits;
        self.usual.retain(|usual| usual.rule.as_deref().is_none_or(|rule| sub_limits.has_rule(rule)));
    }

    /// The narrower rule for this slot's request that limits `unit` most.
    fn strictest(&self, slot: &Slot, unit: Unit) -> Option<&Arc<str>> {
        self.sub_limits.rule_of(numbers(&slot.drawn), unit)
    }

    /// The estimated use of `unit` for a request with a body of this many bytes: the amount per byte that suffices for
    /// 95 of 100 requests. `None` before an answer has reported it.
    pub(crate) fn of_length(&self, unit: Unit, bytes: u64) -> Option<u32> {
        estimate_of(&self.usual, unit, None)?.of_length(bytes)
    }

    fn settle(&mut self, now: Instant, slot: &mut Slot, unit: Unit, used: u32) {
        let reserved = slot.charge.cost.of(unit).map_or(0, |reserved| reserved.get());
        self.stats.used.settle(unit, reserved.into(), used.into());
        self.budget.settle(slot.charge, unit, used, now);
        if let Some(drawn) = &slot.drawn {
            self.sub_limits.settle(drawn, unit, used, now);
        }
        slot.charge.cost = slot.charge.cost.told(unit);
        self.pending_usage.told(slot.charge.seq, unit);
    }

    /// The most of `unit` that an answer to this slot's request is believed to have used. A body may repeat what its
    /// request said, and an invented number must not stop a lane for long.
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
