//! Forecast of a burst: the time until its last request leaves, its bottleneck, and limits that would shorten the time.

use std::{
    num::NonZeroU32,
    time::{Duration, SystemTime},
};

use serde_json::json;

use super::forecast::{self, Brake, BurstForecast, PlannedBurst};
use crate::limit::{Amount, InFlightLimit, LimitSpec, Limits};

/// Smallest share of the time that an alternative has to save: a smaller gain is not worth a line.
const WORTH_TELLING: f64 = 0.05;

/// Burst with its forecast, under its own limits and under alternative limits.
pub struct BurstPlan {
    /// Limits of the plan, all enforced at once.
    pub limits: Limits,
    /// Requests of the plan.
    pub burst: PlannedBurst,
    /// Forecast of the burst.
    pub forecast: BurstForecast,
    /// Alternative limits, each with the time until the last request would leave, the fastest first.
    pub faster: Vec<(Limits, Duration)>,
}

// === impl BurstPlan ===

impl BurstPlan {
    /// Computes when the requests of `burst` leave under `limits`.
    pub fn new(limits: Limits, burst: PlannedBurst) -> Self {
        let forecast = BurstForecast::new(&limits, &burst);
        let bound = forecast.last_leaves.mul_f64(1.0 - WORTH_TELLING);
        let mut faster: Vec<_> = alternatives(&limits, &forecast, &burst)
            .into_iter()
            .map(|limits| (BurstForecast::last_leaves(&limits, &burst), limits))
            .filter(|(last_leaves, _)| *last_leaves < bound)
            .map(|(last_leaves, limits)| (limits, last_leaves))
            .collect();
        faster.sort_by_key(|(_, last_leaves)| *last_leaves);
        Self { limits, burst, forecast, faster }
    }

    /// Text of the limit that delays requests; `None` if all leave at once.
    pub fn brake(&self) -> Option<String> {
        Some(match self.forecast.binds? {
            Brake::Limit(index) => self.limits.limits[index].to_string(),
            Brake::Calendar(index) => self.limits.calendar[index].to_string(),
            Brake::InFlight => self.limits.in_flight.map(|count| format!("in-flight {count}"))?,
        })
    }

    /// Returns true if the last request would wait for centuries.
    pub fn never_ends(&self) -> bool {
        self.forecast.last_leaves == BurstForecast::NEVER
    }

    /// Waiting requests as pairs of second and count, in at most `steps` steps from the first to the last departure.
    pub fn queue(&self, steps: u32) -> Vec<(f64, u32)> {
        forecast::queue(&self.limits, &self.burst, steps)
    }

    /// JSON of the plan for scripts, with durations in seconds and times in RFC 3339.
    pub fn json(&self, now: SystemTime) -> serde_json::Value {
        let last_leaves = self.forecast.last_leaves;
        let faster: Vec<_> = self
            .faster
            .iter()
            .map(|(limits, seconds)| json!({ "limits": limits.to_string(), "seconds": seconds.as_secs_f64() }))
            .collect();
        json!({
            "requests": self.burst.requests,
            "limits": self.limits.to_string(),
            "seconds": last_leaves.as_secs_f64(),
            "answered_seconds": (last_leaves + self.burst.latency).as_secs_f64(),
            "last_leaves": rfc3339(now, last_leaves),
            // Absent (null) if nothing limits the pace: JSON has no infinity.
            "per_second": self.forecast.per_second,
            "held_back_by": self.brake(),
            "faster": faster,
        })
    }
}

