//! Plans as text for a terminal.

use std::time::{Duration, SystemTime};

use crate::{
    cli::wording,
    plan::{BurstPlan, FlowsPlan},
};

/// `30,000 requests`.
pub(super) fn requests_of_burst(plan: &BurstPlan) -> String {
    wording::several(plan.burst.requests.get().into(), "request")
}

/// `20,500 requests of 2 flows`.
pub(super) fn requests_of_flows(plan: &FlowsPlan<'_>) -> String {
    let all = plan.flows().map(|(flow, _)| u64::from(flow.requests)).sum();
    format!("{} of {}", wording::several(all, "request"), wording::several(plan.flows().count() as u64, "flow"))
}

/// The plan of a burst that arrives at `now`.
pub(super) fn of_burst(plan: &BurstPlan, now: SystemTime) -> String {
    let last_leaves = plan.forecast.last_leaves;
    let mut text = format!("{} at {}: {}\n", requests_of_burst(plan), plan.limits, wording::duration(last_leaves));
    let mut line = |label: &str, value: &str| text.push_str(&format!("\n  {label:<14}{value}"));
    match plan.brake() {
        Some(brake) => {
            line("last leaves", &time_of_day(now, last_leaves));
            line("answered by", &time_of_day(now, last_leaves + plan.burst.latency));
            line("steady pace", &wording::pace(plan.forecast.per_second));
            line("held back by", &brake);
        }
        None => line("held back by", "nothing: all of them leave at once"),
    }
    if !plan.faster.is_empty() {
        text.push_str("\n\nfaster, if the API allows it:\n");
    }
    let width = plan.faster.iter().map(|(limits, _)| limits.to_string().len()).max().unwrap_or(0);
    for (limits, last_leaves) in &plan.faster {
        text.push_str(&format!("\n  {:<width$}  {}", limits.to_string(), wording::duration(*last_leaves)));
    }
    text
}

/// The plan of several flows, a row each.
pub(super) fn of_flows(plan: &FlowsPlan<'_>) -> String {
    let last = plan.flows().map(|(_, [.., longest])| longest).max().unwrap_or_default();
    let text = format!("{} at {}: {}\n\n", requests_of_flows(plan), plan.limits, wording::duration(last));
    let rows = plan.flows().map(|(flow, waits)| {
        let [median, p95, longest] = waits.map(wording::duration);
        let requests = wording::count(flow.requests.into());
        [flow.name.clone(), requests, flow.weight.to_string(), flow.urgency.get().to_string(), median, p95, longest]
    });
    let head = ["flow", "requests", "weight", "urgency", "waits (median)", "p95", "at most"].map(str::to_owned);
    text + &wording::columns(&[head].into_iter().chain(rows).collect::<Vec<_>>())
}

/// `09:31:12 UTC`, with the date if that is another one than today's.
fn time_of_day(now: SystemTime, after: Duration) -> String {
    let rfc3339 = |after| humantime::format_rfc3339_seconds(now + after).to_string();
    let (today, then) = (rfc3339(Duration::ZERO), rfc3339(after));
    match (today.split_once('T'), then.split_once('T')) {
        (Some((today, _)), Some((date, time))) if today == date => format!("{} UTC", time.trim_end_matches('Z')),
        (_, Some((date, time))) => format!("{date} {} UTC", time.trim_end_matches('Z')),
        _ => then,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limit::{Cost, Limits},
        plan::{self, PlannedBurst},
    };

    fn plan(limits: &str, count: u32) -> BurstPlan {
        let latency = Duration::from_millis(200);
        let requests = count.try_into().unwrap();
        let burst = PlannedBurst { requests, cost: Cost::MIN, latency, arrives: ARRIVES };
        BurstPlan::new(plan::limits(limits).unwrap(), burst)
    }

    const ARRIVES: Duration = Duration::from_millis(1_785_745_872_500);

    /// 2026-08-03 08:31:12.5 UTC.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + ARRIVES
    }

    #[test]
    fn the_text_says_when_and_why_and_what_else() {
        let expected = "\
30,000 requests at 500/min: 59 min 59.8 s

  last leaves   09:31:12 UTC
  answered by   09:31:12 UTC
  steady pace   8.33/s
  held back by  500/min

faster, if the API allows it:

  1000/min  29 min 59.9 s";
        assert_eq!(of_burst(&plan("500/min", 30_000), now()), expected);
    }

    #[test]
    fn another_day_is_named() {
        assert!(of_burst(&plan("1/h", 49), now()).contains("2026-08-05 08:31:12 UTC"));
    }

    #[test]
    fn what_leaves_at_once_needs_no_more_words() {
        let text = of_burst(&plan("10/s burst 10", 10), now());
        assert_eq!(text, "10 requests at 10/s burst 10: 0 s\n\n  held back by  nothing: all of them leave at once");
    }

    #[test]
    fn people_get_a_row_for_each_flow() {
        let limits: Limits = "10/s".parse().unwrap();
        let flows = vec!["a=1".parse().unwrap(), "longer=21@2".parse().unwrap()];
        let plan = FlowsPlan::new(&limits, flows, Cost::MIN, Duration::ZERO, Duration::ZERO).unwrap();
        let text = of_flows(&plan);
        assert!(
            text.starts_with("22 requests of 2 flows at 10/s: 2.1 s\n\n  flow    requests  weight  urgency  "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}
