//! Costs of pacing: a decision with an empty queue, a slot granted with 30,000 waiting, memory per lane.
//!
//! `cargo bench`. Targets: 150 ns for a decision on the fast path. A microsecond each to enqueue a ticket and to choose
//! one, with 30,000 waiting in 1,000 flows over 10 lines.

use std::{
    sync::Arc,
    time::{Duration, Instant as Wall},
};

use andante::{
    clock::{Clock, Instant},
    lane::{
        Admission, AdmitRequest, Lane, Lanes, Permit,
        order::{Claim, ClientId, FlowId, Hold, Next, Queue, TicketRules, Turn},
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
const ASK: AdmitRequest = AdmitRequest {
    cost: Cost::MIN,
    kind: RouteKey::NONE,
    claim: Claim::USUAL,
    deadline: Instant::FAR,
    turn: Turn::New,
    draws: None,
    port: 80,
};

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
    // A million a second and more never bind: the bench measures only the decision.
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
        // An API that has never answered is sent few at once.
        (0..10_000).for_each(|_| {
            let mut permit = admit(&lane);
            permit.sent();
            permit.answered(&AnswerReport::SERVED, Instant::START);
        });
        group.bench_function(format!("decision, {name}"), |b| {
            // The permit is settled outside of the measurement.
            b.iter_batched(|| (), |()| admit(&lane), BatchSize::NumIterations(10));
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

/// The budget alone with a full window: the cost of every slot in the queued case.
fn full_window(c: &mut Criterion) {
    let mut group = c.benchmark_group("full window");
    for limits in ["100/s", "500/min", "1000/s", "100000/h"] {
        let specs: Limits = limits.parse().expect("a valid limit");
        let mut budget = Budget::new(&specs.limits, MarginSpec::Auto, Instant::START);
        let mut now = Instant::START + Duration::from_secs(1);
        let mut step = |budget: &mut Budget| {
            now = budget.ready(now, &Cost::MIN, Scope::NONE).instant(now);
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

/// Lets one request leave each nanosecond, and one in `own` of each line but the first.
struct Pace {
    now: u64,
    shared: u64,
    own: u64,
    lines: Vec<u64>,
}

impl TicketRules<u32, u32> for Pace {
    fn line(&mut self, ticket: &u32, _: &u32) -> u32 {
        *ticket
    }

    fn hold(&mut self, line: &u32, _: &[u32], _: Cost) -> Hold {
        match (self.lines[*line as usize], self.shared) {
            (own, _) if own > self.now => Hold::Own(Instant::from_nanos(own)),
            (_, shared) if shared > self.now => Hold::Shared(Instant::from_nanos(shared)),
            _ => Hold::Open,
        }
    }
}

impl Pace {
    fn next(&mut self, queue: &mut Queue<u32, u32>) {
        loop {
            match queue.next(Instant::from_nanos(self.now), &mut 64, self) {
                Next::Ticket { place, key } => {
                    queue.serve(place).expect("it waits");
                    self.shared = self.now + 1;
                    if key > 0 {
                        self.lines[key as usize] = self.now + self.own;
                    }
                    return;
                }
                Next::At(at) => self.now = at.as_nanos(),
            }
        }
    }
}

/// The order alone, 30,000 waiting in so many flows over so many lines: one ticket put in and one chosen.
fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    for (name, clients, flows, lines, own) in [
        ("1 flow", 1, 1, 1, 1),
        ("1,000 flows of 10 clients", 10, 1000, 1, 1),
        ("1,000 flows of 10 clients over 10 lines", 10, 1000, 10, 1),
        ("1,000 flows of 10 clients over 10 lines, mostly closed", 10, 1000, 10, 20),
        ("1,000 flows of 10 clients over 10,000 lines, mostly closed", 10, 1000, 10_000, 20_000),
    ] {
        let mut queue = Queue::new();
        let mut pace = Pace { now: 1, shared: 0, own, lines: vec![0; lines] };
        let mut random = 88_172_645_463_325_252_u64;
        let mut push = |queue: &mut Queue<u32, u32>| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (flow, line) = (random >> 11, (random >> 40) % lines as u64);
            let client = ClientId::of(std::net::IpAddr::from([10, 0, 0, (flow % clients) as u8]));
            let claim = Claim { client, flow: FlowId(flow % flows), ..Claim::USUAL };
            queue.enqueue(line as u32, &[], claim, Cost::MIN, Turn::New, line as u32)
        };
        for _ in 0..WAITING {
            push(&mut queue);
        }
        group.bench_function(format!("a ticket put in and one chosen, {name}"), |b| {
            b.iter(|| {
                push(&mut queue);
                pace.next(&mut queue);
            });
        });
        for (what, puts, chooses) in
            [("put in and one chosen", true, true), ("put in", true, false), ("chosen", false, true)]
        {
            let step = |timed| {
                if puts == timed {
                    push(&mut queue);
                }
                if chooses == timed {
                    pace.next(&mut queue);
                }
            };
            println!("a ticket {what}, {name}: {}", spread(step));
        }
        group.bench_function(format!("a ticket put in and left, {name}"), |b| {
            b.iter(|| {
                let place = push(&mut queue);
                queue.remove(place)
            });
        });
    }
    group.finish();
}

/// Duration of a million steps, each timed by itself, and the slowest step. Work that a step skips while it is timed is
/// done afterwards, so that the number of waiting tickets stays equal.
#[expect(clippy::disallowed_methods, reason = "it measures time, and is not measured in it")]
fn spread(mut step: impl FnMut(bool)) -> String {
    let mut times: Vec<Duration> = (0..1_000_000)
        .map(|_| {
            let start = Wall::now();
            step(true);
            let took = start.elapsed();
            step(false);
            took
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    format!("mean {mean:?}, p50 {:?}, p99 {:?}, p99.9 {:?}", at(0.5), at(0.99), at(0.999))
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

/// Resident memory (not time) of a million lanes, each of which has sent one request.
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
