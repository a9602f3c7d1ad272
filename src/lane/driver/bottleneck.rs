//! The limit that holds a request up, for traces.

use super::Lane;
use crate::{
    lane::{
        request::AdmitRequest,
        snapshot::{NarrowUsage, Snapshot},
    },
    learn::Reason,
    limit::{CalendarUsage, LimitUsage},
};

/// The limit that holds a request up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// The rule that it is of.
    pub rule: String,
    /// The limit as a configuration writes it; `pause (REASON)` if the whole lane pauses; `store` if the fleet's store
    /// cannot be used; `order` if others go first and every limit has room.
    pub limit: String,
}

/// A limit, and how much of it is used.
struct Usage {
    rule: String,
    limit: String,
    ratio: f64,
}

impl Lane {
    /// The limit that holds up a request which asks like this: the one that is used most. Costs as much as a page of
    /// `/status`.
    pub fn bottleneck(&self, ask: &AdmitRequest) -> Bottleneck {
        let snapshot = self.snapshot();
        let whole_lane = |limit: String| Bottleneck { rule: snapshot.rule.to_string(), limit };
        if self.lost_store().is_some() {
            return whole_lane("store".to_owned());
        }
        let pause = snapshot.held.map(|_| Reason::Operator).or(snapshot.gate.map(|(reason, _)| reason));
        if let Some(reason) = pause {
            return whole_lane(format!("pause ({})", reason.as_str()));
        }
        let exempt = ask.draws.iter().flat_map(|draws| &**draws).any(|draw| draw.apart);
        let own = if exempt { Vec::new() } else { of_lane(&snapshot) };
        let narrow = self.preview(ask).budgets;
        let all = own.into_iter().chain(narrow.iter().flat_map(of_rule));
        let fullest = all.filter(|usage| usage.ratio > 0.0).max_by(|one, other| one.ratio.total_cmp(&other.ratio));
        fullest.map_or_else(|| whole_lane("order".to_owned()), |Usage { rule, limit, .. }| Bottleneck { rule, limit })
    }
}

fn of_lane(lane: &Snapshot) -> Vec<Usage> {
    let windows = lane.limits.iter().map(|usage| window(&lane.rule, usage));
    let calendar = lane.calendar.iter().map(|usage| renewed(&lane.rule, usage));
    let in_flight = in_flight(&lane.rule, lane.in_flight.into(), lane.in_flight_limit);
    windows.chain(calendar).chain(in_flight).collect()
}

fn of_rule(rule: &NarrowUsage) -> Vec<Usage> {
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
