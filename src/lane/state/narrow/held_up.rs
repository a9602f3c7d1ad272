//! What waits for several budgets. It leaves no faster than the slowest of them lets it go, and is in the way of others at the
//! rest of them, and in its lane, only so fast.

use smallvec::SmallVec;

use super::{Drawn, Narrow, NarrowBudget};
use crate::{
    lane::order::{Claim, Map, Turn, Waits},
    limit::{Cost, Unit},
};

/// What waits in one place, and is held up by slower budgets than what that place has.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::lane::state) struct HeldUp {
    /// How many requests.
    pub(in crate::lane::state) requests: u64,
    /// How many budgets hold them up, and how many units a second those let go, in millionths.
    pub(in crate::lane::state) budgets: u64,
    pub(in crate::lane::state) pace: u64,
}

/// Where a request waits, and what holds it up there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldAt {
    /// A budget, or [`LANE`].
    at: u32,
    by: u32,
}

/// What holds a request up that draws on several budgets, as it was when it came.
#[derive(Debug, Default)]
pub(super) struct Holders(SmallVec<[HeldAt; 3]>);

/// The place of all requests of a lane.
const LANE: u32 = u32::MAX;
/// The pace of a budget without a rate: a million a second. That of ten million budgets is a number still.
const BOUNDLESS: u64 = 1_000_000_000_000;

// === impl Narrow ===

impl Narrow {
    /// A request of this cost waits from now on.
    pub(in crate::lane::state) fn enqueued(&mut self, drawn: &mut Drawn, claim: &Claim, cost: Cost, turn: Turn) {
        drawn.holders = self.holders(&drawn.numbers);
        for held in &drawn.holders.0 {
            let requests = self.held.entry(*held).or_default();
            *requests += 1;
            let is_first = *requests == 1;
            self.held_up_mut(held.at).requests += u64::from(cost.requests());
            if is_first {
                let pace = self.budgets[held.by].pace();
                let held_up = self.held_up_mut(held.at);
                held_up.budgets += 1;
                held_up.pace += pace;
            }
        }
        for number in &drawn.numbers {
            let narrow = &mut self.budgets[*number];
            narrow.waiting += 1;
            let waits = drawn.holders.waits_at(*number);
            narrow.backlog.get_or_insert_default().add(claim, &cost, waits, turn);
        }
    }

    /// It waits no more.
    pub(in crate::lane::state) fn dequeued(&mut self, drawn: &Drawn, claim: &Claim, cost: Cost, turn: Turn) {
        for held in &drawn.holders.0 {
            let requests = self.held.get_mut(held).expect("it waits");
            *requests -= 1;
            let is_last = *requests == 0;
            if is_last {
                self.held.remove(held);
            }
            self.held_up_mut(held.at).requests -= u64::from(cost.requests());
            if is_last {
                let pace = self.budgets[held.by].pace();
                let held_up = self.held_up_mut(held.at);
                held_up.budgets -= 1;
                held_up.pace -= pace;
            }
        }
        for number in &drawn.numbers {
            let narrow = &mut self.budgets[*number];
            narrow.waiting -= 1;
            let waits = drawn.holders.waits_at(*number);
            narrow.backlog.as_mut().expect("it waits").subtract(claim, &cost, waits, turn);
            if narrow.waiting == 0 {
                narrow.backlog = None;
            }
        }
    }

    /// The weights of `claim`, which waits for these budgets, are these from now on.
    pub(in crate::lane::state) fn reweigh(&mut self, drawn: &Drawn, claim: &Claim) {
        for number in &drawn.numbers {
            self.budgets[*number].backlog.iter_mut().for_each(|backlog| backlog.reweigh(claim));
        }
    }

    /// What waits in the lane for narrower budgets.
    pub(in crate::lane::state) fn held_up(&self) -> HeldUp {
        self.held_up
    }

    /// How many requests a second each of these budgets lets go, and what waits for it and is held up by others.
    pub(in crate::lane::state) fn held_up_at(&self, drawn: &Drawn) -> impl Iterator<Item = (f64, HeldUp)> {
        drawn.numbers.iter().map(|number| {
            let narrow = &self.budgets[*number];
            (narrow.pace() as f64 / 1e6, narrow.held_up)
        })
    }

    /// The paces of these budgets, which were others before, are now those of their rules. O(what is held up).
    pub(super) fn paces_changed(&mut self, changed: &[(u32, u64)]) {
        let paces = changed.iter().map(|(number, before)| (*number, (*before, self.budgets[*number].pace())));
        let paces: Map<u32, (u64, u64)> = paces.filter(|(_, (before, now))| before != now).collect();
        if paces.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        for HeldAt { at, by } in held.keys() {
            if let Some((before, now)) = paces.get(by) {
                let held_up = self.held_up_mut(*at);
                held_up.pace = held_up.pace - before + now;
            }
        }
        self.held = held;
    }

    /// What holds requests up that draw on these budgets: the slowest one, everywhere but there. Another one may be used up
    /// or crowded instead, for longer than its rate tells.
    fn holders(&self, numbers: &[u32]) -> Holders {
        let slowest = match numbers {
            [one] => Some(*one),
            several => several.iter().copied().min_by_key(|number| self.budgets[*number].pace()),
        };
        let Some(slowest) = slowest else { return Holders::default() };
        let elsewhere = numbers.iter().filter(|number| **number != slowest);
        let beside = elsewhere.clone().find(|number| self.budgets[**number].holds_beside_its_rate());
        let at_slowest = beside.map(|by| HeldAt { at: slowest, by: *by });
        let at_others = elsewhere.chain([&LANE]).map(|at| HeldAt { at: *at, by: slowest });
        Holders(at_others.chain(at_slowest).collect())
    }

    fn held_up_mut(&mut self, at: u32) -> &mut HeldUp {
        if at == LANE { &mut self.held_up } else { &mut self.budgets[at].held_up }
    }
}

// === impl NarrowBudget ===

impl NarrowBudget {
    /// How many requests a second it lets go, in millionths.
    pub(super) fn pace(&self) -> u64 {
        self.budget.slowest(Unit::REQUESTS).map_or(BOUNDLESS, |rate| ((rate * 1e6) as u64).min(BOUNDLESS))
    }

    /// Whether it may let nothing go for longer than its rate tells.
    fn holds_beside_its_rate(&self) -> bool {
        self.rule.in_flight.is_some() || !self.rule.calendar.is_empty() || self.rule.units().next().is_some()
    }
}

// === impl Holders ===

impl Holders {
    /// For what a request waits at this budget, beside its turn.
    fn waits_at(&self, number: u32) -> Waits {
        if self.0.iter().any(|held| held.at == number) { Waits::ForBudget } else { Waits::ForAll }
    }
}
