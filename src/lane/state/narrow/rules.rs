//! The rules for some of a lane's requests as they are now. When a request came others may have held: it keeps what they said of
//! itself, and its budgets have the limits of those that hold.

use std::{sync::Arc, time::Duration};

use super::{Narrow, NarrowBudget};
use crate::{
    clock::Instant,
    lane::request::Draw,
    limit::Budget,
    policy::{Policy, RenamedRules, Rules},
};

/// The rules for some of a lane's requests.
#[derive(Clone, Debug)]
pub(in crate::lane) struct NarrowerRules {
    rules: Arc<Rules>,
    renamed: RenamedRules,
    /// What is not reserved for urgent requests.
    rest: Option<Arc<Policy>>,
}

/// A budget that another lane leaves to this one.
#[derive(Clone, Debug)]
pub(in crate::lane::state) struct LeftBudget {
    key: u64,
    rule: Arc<Policy>,
    budget: Budget,
}

/// A rule that is gone limits nothing any more, and is known again when it comes back.
fn gone(was: &Policy) -> Arc<Policy> {
    Policy { added: was.added.clone(), ..Policy::new(&was.name, Vec::new()) }.into()
}

// === impl NarrowerRules ===

impl NarrowerRules {
    /// Those of `rules`, some of which had other names, and the rest of a lane under `policy`.
    pub(in crate::lane) fn new(rules: Arc<Rules>, renamed: RenamedRules, policy: &Policy) -> Self {
        Self { rules, renamed, rest: policy.besides_reserve() }
    }

    /// The rule that is in the place of `was`; `None` if that is gone.
    fn of(&self, was: &Policy) -> Option<Arc<Policy>> {
        let name = self.name_of(&was.name);
        let found = match was.is_besides_reserve() {
            true => self.rest.as_ref(),
            false => self.rules.iter().find(|rule| rule.added.is_some() && *rule.name == *name),
        };
        found.cloned()
    }

    /// What a rule is called that was called so.
    fn name_of<'a>(&'a self, was: &'a str) -> &'a str {
        let known = self.renamed.iter().find(|(before, _)| **before == *was);
        known.map_or(was, |(_, now)| now)
    }
}

// === impl NarrowBudget ===

impl NarrowBudget {
    /// Until when what it has let go counts.
    fn counts_until(&mut self, now: Instant) -> Instant {
        let windows = self.rule.limits.iter().map(|limit| limit.rate.per);
        let periods = self.budget.calendar(now).into_iter().map(|usage| usage.renewed_in);
        now + windows.chain(periods).max().unwrap_or_default()
    }
}

// === impl Narrow ===

