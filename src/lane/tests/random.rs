//! The promises under random load: arrivals, costs, departures, late timers, several limits, changed rates.

use std::{sync::Arc, time::Duration};

use andante_clock::{Clock, Instant};
use andante_learn::AnswerReport;
use andante_limit::{Budget, Cost, LimitSpec, Limits, MarginSpec, Scope};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{World, ask, kind, ms, watch_for_lost_slots};
use crate::{Admission, AdmitRequest, Lane};

/// The most cost that any window of length `per`, open at its beginning, contains.
pub(super) fn worst_window(arrivals: &mut [(Instant, u32)], per: Duration) -> u32 {
    arrivals.sort_unstable();
    let (mut first, mut sum, mut worst) = (0, 0, 0);
    for &(at, cost) in arrivals.iter() {
        sum += cost;
        while arrivals[first].0 + per <= at {
            sum -= arrivals[first].1;
            first += 1;
        }
        worst = worst.max(sum);
    }
    worst
}

#[derive(Clone, Debug)]
struct Job {
    arrives: u64,
    cost: u32,
    transit: u64,
    latency: u64,
    fate: Fate,
}

#[derive(Clone, Debug)]
enum Fate {
    Answered,
    /// Leaves the queue after this many milliseconds.
    Leaves(u64),
    /// Gets its permit and does not use it.
    GivesUp,
    /// Is dropped without an answer once it has arrived.
    Breaks,
    /// Is dropped as soon as it is in transit, and arrives all the same.
    Vanishes,
}

/// Requests given up in transit may still arrive, but not later than the margin for jitter says.
fn jobs(most_transit: u64, given_up: Fate) -> impl Strategy<Value = Vec<Job>> {
    let fate = prop_oneof![
        6 => Just(Fate::Answered), 1 => (0u64..3000).prop_map(Fate::Leaves), 1 => Just(Fate::GivesUp), 2 => Just(given_up)
    ];
    let job = (0u64..4000, prop_oneof![8 => Just(1u32), 1 => 1u32..4], 0..=most_transit, 0u64..300, fate)
        .prop_map(|(arrives, cost, transit, latency, fate)| Job { arrives, cost, transit, latency, fate });
    proptest::collection::vec(job, 1..120)
}

/// Runs the jobs against a lane, and returns what the API has counted, with its cost.
fn simulate(limits: &str, margin: MarginSpec, jobs: Vec<Job>) -> Vec<(Instant, u32)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::with(limits, |policy| policy.margin = margin);
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for job in jobs {
            tasks.spawn(one(world.lane.clone(), world.clock, job, arrivals.clone()));
        }
        let watch = watch_for_lost_slots(world.lane.clone());
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert!(!watch.is_finished(), "slots were lost");
        watch.abort();
        let end = world.lane.snapshot();
        assert_eq!((end.queue.waiting, end.in_flight.count), (0, 0), "something was left behind");
        let arrivals = arrivals.lock();
        arrivals.clone()
    })
}

async fn one(lane: Arc<Lane>, clock: Clock, job: Job, arrivals: Arc<Mutex<Vec<(Instant, u32)>>>) {
    tokio::time::sleep(ms(job.arrives)).await;
    let cost = Cost::new(job.cost).unwrap();
    let mut permit = match lane.admit(AdmitRequest { cost, ..ask(kind()) }) {
        Admission::Send(permit) => permit,
        Admission::Wait(waiting) => match job.fate {
            Fate::Leaves(after) => match tokio::time::timeout(ms(after), waiting).await {
                Ok(permit) => permit.unwrap(),
                Err(_) => return,
            },
            _ => waiting.await.unwrap(),
        },
        Admission::Refuse(refusal) => panic!("refused: {refusal}"),
    };
    if matches!(job.fate, Fate::Vanishes) {
        permit.sent();
        drop(permit);
        tokio::time::sleep(ms(job.transit)).await;
        arrivals.lock().push((clock.now(), job.cost));
        return;
    }
    if matches!(job.fate, Fate::GivesUp) {
        tokio::time::sleep(ms(job.latency)).await; // a connection that could not be made
        return;
    }
    permit.sent();
    tokio::time::sleep(ms(job.transit)).await;
    arrivals.lock().push((clock.now(), job.cost));
    if matches!(job.fate, Fate::Breaks) {
        return;
    }
    tokio::time::sleep(ms(job.latency)).await;
    permit.answered(&AnswerReport::SERVED, Instant::START);
    tokio::time::sleep(ms(job.latency / 2)).await; // the body
}

