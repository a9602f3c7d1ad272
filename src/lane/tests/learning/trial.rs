//! The world of a trial: an API that announces its limits, a lane that learns them, and workers with one request each
//! at a time.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use andante_clock::{Clock, Instant};
use andante_hint::{self as hint, Cause};
use andante_learn::{AnswerReport, RouteKey};
use andante_limit::{LimitSpec, Rate};
use andante_limiter::{CountingWindow, Facts, Limiter, MockCaller, MockDialect};
use andante_metrics::Metrics;
use andante_order::Turn;
use andante_policy::Policy;
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;

use super::{ask, ms};
use crate::{Admission, AdmitRequest, Lane};

/// An API that announces its limit.
struct Api {
    limiter: Limiter,
    dialect: MockDialect,
    /// When requests were accepted and refused, and the senders of the accepted ones.
    accepted: Vec<Duration>,
    accepted_from: Vec<usize>,
    refused: Vec<Duration>,
    /// Requests whose workers received the refusal in the end.
    passed_on: usize,
}

/// A trial's configuration.
pub(super) struct Trial {
    pub(super) limit: &'static str,
    pub(super) window: CountingWindow,
    pub(super) dialect: &'static str,
    pub(super) workers: usize,
    /// The workers' senders, in turn: a method, and a key.
    pub(super) senders: &'static [(&'static str, &'static str)],
    pub(super) requests: usize,
    /// The round-trip time, and the API's working time for an accepted request.
    pub(super) latency: Duration,
    pub(super) work: Duration,
    /// Changed limits, and the instants from which they hold.
    pub(super) changes: Vec<(Duration, &'static str)>,
    /// Interval between the requests of another client that spends the same quota.
    pub(super) others: Option<Duration>,
    /// Requests that another client has used, and how long before the first request of the trial, which is answered
    /// before the others come.
    pub(super) begun: Option<(usize, Duration)>,
    /// Seed of the jitter: a trial runs the same way each time.
    pub(super) seed: u64,
}

/// A trial's result.
pub(super) struct Outcome {
    pub(super) accepted: Vec<Duration>,
    accepted_from: Vec<usize>,
    pub(super) refused: Vec<Duration>,
    pub(super) passed_on: usize,
    pub(super) took: Duration,
}

/// A sender.
struct Sender {
    number: usize,
    kind: RouteKey,
    caller: MockCaller,
}

/// The network between the workers and the API.
#[derive(Clone, Copy)]
struct Setup {
    clock: Clock,
    wall: SystemTime,
    latency: Duration,
    work: Duration,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            limit: "100/10s",
            window: CountingWindow::Sliding,
            dialect: "none",
            workers: 64,
            senders: &[("GET", "")],
            requests: 3000,
            latency: ms(20),
            work: Duration::ZERO,
            changes: Vec::new(),
            others: None,
            begun: None,
            seed: 1,
        }
    }
}

impl Api {
    /// Handles an arriving request: whether it is accepted, and the status, the fields and the body of the answer.
    fn ask(&mut self, sender: &Sender, now: Instant, wall: SystemTime) -> (bool, StatusCode, HeaderMap, String) {
        let (decision, limit) = self.limiter.ask(&sender.caller, now);
        let facts = Facts { decision, limit, wall };
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
            self.accepted_from.push(sender.number);
            (StatusCode::OK, format!("{{\"number\":1{}}}", self.dialect.members(&facts)))
        };
        headers.insert("content-length", body.len().into());
        (!facts.refused(), status, headers, body)
    }
}

