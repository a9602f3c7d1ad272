//! What pacing costs: a decision with nobody waiting, a slot handed out with 30,000 waiting, memory per lane.
//!
//! `cargo bench`. Targets: 150 ns for a decision on the fast path, 2 µs for pushing and popping with 30,000 waiting.

use std::{hint::black_box, sync::Arc, time::Duration};

use andante::{
    clock::{Clock, Instant},
    lane::{
        Admission, AdmitRequest, Lane, Lanes, Permit,
        order::{Queue, Turn},
    },
    learn::{AnswerReport, RouteKey},
    limit::{Budget, Cost, Limits, MarginSpec, Scope},
    metrics::Metrics,
    policy::{Origin, Policy, Rules, Scheme},
};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const WAITING: usize = 30_000;
const ASK: AdmitRequest =
    AdmitRequest { cost: Cost::MIN, kind: RouteKey::NONE, deadline: Instant::FAR, turn: Turn::New };

fn policy(limits: &str) -> Policy {
    let limits: Limits = limits.parse().expect("a valid limit");
    let mut policy = Policy::new("bench", vec!["*".parse().expect("a valid host")]);
    (policy.limits, policy.in_flight) = (limits.limits, limits.in_flight);
    policy
}

fn lane(limits: &str) -> Arc<Lane> {
    let metrics = Metrics::new();
    Arc::new(Lane::new("api.test".into(), policy(limits).into(), metrics.rule("bench"), Clock::start()))
}

fn admit(lane: &Arc<Lane>) -> Permit {
    match lane.admit(ASK) {
        Admission::Send(permit) => permit,
        other => panic!("the limit is never reached here: {other:?}"),
    }
}

fn fast_path(c: &mut Criterion) {
    let mut group = c.benchmark_group("fast path");
    // A million a second and more never bind: what is measured is the decision.
    for (name, limits) in [
        ("no limit", ""),
        ("one limit", "1000000000/s burst 1000000000"),
        (
            "three limits",
            "1000000000/s burst 1000000000, 1000000000/min burst 1000000000, 1000000000/h burst 1000000000",
        ),
    ] {
        let lane = if limits.is_empty() {
            let metrics = Metrics::new();
            Arc::new(Lane::new(
                "api.test".into(),
                Policy::new("", vec![]).into(),
                metrics.rule("bench"),
                Clock::start(),
            ))
        } else {
            lane(limits)
        };
        group.bench_function(format!("decision, {name}"), |b| {
            // The permit is settled outside of the measurement.
            b.iter_batched(|| (), |()| admit(&lane), BatchSize::NumIterations(1000));
        });
        group.bench_function(format!("whole life of a permit, {name}"), |b| {
            b.iter(|| {
                let mut permit = admit(&lane);
                permit.sent();
                permit.answered(&AnswerReport::SERVED, Instant::START);
            });
        });
    }
    group.finish();
}

/// The budget alone, its window full: what every slot costs in the queued case.
fn full_window(c: &mut Criterion) {
    let mut group = c.benchmark_group("full window");
    for limits in ["100/s", "500/min", "1000/s", "100000/h"] {
        let specs: Limits = limits.parse().expect("a valid limit");
        let mut budget = Budget::new(&specs.limits, MarginSpec::Auto, Instant::START);
        let mut now = Instant::START + Duration::from_secs(1);
        let mut step = |budget: &mut Budget| {
            now = budget.earliest(now, Cost::MIN, Scope::NONE);
            let charge = budget.take(now, now, Cost::MIN, Scope::NONE);
            budget.sent(charge, now);
            budget.answered(charge, now, now + Duration::from_millis(1));
        };
        for _ in 0..specs.limits[0].rate.count.get() * 2 {
            step(&mut budget);
        }
        group.bench_function(limits, |b| b.iter(|| step(&mut budget)));
    }
    group.finish();
}

fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    let mut queue = Queue::new();
    for ticket in 0..WAITING {
        queue.enqueue((), Cost::MIN, Turn::New, ticket);
    }
    group.bench_function("push and pop, 30,000 waiting", |b| {
        b.iter(|| {
            queue.enqueue((), Cost::MIN, Turn::New, black_box(0));
            queue.pop(0)
        });
    });
    group.bench_function("push and leave, 30,000 waiting", |b| {
        b.iter(|| {
            let place = queue.enqueue((), Cost::MIN, Turn::New, black_box(0));
            queue.remove(place)
        });
    });
    group.finish();
}

/// The whole door: a ticket taken and left again, behind 30,000 others.
fn crowd(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let lane = lane("1/h");
    let mut first = admit(&lane);
    first.sent();
    let mut unlimited = policy("1/h");
    unlimited.max_wait = Duration::MAX;
    let lane = Arc::new(Lane::new("api.test".into(), unlimited.into(), lane.metrics().clone(), Clock::start()));
    let mut first = admit(&lane);
    first.sent();
    let crowd: Vec<_> = (0..WAITING).map(|_| lane.admit(ASK)).collect();
    c.bench_function("admit into the queue and leave, 30,000 waiting", |b| b.iter(|| lane.admit(ASK)));
    drop(crowd);
}

/// Not a time: resident memory of a million lanes, each of which has sent one request.
fn memory(c: &mut Criterion) {
    const LANES: usize = 1_000_000;
    let rules = Rules::new(vec![policy("10/h")]);
    let lanes = Lanes::new(rules, Metrics::new(), Clock::start());
    let before = resident();
    for host in 0..LANES {
        let origin = Origin { scheme: Scheme::Http, host: format!("h{host}.test").into(), port: 80 };
        let mut permit = admit(&lanes.find(&origin));
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
    }
    let each = (resident() - before) / LANES as u64;
    println!("memory of {LANES} lanes with one request in an hour's window: {each} bytes each");
    let mut host = 0;
    c.bench_function("find one of 1,000,000 lanes", |b| {
        b.iter_batched(
            || {
                host = (host + 7919) % LANES;
                Origin { scheme: Scheme::Http, host: format!("h{host}.test").into(), port: 80 }
            },
            |origin| lanes.find(&origin),
            BatchSize::SmallInput,
        );
    });
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("two numbers at least");
    pages * 4096
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = fast_path, full_window, queue, crowd, memory
}
criterion_main!(benches);
