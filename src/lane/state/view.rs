//! A lane's state for display.

use std::sync::Arc;

use andante_clock::Instant;
use andante_limit::{Cost, Source, Unit};

use super::{State, eta::opens, turn::LineKey, usual::unsaid_mean};
use crate::snapshot::{Forecast, InFlightUsage, LaneActivity, LearnedSnapshot, Outlook, QueueSnapshot, Snapshot};

/// Number of waiting flows shown.
const FLOWS: usize = 5;

impl<T> State<T> {
    /// A snapshot of the lane called `host`.
    pub(crate) fn snapshot(&mut self, now: Instant, host: Arc<str>) -> Snapshot {
        let limits = self.budget.usage(now);
        let next_slot = self.next_slot(now);
        let Outlook { gate, next_slot, drain } = Outlook::new(Forecast {
            now,
            closed: self.learned.closed(now, self.learned.usual_scope()),
            tries: self.learned.tries(),
            next_slot,
            drained: self.drained(now),
            waits: !self.queue.is_empty(),
        });
        Snapshot {
            rule: self.policy.name.clone(),
            host,
            learned: LearnedSnapshot {
                grounds: limits.iter().map(|limit| self.learned.grounds(limit, now)).collect(),
                at_once: self.learned.at_once(),
                own_limits: self.learned.own_limits(now),
                quotas: self.learned.budgets(now),
                failures: self.learned.failures(),
            },
            limits,
            calendar: self.budget.calendar(now),
            sub_limits: self.sub_limits.usage(now),
            in_flight: InFlightUsage {
                count: self.under_way(),
                limit: self.in_flight.limit(),
                evidence: self.in_flight.grounds(),
                share: self.budget.in_flight_share(now),
            },
            queue: QueueSnapshot {
                waiting: self.queue.len(),
                flows: self.queue.longest(FLOWS),
                oldest: self.queue.eldest().map(|ticket| now.since(ticket.since)).max(),
                next_slot,
                drain,
                gate,
            },
            held: self.held(now),
            stats: self.stats.clone(),
        }
    }

    /// The counts that are sampled every few seconds.
    pub(crate) fn activity(&self, now: Instant) -> LaneActivity {
        LaneActivity {
            waiting: self.queue.len(),
            sent: self.stats.sent,
            refused: self.stats.refused,
            refused_by_api: self.stats.refused_by_api,
            pauses: self.stats.pauses,
            paused: self.held(now).is_some() || self.learned.closed(now, self.learned.usual_scope()).is_some(),
            waited_most: self.stats.waited_most,
            per_second: self.budget.pace(),
        }
    }

    /// When all that wait now will have left.
    fn drained(&mut self, now: Instant) -> Instant {
        let held = self.held_until(now).unwrap_or(now);
        if held == Instant::FAR {
            return held;
        }
        let unsaid = |unit| unsaid_mean(&self.policy, &self.usual, unit);
        let mut drained = self.sub_limits.drained(now, unsaid).max(held);
        let store = self.store_ready(now).instant(now);
        for &line in self.queue.lines() {
            let store = if line.scope.is_apart() { now } else { store };
            if store == Instant::FAR {
                return store;
            }
            let ahead = |source: Source, unit: Unit| {
                let counts = |line: &LineKey| line.scope.includes(source);
                let unsaid = self.queue.unsaid(unit, counts) as f64 * unsaid(unit);
                (self.queue.units(unit, counts) + unsaid as u64).saturating_sub(1)
            };
            let units = self.policy.units().filter(|_| line.metered);
            let cost = units.fold(Cost::MIN, |cost, unit| cost.with(unit, 1));
            let from = opens(&self.learned, now, line.scope, line.paused.as_ref()).max(held).max(store);
            drained = drained.max(self.budget.project(now, from, ahead, cost, line.scope));
        }
        drained
    }
}
