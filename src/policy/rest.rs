//! The unreserved rest of a rule's limits. Requests that are not urgent draw on a budget of that size, besides the
//! host's own budget.

use std::{num::NonZeroU32, sync::Arc};

use andante_limit::{CalendarLimit, LimitSpec, lesser};

use super::{added::Added, rule::Policy};

// === impl Policy ===

impl Policy {
    /// Rule for requests that are not urgent, in addition to this rule, if this rule has a reserve.
    pub fn besides_reserve(&self) -> Option<Arc<Self>> {
        let reserve = self.turns.reserve.filter(|_| self.added.is_none())?;
        let rest = |limit: &LimitSpec| {
            let mut rest = *limit;
            rest.rate.count = match self.shares(limit) {
                true => reserve.part(limit.rate.count).unwrap_or(NonZeroU32::MIN),
                false => reserve.rest(limit.rate.count),
            };
            rest.burst = limit.burst.map(|burst| lesser(reserve.rest(burst), rest.rate.count));
            rest
        };
        let mut policy = Self::new(&format!("{}, all but the reserve", self.name), self.hosts.clone());
        policy.added = Some(Added { patient: true, ..Added::default() });
        let rest_of_calendar = |limit: &CalendarLimit| {
            let mut rest = limit.clone();
            rest.count = reserve.rest(limit.count);
            rest
        };
        policy.limits = self.limits.iter().map(rest).collect();
        policy.calendar = self.calendar.iter().map(rest_of_calendar).collect();
        (policy.margin, policy.max_wait, policy.max_waiting) = (self.margin, self.max_wait, usize::MAX);
        Some(policy.into())
    }

    /// Returns whether this rule stands for the unreserved rest of another rule's limits (see
    /// [`Reserve`](super::Reserve)).
    pub fn is_besides_reserve(&self) -> bool {
        self.added.as_ref().is_some_and(|added| added.patient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reserve;
    use andante_limit::{self as limit, Limits};

    fn policy(limits: &str, percent: u8) -> Policy {
        let mut limits: Limits = limits.parse().unwrap();
        limit::settle(&mut limits.limits);
        let mut policy = Policy::new("api", vec!["api.test".parse().unwrap()]);
        (policy.limits, policy.calendar) = (limits.limits, limits.calendar);
        policy.turns.reserve = Reserve::new(percent);
        policy
    }

    #[test]
    fn each_limit_has_a_rest_in_its_own_unit() {
        let rest =
            policy("10/s burst 5, 500/min strict, 9000 tokens/min, 100/month in UTC", 10).besides_reserve().unwrap();
        // Nine tenths of 500 and of 900. The default bursts shrink alike.
        let limits = ["9/s burst 4", "450/min burst 450 strict", "8100 tokens/min burst 810", "90/month in UTC"];
        assert_eq!(rest.written_limits(), limits);
        assert_eq!(rest.in_flight, None);
        assert!(rest.is_besides_reserve() && rest.besides_reserve().is_none());
        assert!(policy("10/s", 0).besides_reserve().is_none());
    }

    #[test]
    fn what_a_store_shares_is_divided_and_what_it_does_not_was_divided_before() {
        let mut policy = policy("100/s, 100/month in UTC", 10);
        policy.turns.reserve = policy.turns.reserve.map(|reserve| reserve.among(NonZeroU32::new(4).unwrap()));
        // The members share 90 a second; each one gets 22.
        assert_eq!(policy.besides_reserve().unwrap().written_limits(), ["22/s", "90/month in UTC"]);
    }
}
