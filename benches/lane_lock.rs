//! Holding time of a lane's lock, and the bound that it sets: all threads share one lane, with as many requests in
//! flight as there are connections. This is no criterion benchmark: the tail and the contention of threads matter.
//!
//! `cargo bench --bench lane_lock`. A request takes the lock four times: when it asks, leaves, is answered, and is over. A
//! call without contention is the lock's holding time and some 50 ns around it.
//!
//! The bench also measures two possible gains: requests that take the lock twice, and metrics per thread.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant as Wall},
};

use http::StatusCode;

use andante::{
    clock::{Clock, Instant},
    lane::{
        Admission, AdmitRequest, Lane,
        order::{Claim, Turn},
    },
    learn::{AnswerReport, RouteKey},
    limit::{Cost, Limits},
    metrics::{CallOutcome, Metrics, RuleMetrics},
    policy::Policy,
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ASK: AdmitRequest = AdmitRequest {
    cost: Cost::MIN,
    kind: RouteKey::NONE,
    claim: Claim::USUAL,
    deadline: Instant::FAR,
    turn: Turn::New,
    draws: None,
    port: 80,
};
/// Duration of the measurement of each combination.
const TIME: Duration = Duration::from_secs(2);

/// Number of calls by duration: a count for each sixteenth of a power of two of nanoseconds.
struct Histogram([u64; 64 * 16]);

/// Calls of a request to the lane.
#[derive(Clone, Copy)]
enum Calls {
    /// Asks, leaves, is answered, and is over.
    Four,
    /// Asks, and gives its slot back.
    Two,
}

fn main() {
    lane();
    metrics();
}

fn lane() {
    println!(
        "| threads | connections | requests/s | call p50 | p99 | p99.9 | longest |\n|---|---|---|---|---|---|---|"
    );
    for (threads, connections, each) in [1, 2, 4].into_iter().flat_map(|threads| {
        [(64, Calls::Four), (4096, Calls::Four), (64, Calls::Two)].map(|(of, each)| (threads, of, each))
    }) {
        let (requests, calls) = measure(threads, connections, each);
        let [half, most, nearly_all, all] = [0.5, 0.99, 0.999, 1.0].map(|share| calls.quantile(share));
        let twice = if matches!(each, Calls::Two) { ", two calls" } else { "" };
        println!(
            "| {threads} | {connections}{twice} | {:.0} | {half} ns | {most} ns | {nearly_all} ns | {all} ns |",
            requests as f64 / TIME.as_secs_f64()
        );
    }
}

/// Number of requests that pass a lane, and the duration of each call.
fn measure(threads: usize, connections: usize, each: Calls) -> (u64, Histogram) {
    let limits: Limits = "1000000000/s burst 1000000000".parse().expect("a valid limit");
    let mut policy = Policy::new("bench", vec!["*".parse().expect("a valid host")]);
    policy.limits = limits.limits;
    let lane = Arc::new(Lane::new("api.test".into(), policy.into(), Metrics::new().rule("bench"), Clock::start()));
    // An API that has never answered is sent few at once.
    let _ = turns(&lane, 1, Duration::from_millis(200));
    let mut all = (0, Histogram::new());
    for (requests, calls) in together(threads, || match each {
        Calls::Four => turns(&lane, connections / threads, TIME),
        Calls::Two => given_back(&lane, connections / threads, TIME),
    }) {
        all.0 += requests;
        all.1.0.iter_mut().zip(calls.0).for_each(|(all, count)| *all += count);
    }
    all
}

/// Results of `threads` threads that do `work` at the same time.
fn together<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    let begin = Barrier::new(threads);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    work()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("it does not panic")).collect()
    })
}

/// Cost of counting a request: its outcome, its answer, the start and end of its flight, and two times.
fn metrics() {
    println!("| threads | metrics | a request |\n|---|---|---|");
    for (threads, shared) in [(1, true), (2, true), (2, false)] {
        let of_all = Metrics::new().rule("bench");
        let counted: u64 = together(threads, || {
            let own = Metrics::new().rule("bench");
            count(if shared { &of_all } else { &own })
        })
        .into_iter()
        .sum();
        let whose = if shared { "shared" } else { "one's own" };
        println!("| {threads} | {whose} | {:.0} ns |", TIME.as_nanos() as f64 * threads as f64 / counted as f64);
    }
}

/// Number of requests counted in the time.
#[expect(clippy::disallowed_methods, reason = "it measures time, and is not measured in it")]
fn count(metrics: &RuleMetrics) -> u64 {
    let (mut counted, end) = (0, Wall::now() + TIME);
    while Wall::now() < end {
        for _ in 0..1000 {
            metrics.wait_seconds.observe(Duration::ZERO);
            metrics.upstream_seconds.observe(Duration::from_millis(3));
            metrics.answered(StatusCode::OK);
            metrics.count(CallOutcome::Answered);
            metrics.in_flight.ended();
        }
        counted += 1000;
    }
    counted
}

/// Has `connections` requests in flight for `time`: the oldest is answered, and another one asks.
#[expect(clippy::disallowed_methods, reason = "it measures time, and is not measured in it")]
fn turns(lane: &Arc<Lane>, connections: usize, time: Duration) -> (u64, Histogram) {
    let (mut calls, mut requests, end) = (Histogram::new(), 0, Wall::now() + time);
    let mut under_way = std::collections::VecDeque::with_capacity(connections);
    while Wall::now() < end {
        let mut permit = calls.time(|| match lane.admit(ASK) {
            Admission::Send(permit) => permit,
            other => panic!("the limit is never reached here: {other:?}"),
        });
        calls.time(|| permit.sent());
        under_way.push_back(permit);
        if under_way.len() >= connections
            && let Some(mut oldest) = under_way.pop_front()
        {
            calls.time(|| oldest.answered(&AnswerReport::SERVED, Instant::START));
            calls.time(|| drop(oldest));
            requests += 1;
        }
    }
    (requests, calls)
}

/// Has `connections` slots taken for `time`: the oldest is given back, and another one is asked for.
#[expect(clippy::disallowed_methods, reason = "it measures time, and is not measured in it")]
fn given_back(lane: &Arc<Lane>, connections: usize, time: Duration) -> (u64, Histogram) {
    let (mut calls, mut requests, end) = (Histogram::new(), 0, Wall::now() + time);
    let mut under_way = std::collections::VecDeque::with_capacity(connections);
    while Wall::now() < end {
        under_way.push_back(calls.time(|| lane.admit(ASK)));
        if under_way.len() >= connections
            && let Some(oldest) = under_way.pop_front()
        {
            calls.time(|| drop(oldest));
            requests += 1;
        }
    }
    (requests, calls)
}

// === impl Histogram ===

impl Histogram {
    fn new() -> Self {
        Self([0; 64 * 16])
    }

    #[expect(clippy::disallowed_methods, reason = "it measures time, and is not measured in it")]
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let began = Wall::now();
        let result = call();
        let nanos = (began.elapsed().as_nanos() as u64).max(16);
        // The power of two, and the four bits behind the first.
        let power = 63 - nanos.leading_zeros() as usize;
        self.0[power * 16 + (nanos >> (power - 4) & 15) as usize] += 1;
        result
    }

    /// The duration in nanoseconds that this share of all calls does not exceed.
    fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.0.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut sum = 0;
        let at = self.0.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        at.map_or(0, |at| (16 + at as u64 % 16 + 1) << (at / 16) >> 4)
    }
}
