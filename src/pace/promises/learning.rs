//! What lanes learn, tried against APIs that really enforce their limits and speak real dialects, in virtual time.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::ms;
use crate::{
    clock::{Clock, Instant},
    hint,
    learn::{Heard, RouteKey},
    limit::{Cost, LimitSpec, Rate},
    metrics::Metrics,
    mock::{Counter, Dialect, Facts, Window},
    pace::{Admission, Ask, Lane},
    policy::Policy,
};

/// An API that speaks.
struct Api {
    counter: Counter,
    dialect: Dialect,
    /// When requests were accepted and refused.
    accepted: Vec<Duration>,
    refused: Vec<Duration>,
    /// Requests whose workers were told in the end.
    passed_on: usize,
}

/// What is tried.
struct Trial {
    limit: &'static str,
    window: Window,
    dialect: &'static str,
    workers: usize,
    requests: usize,
    latency: Duration,
    /// Other limits from these instants on.
    changes: Vec<(Duration, &'static str)>,
}

/// What came of it.
struct Outcome {
    accepted: Vec<Duration>,
    refused: Vec<Duration>,
    passed_on: usize,
    took: Duration,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            limit: "100/10s",
            window: Window::Sliding,
            dialect: "none",
            workers: 64,
            requests: 3000,
            latency: ms(20),
            changes: Vec::new(),
        }
    }
}

impl Api {
    /// One request arrives: the status, the fields and the body that answer it.
    fn ask(&mut self, now: Instant, wall: SystemTime) -> (StatusCode, HeaderMap, String) {
        let facts = Facts { verdict: self.counter.ask(now), limit: self.counter.rate(), wall };
        let mut headers = HeaderMap::new();
        let whole = wall.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(whole));
        headers.insert("date", date.parse().unwrap());
        self.dialect.describe(&facts, &mut headers);
        headers.insert("content-type", "application/json".parse().unwrap());
        let at = now.since(Instant::START);
        let (status, body) = if facts.refused() {
            self.refused.push(at);
            (self.dialect.refusal(), self.dialect.complaint(&facts))
        } else {
            self.accepted.push(at);
            (StatusCode::OK, format!("{{\"number\":1{}}}", self.dialect.members(&facts)))
        };
        headers.insert("content-length", body.len().into());
        (status, headers, body)
    }
}

