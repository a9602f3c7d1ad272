//! A lane's state as people see it.

use std::sync::Arc;

use super::{State, opens};
use crate::{
    clock::Instant,
    lane::snapshot::{Forecast, Outlook, Snapshot},
    limit::{Cost, Source},
};

/// So many of the flows that wait are shown.
const FLOWS: usize = 5;

impl<T> State<T> {
    /// The lane called `host` as it stands.
    pub(in crate::lane) fn snapshot(&mut self, now: Instant, host: Arc<str>) -> Snapshot {
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
            grounds: limits.iter().map(|limit| self.learned.grounds(limit, now)).collect(),
            limits,
            calendar: self.budget.calendar(now),
            at_once: self.learned.at_once(),
            own_limits: self.learned.own_limits(now),
            in_flight: self.in_flight,
            in_flight_limit: self.policy.in_flight.map(Cost::get),
            waiting: self.queue.len(),
            flows: self.queue.longest(FLOWS),
            oldest: self.queue.eldest().map(|ticket| now.since(ticket.since)).max(),
            next_slot,
            drain,
            gate,
            budgets: self.learned.budgets(now),
            failures: self.learned.failures(),
            stats: self.stats,
        }
    }

    /// When all that wait now will have left.
    fn drained(&mut self, now: Instant) -> Instant {
        let mut drained = now;
        for &line in self.queue.lines() {
            let ahead = |source: Source| self.queue.units(|line| line.scope.includes(source)).saturating_sub(1);
            let from = opens(&self.learned, now, line.scope, line.paused.as_ref());
            drained = drained.max(self.budget.project(now, from, ahead, Cost::MIN, line.scope));
        }
        drained
    }
}
