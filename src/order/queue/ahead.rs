//! Waiting amounts, and the part of them that precedes an arriving request.

use std::hash::Hash;

use andante_limit::{Cost, Unit};

use super::Queue;
use crate::{
    backlog::{Ahead, Backlog, Contest, Meanwhile, WaitingFlow, Waits},
    claim::Claim,
    ranking::Ranking,
};

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// Total of `unit` over the tickets in classes for which `counts` holds. O(classes).
    pub fn units(&self, unit: Unit, counts: impl Fn(&K) -> bool) -> u64 {
        self.lines.iter().filter(|(_, line)| counts(&line.key)).map(|(_, line)| line.units.of(unit)).sum()
    }

    /// Number of tickets in such classes that do not declare how much of `unit` they take. O(classes).
    pub fn unsaid(&self, unit: Unit, counts: impl Fn(&K) -> bool) -> u64 {
        self.lines.iter().filter(|(_, line)| counts(&line.key)).map(|(_, line)| line.units.unsaid(unit)).sum()
    }

    /// `claim` as it counts in the queue.
    pub fn resolve(&self, claim: &Claim) -> Claim {
        self.backlog.resolve(*claim)
    }

    /// Total of `unit` over the tickets that wait like this; a ticket that does not declare its amount counts as
    /// `unsaid`.
    pub fn waiting(&self, waits: Waits, unit: Unit, unsaid: f64) -> f64 {
        self.backlog.units_of(waits, unit, unsaid)
    }

    /// Number of requests that leave before an arriving one, if `meanwhile` leave of those that wait for something
    /// else.
    pub fn slots_ahead(&self, claim: &Claim, cost: &Cost, meanwhile: Meanwhile) -> f64 {
        let claim = self.backlog.resolve(*claim);
        self.backlog.slots_ahead(&claim, cost.requests().into(), meanwhile, Some(&self.front))
    }

    /// The slots that less urgent tickets take from more urgent ones, and how much of `unit` they take with them. A
    /// ticket that does not declare its amount counts as `unsaid`.
    pub fn taken_beside(&self, claim: &Claim, unit: Unit, unsaid: f64) -> (f64, f64) {
        self.backlog.taken_beside(claim, unit, unsaid)
    }

    /// Number of slots that precede an arriving request.
    pub fn ahead(&self, claim: &Claim, cost: &Cost) -> Ahead {
        let inflow = self.inflow.above(claim.urgency);
        self.backlog.ahead(&self.backlog.resolve(*claim), cost, Contest::Slots, Some(&self.front), inflow)
    }

    /// Amounts of other units that precede a request arriving in this class.
    pub fn units_ahead(&self, claim: &Claim, cost: &Cost, line: &K) -> Ahead {
        let wait_point = self.line_ids.get(line).map(|line| self.lines[*line].wait_point);
        let ranking = wait_point.and_then(|wait_point| self.ranking_at(wait_point));
        self.backlog.ahead(&self.backlog.resolve(*claim), cost, Contest::Units, ranking, 0.0)
    }

    /// The amount that precedes an arriving request at this budget, whose queue is `backlog`.
    pub fn ahead_at(&self, budget: u32, backlog: &Backlog, claim: &Claim, cost: &Cost) -> Ahead {
        let ranking = self.sets.wait_point_of(budget).and_then(|wait_point| self.ranking_at(wait_point));
        backlog.ahead(&self.backlog.resolve(*claim), cost, Contest::All, ranking, 0.0)
    }

    /// Number of requests that leave before an arriving one at this budget, if `held_up` of the requests blocked by
    /// slower budgets leave meanwhile.
    pub fn slots_ahead_at(&self, budget: u32, backlog: &Backlog, claim: &Claim, cost: &Cost, held_up: f64) -> f64 {
        let ranking = self.sets.wait_point_of(budget).and_then(|wait_point| self.ranking_at(wait_point));
        let (claim, meanwhile) = (self.backlog.resolve(*claim), Meanwhile { units: 0.0, budgets: held_up });
        backlog.slots_ahead(&claim, cost.requests().into(), meanwhile, ranking)
    }

    /// The flows with the most waiting requests, at most `most` of them. O(flows).
    pub fn longest(&self, most: usize) -> Vec<WaitingFlow> {
        self.backlog.longest(most)
    }

    fn ranking_at(&self, wait_point: u32) -> Option<&Ranking> {
        self.wait_points[wait_point].ranking.as_deref()
    }
}
