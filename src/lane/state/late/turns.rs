//! When each of the requests that are refused together would have had its turn. With the same `Retry-After` for all,
//! all would return at once.

use std::collections::HashMap;

use andante_clock::Instant;
use andante_limit::{Budget, Source, Sum, Unit};
use andante_order::{InTurn, Map, Taken, TurnOf, by_flow};

use super::super::{State, WaitingRequest, predict::opens, slow::SlowGroups, turn::line_of};

/// A request refused because it would be late.
pub(super) struct LateRequest<T> {
    pub(super) ticket: WaitingRequest<T>,
    /// The instant at which it would leave.
    pub(super) turn: Instant,
}

/// The two last projected turns of one class: between them requests leave evenly.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: u64,
    from: Instant,
    to: Instant,
}

/// The first `EACH` refused requests are projected one by one, and after them one in `EVERY`.
const EACH: u64 = 256;
const EVERY: u64 = 32;

/// Sorts `late` requests in the order in which they would leave: by urgency, then by turns, each client's and each
/// flow's in order of arrival.
pub(super) fn in_turn<T>(mut late: Vec<Taken<WaitingRequest<T>>>) -> Vec<Taken<WaitingRequest<T>>> {
    late.sort_by_key(|one| (one.claim.urgency, one.ticket.since));
    let mut ordered = Vec::with_capacity(late.len());
    let mut late = late.into_iter().peekable();
    while let Some(urgency) = late.peek().map(|one| one.claim.urgency) {
        let band = std::iter::from_fn(|| late.next_if(|one| one.claim.urgency == urgency));
        let mut in_turn =
            InTurn::new(by_flow(band.map(|one| (one.claim, one))).map(|(claim, of)| (claim, of.into_iter())), 0.0);
        while let Some(TurnOf { item, .. }) = in_turn.next_turn() {
            in_turn.served(item.cost.requests().into());
            ordered.push(item);
        }
    }
    ordered
}

impl<T> State<T> {
    /// When each of these requests would leave, behind all that still wait, if they leave in this order.
    pub(super) fn turns_of(&mut self, now: Instant, late: Vec<Taken<WaitingRequest<T>>>) -> Vec<LateRequest<T>> {
        let (held, slow) = (self.held_for_now(now), SlowGroups::new(self, now));
        // Requests that wait for something else delay others only as fast as that lets them leave.
        let rates = self.budget.rates(Unit::REQUESTS).into_iter().filter(|_| !slow.is_empty());
        let bounds: Vec<_> = rates.map(|(source, rate)| (source, slow.before_the_last(&self.queue, rate))).collect();
        let Self { queue, budget, learned, sub_limits, .. } = self;
        let (mut of_lines, mut of_budgets) = (HashMap::<_, Sum>::new(), Map::<u32, Sum>::default());
        let mut stretches: HashMap<_, Stretch> = HashMap::new();
        let turns = late.into_iter().map(|Taken { cost, ticket, .. }| {
            let line = line_of(learned, &ticket.kind, ticket.metered, ticket.drawn.as_deref());
            let from = opens(learned, now, line.scope, line.paused.as_ref()).max(held);
            let of_line = (line.paused, line.scope);
            let own = of_lines.get(&of_line).map_or(0, |late| late.of(Unit::REQUESTS));
            let turn_at = |budget: &mut Budget, more: u64| {
                // A kind that pauses alone blocks no other request until its pause is over.
                let late = |source, unit| {
                    let before =
                        of_lines.iter().filter(|((paused, scope), _)| *paused == line.paused && scope.includes(source));
                    before.map(|(_, late)| late.of(unit)).sum::<u64>()
                };
                let waiting = |source: Source, unit| {
                    let all = queue.units(unit, |line| line.scope.includes(source));
                    let bounds = bounds.iter().filter(|(of, _)| unit == Unit::REQUESTS && *of == source);
                    bounds.map(|(_, bound)| *bound).fold(all, u64::min)
                };
                let ahead = |source, unit| waiting(source, unit) + late(source, unit) + cost.times(more, unit);
                budget.project(now, from, ahead, cost, line.scope)
            };
            let turn = match stretches.get(&line).filter(|stretch| own < stretch.first + EVERY) {
                _ if own < EACH => turn_at(budget, 0),
                Some(stretch) => stretch.turn(own),
                None => {
                    let stretch = Stretch { first: own, from: turn_at(budget, 0), to: turn_at(budget, EVERY) };
                    stretches.insert(line, stretch);
                    stretch.from
                }
            };
            let before = of_lines.iter().filter(|((paused, _), _)| *paused == line.paused);
            let before: u64 = before.map(|(_, late)| late.of(Unit::REQUESTS)).sum();
            let slot = learned.slot(&ticket.kind).saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
            let mut turn = turn.max(from + slot);
            of_lines.entry(of_line).or_default().add(&cost);
            if let Some(drawn) = &ticket.drawn {
                let late = |number, waiting, unit| {
                    let waiting = if unit == Unit::REQUESTS { u64::from(waiting) } else { 0 };
                    of_budgets.get(&number).map_or(0, |late| late.of(unit)) + waiting
                };
                turn = turn.max(sub_limits.project_least(drawn, now, from, cost, late));
                for number in drawn.numbers() {
                    of_budgets.entry(*number).or_default().add(&cost);
                }
            }
            LateRequest { ticket, turn }
        });
        turns.collect()
    }
}

// === impl Stretch ===

impl Stretch {
    fn turn(&self, place: u64) -> Instant {
        let share = (place - self.first) as f64 / EVERY as f64;
        self.from + self.to.since(self.from).mul_f64(share)
    }
}