impl Sender {
    fn new(senders: &[(&str, &str)], worker: usize) -> Self {
        let number = worker % senders.len();
        let (method, key) = senders[number];
        let mut headers = HeaderMap::new();
        let mut kind = RouteKey::new(method, "/a");
        if !key.is_empty() {
            headers.insert("authorization", key.parse().unwrap());
            kind = kind.with_credential(number as u32 + 1);
        }
        Self { number, kind, caller: MockCaller::new(Method::from_bytes(method.as_bytes()).unwrap(), &headers) }
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
        // Not on a whole second, so that resets in epoch seconds are rounded.
        let wall = UNIX_EPOCH + Duration::from_millis(1_790_000_000_370);
        let rate: Rate = self.limit.parse().unwrap();
        let dialect: MockDialect = self.dialect.parse().unwrap();
        let way = Setup { clock, wall, latency: self.latency, work: self.work };
        let api = Arc::new(Mutex::new(Api {
            limiter: dialect.limiter(rate, self.window),
            dialect,
            accepted: Vec::new(),
            accepted_from: Vec::new(),
            refused: Vec::new(),
            passed_on: 0,
        }));
        let mut left = self.requests;
        if let Some((used, ago)) = self.begun {
            for _ in 0..used {
                api.lock().limiter.ask(&MockCaller::default(), clock.now());
            }
            tokio::time::sleep(ago).await;
        }
        let policy = Policy::new("", Vec::new());
        let lane = Arc::new(Lane::new("api.test".into(), policy.into(), Metrics::new().rule(""), clock));
        if self.begun.is_some() {
            left -= 1;
            assert_eq!(call(&lane, &api, way, &Sender::new(self.senders, 0), Turn::New).await, Ok(true));
        }
        let left = Arc::new(Mutex::new(left));
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..self.workers {
            let (lane, api, left) = (lane.clone(), api.clone(), left.clone());
            let sender = Sender::new(self.senders, worker);
            tasks.spawn(async move {
                loop {
                    {
                        let mut left = left.lock();
                        if *left == 0 {
                            return;
                        }
                        *left -= 1;
                    }
                    let mut turn = Turn::New;
                    loop {
                        match call(&lane, &api, way, &sender, turn).await {
                            Ok(true) => break,
                            Ok(false) => turn = Turn::Resent,
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
                api.lock().limiter.retune(limit.parse().unwrap(), clock.now());
            });
        }
        let others = self.others.map(|gap| {
            let api = api.clone();
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(gap).await;
                    api.lock().limiter.ask(&MockCaller::default(), clock.now());
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
            accepted_from: std::mem::take(&mut api.accepted_from),
            refused: std::mem::take(&mut api.refused),
            passed_on: api.passed_on,
            took: clock.now().since(Instant::START),
        }
    }
}

/// Makes one attempt. Returns whether it was served.
async fn call(lane: &Arc<Lane>, api: &Mutex<Api>, way: Setup, sender: &Sender, turn: Turn) -> Result<bool, ()> {
    let Setup { clock, wall, latency, work } = way;
    let mut permit = match lane.admit(AdmitRequest { turn, ..ask(sender.kind) }) {
        Admission::Send(permit) => permit,
        Admission::Wait(waiting) => waiting.await.unwrap(),
        // The request's patience is over: it gets the API's last answer.
        Admission::Refuse(_) => return Err(()),
    };
    permit.sent();
    tokio::time::sleep(latency / 2 + Duration::from_micros(fastrand::u64(..2000))).await;
    let now = clock.now();
    let (accepted, status, headers, body) = api.lock().ask(sender, now, wall + now.since(Instant::START));
    if accepted {
        if !work.is_zero() {
            tokio::time::sleep(work).await;
        }
        api.lock().limiter.done(&sender.caller);
    }
    tokio::time::sleep(latency / 2).await;
    let arrived = (wall + clock.now().since(Instant::START)).duration_since(UNIX_EPOCH).unwrap();
    let body = hint::wants_body(status, &headers).then_some(body.as_bytes());
    let mut hint = hint::read(&hint::Answer { status, headers: &headers, body, arrived });
    let by_head = hint.strength == hint::Strength::Head;
    if hint.cause != Cause::None && hint.done && by_head && hint::asks_to_wait(&headers) {
        // As in `proxy::forward`: a result that asks to wait is a result.
        hint.accept();
    }
    permit.answered(&AnswerReport { hint: &hint, failed: status.is_server_error(), route: None }, Instant::START);
    // A bare 503 is resent, whether it came from a limiter or not.
    Ok(hint.cause == Cause::None && status != StatusCode::SERVICE_UNAVAILABLE)
}

impl Outcome {
    /// The share of what `limit` allows in the time that it took, with the whole allowance of the first window.
    pub(super) fn used(&self, limit: &str) -> f64 {
        let rate = limit.parse::<LimitSpec>().unwrap().rate;
        let last = *self.accepted.last().unwrap();
        // The first window's allowance is there at once; the others follow in their time.
        let windows = last.as_secs_f64() / rate.per.as_secs_f64() + 1.0;
        self.accepted.len() as f64 / (windows * f64::from(rate.count.get()))
    }

    /// Accepted requests per second between two instants.
    pub(super) fn pace(&self, from: Duration, to: Duration) -> f64 {
        let count = self.accepted.iter().filter(|at| (from..to).contains(*at)).count();
        count as f64 / (to - from).as_secs_f64()
    }

    /// Accepted requests per second of one sender between two instants.
    pub(super) fn pace_from(&self, sender: usize, from: Duration, to: Duration) -> f64 {
        let of = self.accepted.iter().zip(&self.accepted_from).filter(|(_, of)| **of == sender);
        of.filter(|(at, _)| (from..to).contains(*at)).count() as f64 / (to - from).as_secs_f64()
    }

    pub(super) fn refused_after(&self, at: Duration) -> usize {
        self.refused.iter().filter(|refused| **refused > at).count()
    }
}
