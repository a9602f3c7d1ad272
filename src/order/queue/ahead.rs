//! Waiting amounts, and the part of them that precedes an arriving request.

use std::hash::Hash;

use andante_limit::{Cost, Unit};

use super::Queue;
use crate::{
    backlog::{Backlog, Contest, Part, Passing, WaitingFlow, Waits},
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

    /// The part of the slots that precedes an arriving request, if blocked requests are `passing` and future arrivals of
    /// higher urgency take the fraction `inflow` of the slots.
    pub fn ahead(&self, claim: &Claim, cost: &Cost, passing: Passing, inflow: f64) -> Part {
        let contest = (Contest::Slots, passing);
        Part::before(&self.backlog, &self.backlog.resolve(*claim), cost, contest, Some(&self.front), inflow)
    }

    /// The part of other units that precedes a request arriving in this class, if blocked requests are `passing`.
    pub fn units_ahead(&self, claim: &Claim, cost: &Cost, line: &K, passing: Passing) -> Part {
        let wait_point = self.line_ids.get(line).map(|line| self.lines[*line].wait_point);
        let ranking = wait_point.and_then(|wait_point| self.ranking_at(wait_point));
        Part::before(&self.backlog, &self.backlog.resolve(*claim), cost, (Contest::Units, passing), ranking, 0.0)
    }

    /// The part of the queue of this budget, which is `backlog`, that precedes an arriving request.
    pub fn ahead_at(&self, budget: u32, backlog: &Backlog, claim: &Claim, cost: &Cost, passing: Passing) -> Part {
        let ranking = self.sets.wait_point_of(budget).and_then(|wait_point| self.ranking_at(wait_point));
        Part::before(backlog, &self.backlog.resolve(*claim), cost, (Contest::All, passing), ranking, 0.0)
    }

    /// The flows with the most waiting requests, at most `most` of them. O(flows).
    pub fn longest(&self, most: usize) -> Vec<WaitingFlow> {
        self.backlog.longest(most)
    }

    fn ranking_at(&self, wait_point: u32) -> Option<&Ranking> {
        self.wait_points[wait_point].ranking.as_deref()
    }
}
