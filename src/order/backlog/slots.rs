//! Number of requests that take a slot before another one. Waiting requests that other limits also block take their
//! flows' slots only as fast as these limits admit them.

use andante_limit::Unit;

use super::{
    Backlog, Band, ClientBacklog, band,
    round::{Other, Round, SAMPLE, beyond_sample},
    waiting::{Contest, Waiting, Waits},
};
use crate::{
    bands::Bands,
    claim::{Claim, Comes, FlowRank, Urgency, Weight},
    fair::Standing,
    ranking::{Ranking, Turns},
};

/// Number of requests admitted within some time, among those that wait for something in addition to their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meanwhile {
    /// Number that wait for units.
    pub units: f64,
    /// Number that wait for sub-limits.
    pub budgets: f64,
}

/// The kinds of blocked requests; each kind is counted in the measure of what blocks it.
const HELD: [Waits; 3] = [Waits::ForUnits, Waits::ForBudget, Waits::ForBoth];

/// The amounts for the kinds in [`HELD`].
type Amounts = [f64; HELD.len()];

/// Shares of the amounts admitted of each kind in [`HELD`]: a member of weight w gets w times this, but at most its
/// backlog.
#[derive(Debug)]
struct Portions(Amounts);

/// Rounds in which the unused shares of members with small backlogs are redistributed to the others.
const ROUNDS: usize = 3;

impl Backlog {
    /// Number of requests that leave before one of `claim`, without later arrivals. The request counts as `cost` of
    /// them. `meanwhile` holds the numbers admitted of those that wait for something else. `ranking` holds the order of
    /// turns; `None` if nothing has been shared out yet.
    pub(crate) fn slots_ahead(&self, claim: &Claim, cost: f64, meanwhile: Meanwhile, ranking: Option<&Ranking>) -> f64 {
        let (of_bands, turns) = (self.of_bands(meanwhile), Turns::of(ranking, claim));
        let index = band(claim);
        let mut before = 0.0;
        if let Some(band) = self.bands[index].as_deref() {
            let clients = || band.clients.iter().map(|(id, client)| (*id, &client.waiting, client.weight));
            let levels = Portions::of(clients().map(of_member), band.clients.len(), &of_bands[index]);
            if let Some(client) = band.clients.get(&claim.upper()) {
                before = match claim.is_in_order() {
                    true => client.slots_in_order(claim, &levels),
                    false => client.slots_ahead(claim, cost, &levels, &turns),
                };
            }
            let others = clients().filter(|(id, ..)| *id != claim.upper());
            let others = others.map(|(id, waiting, weight)| levels.member(waiting, weight, turns.client(id)));
            let turn = turns.among_clients(before, cost);
            before += Round::before(turn, before, others, band.clients.len()).sum();
        }
        self.with_other_bands(claim.urgency, turns.until_guaranteed(cost), before, &of_bands)
    }

    /// The admitted amounts, split by urgency: the most urgent gets all but the guaranteed shares of the lower ones.
    fn of_bands(&self, meanwhile: Meanwhile) -> [Amounts; Urgency::COUNT] {
        let all = HELD.map(|waits| self.waiting.held(waits));
        let [units, sub_limits, both] = all;
        let of_sub_limits = (sub_limits.requests + both.requests).max(1.0);
        let requests = [
            meanwhile.units,
            meanwhile.budgets * sub_limits.requests / of_sub_limits,
            meanwhile.budgets * both.requests / of_sub_limits,
        ];
        let mut left: Amounts = std::array::from_fn(|at| requests[at] * all[at].size / all[at].requests.max(1.0));
        debug_assert!(units.requests > 0.0 || left[0] == 0.0, "nobody waits");
        let mut of_bands = [Amounts::default(); Urgency::COUNT];
        for (at, waits) in HELD.into_iter().enumerate() {
            let size = |band: &Option<Box<Band>>| band.as_ref().map_or(0.0, |band| band.waiting.held(waits).size);
            let mut lower = self.bands.iter().filter(|band| size(band) > 0.0).count();
            for (band, of_band) in self.bands.iter().zip(&mut of_bands) {
                let size = size(band);
                if size > 0.0 {
                    lower -= 1;
                    of_band[at] = size.min(left[at] * Bands::share_above(lower));
                    left[at] -= of_band[at];
                }
            }
        }
        of_bands
    }

    /// The slots that less urgent requests take from more urgent ones, and how much of `unit` they take with them. A
    /// request that does not declare its amount counts as `unsaid`. While slots are scarce, each lower urgency gets its
    /// share of them, and its flows serve their oldest requests, whatever units those take.
    pub fn taken_beside(&self, claim: &Claim, unit: Unit, unsaid: f64) -> (f64, f64) {
        let (urgent, lower) = self.bands.split_at(band(claim) + 1);
        let slots = urgent.iter().flatten().map(|band| band.waiting.requests(Waits::ForAll)).sum::<f64>();
        let taken = lower.iter().flatten().map(|band| {
            let (mut requests, mut units) = (0.0, 0.0);
            for waits in Waits::EACH {
                requests += band.waiting.requests(waits);
                let takes = matches!(waits, Waits::ForUnits | Waits::ForBoth);
                units += if takes { band.waiting.units(waits, unit, unsaid) } else { 0.0 };
            }
            if requests > 0.0 { units * (slots * Bands::SHARE / requests).min(1.0) } else { 0.0 }
        });
        (slots, taken.sum())
    }

