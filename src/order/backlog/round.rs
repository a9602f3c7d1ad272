//! Amounts that the other members of a level receive before one member's turn.

use smallvec::SmallVec;

use super::waiting::{Contest, Portion, Waiting};
use crate::{
    claim::Weight,
    fair::{Standing, Turn},
};

/// A competing client of an urgency, or a competing flow of a client, and the amount that it may receive.
pub(super) struct Other<'a> {
    pub(super) waiting: &'a Waiting,
    pub(super) weight: Weight,
    pub(super) standing: Standing,
    /// The most that it may receive.
    pub(super) most: f64,
    /// The mean size of its requests.
    pub(super) each: f64,
}

/// The amounts that others receive before a turn.
pub(super) struct Round<'a> {
    turn: Turn,
    others: SmallVec<[Other<'a>; SAMPLE]>,
    /// Ratio of the number of others to the number sampled.
    scale: f64,
    /// The part that they receive of what they are owed by then but would get in later turns.
    of_later: f64,
}

/// The most clients and flows that a prediction looks at; the others are taken to be like them.
pub(super) const SAMPLE: usize = 64;

// === impl Other ===

impl<'a> Other<'a> {
    /// A member of this `weight`, as far as its waiting requests take part in `contest`.
    pub(super) fn of(waiting: &'a Waiting, contest: Contest, weight: Weight, standing: Standing) -> Self {
        let most = waiting.size(contest) as f64;
        Self { waiting, weight, standing, most, each: most / waiting.costs(contest).max(1) as f64 }
    }
}

// === impl Round ===

impl<'a> Round<'a> {
    /// The amounts that `others` receive before `turn`, with `before` units of the member's own ahead of it. `count` is
    /// the number of members, including the member itself.
    pub(super) fn before(turn: Turn, before: f64, others: impl Iterator<Item = Other<'a>>, count: usize) -> Self {
        let others = others.take(SAMPLE).collect();
        let mut round = Self { turn, others, scale: beyond_sample(count), of_later: 0.0 };
        round.heavier_go_first(before);
        round.lighter_fill_in();
        round
    }

    /// The backlog of each sampled member, and the amount that it and the members it stands for receive.
    pub(super) fn received(&self) -> impl Iterator<Item = (&'a Waiting, f64)> {
        let received = self.others.iter().filter(|other| other.most > 0.0).map(|other| {
            let received = self.turn.received_before(other.standing, other.weight, other.each).min(other.most);
            let later = if self.of_later > 0.0 {
                self.turn.owed_before(other.standing, other.weight, other.each).min(other.most) - received
            } else {
                0.0
            };
            (other.waiting, (received + self.of_later * later.max(0.0)) * self.scale)
        });
        received.filter(|(_, received)| *received > 0.0)
    }

    /// Adds the received amounts of tickets that take part in `contest`.
    pub(super) fn add_to(&self, portion: &mut Portion, contest: Contest) {
        for (waiting, received) in self.received() {
            portion.add(waiting, contest, received / waiting.size(contest) as f64);
        }
    }

    /// The total received amount.
    pub(super) fn sum(&self) -> f64 {
        self.received().map(|(_, received)| received).sum()
    }

    /// Accounts for heavier members: their turns end sooner, so they come first while they are eligible. Turns that
    /// become eligible later end later.
    fn heavier_go_first(&mut self, before: f64) {
        let own = self.turn.weight();
        let heavier = self.weights(|weight| weight > own);
        if heavier == 0.0 {
            return;
        }
        let all = self.weights(|_| true) + own;
        // Virtual time advances with what is served, and more of them become eligible.
        let first = self.sum();
        self.turn = self.turn.had_at((before + first) / all);
        let second = self.sum();
        if second > first {
            self.turn = self.turn.had_at((before + second - heavier * self.turn.at()) / (all - heavier));
        }
    }

    /// Accounts for lighter members: their turns end later, but they fill slots before this turn becomes eligible, so
    /// that no slot is lost.
    fn lighter_fill_in(&mut self) {
        let own = self.turn.weight();
        if self.weights(|weight| weight < own) == 0.0 {
            return;
        }
        let shares =
            self.others.iter().map(|other| self.turn.share_before(other.standing, other.weight).min(other.most));
        let (shares, received) = (shares.sum::<f64>() * self.scale, self.sum());
        if shares > received {
            self.of_later = 1.0;
            let most = self.sum();
            self.of_later = ((shares - received) / (most - received).max(1.0)).min(1.0);
        }
    }

    fn weights(&self, counts: impl Fn(f64) -> bool) -> f64 {
        let weights = self.others.iter().map(|other| other.weight.get() as f64);
        weights.filter(|weight| counts(*weight)).sum::<f64>() * self.scale
    }
}

/// Factor from the sample to all other members, for `count` members including the member itself.
pub(super) fn beyond_sample(count: usize) -> f64 {
    if count > SAMPLE { (count as f64 - 1.0) / SAMPLE as f64 } else { 1.0 }
}
