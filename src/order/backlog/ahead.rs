//! The part of the backlog that precedes an arriving request.

use andante_limit::{Cost, Unit};

use super::{
    Backlog, Band, ClientBacklog, band,
    round::{Other, Round},
    waiting::{Contest, Portion},
};
use crate::{
    bands::Bands,
    claim::{Claim, Comes, FlowRank, Urgency},
    ranking::{Ranking, Turns},
};

/// The part of the backlog that precedes an arriving request.
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    before: Portion,
    all: Portion,
    /// Size of the future arrivals that will precede it.
    to_come: f64,
}

/// A fraction of a backlog.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part(f64);

// === impl Ahead ===

impl Ahead {
    /// The fraction of the backlog that precedes it, in the measure of the contest.
    pub fn part(&self) -> Part {
        Part::new(self.before.size, self.all.size)
    }

    /// The fraction of the waiting amount of `unit` that precedes it; a request that does not declare its amount counts
    /// as `unsaid`.
    pub fn part_of(&self, unit: Unit, unsaid: f64) -> Part {
        Part::new(self.before.of(unit, unsaid), self.all.of(unit, unsaid))
    }

    /// Number of requests that precede it.
    pub fn requests(&self) -> f64 {
        self.before.of(Unit::REQUESTS, 0.0)
    }

    /// Number of slots that future arrivals take before it, if they draw on the same limits as `units` of the waiting
    /// requests.
    pub fn to_come(&self, units: u64) -> u64 {
        Part::new(units as f64, self.all.of(Unit::REQUESTS, 0.0)).of(self.to_come.round() as u64)
    }

    /// The amount of `unit` that precedes it; a request that does not declare its amount counts as `unsaid`.
    pub fn units(&self, unit: Unit, unsaid: f64) -> u64 {
        self.before.of(unit, unsaid).round() as u64
    }
}

// === impl Part ===

impl Part {
    /// The empty fraction.
    pub const NONE: Self = Self(0.0);

    fn new(part: f64, of: f64) -> Self {
        if of > 0.0 { Self((part / of).min(1.0)) } else { Self::NONE }
    }

    /// This fraction of `units`.
    pub fn of(self, units: u64) -> u64 {
        (self.0 * units as f64).round() as u64
    }
}

// === impl Backlog ===

impl Backlog {
    /// The amount that precedes an arriving request without later arrivals, among the requests that take part in
    /// `contest`. More urgent requests precede it. Within its urgency, each other client, and each other flow of its
    /// client, gets some amount before its turn. `ranking` holds the order there; `None` if nothing has been shared out
    /// there yet. Future arrivals of higher urgency get the fraction `inflow` of the slots.
    pub(crate) fn ahead(
        &self,
        claim: &Claim,
        cost: &Cost,
        contest: Contest,
        ranking: Option<&Ranking>,
        inflow: f64,
    ) -> Ahead {
        let (turns, cost) = (Turns::of(ranking, claim), contest.size_of(cost) as f64);
        let mut before = Portion::default();
        if let Some(band) = self.bands[band(claim)].as_deref() {
            if let Some(client) = band.clients.get(&claim.upper()) {
                before = client.ahead(claim, cost, contest, &turns);
            }
            let others = band.clients.iter().filter(|(id, _)| **id != claim.upper());
            let others =
                others.map(|(id, client)| Other::of(&client.waiting, contest, client.weight, turns.client(*id)));
            let turn = turns.among_clients(before.size, cost);
            let round = Round::before(turn, before.size, others, band.clients.len());
            round.add_to(&mut before, contest);
        }
        let guaranteed = turns.until_guaranteed(cost);
        let to_come = self.add_other_bands(claim.urgency, contest, guaranteed, inflow, &mut before);
        let mut all = Portion::default();
        all.add(&self.waiting, contest, 1.0);
        Ahead { before, all, to_come }
    }

    /// Adds to `before`, which holds the request's own urgency, what precedes it of other urgencies. The first of its
    /// urgency has its guaranteed turn once `guaranteed` has been served. Returns the part that precedes it because of
    /// the `inflow`.
    fn add_other_bands(
        &self,
        urgency: Urgency,
        contest: Contest,
        guaranteed: f64,
        inflow: f64,
        before: &mut Portion,
    ) -> f64 {
        let index = usize::from(urgency.get());
        let mut bands = Bands::default();
        for (number, band) in (0..).zip(&self.bands) {
            if let Some(urgency) = Urgency::new(number).filter(|_| size(band, contest) > 0) {
                bands.enter(urgency, 1, Comes::New);
            }
        }
        let waits = |bands: &[Option<Box<Band>>]| bands.iter().map(|band| size(band, contest)).sum::<u64>() as f64;
        let (urgent, lower) = (waits(&self.bands[..index]), waits(&self.bands[index + 1..]));
        let ahead = |inflow| bands.ahead(urgency, guaranteed, before.size, urgent, inflow);
        let waiting = ahead(0.0);
        let to_come = if inflow > 0.0 { ahead(inflow) - waiting } else { 0.0 };
        let others = (waiting - before.size).max(0.0);
        let of_urgent = others.min(urgent);
        for (number, band) in self.bands.iter().enumerate() {
            let (part, of) = if number < index { (of_urgent, urgent) } else { (others - of_urgent, lower) };
            if let Some(band) = band.as_ref().filter(|_| number != index && of > 0.0) {
                before.add(&band.waiting, contest, (part / of).min(1.0));
            }
        }
        to_come
    }
}

// === impl ClientBacklog ===

impl ClientBacklog {
    /// The part of this client's backlog that precedes a request of the client.
    fn ahead(&self, claim: &Claim, cost: f64, contest: Contest, turns: &Turns<'_>) -> Portion {
        let mut before = Portion::default();
        if claim.is_in_order() {
            let all = claim.rank == FlowRank::LAST;
            let flows = self.flows.values().filter(|flow| !all && flow.claim.rank <= claim.rank);
            let of_flows = flows.map(|flow| &flow.waiting);
            all.then_some(&self.waiting).into_iter().chain(of_flows).for_each(|of| before.add(of, contest, 1.0));
            return before;
        }
        if let Some(flow) = self.flows.get(&claim.claimed()) {
            before.add(&flow.waiting, contest, 1.0);
        }
        let others = self.flows.iter().filter(|(id, _)| **id != claim.claimed());
        let others = others.map(|(_, flow)| Other::of(&flow.waiting, contest, flow.weight(), turns.flow(&flow.claim)));
        let turn = turns.among_flows(before.size, cost);
        Round::before(turn, before.size, others, self.flows.len()).add_to(&mut before, contest);
        before
    }
}

/// Backlog size of a band in the measure of `contest`.
fn size(band: &Option<Box<Band>>, contest: Contest) -> u64 {
    band.as_ref().map_or(0, |band| band.waiting.size(contest))
}
