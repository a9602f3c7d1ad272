//! Learning by lanes, in virtual time: trials against APIs that enforce limits in real dialects, and single answers as
//! an API might give them.

mod breaker;
mod changes;
mod dialects;
mod fleet_pauses;
mod misleading_answers;
mod own_limits;
mod pauses;
mod properties;
mod queue_lines;
mod random_histories;
mod reach;
mod simulation;
mod trial;

use std::time::{Duration, UNIX_EPOCH};

use andante_clock::Instant;
use andante_hint::{self as hint, Hint};
use andante_learn::{AnswerReport, RouteKey};
use andante_limiter::CountingWindow;
use andante_policy::Policy;
use http::{HeaderMap, HeaderName, StatusCode};

use self::trial::Trial;
use super::{World, ask, kind, ms};
use crate::{Admission, Permit, Waiting};

/// The time of day at which tests begin: not on a whole second, so that whole seconds are rounded.
const MORNING: Duration = Duration::from_millis(1_790_000_000_370);

/// Latency of the API.
const LATENCY: Duration = Duration::from_millis(10);

/// An answer, as an API might give it.
type CannedAnswer<'a> = (u16, &'a [(&'a str, &'a str)]);

/// An answer that only shows that the request was served.
const SERVED: CannedAnswer<'static> = (200, &[]);

/// Longer than any test.
const FOREVER: Duration = Duration::from_secs(7200);

fn s(of: u64) -> Duration {
    Duration::from_secs(of)
}

fn get(path: &str) -> RouteKey {
    RouteKey::new("GET", path)
}

fn waits(admission: Admission) -> Waiting {
    match admission {
        Admission::Wait(waiting) => waiting,
        other => panic!("it should wait: {other:?}"),
    }
}

/// The hint in this answer if it comes at `now`.
fn read((status, fields): CannedAnswer<'_>, now: Instant) -> Hint {
    let arrived = MORNING + now.since(Instant::START);
    let mut headers = HeaderMap::new();
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(arrived.as_secs()));
    headers.insert("date", date.parse().unwrap());
    for (name, value) in fields {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    hint::read(&hint::Answer { status, headers: &headers, body: None, arrived })
}

impl World {
    /// A lane without configuration except for `change`.
    fn unlimited(change: impl FnOnce(&mut Policy)) -> Self {
        Self::with("1/s", |policy| {
            policy.limits.clear();
            change(policy);
        })
    }

    fn elapsed(&self) -> Duration {
        self.clock.now().since(Instant::START)
    }

    /// The answer to the request that holds `permit`.
    fn answer(&self, mut permit: Permit, said: CannedAnswer<'_>) {
        let hint = read(said, self.clock.now());
        permit.answered(&AnswerReport { hint: &hint, failed: said.0 >= 500, route: None }, Instant::START);
    }

    /// The least wait of requests of `kind`, if they have to wait.
    fn pause(&self, kind: RouteKey) -> Option<Duration> {
        match self.ask_for(kind) {
            Admission::Send(_) => None,
            Admission::Wait(waiting) => Some(waiting.expected.since(self.clock.now())),
            Admission::Refuse(refusal) => panic!("refused: {refusal}"),
        }
    }

    /// Sends a request that gets this answer, and returns when it left.
    async fn call(&self, said: CannedAnswer<'_>) -> Duration {
        self.call_for(kind(), said).await
    }

    async fn call_for(&self, kind: RouteKey, said: CannedAnswer<'_>) -> Duration {
        let mut permit = self.permit_for(kind).await;
        permit.sent();
        let left = self.elapsed();
        tokio::time::sleep(LATENCY).await;
        self.answer(permit, said);
        left
    }

    /// Requests that leave now, all at once.
    async fn send_all(&self, count: usize) -> Vec<Permit> {
        let mut permits = Vec::new();
        for _ in 0..count {
            permits.push(self.permit().await);
        }
        permits.iter_mut().for_each(Permit::sent);
        permits
    }
}

/// Prints a trial of each of `dialects` and each way to count. LIMIT, WINDOWS, WORKERS, REQUESTS, LATENCY (ms) CHANGES
/// (`MS:LIMIT …`) and BEGUN (`USED:MS ago`) configure the trial; SECONDS also prints the events of each five seconds.
fn print_trials(dialects: &'static str) {
    let variable = |name: &str, otherwise: &str| std::env::var(name).unwrap_or(otherwise.into()).leak() as &'static str;
    let number = |name: &str, otherwise: u64| -> u64 {
        std::env::var(name).map_or(otherwise, |number| number.parse().expect("it is a number"))
    };
    let limit = variable("LIMIT", "100/10s");
    let windows = variable("WINDOWS", "sliding fixed bucket");
    for window in [CountingWindow::Sliding, CountingWindow::Fixed, CountingWindow::Bucket] {
        for dialect in dialects.split_whitespace().filter(|_| windows.contains(&window.to_string())) {
            let changes = variable("CHANGES", "").split_whitespace();
            let changes = changes.map(|change| change.split_once(':').unwrap());
            let begun = std::env::var("BEGUN").ok();
            let begun = begun.as_deref().and_then(|begun| begun.split_once(':'));
            let outcome = Trial {
                begun: begun.map(|(used, ago)| (used.parse().unwrap(), ms(ago.parse().unwrap()))),
                dialect,
                window,
                limit,
                workers: number("WORKERS", 64) as usize,
                requests: number("REQUESTS", 3000) as usize,
                latency: ms(number("LATENCY", 20)),
                changes: changes.map(|(at, limit)| (ms(at.parse().unwrap()), limit)).collect(),
                seed: fastrand::u64(..),
                ..Trial::default()
            }
            .run();
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
                outcome.refused_after(ms(number("FIRST", 10_100))),
                outcome.passed_on,
                outcome.took
            );
        }
    }
}
