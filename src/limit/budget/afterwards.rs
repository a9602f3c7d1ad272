//! Limits that are known to change at an instant: people change limits for a while, and say for how long.

use std::time::Duration;

use andante_clock::Instant;

use super::{Budget, holding};
use crate::{
    Amount, CalendarLimit, Cost, LimitSpec, MarginSpec, Unit,
    charge::{Scope, Seq, Source},
};

/// Configuration that holds from an instant on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Afterwards {
    /// When the change happens.
    pub at: Instant,
    /// Limits that hold from then on instead of the current ones.
    pub limits: Vec<LimitSpec>,
    /// Calendar limits that hold from then on.
    pub calendar: Vec<CalendarLimit>,
}

/// The next configuration and the states in which it may begin.
#[derive(Clone, Debug)]
pub(super) struct Following {
    to: Afterwards,
    margin: MarginSpec,
    epoch: Duration,
    /// Recent predictions of the state at the change, by unit and scope: many requests ask before one more leaves.
    begins: Vec<Beginning>,
}

/// The limits of one unit as they will be at the change.
#[derive(Clone, Debug)]
struct Beginning {
    /// Next sequence number and start of the prediction; both identify it.
    next: Seq,
    from: Instant,
    unit: Unit,
    scope: Scope,
    /// With `waits`, as many units leave before the change as may: `left` of them. Without it, none do.
    waits: bool,
    left: u64,
    budget: Budget,
}

/// Units that leave before the change are simulated in about `PARTS` parts, and in at most `STEPS`.
const PARTS: f64 = 128.0;
const STEPS: usize = 512;
/// Maximum number of stored predictions: each has a copy of the windows.
const MOST: usize = 8;

// === impl Budget ===

impl Budget {
    /// Sets the configuration that will follow, for use in predictions. `epoch` is the time since 1970 at
    /// [`Instant::START`].
    pub fn set_afterwards(&mut self, to: Option<&Afterwards>, margin: MarginSpec, epoch: Duration) {
        let following = |to: &Afterwards| Following { to: to.clone(), margin, epoch, begins: Vec::new() }.into();
        self.following = to.map(following);
    }

    /// Predicts the departure of a request that would leave at `at` under the current limits, if they change before.
    pub(super) fn project_afterwards(
        &mut self,
        now: Instant,
        from: Instant,
        at: Instant,
        ahead: &impl Fn(Source, Unit) -> u64,
        cost: Cost,
        scope: Scope,
    ) -> Option<Instant> {
        let changes = self.following.as_ref().map(|following| following.to.at).filter(|to| now < *to && *to <= at)?;
        // The share of a fleet's limit after the change is unknown. Configured limits that yield to learned ones hold
        // neither now nor then.
        let learned = self.limits.iter().any(|limit| limit.source != Source::Config && scope.includes(limit.source));
        if self.shared.is_some() || self.yields && learned {
            return None;
        }
        let mut following = self.following.take()?;
        let mut at = changes.max(from);
        for (unit, amount) in cost.each() {
            let waits = self.project_unit(now, from, ahead, (unit, amount), scope) >= changes;
            let begins = following.begins_with(self, from, unit, scope, waits);
            let ahead = |source, unit| u64::saturating_sub(ahead(source, unit), begins.left);
            at = at.max(begins.budget.project_unit(changes, changes.max(from), &ahead, (unit, amount), scope));
        }
        self.following = Some(following);
        Some(at)
    }

    /// The limits of one unit.
    fn of_unit(&self, unit: Unit) -> Self {
        Self {
            limits: self.limits.iter().filter(|limit| limit.spec.unit == unit).cloned().collect(),
            calendar: self.calendar.iter().filter(|limit| limit.unit() == unit).cloned().collect(),
            histories: self.histories.iter().filter(|(of, _)| *of == unit).cloned().collect(),
            margin: self.margin.clone(),
            ahead: None,
            following: None,
            shared: None,
            ..*self
        }
    }

