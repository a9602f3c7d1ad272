//! The current rules for some of a lane's requests. When a request came, other rules may have held: the request keeps
//! what they say of it, and its budgets take the current limits.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_limit::Budget;
use andante_policy::{Policy, RenamedRules, Rules};

use super::{SubLimit, SubLimits};
use crate::request::Draw;

/// The rules for some of a lane's requests.
#[derive(Clone, Debug)]
pub(crate) struct SubLimitRules {
    rules: Arc<Rules>,
    renamed: RenamedRules,
    /// The rule for requests outside the reserve.
    rest: Option<Arc<Policy>>,
}

/// The placeholder of a rule that is gone: it limits nothing, and is recognised when the rule returns.
fn gone(was: &Policy) -> Arc<Policy> {
    Policy { added: was.added.clone(), ..Policy::new(&was.name, Vec::new()) }.into()
}

// === impl SubLimitRules ===

impl SubLimitRules {
    /// Combines the narrower rules of `rules`, the names that changed, and the rule besides the reserve of `policy`.
    pub(crate) fn new(rules: Arc<Rules>, renamed: RenamedRules, policy: &Policy) -> Self {
        Self { rules, renamed, rest: policy.besides_reserve() }
    }

    /// The current version of the rule `was`; `None` if it is gone.
    fn of(&self, was: &Policy) -> Option<Arc<Policy>> {
        let name = self.name_of(&was.name);
        let found = match was.is_besides_reserve() {
            true => self.rest.as_ref(),
            false => self.rules.iter().find(|rule| rule.added.is_some() && *rule.name == *name),
        };
        found.cloned()
    }

    /// The current name of a rule formerly called `was`.
    fn name_of<'a>(&'a self, was: &'a str) -> &'a str {
        let known = self.renamed.iter().find(|(before, _)| **before == *was);
        known.map_or(was, |(_, now)| now)
    }
}

// === impl SubLimits ===

impl SubLimits {
    /// Returns whether a rule of this name holds since the last reload, or is the rule besides a reserve.
    pub(in crate::state) fn has_rule(&self, name: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| {
            let narrower = rules.rules.iter().filter(|rule| rule.added.is_some());
            narrower.chain(rules.rest.as_ref()).any(|rule| *rule.name == *name)
        })
    }

    /// The key of the budget of `draw` here.
    pub(super) fn key_of(&self, draw: &Draw) -> u64 {
        match &self.rules {
            Some(rules) if !rules.renamed.is_empty() => {
                Draw::renamed(draw.budget, &draw.rule.name, rules.name_of(&draw.rule.name))
            }
            _ => draw.budget,
        }
    }

    /// The number of the budget with this key, of `was` or its current version; creates the budget if there was none.
    /// `own` is the lane's budget.
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
        if rule.is_besides_reserve() {
            budget = Self::besides_reserve(&mut self.unreserved_since, budget, own, now);
        }
        let number = self.budgets.insert(Box::new(SubLimit::new(key, rule, budget)));
        self.ids.insert(key, number);
        self.open.set(self.budgets.len());
        number
    }

    /// Applies these rules from now on, and keeps the budgets; `own` is the lane's budget. Returns the numbers of the
    /// budgets that have changed.
    pub(in crate::state) fn reconfigured(
        &mut self,
        now: Instant,
        epoch: Duration,
        own: &Budget,
        rules: SubLimitRules,
    ) -> Vec<u32> {
        let (mut changed, mut doubled) = (Vec::new(), Vec::new());
        self.apart = false;
        if rules.rest.is_none() {
            self.unreserved_since.get_or_insert(now);
        }
        for (number, sub_limit) in self.budgets.iter_mut_numbered() {
            let rule = rules.of(&sub_limit.rule);
            let begins = match sub_limit.rule.is_besides_reserve() && rule.is_some() {
                true => self.unreserved_since.take(),
                false => None,
            };
            self.apart |= rule.as_ref().and_then(|rule| rule.added.as_ref()).is_some_and(|added| added.only);
            if rule.is_none() {
                sub_limit.counted_until = sub_limit.counted_until.max(sub_limit.counts_until(now));
            }
            let rule = rule.unwrap_or_else(|| gone(&sub_limit.rule));
            if rule == sub_limit.rule {
                continue;
            }
            let key = Draw::renamed(sub_limit.key, &sub_limit.rule.name, &rule.name);
            // A lane has one budget besides its reserve, whatever its rule is called.
            if !rule.is_besides_reserve() && key != sub_limit.key {
                match self.ids.get(&key) {
                    // Belongs to a rule that had this name before: sent requests count there.
                    Some(other) => doubled.push((*other, sub_limit.budget.clone())),
                    None => {
                        self.ids.remove(&sub_limit.key);
                        self.ids.insert(key, number);
                        sub_limit.key = key;
                    }
                }
            }
            let before = sub_limit.pace();
            sub_limit.budget.reconfigure(&rule.limits, rule.margin, now);
            sub_limit.budget.reconfigure_calendar(&rule.calendar, epoch);
            sub_limit.in_flight.reconfigure(rule.in_flight);
            if let Some(since) = begins {
                sub_limit.budget.absorb(own, since, now);
            }
            sub_limit.rule = rule;
            changed.push((number, before));
        }
        for (number, budget) in doubled {
            self.budgets[number].budget.absorb(&budget, Instant::START, now);
        }
        self.rename_used(&rules.renamed);
        self.rules = Some(rules);
        self.paces_changed(&changed);
        changed.into_iter().map(|(number, _)| number).collect()
    }

    /// Counts usage of rules that have a new name under that name.
    fn rename_used(&mut self, renamed: &RenamedRules) {
        for (was, is) in &**renamed {
            if let Some(used) = self.used.remove(was) {
                self.used.entry(is.clone()).or_default().add_all(&used);
            }
        }
    }

    /// Counts here what the lane of `other` has sent `since` then. `own` are the budgets of this lane and of the other
    /// one: a lane's own budget counts requests outside a reserve.
    pub(in crate::state) fn absorb(
        &mut self,
        other: &Self,
        since: Instant,
        own: [&Budget; 2],
        now: Instant,
        epoch: Duration,
    ) {
        let reserves = self.budgets.iter_mut().filter(|sub_limit| sub_limit.rule.is_besides_reserve());
        reserves.for_each(|sub_limit| sub_limit.budget.absorb(own[1], since, now));
        let others = other.budgets.iter().map(|(_, sub_limit)| sub_limit);
        for SubLimit { key, rule, budget, .. } in others.map(|sub_limit| &**sub_limit) {
            if !rule.is_besides_reserve() {
                let number = self.number_of(*key, rule, own[0], now, epoch);
                self.budgets[number].budget.absorb(budget, since, now);
            }
        }
    }
}
