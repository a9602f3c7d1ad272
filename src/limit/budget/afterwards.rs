//! Limits that are known to hold from an instant on: people change limits for a while, and say for how long.

use std::time::Duration;

use super::{Budget, holding};
use crate::{
    clock::Instant,
    limit::{
        Amount, CalendarLimit, Cost, LimitSpec, MarginSpec, Unit,
        charge::{Scope, Seq, Source},
    },
};

/// What is configured from an instant on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Afterwards {
    /// From when on.
    pub at: Instant,
    /// The limits that hold then, in the place of those that do now.
    pub limits: Vec<LimitSpec>,
    /// And those that a calendar renews.
    pub calendar: Vec<CalendarLimit>,
}

/// What follows, and how it will begin.
#[derive(Clone, Debug)]
pub(super) struct Following {
    to: Afterwards,
    margin: MarginSpec,
    epoch: Duration,
    /// How it begins, for each unit and scope that was asked for lately: many ask before one more leaves.
    begins: Vec<Beginning>,
}

/// The limits of one unit as they will be when the others begin to hold.
#[derive(Clone, Debug)]
struct Beginning {
    /// What was taken before, and from when on it was projected.
    next: Seq,
    from: Instant,
    unit: Unit,
    scope: Scope,
    /// Whether as much of the unit leaves before as may, and how much that is.
    waits: bool,
    left: u64,
    budget: Budget,
}

/// What leaves before is counted in so many parts, and in no more than the second number.
const PARTS: f64 = 128.0;
const STEPS: usize = 512;
/// So many beginnings are remembered: each has a copy of the windows.
const MOST: usize = 8;

// === impl Budget ===

impl Budget {
    /// It is known what will be configured later: predictions go by it. `epoch` is the time since 1970 at
    /// [`Instant::START`].
    pub fn set_afterwards(&mut self, to: Option<&Afterwards>, margin: MarginSpec, epoch: Duration) {
        let following = |to: &Afterwards| Following { to: to.clone(), margin, epoch, begins: Vec::new() }.into();
        self.following = to.map(following);
    }

    /// When a request leaves that would leave only at `at` if nothing changed, if something will have changed by then.
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
        // What others of a fleet will leave to this one then is not known, and what yields holds neither now nor then.
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

    /// Lets as much of `unit` leave as may before `until`, while more waits than that. Says how much that is.
    fn run_until(&mut self, from: Instant, until: Instant, unit: Unit, scope: Scope) -> u64 {
        let (mut at, mut left) = (from, 0);
        let seconds = until.since(from).as_secs_f64();
        let limits = holding(&mut self.limits, self.yields, scope).filter(|limit| limit.spec.unit == unit);
        let (most, round) = limits.fold((f64::INFINITY, u64::MAX), |(most, round), limit| {
            let may = f64::from(limit.spec.burst().get()) + limit.spec.rate.per_second() * seconds;
            (most.min(may), round.min(limit.round()))
        });
        let part = if most.is_finite() { (most / PARTS) as u64 } else { 0 };
        // Of parts that are more than a window none but whole windows leave one behind the other without a gap.
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
            // The spacing keeps the units of less than a window apart. Did all of them leave with the last one, the window would
            // hold up the next part for longer than one unit after the other does.
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
    /// How it begins for `unit`, if as much of that leaves before as may, or if nothing does because none `waits`.
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
    use crate::limit::Limits;

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
        // What was known before one more left is of no use.
        budget.take(Instant::START, Instant::START, Cost::MIN, Scope::NONE);
        assert_eq!(project(&mut budget, Scope::NONE), 1);
    }
}