impl Narrow {
    /// Whether a rule of this name holds since the last reload, or is the rest of one with a reserve.
    pub(in crate::lane::state) fn has_rule(&self, name: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| {
            let narrower = rules.rules.iter().filter(|rule| rule.added.is_some());
            narrower.chain(rules.rest.as_ref()).any(|rule| *rule.name == *name)
        })
    }

    /// By what the budget of `draw` is known here.
    pub(super) fn key_of(&self, draw: &Draw) -> u64 {
        match &self.rules {
            Some(rules) if !rules.renamed.is_empty() => {
                Draw::renamed(draw.budget, &draw.rule.name, rules.name_of(&draw.rule.name))
            }
            _ => draw.budget,
        }
    }

    /// The number of the budget with this key, of `was` or the rule that is in its place; a new one if there was none. `own` is the
    /// budget of the lane.
    pub(super) fn number_of(
        &mut self,
        key: u64,
        was: &Arc<Policy>,
        own: &Budget,
        now: Instant,
        epoch: Duration,
    ) -> u32 {
        if let Some(number) = self.ids.get(&key) {
            return *number;
        }
        let rule = self.rules.as_ref().map_or_else(|| was.clone(), |rules| rules.of(was).unwrap_or_else(|| gone(was)));
        let mut budget = self.take_stored(key, &rule, now, epoch).unwrap_or_else(|| {
            let mut new = Budget::new(&rule.limits, rule.margin, now).with_calendar(&rule.calendar, epoch);
            self.unknown_until.into_iter().for_each(|until| new.presume_short(until));
            new
        });
        budget.set_afterwards(rule.afterwards.as_ref(), rule.margin, epoch);
        if rule.is_besides_reserve() {
            budget = Self::besides_reserve(&mut self.unreserved_since, budget, own, now);
        }
        let number = self.budgets.insert(Box::new(NarrowBudget::new(key, rule, budget)));
        self.ids.insert(key, number);
        self.open.set(self.budgets.len());
        number
    }

    /// These rules hold from now on, and the budgets go on with them; `own` is the budget of the lane. Says which of them have
    /// changed.
    pub(in crate::lane::state) fn reconfigured(
        &mut self,
        now: Instant,
        epoch: Duration,
        own: &Budget,
        rules: NarrowerRules,
    ) -> Vec<u32> {
        let (mut changed, mut doubled) = (Vec::new(), Vec::new());
        self.apart = false;
        if rules.rest.is_none() {
            self.unreserved_since.get_or_insert(now);
        }
        for (number, narrow) in self.budgets.iter_mut_numbered() {
            let rule = rules.of(&narrow.rule);
            let begins = match narrow.rule.is_besides_reserve() && rule.is_some() {
                true => self.unreserved_since.take(),
                false => None,
            };
            self.apart |= rule.as_ref().and_then(|rule| rule.added.as_ref()).is_some_and(|added| added.only);
            if rule.is_none() {
                narrow.counted_until = narrow.counted_until.max(narrow.counts_until(now));
            }
            let rule = rule.unwrap_or_else(|| gone(&narrow.rule));
            if rule == narrow.rule {
                continue;
            }
            let key = Draw::renamed(narrow.key, &narrow.rule.name, &rule.name);
            // A lane has one rest, whatever its rule is called.
            if !rule.is_besides_reserve() && key != narrow.key {
                match self.ids.get(&key) {
                    // Of a rule that had this name before: what was sent counts there.
                    Some(other) => doubled.push((*other, narrow.budget.clone())),
                    None => {
                        self.ids.remove(&narrow.key);
                        self.ids.insert(key, number);
                        narrow.key = key;
                    }
                }
            }
            let before = narrow.pace();
            narrow.budget.reconfigure(&rule.limits, rule.margin, now);
            narrow.budget.reconfigure_calendar(&rule.calendar, epoch);
            narrow.budget.set_afterwards(rule.afterwards.as_ref(), rule.margin, epoch);
            narrow.in_flight.reconfigure(rule.in_flight);
            if let Some(since) = begins {
                narrow.budget.absorb(own, since, now);
            }
            narrow.rule = rule;
            changed.push((number, before));
        }
        for (number, budget) in doubled {
            self.budgets[number].budget.absorb(&budget, Instant::START, now);
        }
        for (was, is) in &*rules.renamed {
            if let Some(used) = self.used.remove(was) {
                self.used.entry(is.clone()).or_default().add_all(&used);
            }
        }
        self.rules = Some(rules);
        self.paces_changed(&changed);
        changed.into_iter().map(|(number, _)| number).collect()
    }

    /// Its budgets, for another lane that goes on for this one. What is not reserved is counted by the lane's own.
    pub(in crate::lane::state) fn left(&self) -> Vec<LeftBudget> {
        let budgets = self.budgets.iter().map(|(_, narrow)| narrow).filter(|narrow| !narrow.rule.is_besides_reserve());
        let left = |narrow: &NarrowBudget| LeftBudget {
            key: narrow.key,
            rule: narrow.rule.clone(),
            budget: narrow.budget.clone(),
        };
        budgets.map(|narrow| left(narrow)).collect()
    }

    /// What another lane has sent of these `since` then counts here.
    pub(in crate::lane::state) fn taken_over(
        &mut self,
        left: &[LeftBudget],
        since: Instant,
        own: &Budget,
        now: Instant,
        epoch: Duration,
    ) {
        for LeftBudget { key, rule, budget } in left {
            let number = self.number_of(*key, rule, own, now, epoch);
            self.budgets[number].budget.absorb(budget, since, now);
        }
    }
}