/// Alternative limits under which the burst might leave sooner. Each differs in one property of the bottleneck.
fn alternatives(limits: &Limits, forecast: &BurstForecast, burst: &PlannedBurst) -> Vec<Limits> {
    let &PlannedBurst { requests, cost, latency, .. } = burst;
    match forecast.binds {
        // A calendar limit is part of a contract, not a setting.
        None | Some(Brake::Calendar(_)) => Vec::new(),
        Some(Brake::Limit(index)) => {
            let limit = limits.limits[index];
            let LimitSpec { rate, burst, strict, .. } = limit;
            let doubled =
                crate::limit::Rate { count: rate.count.saturating_mul(NonZeroU32::MIN.saturating_add(1)), ..rate };
            let amount = cost.of(limit.unit).unwrap_or(Amount::MIN);
            let whole_window = rate.count.min(requests.saturating_mul(amount));
            let replaced = |limit: LimitSpec| {
                let mut other = limits.clone();
                other.limits[index] = limit;
                other
            };
            let mut others = vec![replaced(LimitSpec { rate: doubled, ..limit })];
            if burst.is_none_or(|burst| whole_window > burst) {
                others.push(replaced(LimitSpec { burst: Some(whole_window), ..limit }));
            }
            if strict {
                others.push(replaced(LimitSpec { strict: false, ..limit }));
            }
            others
        }
        Some(Brake::InFlight) => {
            let per_second = limits.limits.iter().map(|limit| limit.rate.per_second()).fold(f64::INFINITY, f64::min);
            // Little's law: requests in flight are the rate times the response time.
            let enough = if per_second.is_finite() {
                NonZeroU32::new((per_second * latency.as_secs_f64()).ceil() as u32)
            } else {
                limits.fixed_in_flight().map(|count| count.saturating_mul(NonZeroU32::MIN.saturating_add(1)))
            };
            vec![Limits { in_flight: enough.map(InFlightLimit::Fixed), ..limits.clone() }]
        }
    }
}

/// Formats the time of day at `after` from `now` as RFC 3339.
fn rfc3339(now: SystemTime, after: Duration) -> String {
    humantime::format_rfc3339_seconds(now + after).to_string()
}

#[cfg(test)]
mod tests {
    use super::{super::text::limits as limits_of, *};
    use crate::limit::Cost;

    fn plan(limits: &str, count: u32) -> BurstPlan {
        let latency = Duration::from_millis(200);
        let requests = count.try_into().unwrap();
        let burst = PlannedBurst { requests, cost: Cost::MIN, latency, arrives: ARRIVES };
        BurstPlan::new(limits_of(limits).unwrap(), burst)
    }

    const ARRIVES: Duration = Duration::from_millis(1_785_745_872_500);

    /// 2026-08-03 08:31:12.5 UTC.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + ARRIVES
    }

    #[test]
    fn queue_of_an_even_pace_shrinks_evenly() {
        // 101 requests at 10/s: the first leaves at once, the last after 10 s.
        let queue = plan("10/s", 101).queue(4);
        assert_eq!(queue, [(0.0, 100), (2.5, 75), (5.0, 50), (7.5, 25), (10.0, 0)]);
        // Fewer requests than steps get one point each.
        assert_eq!(plan("10/s", 3).queue(50), [(0.0, 2), (0.1, 1), (0.2, 0)]);
    }

    #[test]
    fn each_alternative_changes_what_holds_back() {
        let told = |limits, count| {
            plan(limits, count).faster.into_iter().map(|(limits, _)| limits.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(told("10/s, 500/min", 400), ["10/s, 1000/min", "10/s, 500/min burst 400"]);
        // The window is the bottleneck, not the spacing inside of it.
        assert_eq!(told("10/s, 500/min burst 500", 30_000), ["10/s, 1000/min burst 500"]);
        assert_eq!(told("2/s strict", 100), ["4/s strict", "2/s"]);
        assert_eq!(told("50/s, in-flight 2", 100), ["50/s, in-flight 10"]);
        assert_eq!(told("in-flight 2", 100), ["in-flight 4"]);
        assert!(told("10/s burst 10", 10).is_empty());
    }

    #[test]
    fn scripts_get_seconds() {
        let json = plan("10/s", 101).json(now());
        assert_eq!((json["seconds"].as_f64(), json["answered_seconds"].as_f64()), (Some(10.0), Some(10.2)));
        assert_eq!((&json["held_back_by"], &json["last_leaves"]), (&json!("10/s"), &json!("2026-08-03T08:31:22Z")));
        assert_eq!(plan("in-flight 5", 5).json(now())["held_back_by"], json!(null));
    }
}
