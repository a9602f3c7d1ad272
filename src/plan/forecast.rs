//! Departures of a burst's requests. Pure: the arithmetic of the pacing, run ahead of time.

use std::{cmp::Reverse, collections::VecDeque, iter, num::NonZeroU32, time::Duration};

use super::quantile::milestones;
use crate::{
    clock::{Instant, nanos},
    limit::{Amount, CalendarCount, Cost, LimitSpec, Limits},
};

/// Requests that arrive at once.
#[derive(Clone, Copy, Debug)]
pub struct PlannedBurst {
    /// Number of requests; at least 1.
    pub requests: NonZeroU32,
    /// Cost of each request.
    pub cost: Cost,
    /// Response time of the API.
    pub latency: Duration,
    /// Time of arrival since 1970.
    pub arrives: Duration,
}

/// Forecast for a burst that arrives at once, at lanes that were idle before.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstForecast {
    /// Time from the burst's arrival until its last request leaves; [`BurstForecast::NEVER`] if the clock does not
    /// reach that far.
    pub last_leaves: Duration,
    /// Upper bound of the requests per second in the long run: the rate of the slowest limit; infinite without a limit.
    pub per_second: f64,
    /// Bottleneck: the limit without which the last request would leave soonest; `None` if all leave at once.
    pub binds: Option<Brake>,
}

/// Cause that delays requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brake {
    /// Limit at this index of [`Limits::limits`].
    Limit(usize),
    /// Calendar limit at this index of [`Limits::calendar`].
    Calendar(usize),
    /// Limit on requests in flight.
    InFlight,
}

/// Spacing of requests under one limit of N per W (GCRA). Times are nanoseconds × N, so that W/N is never rounded.
#[derive(Clone)]
struct Spacing {
    count: u128,
    per: u128,
    tolerance: u128,
    /// Time at which the next request is due on an even schedule.
    due: u128,
}

/// Rule that request k leaves at least `apart` nanoseconds after request k − `back`. Expresses both a window and an
/// in-flight limit.
#[derive(Clone, Copy)]
struct Echo {
    back: usize,
    apart: u64,
}

#[derive(Clone)]
struct Constraint {
    brake: Brake,
    spacing: Option<Spacing>,
    echo: Option<Echo>,
    calendar: Option<CalendarCount>,
    /// Cost of each request in the limit's unit.
    amount: Amount,
    per_second: f64,
}

impl BurstForecast {
    /// Reach of andante's clock, which counts nanoseconds in a `u64`: 584 years.
    pub const NEVER: Duration = Duration::from_nanos(u64::MAX);

    /// Runs the requests through all limits at once. Each request leaves at the latest time that a limit demands.
    ///
    /// With one limit, request k (from 0) of N per W with a burst of b leaves at ⌊k/N⌋·W + max(0, k mod N + 1 − b)·W/N.
    /// Several limits together can take longer than the slowest of them, hence the simulation. The cost is a step per
    /// request, and eight bytes for each request that the longest window looks back.
    pub fn new(limits: &Limits, burst: &PlannedBurst) -> Self {
        let (constraints, requests) = (constraints(limits, burst), burst.requests);
        let (last_leaves, held) = departures(constraints.clone(), at_once(requests), |_| ());
        let held_back: Vec<usize> = (0..held.len()).filter(|index| held[*index] > 0).collect();
        let without = |index: usize| {
            let mut others = constraints.clone();
            others.remove(index);
            departures(others, at_once(requests), |_| ()).0
        };
        let binds = match held_back[..] {
            [only] => Some(only),
            // Of two limits whose removal saves the same time, the limit that delayed longer is named.
            _ => held_back.into_iter().min_by_key(|index| (without(*index), Reverse(held[*index]))),
        };
        Self {
            last_leaves: Duration::from_nanos(last_leaves),
            per_second: constraints.iter().map(|constraint| constraint.per_second).fold(f64::INFINITY, f64::min),
            binds: binds.map(|index| constraints[index].brake),
        }
    }

    /// Computes only [`BurstForecast::last_leaves`], which is faster than a full forecast.
    pub fn last_leaves(limits: &Limits, burst: &PlannedBurst) -> Duration {
        Duration::from_nanos(departures(constraints(limits, burst), at_once(burst.requests), |_| ()).0)
    }
}

/// Departure times of requests whose `arrivals` are offsets from the first one, in ascending order.
pub fn leaving(limits: &Limits, burst: &PlannedBurst, arrivals: &[Duration]) -> Vec<Duration> {
    let mut leaving = Vec::with_capacity(arrivals.len());
    let arrivals = arrivals.iter().map(|arrival| nanos(*arrival));
    departures(constraints(limits, burst), arrivals, |now| leaving.push(Duration::from_nanos(now)));
    leaving
}