    /// Lets as many of `unit` leave before `until` as may, while requests wait. Returns that number of units.
    fn run_until(&mut self, from: Instant, until: Instant, unit: Unit, scope: Scope) -> u64 {
        let (mut at, mut left) = (from, 0);
        let seconds = until.since(from).as_secs_f64();
        let limits = holding(&mut self.limits, self.yields, scope).filter(|limit| limit.spec.unit == unit);
        let (most, round) = limits.fold((f64::INFINITY, u64::MAX), |(most, round), limit| {
            let may = f64::from(limit.spec.burst().get()) + limit.spec.rate.per_second() * seconds;
            (most.min(may), round.min(limit.round()))
        });
        let part = if most.is_finite() { (most / PARTS) as u64 } else { 0 };
        // Only parts of whole windows follow each other without a gap, so larger parts are rounded down to whole
        // windows.
        let part = if part < round { part } else { part - part % round };
        let mut part = u32::try_from(part).ok().and_then(Amount::new).unwrap_or(Amount::MIN);
        for _ in 0..STEPS {
            let first = self.project_unit(at, at, &|_, _| 0, (unit, Amount::MIN), scope);
            let last = self.project_unit(at, at, &|_, _| u64::from(part.get()) - 1, (unit, Amount::MIN), scope);
            if last >= until {
                let Some(less) = Amount::new(part.get() / 2) else { break };
                part = less;
                continue;
            }
            let charge = self.take(first, first, Cost::MIN.with(unit, part.get()), scope);
            // Spacing keeps the units of less than a window apart. If all of them left with the last one, the window
            // would block the next part for longer than single departures do.
            let sent = if u64::from(part.get()) < round { first } else { last };
            self.sent(charge, sent);
            self.answered(charge, sent, sent);
            (at, left) = (first, left + u64::from(part.get()));
        }
        left
    }
}

// === impl Following ===

impl Following {
    /// State at the change for `unit`: after as many units as may have left if requests wait (`waits`), or after none.
    fn begins_with(&mut self, budget: &Budget, from: Instant, unit: Unit, scope: Scope, waits: bool) -> &mut Beginning {
        let (asked, near) = ((budget.next, unit, scope, waits), self.to.at.since(from) / PARTS as u32);
        let known = self.begins.iter().position(|known| {
            let distance = from.since(known.from).max(known.from.since(from));
            (known.next, known.unit, known.scope, known.waits) == asked && distance <= near
        });
        let index = known.unwrap_or_else(|| {
            let mut budget = budget.of_unit(unit);
            let left = if waits { budget.run_until(from, self.to.at, unit, scope) } else { 0 };
            let limits: Vec<_> = self.to.limits.iter().filter(|limit| limit.unit == unit).copied().collect();
            let calendar: Vec<_> = self.to.calendar.iter().filter(|limit| limit.unit == unit).cloned().collect();
            budget.reconfigure(&limits, self.margin, self.to.at);
            budget.reconfigure_calendar(&calendar, self.epoch);
            self.begins.retain(|known| {
                known.next == asked.0 && (known.unit, known.scope, known.waits) != (unit, scope, waits)
            });
            self.begins.truncate(MOST - 1);
            self.begins.push(Beginning { next: asked.0, from, unit, scope, waits, left, budget });
            self.begins.len() - 1
        });
        &mut self.begins[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn requests_of_several_scopes_do_not_make_each_other_count_anew() {
        let limits = |text: &str| text.parse::<Limits>().unwrap().limits;
        let none = MarginSpec::Fixed(Duration::ZERO);
        let mut budget = Budget::new(&limits("1/s"), none, Instant::START);
        let to =
            Afterwards { at: Instant::START + Duration::from_secs(5), limits: limits("10/s"), calendar: Vec::new() };
        budget.set_afterwards(Some(&to), none, Duration::ZERO);
        let project = |budget: &mut Budget, scope| {
            budget.project(Instant::START, Instant::START, |_, _| 9, Cost::MIN, scope);
            budget.following.as_ref().unwrap().begins.len()
        };
        assert_eq!([Scope::NONE, Scope::only(1), Scope::NONE].map(|scope| project(&mut budget, scope)), [1, 2, 2]);
        let more = (2..30).map(|id| project(&mut budget, Scope::only(id))).max();
        assert_eq!(more, Some(MOST));
        // A prediction made before one more request left is of no use.
        budget.take(Instant::START, Instant::START, Cost::MIN, Scope::NONE);
        assert_eq!(project(&mut budget, Scope::NONE), 1);
    }
}
