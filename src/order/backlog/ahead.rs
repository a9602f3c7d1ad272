//! The part of the backlog that precedes an arriving request: what each other client and flow receives before the
//! request has its turn.

use andante_limit::Cost;
use smallvec::SmallVec;

use super::{
    Backlog, ClientBacklog, band,
    waiting::{Contest, Passing, Waiting},
};
use crate::{
    bands::Bands,
    claim::{Claim, FlowRank, Urgency, Weight},
    fair::{Standing, Turn},
    ranking::{Ranking, Turns},
};

/// The amount that precedes a request, as a multiple of the backlog. More than the backlog if future arrivals precede
/// it, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part(f64);

/// How requests are counted: the unit, and how many of the blocked ones.
#[derive(Clone, Copy)]
struct Measure {
    contest: Contest,
    passing: Passing,
}

/// A competing client of an urgency, or a competing flow of a client.
struct Other {
    backlog: f64,
    /// The mean size of its requests.
    each: f64,
    weight: Weight,
    standing: Standing,
}

/// The most clients and flows that an estimate examines, to bound its cost. The others count as being like them.
const SAMPLE: usize = 64;

// === impl Part ===

impl Part {
    /// Nothing.
    pub const NONE: Self = Self(0.0);

    /// This part of `units`.
    pub fn of(self, units: f64) -> u64 {
        (self.0 * units).round() as u64
    }

    /// The part of `backlog` that precedes an arriving request, among the requests that take part in `contest`. More
    /// urgent requests precede it, and future arrivals of them get the fraction `inflow` of the slots. `ranking` holds
    /// the order there; `None` if nothing has been shared out there yet. Requests blocked elsewhere count as far as they
    /// are `passing`.
    pub(crate) fn before(
        backlog: &Backlog,
        claim: &Claim,
        cost: &Cost,
        (contest, passing): (Contest, Passing),
        ranking: Option<&Ranking>,
        inflow: f64,
    ) -> Self {
        let (turns, passing) = (Turns::of(ranking, claim), by_urgency(backlog, passing));
        let (cost, number) = (contest.size_of(cost) as f64, band(claim));
        let (measure, mut own) = (Measure { contest, passing: passing[number] }, 0.0);
        if let Some(band) = &backlog.bands[number] {
            let client = band.clients.get(&claim.upper());
            own = client.map_or(0.0, |client| ahead_of_client(client, claim, cost, measure, &turns));
            let others = band.clients.iter().filter(|(id, _)| **id != claim.upper());
            let others = others.map(|(id, client)| measure.other(&client.waiting, client.weight, turns.client(*id)));
            own += received_before(turns.among_clients(own, cost), own, others, band.clients.len());
        }
        let size =
            |at: usize| backlog.bands[at].as_ref().map_or(0.0, |band| band.waiting.passing(contest, passing[at]));
        let sizes: [f64; Urgency::COUNT] = std::array::from_fn(size);
        let (urgent, lower) = (&sizes[..number], &sizes[number + 1..]);
        let lower = lower.iter().filter(|size| **size > 0.0).count();
        let before = Bands::ahead(turns.until_guaranteed(cost), own, urgent.iter().sum(), lower, inflow);
        let most = if inflow > 0.0 { f64::INFINITY } else { sizes.iter().sum() };
        let all = backlog.waiting.size(contest) as f64;
        if all > 0.0 { Self(before.min(most) / all) } else { Self::NONE }
    }
}

// === impl Measure ===

impl Measure {
    fn size(self, waiting: &Waiting) -> f64 {
        waiting.passing(self.contest, self.passing)
    }

    fn other(self, waiting: &Waiting, weight: Weight, standing: Standing) -> Other {
        let each = waiting.size(self.contest) as f64 / waiting.costs(self.contest).max(1) as f64;
        Other { backlog: self.size(waiting), each, weight, standing }
    }
}

/// The fractions of blocked requests that are `passing`, by urgency: the most urgent requests pass first.
fn by_urgency(backlog: &Backlog, passing: Passing) -> [Passing; Urgency::COUNT] {
    let [units, budgets] = backlog.waiting.blocked();
    let mut left = [passing.units * units, passing.budgets * budgets];
    backlog.bands.each_ref().map(|band| {
        let blocked = band.as_ref().map_or([0.0; 2], |band| band.waiting.blocked());
        let [units, budgets] = std::array::from_fn(|at| {
            let passes = left[at].min(blocked[at]);
            left[at] -= passes;
            if blocked[at] > 0.0 { passes / blocked[at] } else { 1.0 }
        });
        Passing { units, budgets }
    })
}

/// The amount of `client` that precedes a request of the client.
fn ahead_of_client(client: &ClientBacklog, claim: &Claim, cost: f64, measure: Measure, turns: &Turns<'_>) -> f64 {
    if claim.is_in_order() {
        let flows = client.flows.values().filter(|flow| flow.claim.rank <= claim.rank);
        let of_rank = || flows.map(|flow| measure.size(&flow.waiting)).sum();
        return if claim.rank == FlowRank::LAST { measure.size(&client.waiting) } else { of_rank() };
    }
    let own = client.flows.get(&claim.claimed()).map_or(0.0, |flow| measure.size(&flow.waiting));
    let others = client.flows.iter().filter(|(id, _)| **id != claim.claimed());
    let others = others.map(|(_, flow)| measure.other(&flow.waiting, flow.weight(), turns.flow(&flow.claim)));
    own + received_before(turns.among_flows(own, cost), own, others, client.flows.len())
}

/// The amount that `others` receive before `turn`, behind `own` units of the member itself; `count` is the number of
/// members with the member itself.
fn received_before(turn: Turn, own: f64, others: impl Iterator<Item = Other>, count: usize) -> f64 {
    let others: SmallVec<[Other; SAMPLE]> = others.take(SAMPLE).filter(|other| other.backlog > 0.0).collect();
    let received = |turn: Turn| {
        let each = others.iter().map(|Other { backlog, each, weight, standing }| {
            turn.received_before(*standing, *weight, *each).min(*backlog)
        });
        each.sum::<f64>()
    };
    // Heavier members whose turns end earlier become due while others are served.
    let weights = others.iter().map(|other| other.weight.get() as f64).sum();
    let later = turn.had_after(own + received(turn), weights);
    let received = received(turn.had_after(own + received(later), weights));
    // Lighter members fill the slots until the turn is due.
    let shares = others.iter().map(|other| turn.share_before(other.standing, other.weight).min(other.backlog));
    received.max(shares.sum()) * ((count as f64 - 1.0) / SAMPLE as f64).max(1.0)
}
