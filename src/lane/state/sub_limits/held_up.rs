//! Requests that wait for several budgets. Such requests leave no faster than the slowest budget admits them. At the
//! faster budgets, and in the lane, they delay others only at that pace.

use andante_limit::Cost;
use andante_order::{Claim, Map, Turn, Waits};
use smallvec::SmallVec;

use super::{Drawn, SubLimits};

/// Requests waiting in one place that slower budgets elsewhere block.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::state) struct HeldUp {
    /// Number of requests.
    pub(in crate::state) requests: u64,
    /// Number of blocking budgets, and in `pace` the sum of their rates in millionths of a request per second.
    pub(in crate::state) budgets: u64,
    pub(in crate::state) pace: u64,
}

/// A waiting request's place, and the budget that blocks it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldAt {
    /// A budget's number, or [`LANE`].
    at: u32,
    by: u32,
}

/// The bottlenecks of a request that draws on several budgets, as of its arrival.
#[derive(Debug, Default)]
pub(super) struct Holders(SmallVec<[HeldAt; 3]>);

/// The place of all requests of a lane.
const LANE: u32 = u32::MAX;

// === impl SubLimits ===

impl SubLimits {
    /// Adds a waiting request of this cost.
    pub(in crate::state) fn enqueued(&mut self, drawn: &mut Drawn, claim: &Claim, cost: Cost, turn: Turn) {
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
            let sub_limit = &mut self.budgets[*number];
            sub_limit.waiting += 1;
            let waits = drawn.holders.waits_at(*number);
            sub_limit.backlog.get_or_insert_default().add(claim, &cost, waits, turn);
        }
    }

    /// Removes a request that waits no more.
    pub(in crate::state) fn dequeued(&mut self, drawn: &Drawn, claim: &Claim, cost: Cost, turn: Turn) {
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
            let sub_limit = &mut self.budgets[*number];
            sub_limit.waiting -= 1;
            let waits = drawn.holders.waits_at(*number);
            sub_limit.backlog.as_mut().expect("it waits").subtract(claim, &cost, waits, turn);
            if sub_limit.waiting == 0 {
                sub_limit.backlog = None;
            }
        }
    }

    /// Applies new weights of `claim`, which waits for these budgets.
    pub(in crate::state) fn reweigh(&mut self, drawn: &Drawn, claim: &Claim) {
        for number in &drawn.numbers {
            self.budgets[*number].backlog.iter_mut().for_each(|backlog| backlog.reweigh(claim));
        }
    }

    /// Requests in the lane that sub-limits block.
    pub(in crate::state) fn held_up(&self) -> HeldUp {
        self.held_up
    }

    /// Applies the new paces of these budgets' rules; `changed` holds the old paces. O(blocked requests).
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

    /// The bottlenecks of requests that draw on these budgets: everywhere else the slowest budget. At the slowest
    /// itself, another budget may be used up or crowded for longer than its rate tells.
    fn holders(&self, numbers: &[u32]) -> Holders {
        let slowest = match numbers {
            [one] => Some(*one),
            several => several.iter().copied().min_by_key(|number| self.budgets[*number].pace()),
        };
        let Some(slowest) = slowest else { return Holders::default() };
        let elsewhere = numbers.iter().filter(|number| **number != slowest);
        let beside = elsewhere.clone().find(|number| self.budgets[**number].has_limits_besides_rate());
        let at_slowest = beside.map(|by| HeldAt { at: slowest, by: *by });
        let at_others = elsewhere.chain([&LANE]).map(|at| HeldAt { at: *at, by: slowest });
        Holders(at_others.chain(at_slowest).collect())
    }

    fn held_up_mut(&mut self, at: u32) -> &mut HeldUp {
        if at == LANE { &mut self.held_up } else { &mut self.budgets[at].held_up }
    }
}

// === impl HeldUp ===

impl HeldUp {
    /// The fraction of the requests admitted within this time: one for each budget, and what their rates admit.
    pub(in crate::state) fn passing(self, seconds: f64) -> f64 {
        let admitted = self.budgets as f64 + self.pace as f64 / 1e6 * seconds;
        if self.requests == 0 { 1.0 } else { (admitted / self.requests as f64).min(1.0) }
    }
}

// === impl Holders ===

impl Holders {
    /// The resources that a request waits for at this budget, in addition to its turn.
    fn waits_at(&self, number: u32) -> Waits {
        if self.0.iter().any(|held| held.at == number) { Waits::ForBudget } else { Waits::ForAll }
    }
}