fn keeps(limits: &str, margin: MarginSpec, jobs: Vec<Job>) -> Result<(), TestCaseError> {
    let mut arrivals = simulate(limits, margin, jobs);
    for limit in limits.parse::<Limits>().unwrap().limits {
        let worst = worst_window(&mut arrivals, limit.rate.per);
        prop_assert!(worst <= limit.rate.count.get(), "{worst} in a window of {limit}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn never_more_than_n_in_any_window_for_jitter_within_the_margin(
        jobs in jobs(30, Fate::Vanishes), limits in prop_oneof![
            Just("10/s"), Just("10/s burst 10"), Just("20/s burst 7, 30/2s"), Just("5/500ms, 40/s, 50/3s, in-flight 6"), Just("600/s burst 50, 300/s burst 300")
        ]
    ) {
        keeps(limits, MarginSpec::Fixed(ms(30)), jobs)?;
    }

    #[test]
    fn a_strict_limit_holds_for_any_latency_at_all(
        jobs in jobs(2000, Fate::Breaks), limits in prop_oneof![Just("10/s strict"), Just("10/s strict burst 10"), Just("20/s burst 7 strict, 30/2s strict")]
    ) {
        keeps(limits, MarginSpec::Auto, jobs)?;
    }

    /// Timers that fire late by up to 40 ms: the promise holds, and their cost is bounded.
    #[test]
    fn late_timers_neither_break_the_window_nor_lose_slots(
        count in 1u32..400, burst in 1u32..20, deadline_sweep in proptest::collection::vec(0u64..40, 1..50), transit in 0u64..20
    ) {
        let limit: LimitSpec = format!("{count}/s burst {}", burst.min(count)).parse().unwrap();
        let margin = ms(20);
        let mut budget = Budget::new(&[limit], MarginSpec::Fixed(margin), Instant::START);
        let (mut now, mut due) = (Instant::START, Instant::START);
        let (mut arrivals, mut deadline_sweep) = (Vec::new(), deadline_sweep.into_iter().cycle());
        let end = Instant::START + Duration::from_secs(20);
        while now < end {
            while budget.ready(now, &Cost::MIN, Scope::NONE).instant(now) <= now {
                let charge = budget.take(now, due, Cost::MIN, Scope::NONE);
                budget.sent(charge, now);
                // Alternately at the latest and at the earliest possible time.
                arrivals.push((now + ms(if charge.seq.is_multiple_of(2) { transit } else { 0 }), 1));
            }
            due = budget.ready(now, &Cost::MIN, Scope::NONE).instant(now);
            now = due + ms(deadline_sweep.next().unwrap_or(0));
        }
        prop_assert!(worst_window(&mut arrivals, limit.rate.per) <= count);
        // A full window takes the window itself, the margin, one lateness, and, where buckets are shared, one bucket
        // more.
        let bucket = Duration::from_secs_f64(f64::from(count.div_ceil(256) - 1) / f64::from(count));
        let window = limit.rate.per + margin + ms(40) + bucket;
        let least = f64::from(count) * (20.0 / window.as_secs_f64()).floor();
        prop_assert!(arrivals.len() as f64 >= least, "{} of at least {least} sent", arrivals.len());
    }

    /// Asking is free: only a decision that every limit agrees to changes any of them.
    #[test]
    fn all_or_nothing_over_several_limits(asks in proptest::collection::vec((0u64..400, 1u32..4, any::<bool>()), 1..100)) {
        let limits: Limits = "10/s burst 5, 15/2s burst 15, 40/min burst 40".parse().unwrap();
        let mut budget = Budget::new(&limits.limits, MarginSpec::Fixed(Duration::ZERO), Instant::START);
        let (mut now, mut taken) = (Instant::START, Vec::<(Instant, u32)>::new());
        for (gap, cost, return_unused) in asks {
            now = now + ms(gap);
            let cost = Cost::new(cost).unwrap();
            if budget.ready(now, &cost, Scope::NONE).instant(now) <= now {
                let charge = budget.take(now, now, cost, Scope::NONE);
                if return_unused {
                    budget.return_unused(charge);
                } else {
                    budget.sent(charge, now);
                    budget.answered(charge, now, now);
                    taken.push((now, cost.requests()));
                }
            }
            for usage in budget.usage(now) {
                let counted: u32 = taken.iter().filter(|(at, _)| *at + usage.spec.rate.per > now).map(|(_, cost)| cost).sum();
                prop_assert_eq!(usage.used, counted, "{} counts what was sent, and nothing else", usage.spec);
            }
        }
    }

    /// A changed rate holds for every window that lies after the change, and the old one for those before it.
    #[test]
    fn a_rate_may_change_at_any_time(before in 1u32..50, after in 1u32..50, change in 0u64..3000) {
        let spec = |count: u32| -> LimitSpec { format!("{count}/s burst {count}").parse().unwrap() };
        let mut budget = Budget::new(&[spec(before)], MarginSpec::Fixed(Duration::ZERO), Instant::START);
        let (change, mut changed) = (Instant::START + ms(change), false);
        let (mut now, mut arrivals) = (Instant::START, Vec::new());
        while now < Instant::START + ms(8000) {
            if now >= change && !changed {
                budget.learn(andante_limit::Source::Config, spec(after), &[]);
                changed = true;
            }
            if budget.ready(now, &Cost::MIN, Scope::NONE).instant(now) <= now {
                let charge = budget.take(now, now, Cost::MIN, Scope::NONE);
                budget.sent(charge, now);
                budget.answered(charge, now, now);
                arrivals.push((now, 1));
            }
            now = now + ms(7);
        }
        let (mut old, mut new): (Vec<_>, Vec<_>) = arrivals.into_iter().partition(|(at, _)| *at < change);
        prop_assert!(worst_window(&mut old, Duration::from_secs(1)) <= before);
        prop_assert!(worst_window(&mut new, Duration::from_secs(1)) <= after);
    }
}