/// Waiting requests of `burst` as pairs of second and count: after the first departure, then in at most `steps` steps.
pub(super) fn queue(limits: &Limits, burst: &PlannedBurst, steps: u32) -> Vec<(f64, u32)> {
    let all = burst.requests.get();
    let (mut milestones, mut left, mut queue) = (milestones(all, steps).peekable(), 0, Vec::new());
    departures(constraints(limits, burst), at_once(burst.requests), |now| {
        left += 1;
        if milestones.next_if_eq(&left).is_some() {
            queue.push((Duration::from_nanos(now).as_secs_f64(), all - left));
        }
    });
    queue
}

fn at_once(requests: NonZeroU32) -> impl Iterator<Item = u64> {
    iter::repeat_n(0, requests.get() as usize)
}

/// Calls `leaves` with the departure of each request. Returns the last departure, and the delay due to each constraint.
/// The delay of a request is due to the constraint that demands the latest departure. All times are in nanoseconds.
fn departures(
    mut constraints: Vec<Constraint>,
    arrivals: impl Iterator<Item = u64>,
    mut leaves: impl FnMut(u64),
) -> (u64, Vec<u64>) {
    let memory = constraints.iter().filter_map(|constraint| constraint.echo).map(|echo| echo.back).max().unwrap_or(0);
    let mut recent = VecDeque::new();
    let mut held = vec![0_u64; constraints.len()];
    let mut now = 0;
    for (number, arrival) in arrivals.enumerate() {
        now = arrival.max(now);
        let mut latest: Option<(usize, u64)> = None;
        for (index, constraint) in constraints.iter_mut().enumerate() {
            let earliest = constraint.earliest(&recent, latest.map_or(now, |(_, so_far)| so_far));
            if earliest > latest.map_or(now, |(_, so_far)| so_far) {
                latest = Some((index, earliest));
            }
        }
        if let Some((index, earliest)) = latest {
            held[index] += earliest - now;
            now = earliest;
        }
        constraints.iter_mut().for_each(|constraint| constraint.leave(now, number as u64));
        leaves(now);
        recent.push_front(now);
        recent.truncate(memory);
    }
    (now, held)
}

// === impl Constraint ===

impl Constraint {
    /// Returns the earliest departure of the next request, in nanoseconds. `recent` holds earlier departures, the
    /// latest first. The constraints asked before allow `so_far` at the earliest.
    fn earliest(&mut self, recent: &VecDeque<u64>, so_far: u64) -> u64 {
        if let Some(calendar) = &mut self.calendar {
            let so_far = Instant::from_nanos(so_far);
            return calendar.ready(so_far, self.amount).instant(so_far).as_nanos();
        }

        let spaced = self.spacing.as_ref().map_or(0, Spacing::earliest);
        let echoed =
            self.echo.and_then(|echo| Some(recent.get(echo.back - 1)?.saturating_add(echo.apart))).unwrap_or(0);
        spaced.max(echoed)
    }

    fn leave(&mut self, now: u64, number: u64) {
        if let Some(spacing) = &mut self.spacing {
            spacing.leave(now, self.amount);
        }
        if let Some(calendar) = &mut self.calendar {
            calendar.take(Instant::from_nanos(now), number, self.amount);
        }
    }
}

fn constraints(limits: &Limits, burst: &PlannedBurst) -> Vec<Constraint> {
    let &PlannedBurst { cost, latency, arrives, .. } = burst;
    let paces = limits.limits.iter().enumerate();
    let mut constraints: Vec<_> = paces
        .filter_map(|(index, limit)| Some(limit_constraint(index, limit, cost.of(limit.unit)?, latency)))
        .collect();
    if let Some(count) = limits.fixed_in_flight().filter(|_| !latency.is_zero()) {
        constraints.push(Constraint {
            brake: Brake::InFlight,
            spacing: None,
            echo: Some(Echo { back: count.get() as usize, apart: nanos(latency) }),
            calendar: None,
            amount: Amount::MIN,
            per_second: f64::from(count.get()) / latency.as_secs_f64(),
        });
    }
    // Calendar limits come last, since they need the time that all other limits allow.
    constraints.extend(limits.calendar.iter().enumerate().filter_map(|(index, limit)| {
        let amount = cost.of(limit.unit)?;
        let mut count = CalendarCount::new(limit.clone(), arrives);
        let per_second = f64::from(limit.count.get() / amount) / count.usage(Instant::START).period.as_secs_f64();
        let (brake, calendar) = (Brake::Calendar(index), Some(count));
        Some(Constraint { brake, spacing: None, echo: None, calendar, amount, per_second })
    }));
    constraints
}

