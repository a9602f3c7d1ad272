//! Serves a [`Counter`]'s verdicts over HTTP/1.1.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::{
    Options,
    control::{Down, How, Script},
    dialect::Facts,
    limiter::{Caller, Limiter},
    pages,
    server::{self, ConnectionState},
    stats::{Stats, StatsRecorder},
};
use crate::{
    clock::{Clock, Instant},
    limit::Rate,
};

/// A running API; it stops, and its connections close, when this is dropped.
#[derive(Debug)]
pub struct Api {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

pub(super) struct Shared {
    /// As they were at the start: the limit may have changed since.
    pub(super) options: Options,
    pub(super) clock: Clock,
    /// The time of day at the clock's start: virtual time moves the time of day along.
    wall_at_start: SystemTime,
    pub(super) books: Mutex<Books>,
    pub(super) down: watch::Sender<Option<Down>>,
}

/// What is kept in step under one lock; time is read inside it, so that it never goes backwards here.
pub(super) struct Books {
    pub(super) limiter: Option<Limiter>,
    /// How many limiters there were before this one.
    pub(super) limiters: u64,
    pub(super) recorder: StatsRecorder,
    /// What the next requests are answered.
    pub(super) script: Option<Script>,
    dice: fastrand::Rng,
}

/// What was decided about a request when it arrived.
struct Decision<'a> {
    /// When its answer is due.
    due: Instant,
    arrived: Instant,
    /// What there is to tell about it; nothing without a limit.
    facts: Option<Facts>,
    outcome: Outcome,
    /// Held by what was accepted, until the answer is ready or the client is gone.
    _under_way: Option<UnderWay<'a>>,
}

/// An accepted request: tells the limiter when it is done.
struct UnderWay<'a> {
    shared: &'a Shared,
    caller: Caller,
    /// Which limiter has accepted it.
    limiter: u64,
}

enum Outcome {
    Answer { number: u64 },
    Fail,
    Refuse(Facts),
    Scripted { status: StatusCode, headers: HeaderMap, body: Bytes },
    Down(Down),
}

// === impl Api ===