impl Trial {
    fn run(self) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(self.work())
    }

    async fn work(self) -> Outcome {
        let clock = Clock::start();
        // Not on a whole second: resets in epoch seconds are to be rounded.
        let wall = UNIX_EPOCH + Duration::from_millis(1_790_000_000_370);
        let policy = Policy::new("", Vec::new());
        let lane = Arc::new(Lane::new("api.test".into(), policy.into(), Metrics::new().rule(""), clock));
        let rate: Rate = self.limit.parse().unwrap();
        let api = Arc::new(Mutex::new(Api {
            counter: Counter::new(rate, self.window),
            dialect: self.dialect.parse().unwrap(),
            accepted: Vec::new(),
            refused: Vec::new(),
            passed_on: 0,
        }));
        let left = Arc::new(Mutex::new(self.requests));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.workers {
            let (lane, api, left, latency) = (lane.clone(), api.clone(), left.clone(), self.latency);
            tasks.spawn(async move {
                loop {
                    {
                        let mut left = left.lock();
                        if *left == 0 {
                            return;
                        }
                        *left -= 1;
                    }
                    let mut again = false;
                    loop {
                        match call(&lane, &api, clock, wall, latency, again).await {
                            Ok(true) => break,
                            Ok(false) => again = true,
                            Err(()) => {
                                api.lock().passed_on += 1;
                                break;
                            }
                        }
                    }
                }
            });
        }
        for (at, limit) in self.changes {
            let (api, clock) = (api.clone(), clock);
            tasks.spawn(async move {
                clock.sleep_until(Instant::START + at).await;
                api.lock().counter.retune(limit.parse().unwrap(), clock.now());
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        let mut api = api.lock();
        Outcome {
            accepted: std::mem::take(&mut api.accepted),
            refused: std::mem::take(&mut api.refused),
            passed_on: api.passed_on,
            took: clock.now().since(Instant::START),
        }
    }
}

/// One try; whether it was served.
async fn call(
    lane: &Arc<Lane>,
    api: &Mutex<Api>,
    clock: Clock,
    wall: SystemTime,
    latency: Duration,
    again: bool,
) -> Result<bool, ()> {
    let kind = RouteKey::new("GET", "/a");
    while let Err(until) = lane.pass(kind) {
        clock.sleep_until(until).await;
    }
    let mut permit = match lane.admit(Ask { cost: Cost::MIN, patience: Duration::MAX, again }) {
        Admission::Send(permit) => permit,
        Admission::Wait(waiting) => waiting.await,
        // Its patience is over: it gets what the API has said last.
        Admission::Refuse(_) => return Err(()),
    };
    permit.sent();
    tokio::time::sleep(latency / 2 + Duration::from_micros(fastrand::u64(..2000))).await;
    let now = clock.now();
    let (status, headers, body) = api.lock().ask(now, wall + now.since(Instant::START));
    tokio::time::sleep(latency / 2).await;
    let arrived = (wall + clock.now().since(Instant::START)).duration_since(UNIX_EPOCH).unwrap();
    let body = hint::wants_body(status, &headers).then_some(body.as_bytes());
    let hint = hint::read(&hint::Answer { status, headers: &headers, body, arrived });
    permit.answered(&Heard { hint: &hint, failed: status.is_server_error(), route: kind }, Instant::START);
    Ok(hint.cause == hint::Cause::None)
}

impl Outcome {
    /// The share of what `limit` allows in the time that it took, from the first window's end on if `later`.
    fn used(&self, limit: &str) -> f64 {
        let rate = limit.parse::<LimitSpec>().unwrap().rate;
        let last = *self.accepted.last().unwrap();
        // The first window's allowance is there at once; the others follow in their time.
        let windows = last.as_secs_f64() / rate.per.as_secs_f64() + 1.0;
        self.accepted.len() as f64 / (windows * f64::from(rate.count.get()))
    }

    fn refused_after(&self, at: Duration) -> usize {
        self.refused.iter().filter(|refused| **refused > at).count()
    }
}

/// Any trial, to be looked at: `DIALECTS="none ietf" LIMIT=50/s cargo test --lib every_dialect -- --ignored --nocapture`.
#[test]
#[ignore = "a table for people"]
fn every_dialect_in_a_table() {
    let said = |name: &str, otherwise: &str| std::env::var(name).unwrap_or(otherwise.into()).leak() as &'static str;
    let (limit, first) = (said("LIMIT", "100/10s"), said("FIRST", "10100").parse().unwrap());
    let windows = said("WINDOWS", "sliding fixed bucket");
    for window in [Window::Sliding, Window::Fixed, Window::Bucket] {
        for dialect in
            said("DIALECTS", "none ietf").split_whitespace().filter(|_| windows.contains(&window.to_string()))
        {
            let (workers, requests) =
                (said("WORKERS", "64").parse().unwrap(), said("REQUESTS", "3000").parse().unwrap());
            let latency = ms(said("LATENCY", "20").parse().unwrap());
            let changes = said("CHANGES", "").split_whitespace();
            let changes = changes.map(|change| change.split_once(':').unwrap());
            let changes = changes.map(|(at, limit)| (ms(at.parse().unwrap()), limit)).collect();
            let outcome = Trial { dialect, window, limit, workers, requests, latency, changes }.run();
            if std::env::var("SECONDS").is_ok() {
                let per = |times: &[Duration], at: u64| times.iter().filter(|time| time.as_secs() / 5 == at).count();
                let rows =
                    (0..outcome.took.as_secs() / 5).map(|at| (per(&outcome.accepted, at), per(&outcome.refused, at)));
                println!("{:?}", rows.take(40).collect::<Vec<_>>());
            }
            println!(
                "{window:8} {dialect:24} used {:.3} refused {:4} after the first window {:4} passed on {:4} took {:.1?}",
                outcome.used(limit),
                outcome.refused.len(),
                outcome.refused_after(ms(first)),
                outcome.passed_on,
                outcome.took
            );
        }
    }
}