    /// The number that precedes a request of this urgency, if `before` of its own urgency do. The first of its urgency
    /// has its guaranteed turn once `guaranteed` has been served.
    fn with_other_bands(
        &self,
        urgency: Urgency,
        guaranteed: f64,
        before: f64,
        of_bands: &[Amounts; Urgency::COUNT],
    ) -> f64 {
        let index = usize::from(urgency.get());
        let (mut bands, mut urgent, mut lower) = (Bands::default(), 0.0, 0.0);
        for (number, (band, amounts)) in (0..).zip(self.bands.iter().zip(of_bands)) {
            let Some((band, other)) = band.as_ref().zip(Urgency::new(number)) else { continue };
            let requests = Portions(*amounts).requests(&band.waiting, Weight::ONE);
            if requests < 1.0 {
                continue;
            }
            bands.enter(other, 1, Comes::New);
            match usize::from(number) {
                number if number < index => urgent += requests,
                number if number > index => lower += requests,
                _ => {}
            }
        }
        let all = bands.ahead(urgency, guaranteed, before, urgent, 0.0).max(before);
        let of_urgent = (all - before).min(urgent);
        before + of_urgent + (all - before - of_urgent).min(lower)
    }
}

// === impl ClientBacklog ===

impl ClientBacklog {
    /// Number of this client's requests that leave before one of `claim` if flows of a lower or the same rank do.
    fn slots_in_order(&self, claim: &Claim, levels: &Portions) -> f64 {
        let all = levels.requests(&self.waiting, self.weight);
        if claim.rank == FlowRank::LAST {
            return all;
        }
        let flows = || self.flows.values().filter(|flow| flow.claim.rank <= claim.rank);
        // The lower ranks have all that is admitted, until nothing of them waits.
        let most = Portions(levels.amounts(&self.waiting, self.weight));
        flows().map(|flow| most.requests(&flow.waiting, Weight::ONE)).sum::<f64>().min(all)
    }

    /// Number of this client's requests that leave before one of `claim`, if its part of what is admitted follows from
    /// `levels`.
    fn slots_ahead(&self, claim: &Claim, cost: f64, levels: &Portions, turns: &Turns<'_>) -> f64 {
        let flows = || self.flows.iter().map(|(id, flow)| (*id, &flow.waiting, flow.weight()));
        let own = levels.amounts(&self.waiting, self.weight);
        let levels = Portions::of(flows().map(of_member), self.flows.len(), &own);
        let flow = self.flows.get(&claim.claimed());
        let before = flow.map_or(0.0, |flow| levels.requests(&flow.waiting, flow.weight()));
        let others = self.flows.iter().filter(|(id, _)| **id != claim.claimed());
        let others = others.map(|(_, flow)| levels.member(&flow.waiting, flow.weight(), turns.flow(&flow.claim)));
        let turn = turns.among_flows(before, cost);
        before + Round::before(turn, before, others, self.flows.len()).sum()
    }
}

fn of_member<K>((_, waiting, weight): (K, &Waiting, Weight)) -> (&Waiting, Weight) {
    (waiting, weight)
}

// === impl Portions ===

impl Portions {
    /// How `count` members share `amounts`; the first [`SAMPLE`] members stand for all.
    fn of<'a>(members: impl Iterator<Item = (&'a Waiting, Weight)> + Clone, count: usize, amounts: &Amounts) -> Self {
        let mut levels = Amounts::default();
        for ((waits, amount), level) in HELD.into_iter().zip(amounts).zip(&mut levels) {
            if *amount <= 0.0 {
                continue;
            }
            let amount = amount / beyond_sample(count);
            for _ in 0..ROUNDS {
                let (mut received, mut weights) = (0.0, 0.0);
                for (waiting, weight) in members.clone().take(SAMPLE) {
                    let (size, weight) = (waiting.held(waits).size, weight.get() as f64);
                    if size <= weight * *level { received += size } else { weights += weight }
                }
                *level = if weights > 0.0 { ((amount - received) / weights).max(*level) } else { f64::INFINITY };
            }
        }
        Self(levels)
    }

    /// The amounts that a member gets.
    fn amounts(&self, waiting: &Waiting, weight: Weight) -> Amounts {
        std::array::from_fn(|at| waiting.held(HELD[at]).size.min(weight.get() as f64 * self.0[at]))
    }

    /// Number of a member's requests that may take a slot meanwhile: those that wait only for their turn, and the
    /// admitted ones of the others.
    fn requests(&self, waiting: &Waiting, weight: Weight) -> f64 {
        let let_go = HELD.iter().zip(self.0).map(|(waits, level)| {
            let held = waiting.held(*waits);
            if held.size > 0.0 { held.requests * (weight.get() as f64 * level / held.size).min(1.0) } else { 0.0 }
        });
        waiting.requests(Waits::ForAll) + let_go.sum::<f64>()
    }

    /// A member with this many requests.
    fn member<'a>(&self, waiting: &'a Waiting, weight: Weight, standing: Standing) -> Other<'a> {
        Other { most: self.requests(waiting, weight), ..Other::of(waiting, Contest::Slots, weight, standing) }
    }
}