impl Api {
    /// Serves on `listener` (see [`super::listen`]) in the present runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(options: Options, listener: TcpListener, clock: Clock) -> Self {
        let addr = listener.local_addr().expect("a listening socket has an address");
        let books = Books {
            limiter: options.limit.map(|rate| options.limiter(rate)),
            limiters: 0,
            recorder: StatsRecorder::new(options.limit, clock.now()),
            script: None,
            dice: fastrand::Rng::with_seed(options.seed),
        };
        let wall_at_start = SystemTime::now() - clock.now().since(Instant::START);
        let shared = Arc::new(Shared {
            options,
            clock,
            wall_at_start,
            books: Mutex::new(books),
            down: watch::Sender::new(None),
        });
        let accepting = tokio::spawn(server::accept(listener, addr, shared.clone()));
        Self { addr, shared, accepting }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it saw so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// What it enforces now.
    pub fn limit(&self) -> Option<Rate> {
        self.shared.books.lock().limiter.as_ref().map(Limiter::rate)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // The task owns the listener and every connection.
        self.accepting.abort();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

// === impl UnderWay ===

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut books = self.shared.books.lock();
        if books.limiters == self.limiter
            && let Some(limiter) = &mut books.limiter
        {
            limiter.done(&self.caller);
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionState,
    ) -> Response<Full<Bytes>> {
        if request.uri().path().starts_with(pages::BELOW) {
            connection.controls.store(true, Ordering::Relaxed);
            return pages::answer(self, request).await;
        }
        if request.method() == Method::CONNECT {
            let body = r#"{"error":"this is an API, not a proxy","hint":"name it in the URL instead"}"#;
            // What follows a refused CONNECT may be meant for somebody else (RFC 9931).
            let close = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("close"))]);
            return respond(StatusCode::METHOD_NOT_ALLOWED, close, body.to_owned());
        }
        let decision = self.decide(Caller::new(request.method().clone(), request.headers()));
        if let Outcome::Down(Down { how: How::Refuse | How::Reset | How::Hang, .. }) = decision.outcome {
            self.hang().await;
            connection.cut.notify_one();
            return std::future::pending().await;
        }
        let uploads = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
        let Ok(received) = discard(request.into_body()).await else {
            return respond(StatusCode::BAD_REQUEST, HeaderMap::new(), r#"{"error":"the body broke off"}"#.to_owned());
        };
        if decision.due > decision.arrived {
            self.clock.sleep_until(decision.due).await;
        }
        let (mut headers, mut members) = (HeaderMap::new(), String::new());
        let dialect = self.options.dialect;
        if let Some(facts) = &decision.facts {
            dialect.describe(facts, &mut headers);
            members = dialect.members(facts);
        }
        match decision.outcome {
            Outcome::Answer { number } => {
                let received = if uploads { format!(r#","received":{received}"#) } else { String::new() };
                respond(StatusCode::OK, headers, format!(r#"{{"number":{number}{received}{members}}}"#))
            }
            Outcome::Scripted { status, headers, body } => {
                let mut response = Response::new(Full::new(body));
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                response
            }
            Outcome::Down(down) => {
                let status =
                    if down.how == How::BadGateway { StatusCode::BAD_GATEWAY } else { StatusCode::SERVICE_UNAVAILABLE };
                respond(status, headers, r#"{"error":"down as asked"}"#.to_owned())
            }
            Outcome::Refuse(facts) => respond(dialect.refusal(), headers, dialect.complaint(&facts)),
            Outcome::Fail => {
                respond(StatusCode::INTERNAL_SERVER_ERROR, headers, r#"{"error":"failed as asked"}"#.to_owned())
            }
        }
    }

    /// Counts a request that arrives now.
    fn decide(&self, caller: Caller) -> Decision<'_> {
        let mut books = self.books.lock();
        let arrived = self.clock.now();
        let due = arrived + self.options.latency + self.options.jitter.mul_f64(books.dice.f64());
        if let Some(outcome) = self.scripted(&mut books, arrived) {
            books.recorder.script(arrived);
            return Decision { due, arrived, facts: None, outcome, _under_way: None };
        }
        let Books { limiter, limiters, recorder, dice, .. } = &mut *books;
        let wall = self.wall_at_start + arrived.since(Instant::START);
        let facts = limiter.as_mut().map(|limiter| {
            let (verdict, limit) = limiter.ask(&caller, arrived);
            Facts { verdict, limit, wall }
        });
        let outcome = match facts {
            Some(facts) if facts.refused() => {
                recorder.refuse(arrived);
                Outcome::Refuse(facts)
            }
            _ => {
                recorder.accept(arrived);
                if dice.f64() < self.options.fail.fraction() {
                    recorder.fail();
                    Outcome::Fail
                } else {
                    Outcome::Answer { number: recorder.accepted() }
                }
            }
        };
        let accepted = facts.is_some_and(|facts| !facts.refused());
        let under_way = accepted.then(|| UnderWay { shared: self, caller, limiter: *limiters });
        Decision { due, arrived, facts, outcome, _under_way: under_way }
    }

    /// What the control pages asked for, if they did; being down comes before the answers laid down.
    fn scripted(&self, books: &mut Books, now: Instant) -> Option<Outcome> {
        if let Some(down) = self.down.borrow().filter(|down| down.holds(now)) {
            return Some(Outcome::Down(down));
        }
        let script = books.script.as_mut().filter(|script| script.count > 0)?;
        script.count -= 1;
        Some(Outcome::Scripted { status: script.status, headers: script.headers.clone(), body: script.body.clone() })
    }

    /// Waits until no request hangs any more.
    async fn hang(&self) {
        let mut down = self.down.subscribe();
        loop {
            let now = self.clock.now();
            let Some(trouble) = { *down.borrow_and_update() }.filter(|down| down.how == How::Hang && down.holds(now))
            else {
                return;
            };
            tokio::select! {
                () = self.clock.sleep_until(trouble.until) => {}
                _ = down.changed() => {}
            }
        }
    }

    pub(super) fn stats(&self) -> Stats {
        self.books.lock().recorder.stats(self.clock.now())
    }
}

/// Reads a body to its end and keeps nothing of it but its length.
async fn discard(mut body: Incoming) -> Result<u64, hyper::Error> {
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        received += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(received)
}

pub(super) fn respond(status: StatusCode, mut headers: HeaderMap, body: String) -> Response<Full<Bytes>> {
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::mock::listen;

    fn start(options: Options) -> Api {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Api::start(options, listener, Clock::start())
    }

    /// Sends `requests` on one connection, the last of which must ask to close it, and returns all that comes back.
    async fn talk(api: &Api, requests: &str) -> String {
        let mut stream = TcpStream::connect(api.addr()).await.unwrap();
        stream.write_all(requests.as_bytes()).await.unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).await.unwrap();
        answers
    }

    const GET: &str = "GET /a HTTP/1.1\r\nhost: api\r\n\r\n";
    const LAST: &str = "GET /b HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn past_the_limit_it_refuses_and_says_until_when() {
        let api = start(Options { limit: Some("2/h".parse().unwrap()), ..Options::default() });
        let answers = talk(&api, &[GET, GET, LAST].concat()).await;
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
        assert!(answers.contains(r#"{"number":2}"#), "{answers}");
        assert_eq!(answers.matches("HTTP/1.1 429").count(), 1, "{answers}");
        assert!(answers.contains("retry-after: 3600\r\n"), "{answers}");
        let stats = api.stats();
        assert_eq!((stats.accepted, stats.refused, stats.worst_window), (2, 1, 3));
    }

    #[tokio::test]
    async fn every_answer_speaks_the_dialect() {
        let dialect = "openai".parse().unwrap();
        let api = start(Options { limit: Some("2/h".parse().unwrap()), dialect, ..Options::default() });
        let answers = talk(&api, LAST).await;
        assert!(answers.contains("x-ratelimit-remaining-requests: 1\r\n"), "{answers}");
    }

    #[tokio::test]
    async fn an_upload_is_read_to_its_end_and_measured() {
        let api = start(Options::default());
        let upload =
            "POST /u HTTP/1.1\r\nhost: api\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n2\r\n!!\r\n0\r\n\r\n";
        let answers = talk(&api, &[upload, LAST].concat()).await;
        assert!(answers.contains(r#"{"number":1,"received":7}"#), "{answers}");
        assert!(answers.contains(r#"{"number":2}"#), "{answers}");
    }

    #[tokio::test]
    async fn statistics_are_answered_and_not_counted() {
        let api = start(Options { limit: Some("1/h".parse().unwrap()), ..Options::default() });
        let ask = "GET /__mock/stats HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n";
        assert!(talk(&api, ask).await.contains(r#"{"accepted":0,"refused":0,"#));
        assert!(talk(&api, LAST).await.starts_with("HTTP/1.1 200"));
        assert!(talk(&api, ask).await.contains(
            r#""accepted":1,"refused":0,"refused_after_first_window":0,"failed":0,"scripted":0,"worst_window":1"#
        ));
    }

    #[tokio::test]
    async fn failures_count_against_the_limit() {
        let fail = "100%".parse().unwrap();
        let api = start(Options { limit: Some("1/h".parse().unwrap()), fail, ..Options::default() });
        let answers = talk(&api, &[GET, LAST].concat()).await;
        assert!(answers.contains("HTTP/1.1 500") && answers.contains("HTTP/1.1 429"), "{answers}");
        assert_eq!(api.stats().failed, 1);
    }

    #[tokio::test]
    async fn somebody_who_takes_it_for_a_proxy_is_told() {
        let api = start(Options::default());
        let answers = talk(&api, "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n").await;
        assert!(answers.starts_with("HTTP/1.1 405") && answers.contains("not a proxy"), "{answers}");
        assert_eq!(api.stats().accepted, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn latency_delays_the_answer_and_not_the_count() {
        let (latency, jitter) = (Duration::from_millis(200), Duration::from_millis(50));
        let api = start(Options { latency, jitter, ..Options::default() });
        let clock = Clock::start();
        talk(&api, LAST).await;
        let took = clock.now().since(Instant::START);
        // Tokio's timers are a millisecond late.
        assert!(took >= latency && took <= latency + jitter + Duration::from_millis(2), "{took:?}");
    }
}
