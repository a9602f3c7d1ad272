//! In-flight requests whose usage only their responses report.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use andante_clock::Instant;

use super::{Amount, Charge, EstimatedAmount, Seq, Unit};

/// In-flight requests with pending usage on one budget.
#[derive(Debug, Default)]
pub struct PendingUsage {
    /// Usually empty: a boxed slice is a word smaller than a vector, and each keyed budget has one.
    groups: Box<[Group]>,
}

/// Requests with pending usage of one unit that have one usage estimate.
#[derive(Debug)]
struct Group {
    unit: Unit,
    /// Rule of the sub-limit whose requests supply the usage estimate; `None` if all requests do.
    rule: Option<Arc<str>>,
    /// Requests in the order in which they left.
    requests: VecDeque<Request>,
}

#[derive(Debug)]
struct Request {
    seq: Seq,
    left: Instant,
    reserved: u32,
}

// === impl PendingUsage ===

impl PendingUsage {
    /// Records that a request leaves at `now` with `charge`. The reservation of a unit follows the usage estimate of
    /// the rule that `rule_of` returns, or of all requests.
    pub fn leaves(&mut self, charge: &Charge, now: Instant, rule_of: impl Fn(Unit) -> Option<Arc<str>>) {
        // Most requests have no pending usage.
        if !charge.cost.is_open() {
            return;
        }
        for unit in charge.cost.reserved() {
            let reserved = charge.cost.of(unit).map_or(0, Amount::get);
            let group = self.group(unit, rule_of(unit));
            group.requests.push_back(Request { seq: charge.seq, left: now, reserved });
        }
    }

    /// Returns true if no request with pending usage was ever recorded.
    pub fn is_blank(&self) -> bool {
        self.groups.is_empty()
    }

    /// When this request left, if its usage of `unit` is still pending.
    pub fn left(&self, seq: Seq, unit: Unit) -> Option<Instant> {
        self.of_unit(unit).find_map(|group| Some(group.requests[group.place(seq)?].left))
    }

    /// Records that the request's usage of `unit` is known.
    pub fn told(&mut self, seq: Seq, unit: Unit) {
        for group in self.groups.iter_mut().filter(|group| group.unit == unit) {
            if let Some(place) = group.place(seq) {
                group.requests.remove(place);
            }
        }
    }

    /// Records that the request has ended. Usage that its response did not report stays unknown.
    pub fn ended(&mut self, charge: &Charge) {
        charge.cost.reserved().for_each(|unit| self.told(charge.seq, unit));
    }

    /// Number of requests with pending usage of `unit`.
    pub fn count(&self, unit: Unit) -> usize {
        self.of_unit(unit).map(|group| group.requests.len()).sum()
    }

    /// Units of `unit` that in-flight requests are likely to take at `now` beyond their reservations. Sent requests
    /// count for `window` in the limit. `usual` returns a rule's usage estimate.
    pub fn lack<'a>(
        &self,
        unit: Unit,
        window: Duration,
        now: Instant,
        usual: impl Fn(Option<&str>) -> Option<&'a EstimatedAmount>,
    ) -> u32 {
        let lack = |group: &Group| {
            let Some(usual) = usual(group.rule.as_deref()).filter(|usual| usual.tells_by_time()) else { return 0.0 };
            let lasts = |request: &Request| now.since(request.left);
            let likely = usual.of_lasting(group.requests.iter().map(lasts));
            let lacks = group.requests.iter().zip(likely).map(|(request, likely)| {
                // A request that lasts longer than the window will use its units after all units counted now have left
                // the window.
                let likely = likely.filter(|_| lasts(request) < window).unwrap_or_default();
                (likely - f64::from(request.reserved)).max(0.0)
            });
            lacks.sum()
        };
        self.of_unit(unit).map(lack).sum::<f64>().ceil() as u32
    }

    fn group(&mut self, unit: Unit, rule: Option<Arc<str>>) -> &mut Group {
        let known = self.groups.iter().position(|group| group.unit == unit && group.rule == rule);
        let at = known.unwrap_or_else(|| {
            // Rules change, so empty groups are removed.
            let mut groups = std::mem::take(&mut self.groups).into_vec();
            groups.retain(|group| !group.requests.is_empty());
            groups.push(Group { unit, rule, requests: VecDeque::new() });
            self.groups = groups.into();
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }

    fn of_unit(&self, unit: Unit) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |group| group.unit == unit)
    }
}

// === impl Group ===

impl Group {
    fn place(&self, seq: Seq) -> Option<usize> {
        self.requests.binary_search_by_key(&seq, |request| request.seq).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Scope};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Instant {
        Instant::START + SECOND * seconds
    }

    fn charge(seq: Seq, unit: Unit, reserved: u32) -> Charge {
        Charge { seq, cost: Cost::MIN.reserving(unit, reserved), scope: Scope::NONE }
    }

    /// An estimate from ten responses of `least` that lasted 1 s, and ten of `most` that lasted 10 s.
    fn usual(least: u32, most: u32) -> EstimatedAmount {
        let mut usual = EstimatedAmount::default();
        for (used, seconds) in [(least, 1), (most, 10)].repeat(10) {
            usual.remember(used, Some(SECOND * seconds));
        }
        usual
    }

    #[test]
    fn those_that_last_lack_what_they_take_more_than_is_reserved() {
        let unit = Unit::named("out-tokens").unwrap();
        let usual = usual(100, 1000);
        let mut pending_usage = PendingUsage::default();
        for (seq, reserved, left) in [(1, 550, 0), (2, 550, 3), (7, 2000, 3)] {
            pending_usage.leaves(&charge(seq, unit, reserved), at(left), |_| None);
        }
        let lack = |pending_usage: &PendingUsage, now| pending_usage.lack(unit, SECOND * 60, at(now), |_| Some(&usual));
        assert_eq!(
            [0, 1, 2, 3, 5].map(|now| lack(&pending_usage, now)),
            [0, 0, 450, 450, 900],
            "of 2,000 nothing is lacking"
        );
        assert_eq!((pending_usage.count(unit), pending_usage.left(7, unit)), (3, Some(at(3))));
        pending_usage.told(7, unit);
        assert_eq!((pending_usage.count(unit), pending_usage.left(7, unit), lack(&pending_usage, 5)), (2, None, 900));
        assert_eq!(
            pending_usage.lack(unit, SECOND * 4, at(5), |_| Some(&usual)),
            450,
            "the first one has lasted for longer"
        );
        pending_usage.told(7, unit);
        pending_usage.told(1, unit);
        pending_usage.ended(&charge(2, unit, 550));
        assert_eq!((pending_usage.count(unit), lack(&pending_usage, 5)), (0, 0));
    }

    #[test]
    fn requests_of_a_rule_lack_what_those_of_that_rule_take() {
        let unit = Unit::named("out-tokens").unwrap();
        let (all, small) = (usual(100, 1000), usual(1, 10));
        let rule: Arc<str> = "classify".into();
        let mut pending_usage = PendingUsage::default();
        pending_usage.leaves(&charge(1, unit, 6), at(0), |_| Some(rule.clone()));
        pending_usage.leaves(&charge(2, unit, 550), at(0), |_| None);
        let usual = |rule: Option<&str>| Some(if rule.is_some() { &small } else { &all });
        assert_eq!(pending_usage.lack(unit, SECOND * 60, at(2), usual), 4 + 450);
        pending_usage.told(2, unit);
        assert_eq!(pending_usage.lack(unit, SECOND * 60, at(2), usual), 4);
        assert_eq!(pending_usage.lack(unit, SECOND * 60, at(2), |_| None), 0, "nothing is known of it any more");
    }
}
