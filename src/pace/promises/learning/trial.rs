//! The world of a trial: an API that counts and speaks, a lane that listens, and workers who ask one after the other.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::{ask, kind, ms};
use crate::{
    clock::{Clock, Instant},
    hint,
    learn::Heard,
    limit::{LimitSpec, Rate},
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
pub(super) struct Trial {
    pub(super) limit: &'static str,
    pub(super) window: Window,
    pub(super) dialect: &'static str,
    pub(super) workers: usize,
    pub(super) requests: usize,
    pub(super) latency: Duration,
    /// Other limits from these instants on.
    pub(super) changes: Vec<(Duration, &'static str)>,
    /// Somebody else who spends the same quota asks this often.
    pub(super) others: Option<Duration>,
    /// Of the jitter: a trial runs the same way each time.
    pub(super) seed: u64,
}

/// What came of it.
pub(super) struct Outcome {
    pub(super) accepted: Vec<Duration>,
    pub(super) refused: Vec<Duration>,
    pub(super) passed_on: usize,
    pub(super) took: Duration,
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
            others: None,
            seed: 1,
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
    pub(super) fn run(self) -> Outcome {
        fastrand::seed(self.seed);
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
            let api = api.clone();
            tasks.spawn(async move {
                clock.sleep_until(Instant::START + at).await;
                api.lock().counter.retune(limit.parse().unwrap(), clock.now());
            });
        }
        let others = self.others.map(|gap| {
            let api = api.clone();
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(gap).await;
                    api.lock().counter.ask(clock.now());
                }
            })
        });
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        if let Some(others) = others {
            others.abort();
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
    let mut permit = match lane.admit(Ask { again, ..ask(kind()) }) {
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
    permit.answered(&Heard { hint: &hint, failed: status.is_server_error(), route: None }, Instant::START);
    Ok(hint.cause == hint::Cause::None)
}

impl Outcome {
    /// The share of what `limit` allows in the time that it took, from the first window's end on if `later`.
    pub(super) fn used(&self, limit: &str) -> f64 {
        let rate = limit.parse::<LimitSpec>().unwrap().rate;
        let last = *self.accepted.last().unwrap();
        // The first window's allowance is there at once; the others follow in their time.
        let windows = last.as_secs_f64() / rate.per.as_secs_f64() + 1.0;
        self.accepted.len() as f64 / (windows * f64::from(rate.count.get()))
    }

    /// How many were accepted per second between two instants.
    pub(super) fn pace(&self, from: Duration, to: Duration) -> f64 {
        let count = self.accepted.iter().filter(|at| (from..to).contains(*at)).count();
        count as f64 / (to - from).as_secs_f64()
    }

    pub(super) fn refused_after(&self, at: Duration) -> usize {
        self.refused.iter().filter(|refused| **refused > at).count()
    }
}
