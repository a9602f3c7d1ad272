//! The limit that delays a request most, for traces.

use andante_clock::Instant;
use andante_learn::Reason;
use andante_limit::{CalendarUsage, LimitUsage};

use super::State;
use crate::{request::AdmitRequest, snapshot::SubLimitUsage};

/// The limit that delays a request most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// Name of the rule that sets the limit.
    pub rule: String,
    /// The limit as a configuration writes it; `pause (REASON)` if nothing of the request's kind leaves; `store` if the
    /// fleet's store cannot be used, or is new and withholds tokens; `order` if every limit has room and other requests go
    /// first.
    pub limit: String,
}

/// A limit, and how much of it is used.
struct Usage {
    rule: String,
    limit: String,
    ratio: f64,
}

impl<T> State<T> {
    /// The bottleneck of a waiting request that asked with `ask`: a pause, or the limit with the highest usage.
    /// O(limits): the queue is not examined.
    pub(crate) fn bottleneck(&mut self, now: Instant, ask: &AdmitRequest) -> Bottleneck {
        if let Some(reason) = self.pause_of(now, ask) {
            return self.whole_lane(format!("pause ({reason})"));
        }
        let draws = || ask.draws.iter().flat_map(|draws| &**draws);
        let mut usages = if draws().any(|draw| draw.apart) { Vec::new() } else { self.usages(now) };
        usages.extend(draws().flat_map(|draw| of_rule(&self.sub_limits.usage_of(draw, now))));
        let used = usages.into_iter().filter(|usage| usage.ratio > 0.0);
        match used.max_by(|one, other| one.ratio.total_cmp(&other.ratio)) {
            Some(Usage { rule, limit, .. }) => Bottleneck { rule, limit },
            None => self.whole_lane("order".to_owned()),
        }
    }

    /// A bottleneck that is no single rule's limit.
    pub(crate) fn whole_lane(&self, limit: String) -> Bottleneck {
        Bottleneck { rule: self.policy.name.to_string(), limit }
    }

    /// Why no request of the kind of `ask` leaves, if a pause stops them.
    fn pause_of(&self, now: Instant, ask: &AdmitRequest) -> Option<&'static str> {
        if self.awaits_predecessor() {
            return Some("handover");
        }
        let closed = || self.learned.closed(now, self.learned.scope(&ask.kind));
        let reason = self.held(now).map(|_| Reason::Operator).or_else(|| closed().map(|(_, reason)| reason));
        reason.map(Reason::as_str)
    }

    /// The limits of the lane's own rule.
    fn usages(&mut self, now: Instant) -> Vec<Usage> {
        let rule = &self.policy.name;
        let windows = self.budget.usage(now).into_iter().map(|usage| window(rule, &usage));
        let mut usages: Vec<Usage> = windows.collect();
        usages.extend(self.budget.calendar(now).iter().map(|usage| renewed(rule, usage)));
        usages.extend(in_flight(rule, self.under_way().into(), self.in_flight.limit()));
        usages
    }
}

fn of_rule(rule: &SubLimitUsage) -> Vec<Usage> {
    let windows = rule.limits.iter().map(|usage| window(&rule.rule, usage));
    let calendar = rule.calendar.iter().map(|usage| renewed(&rule.rule, usage));
    windows.chain(calendar).chain(in_flight(&rule.rule, rule.in_flight, rule.in_flight_limit)).collect()
}

fn window(rule: &str, usage: &LimitUsage) -> Usage {
    let ratio = f64::from(usage.used) / f64::from(usage.own.max(1));
    Usage { rule: rule.to_owned(), limit: usage.spec.to_string(), ratio }
}

fn renewed(rule: &str, usage: &CalendarUsage) -> Usage {
    let ratio = f64::from(usage.used) / f64::from(usage.limit.count.get());
    Usage { rule: rule.to_owned(), limit: usage.limit.to_string(), ratio }
}

fn in_flight(rule: &str, count: u64, most: Option<u32>) -> Option<Usage> {
    let most = most.filter(|most| *most > 0)?;
    Some(Usage { rule: rule.to_owned(), limit: format!("in-flight {most}"), ratio: count as f64 / f64::from(most) })
}