fn limit_constraint(index: usize, limit: &LimitSpec, amount: Amount, latency: Duration) -> Constraint {
    let (count, per) = (limit.rate.count.get(), nanos(limit.rate.per));
    // A strict limit counts from the answer, so that its window is longer by the response time.
    let apart = if limit.strict { per.saturating_add(nanos(latency)) } else { per };
    // Even spacing alone enforces the window, if the window holds a whole number of requests.
    let needed = limit.burst().get() > 1 || apart > per || count % amount != 0;
    Constraint {
        brake: Brake::Limit(index),
        spacing: Some(Spacing {
            count: count.into(),
            per: per.into(),
            tolerance: u128::from(limit.burst().get() - 1) * u128::from(per),
            due: 0,
        }),
        echo: needed.then_some(Echo { back: (count / amount) as usize, apart }),
        calendar: None,
        amount,
        per_second: f64::from(count / amount) / Duration::from_nanos(apart).as_secs_f64(),
    }
}

// === impl Spacing ===

impl Spacing {
    fn earliest(&self) -> u64 {
        // Rounded down, since rounding up would add up to a nanosecond per request to all later departures.
        u64::try_from(self.due.saturating_sub(self.tolerance) / self.count).unwrap_or(u64::MAX)
    }

    fn leave(&mut self, now: u64, amount: Amount) {
        self.due = self.due.max(u128::from(now) * self.count) + self.per * u128::from(amount.get());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LATENCY: Duration = Duration::from_millis(200);
    /// 2026-08-03 08:31:12 UTC.
    const ARRIVES: Duration = Duration::from_secs(1_785_745_872);

    fn planned(requests: u32, cost: Cost) -> PlannedBurst {
        PlannedBurst { requests: requests.try_into().unwrap(), cost, latency: LATENCY, arrives: ARRIVES }
    }

    #[test]
    fn what_requests_cost_takes_its_time() {
        let tokens = crate::limit::Unit::named("tokens").unwrap();
        let forecast = |limits: &str, amount, requests| {
            BurstForecast::new(&limits.parse().unwrap(), &planned(requests, Cost::MIN.with(tokens, amount)))
        };
        // 6,000 tokens take 4 s of 90,000 a minute, and 500 requests a minute are faster.
        let plan = forecast("500/min, 90000 tokens/min", 6000, 16);
        assert_eq!((plan.last_leaves, plan.binds), (Duration::from_secs(60), Some(Brake::Limit(1))));
        assert_eq!(forecast("500/min, 90000 tokens/min", 0, 501).last_leaves, Duration::from_secs(60));
        // Three requests of 3 tokens fit into 10, and the fourth waits.
        assert_eq!(forecast("10 tokens/s burst 10", 3, 4).last_leaves, Duration::from_secs(1));
        assert_eq!(forecast("10 tokens/day in UTC", 5, 3).binds, Some(Brake::Calendar(0)));
    }

    fn forecast(limits: &str, requests: u32) -> BurstForecast {
        BurstForecast::new(&limits.parse().unwrap(), &planned(requests, Cost::MIN))
    }

    #[test]
    fn what_a_calendar_limit_does_not_hold_leaves_after_its_renewal() {
        // From 08:31:12, the day lasts another 15 h 28 min 48 s, and clocks may differ by two seconds.
        let midnight = Duration::from_secs(15 * 3600 + 28 * 60 + 48 + 2);
        let plan = forecast("10/s, 100/day in UTC", 101);
        assert_eq!((plan.last_leaves, plan.binds), (midnight, Some(Brake::Calendar(0))));
        assert_eq!(forecast("10/s, 100/day in UTC", 301).last_leaves, midnight + Duration::from_secs(2 * 86_400));
        assert_eq!(forecast("10/s, 100/day in UTC", 100).binds, Some(Brake::Limit(0)));
    }

    /// Departures of the first requests, in milliseconds.
    fn burst_leaving(limits: &str, requests: u32) -> Vec<u128> {
        (1..=requests).map(|count| forecast(limits, count).last_leaves.as_millis()).collect()
    }

    #[test]
    fn even_spacing_is_one_interval_apart_from_the_first_on() {
        assert_eq!(burst_leaving("10/s", 4), [0, 100, 200, 300]);
        assert_eq!(forecast("500/min", 30_000).last_leaves, Duration::from_millis(29_999 * 120));
        // Rounding errors do not add up, although 1/7 s is no whole number of nanoseconds.
        assert_eq!(forecast("7/s", 7001).last_leaves, Duration::from_secs(1000));
    }

    #[test]
    fn a_burst_leaves_at_once_and_the_window_still_holds() {
        assert_eq!(
            burst_leaving("5/s burst 3", 13),
            [0, 0, 0, 200, 400, 1000, 1000, 1000, 1200, 1400, 2000, 2000, 2000]
        );
        assert_eq!(burst_leaving("3/s burst 3", 5), [0, 0, 0, 1000, 1000]);
    }

    #[test]
    fn all_limits_hold_at_once() {
        assert_eq!(burst_leaving("10/s, 2/s", 3), [0, 500, 1000]);
        assert_eq!(burst_leaving("4/s burst 4, 6/10s burst 6", 8), [0, 0, 0, 0, 1000, 1000, 10_000, 10_000]);
        // The total exceeds either limit alone: the second limit pushes requests into the first one's next windows.
        let (both, first, second) = ("10/s burst 10, 15/1500ms burst 15", "10/s burst 10", "15/1500ms burst 15");
        let last = |limits| forecast(limits, 30).last_leaves.as_millis();
        assert_eq!((last(both), last(first), last(second)), (2500, 2000, 1500));
    }

    #[test]
    fn in_flight_waits_for_the_answers() {
        assert_eq!(burst_leaving("in-flight 2", 5), [0, 0, 200, 200, 400]);
        assert_eq!(forecast("100/s, in-flight 2", 100).binds, Some(Brake::InFlight));
        assert_eq!(forecast("100/s, in-flight 2", 100).per_second, 10.0);
        assert_eq!(forecast("5/s, in-flight 2", 100).binds, Some(Brake::Limit(0)));
    }

    #[test]
    fn what_arrives_later_leaves_later() {
        let leaving = |limits: &str, arrivals: &[u64]| {
            let arrivals: Vec<_> = arrivals.iter().map(|at| Duration::from_millis(*at)).collect();
            let leaving = leaving(&limits.parse().unwrap(), &planned(1, Cost::MIN), &arrivals);
            leaving.iter().map(Duration::as_millis).collect::<Vec<_>>()
        };
        assert_eq!(leaving("10/s", &[0, 0, 50, 1000, 1010]), [0, 100, 200, 1000, 1100]);
        // The first two answers arrive at 200 and 250.
        assert_eq!(leaving("in-flight 2", &[0, 50, 60, 240, 900]), [0, 50, 200, 250, 900]);
    }

    #[test]
    fn strict_counts_from_the_answer() {
        assert_eq!(burst_leaving("2/s strict", 5), [0, 500, 1200, 1700, 2400]);
        assert_eq!(forecast("2/s strict", 5).per_second, 2.0 / 1.2);
    }

    #[test]
    fn the_limit_that_holds_back_longest_is_named() {
        assert_eq!(forecast("10/s, 500/min", 100).binds, Some(Brake::Limit(1)));
        assert_eq!(forecast("10/s burst 10, 500/min burst 500", 50).binds, Some(Brake::Limit(0)));
        assert_eq!(forecast("10/s burst 10", 10).binds, None);
    }

    #[test]
    fn the_limit_whose_absence_gains_most_is_named_however_often_another_one_spaces() {
        // 30,000 requests leave in 60 windows: 59 min and the 49.9 s of the last 500. Without 10/s that is 59 min,
        // without 500/min 2999.9 s.
        let long = forecast("10/s, 500/min burst 500", 30_000);
        assert_eq!((long.last_leaves, long.binds), (Duration::from_millis(3_589_900), Some(Brake::Limit(1))));
        assert!((long.per_second - 500.0 / 60.0).abs() < 1e-9, "{}", long.per_second);
        // 1,000 leave in 109.9 s: without 10/s in 60 s, without 500/min in 99.9 s.
        let short = forecast("10/s, 500/min burst 500", 1000);
        assert_eq!((short.last_leaves, short.binds), (Duration::from_millis(109_900), Some(Brake::Limit(0))));
    }

    #[test]
    fn centuries_do_not_overflow() {
        assert_eq!(forecast("1/3650d strict", 100).last_leaves, BurstForecast::NEVER);
    }

    proptest! {
        #[test]
        fn one_limit_follows_the_closed_form(count in 1u32..30, per in 1u64..1_000_000, burst in 0u32..30, requests in 1u32..200) {
            let burst = burst % count + 1;
            let rate = crate::limit::Rate { count: count.try_into().unwrap(), per: Duration::from_nanos(per * 1000) };
            let limit = LimitSpec { burst: NonZeroU32::new(burst), ..rate.into() };
            let limits = Limits { limits: vec![limit], ..Limits::default() };
            let last = BurstForecast::last_leaves(&limits, &planned(requests, Cost::MIN));
            let (k, n, b) = (u64::from(requests - 1), u64::from(count), u64::from(burst));
            let expected = k / n * per * 1000 + (k % n + 1).saturating_sub(b) * per * 1000 / n;
            prop_assert_eq!(nanos(last), expected);
        }
    }
}
