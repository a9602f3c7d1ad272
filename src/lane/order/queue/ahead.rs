//! How much waits, and how much of it goes before a request that comes.

use std::hash::Hash;

use super::Queue;
use crate::{
    lane::order::{
        backlog::{Ahead, Backlog, Contest, Meanwhile, WaitingFlow, Waits},
        claim::Claim,
        ranking::Ranking,
    },
    limit::{Cost, Unit},
};

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// How much of `unit` all take together that wait in lines for which `counts` holds. O(lines).
    pub fn units(&self, unit: Unit, counts: impl Fn(&K) -> bool) -> u64 {
        self.lines.iter().filter(|(_, line)| counts(&line.key)).map(|(_, line)| line.units.of(unit)).sum()
    }

    /// How many of those do not say how much of `unit` they take. O(lines).
    pub fn unsaid(&self, unit: Unit, counts: impl Fn(&K) -> bool) -> u64 {
        self.lines.iter().filter(|(_, line)| counts(&line.key)).map(|(_, line)| line.units.unsaid(unit)).sum()
    }

    /// `claim` as it counts in the queue.
    pub fn resolve(&self, claim: &Claim) -> Claim {
        self.backlog.resolve(*claim)
    }

    /// How much of `unit` all take together that wait like this, where each takes `unsaid` of it that does not say.
    pub fn waiting(&self, waits: Waits, unit: Unit, unsaid: f64) -> f64 {
        self.backlog.units_of(waits, unit, unsaid)
    }

    /// How many requests leave before one that comes now, if so many that wait for something else leave `meanwhile`.
    pub fn slots_ahead(&self, claim: &Claim, cost: &Cost, meanwhile: Meanwhile) -> f64 {
        let claim = self.backlog.resolve(*claim);
        self.backlog.slots_ahead(&claim, cost.requests().into(), meanwhile, Some(&self.front))
    }

    /// What those take that are less urgent because of the slots that they are given: in how many slots of more urgent ones,
    /// and how much of `unit` then, where each takes `unsaid` of it that does not say.
    pub fn taken_beside(&self, claim: &Claim, unit: Unit, unsaid: f64) -> (f64, f64) {
        self.backlog.taken_beside(claim, unit, unsaid)
    }

    /// How many slots go before a request that comes now.
    pub fn ahead(&self, claim: &Claim, cost: &Cost) -> Ahead {
        let inflow = self.inflow.above(claim.urgency);
        self.backlog.ahead(&self.backlog.resolve(*claim), cost, Contest::Slots, Some(&self.front), inflow)
    }

    /// How much of other units goes before a request that comes now into this line.
    pub fn units_ahead(&self, claim: &Claim, cost: &Cost, line: &K) -> Ahead {
        let spot = self.line_ids.get(line).map(|line| self.lines[*line].spot);
        let ranking = spot.and_then(|spot| self.ranking_at(spot));
        self.backlog.ahead(&self.backlog.resolve(*claim), cost, Contest::Units, ranking, 0.0)
    }

    /// How much goes before a request that comes now and draws on this budget, for which this `backlog` waits.
    pub fn ahead_at(&self, budget: u32, backlog: &Backlog, claim: &Claim, cost: &Cost) -> Ahead {
        let ranking = self.sets.spot_of(budget).and_then(|spot| self.ranking_at(spot));
        backlog.ahead(&self.backlog.resolve(*claim), cost, Contest::All, ranking, 0.0)
    }

    /// How many requests leave before one that comes now and draws on this budget, if so many that slower budgets hold up
    /// leave meanwhile.
    pub fn slots_ahead_at(&self, budget: u32, backlog: &Backlog, claim: &Claim, cost: &Cost, held_up: f64) -> f64 {
        let ranking = self.sets.spot_of(budget).and_then(|spot| self.ranking_at(spot));
        let (claim, meanwhile) = (self.backlog.resolve(*claim), Meanwhile { units: 0.0, budgets: held_up });
        backlog.slots_ahead(&claim, cost.requests().into(), meanwhile, ranking)
    }

    /// The flows with the most waiting requests, `most` of them at most. O(flows).
    pub fn longest(&self, most: usize) -> Vec<WaitingFlow> {
        self.backlog.longest(most)
    }

    fn ranking_at(&self, spot: u32) -> Option<&Ranking> {
        self.spots[spot].ranking.as_deref()
    }
}
