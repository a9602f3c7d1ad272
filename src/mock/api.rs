//! Serves a [`Counter`]'s verdicts over HTTP/1.1.

use std::{
    convert::Infallible,
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use super::{
    Options,
    counter::Counter,
    dialect::Facts,
    tally::{Stats, Tally},
};
use crate::clock::{Clock, Instant};

/// Where the statistics are; asking for them counts as nothing.
const STATS_PATH: &str = "/__mock/stats";
/// How long accepting rests when the system has no descriptor or memory left for one more connection.
const ACCEPT_REST: Duration = Duration::from_millis(20);

/// A running API; it stops, and its connections close, when this is dropped.
#[derive(Debug)]
pub struct Api {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    options: Options,
    clock: Clock,
    /// The time of day at the clock's start: virtual time moves the time of day along.
    wall_at_start: SystemTime,
    books: Mutex<Books>,
}

/// What is kept in step under one lock; time is read inside it, so that it never goes backwards here.
struct Books {
    counter: Option<Counter>,
    tally: Tally,
    dice: fastrand::Rng,
}

/// What was decided about a request when it arrived.
struct Decision {
    /// When its answer is due.
    due: Instant,
    arrived: Instant,
    /// What there is to tell about it; nothing without a limit.
    facts: Option<Facts>,
    outcome: Outcome,
}

enum Outcome {
    Answer { number: u64 },
    Fail,
    Refuse(Facts),
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
            counter: options.limit.map(|rate| Counter::new(rate, options.window)),
            tally: Tally::new(options.limit, clock.now()),
            dice: fastrand::Rng::with_seed(options.seed),
        };
        let wall_at_start = SystemTime::now() - clock.now().since(Instant::START);
        let shared = Arc::new(Shared { options, clock, wall_at_start, books: Mutex::new(books) });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self { addr, shared, accepting }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it saw so far.
    pub fn stats(&self) -> Stats {
        self.shared.books.lock().tally.stats(self.shared.clock.now())
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

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, shared.clone()));
                }
                // The client is gone again, or descriptors ran out: neither ends an API.
                Err(_) => tokio::time::sleep(ACCEPT_REST).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Small answers must not wait for the client's delayed acknowledgement; a socket without the option still works.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(shared.answer(request).await) }
    });
    // An error means that this client broke off, which is its business.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

// === impl Shared ===

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.uri().path() == STATS_PATH {
            return self.stats();
        }
        if request.method() == Method::CONNECT {
            let body = r#"{"error":"this is an API, not a proxy","hint":"name it in the URL instead"}"#;
            // What follows a refused CONNECT may be meant for somebody else (RFC 9931).
            let close = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("close"))]);
            return respond(StatusCode::METHOD_NOT_ALLOWED, close, body.to_owned());
        }
        let decision = self.decide();
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
            Outcome::Refuse(facts) => respond(dialect.refusal(), headers, dialect.complaint(&facts)),
            Outcome::Fail => {
                respond(StatusCode::INTERNAL_SERVER_ERROR, headers, r#"{"error":"failed as asked"}"#.to_owned())
            }
        }
    }

    /// Counts a request that arrives now.
    fn decide(&self) -> Decision {
        let mut books = self.books.lock();
        let Books { counter, tally, dice } = &mut *books;
        let arrived = self.clock.now();
        let wall = self.wall_at_start + arrived.since(Instant::START);
        let facts =
            counter.as_mut().map(|counter| Facts { verdict: counter.ask(arrived), limit: counter.rate(), wall });
        let outcome = match facts {
            Some(facts) if facts.refused() => {
                tally.refuse(arrived);
                Outcome::Refuse(facts)
            }
            _ => {
                tally.accept(arrived);
                if dice.f64() < self.options.fail.fraction() {
                    tally.fail();
                    Outcome::Fail
                } else {
                    Outcome::Answer { number: tally.accepted() }
                }
            }
        };
        let due = arrived + self.options.latency + self.options.jitter.mul_f64(dice.f64());
        Decision { due, arrived, facts, outcome }
    }

    fn stats(&self) -> Response<Full<Bytes>> {
        let stats = self.books.lock().tally.stats(self.clock.now());
        match serde_json::to_string(&stats) {
            Ok(body) => respond(StatusCode::OK, HeaderMap::new(), body),
            Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, HeaderMap::new(), error.to_string()),
        }
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

fn respond(status: StatusCode, mut headers: HeaderMap, body: String) -> Response<Full<Bytes>> {
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
        let ask = format!("GET {STATS_PATH} HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n");
        assert!(talk(&api, &ask).await.contains(r#""accepted":0,"refused":0"#));
        assert!(talk(&api, LAST).await.starts_with("HTTP/1.1 200"));
        assert!(talk(&api, &ask).await.contains(
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
