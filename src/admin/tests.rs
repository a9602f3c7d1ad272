//! The pages over a real connection.

mod api;
mod largest_requests;
mod live;

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::JoinHandle,
};

use parking_lot::Mutex;

use super::{
    detail::{LaneDetail, LaneName, News, Sample},
    explanation::Explanation,
    status::{BudgetStatus, GateStatus, LaneStatus, LimitSource, LimitStatus},
    *,
};
use crate::{
    clock::{Clock, Instant},
    lane::LaneActivity,
    limit::Unit,
};

struct AdminServer {
    at: SocketAddr,
    state: Arc<FakeSource>,
    metrics: Metrics,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

struct FakeSource {
    ready: AtomicBool,
    lanes: Mutex<Vec<LaneStatus>>,
    turns: AtomicU64,
    steered: Mutex<Vec<(LaneChoice, Steering)>>,
}

struct HttpReply {
    status: u16,
    head: String,
    body: String,
}

// === impl AdminServer ===

impl AdminServer {
    async fn new(lanes: Vec<LaneStatus>) -> Self {
        Self::with_token(lanes, None).await
    }

    async fn with_token(lanes: Vec<LaneStatus>, token: Option<Token>) -> Self {
        Self::at("127.0.0.1:0", lanes, token).await
    }

    async fn at(address: &str, lanes: Vec<LaneStatus>, token: Option<Token>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let at = listener.local_addr().unwrap();
        let state = Arc::new(FakeSource {
            ready: AtomicBool::new(true),
            lanes: Mutex::new(lanes),
            turns: AtomicU64::new(0),
            steered: Mutex::default(),
        });
        let metrics = Metrics::new();
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(listener, Arc::clone(&state) as _, metrics.clone(), token, async move {
            let _ = stopped.await;
        }));
        Self { at, state, metrics, stop: Some(stop), server }
    }

    async fn get(&self, path: &str) -> HttpReply {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await
    }

    /// Sends `request` and reads until andante closes the connection.
    async fn ask(&self, request: &str) -> HttpReply {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        HttpReply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

impl StatusSource for FakeSource {
    fn status(&self) -> Status {
        let uptime_s = self.turns.fetch_add(1, Ordering::Relaxed) as f64;
        Status { version: "1.2.3".into(), uptime_s, lanes: self.lanes.lock().clone(), ..Status::default() }
    }

    fn sample(&self) -> Sample {
        let activity = |lane: &LaneStatus| LaneActivity {
            waiting: lane.waiting as usize,
            sent: lane.sent_total,
            refused: lane.refused_total,
            refused_by_api: lane.answered_429_total,
            pauses: 0,
            paused: lane.gate.is_some(),
            waited_most: Duration::ZERO,
            per_second: lane.limits.first().map(|limit| limit.per_second),
        };
        let lanes = self.lanes.lock().iter().map(|lane| (LaneName::of(lane), activity(lane))).collect();
        Sample { lanes, ..Sample::default() }
    }

    fn lane(&self, name: &LaneName) -> Option<LaneDetail> {
        let lane = self.lanes.lock().iter().find(|lane| LaneName::of(lane) == *name).cloned()?;
        Some(LaneDetail { lane, ..LaneDetail::default() })
    }

    fn news(&self, after: u64) -> Vec<News> {
        let (rule, host, text) = ("api".into(), "a".into(), "<b>paused</b>".into());
        [News { number: 1, at_s: 0.0, rule, host, text }].into_iter().filter(|news| news.number > after).collect()
    }

    fn units(&self, rule: &str) -> Vec<Unit> {
        Unit::named("admin-tokens").into_iter().filter(|_| rule == "api").collect()
    }

    fn steer(&self, choice: &LaneChoice, steering: &Steering) -> Option<Steered> {
        let lanes = self.lanes.lock();
        let is_meant = |lane: &&LaneStatus| match (choice, steering.rule()) {
            (LaneChoice::One(name), _) => LaneName::of(lane) == *name,
            (LaneChoice::OfHost(host), _) => *lane.host == **host,
            (LaneChoice::All, Some(rule)) => *lane.rule == **rule,
            (LaneChoice::All, None) => true,
        };
        let found = lanes.iter().filter(is_meant).count();
        if found > 0 {
            self.steered.lock().push((choice.clone(), steering.clone()));
        }
        (found > 0).then_some(Steered { lanes: found, requests: 0 })
    }

    fn explain(&self, request: &http::Request<()>, client: std::net::IpAddr) -> Explanation {
        Explanation { seen: format!("{} {} {client}", request.method(), request.uri()), ..Explanation::default() }
    }

    fn ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

fn lane(rule: &str, host: &str, waiting: u64, (used, room): (u64, u64)) -> LaneStatus {
    let limits = vec![LimitStatus { limit: "10/s".into(), used, room, ..LimitStatus::default() }];
    LaneStatus { rule: rule.into(), label: rule.into(), host: host.into(), waiting, limits, ..LaneStatus::default() }
}

#[tokio::test]
async fn health_is_independent_of_readiness() {
    let world = AdminServer::new(Vec::new()).await;
    assert_eq!(world.get("/readyz").await.status, 200);
    world.state.ready.store(false, Ordering::Relaxed);
    let reply = world.get("/readyz").await;
    assert_eq!((reply.status, &*reply.body), (503, "draining\n"));
    let reply = world.get("/healthz").await;
    assert_eq!((reply.status, &*reply.body), (200, "ok\n"));
}

#[tokio::test]
async fn metrics_are_in_the_text_format_and_know_the_lanes() {
    let lanes = vec![lane("api", "a", 0, (1, 9)), lane("api", "b", 0, (5, 5)), lane("free", "c", 0, (0, 0))];
    let world = AdminServer::new(lanes).await;
    world.metrics.client_connections.set(3);
    let reply = world.get("/metrics").await;
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains("content-type: text/plain; version=0.0.4"), "{}", reply.head);
    assert!(reply.body.contains("\nandante_connections{side=\"client\"} 3\n"));
    assert!(reply.body.contains("\nandante_slots_used_ratio{rule=\"api\"} 0.5\n"));
    assert!(!reply.body.contains("slots_used_ratio{rule=\"free\""));
}

#[tokio::test]
async fn metrics_tell_what_the_lanes_have_learned() {
    let learned = |per_second| LimitStatus { per_second, source: LimitSource::Learned, ..LimitStatus::default() };
    let budget = |left, requests| BudgetStatus { left: Some(left), requests, ..BudgetStatus::default() };
    let gate = Some(GateStatus { reason: "retry-after".into(), opens_in_s: Some(3.0) });
    let budgets = vec![budget(7.0, true), budget(0.0, false)];
    let mut one = LaneStatus { gate, budgets, ..lane("api", "a", 0, (0, 1)) };
    (one.in_flight_limit, one.in_flight) = (Some(7), 9);
    one.limits.push(learned(1.0));
    let mut two = LaneStatus { budgets: vec![budget(5.0, true)], ..lane("api", "b", 0, (0, 1)) };
    two.in_flight_limit = Some(8);
    two.limits.push(learned(2.0));
    // A host without a rule.
    let free = LaneStatus { label: "c".into(), limits: vec![learned(5.0)], ..lane("", "c", 0, (0, 1)) };
    let world = AdminServer::new(vec![one, two, free]).await;
    world.metrics.rule("api").set_limit_per_second(Some(10.0));
    let text = world.get("/metrics").await.body;
    for line in [
        "andante_gate_closed{rule=\"api\",reason=\"retry-after\"} 1",
        "andante_gate_closed{rule=\"api\",reason=\"breaker\"} 0",
        "andante_gate_closed{rule=\"c\",reason=\"banned\"} 0",
        "andante_in_flight_limit{rule=\"api\"} 7",
        "andante_remaining{rule=\"api\"} 5",
        "andante_limit_per_second{rule=\"api\",source=\"config\"} 10",
        "andante_limit_per_second{rule=\"api\",source=\"learned\"} 1",
        "andante_limit_per_second{rule=\"c\",source=\"learned\"} 5",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line:?} in:\n{text}");
    }
    assert_eq!(text.matches("# HELP andante_limit_per_second The pace").count(), 1, "{text}");
    assert_eq!(text.matches("# TYPE andante_limit_per_second").count(), 1, "{text}");
}

#[tokio::test]
async fn status_lists_as_many_lanes_as_it_is_asked_for() {
    let world = AdminServer::new(vec![lane("api", "a", 0, (0, 1)), lane("api", "b", 2, (0, 1))]).await;
    let reply = world.get("/status?limit=1").await;
    assert!(reply.head.contains("content-type: application/json"));
    let status: Status = serde_json::from_str(&reply.body).unwrap();
    assert_eq!((status.lanes_total, status.lanes.len(), &*status.lanes[0].host), (2, 1, "b"));
    let all: Status = serde_json::from_str(&world.get("/status").await.body).unwrap();
    assert_eq!(all.lanes.len(), 2);
    let wrong = world.get("/status?limit=few").await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("\"few\""));
}

#[tokio::test]
async fn an_unknown_page_lists_the_known_ones() {
    let world = AdminServer::new(Vec::new()).await;
    let reply = world.get("/metric").await;
    assert_eq!(reply.status, 404);
    assert!(reply.body.contains("/metrics") && reply.body.contains("HTTP_PROXY"));
    assert_eq!(world.get("/").await.status, 200);
}

#[tokio::test]
async fn pages_are_only_for_reading() {
    let world = AdminServer::new(Vec::new()).await;
    let reply = world.ask("POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(reply.status, 405);
    assert!(reply.head.contains("\r\nallow: get, head"));
    let get = world.get("/").await;
    let head = world.ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!((head.status, &*head.body), (200, ""));
    assert!(head.head.contains(&format!("content-length: {}", get.body.len())));
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_hung_up_on() {
    let world = AdminServer::new(Vec::new()).await;
    let mut silent = TcpStream::connect(world.at).await.unwrap();
    silent.write_all(b"GET / HT").await.unwrap();
    let _ = silent.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn a_probe_takes_the_place_of_one_that_says_nothing() {
    let world = AdminServer::new(Vec::new()).await;
    let clock = Clock::start();
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..3 * CONNECTIONS {
        let mut stream = TcpStream::connect(world.at).await.unwrap();
        let _ = stream.write_all(b"GET / HT").await;
        silent.push(stream);
    }
    assert_eq!(world.get("/readyz").await.status, 200);
    let took = clock.now().since(Instant::START);
    assert!(took < HEAD, "{took:?}");
}

#[tokio::test]
async fn pages_of_others_are_shown_probes_at_most() {
    let world = AdminServer::new(Vec::new()).await;
    let at = world.at;
    for fields in [
        "Host: evil.example".to_owned(),
        "Host: 127.0.0.1.evil.example:9128".to_owned(),
        format!("Host: {at}\r\nSec-Fetch-Site: cross-site"),
        format!("Host: {at}\r\nSec-Fetch-Site: same-site"),
        format!("Host: {at}\r\nOrigin: http://evil.example"),
        format!("Host: {at}\r\nOrigin: null"),
    ] {
        for (page, status) in [
            ("/", 403),
            ("/status", 403),
            ("/metrics", 403),
            ("/nowhere", 403),
            ("/readyz", 200),
            ("/events", 403),
            ("/page/main.js", 403),
        ] {
            let reply = world.ask(&format!("GET {page} HTTP/1.1\r\n{fields}\r\n\r\n")).await;
            assert_eq!(reply.status, status, "{page} {fields}");
        }
    }
    for fields in [
        format!("Host: {at}"),
        format!("Host: localhost:{}", at.port()),
        "Host: [::1]:9128".to_owned(),
        format!("Host: {at}\r\nSec-Fetch-Site: none"),
        format!("Host: {at}\r\nOrigin: http://{at}\r\nSec-Fetch-Site: same-origin"),
    ] {
        let reply = world.ask(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n\r\n")).await;
        assert_eq!(reply.status, 200, "{fields}");
    }
}

#[tokio::test]
async fn an_answer_ends_its_connection() {
    let world = AdminServer::new(Vec::new()).await;
    assert!(world.get("/").await.head.contains("\r\nconnection: close"));
}

#[tokio::test(start_paused = true)]
async fn stopping_closes_the_listener_and_waits_for_no_one_for_long() {
    let mut world = AdminServer::new(Vec::new()).await;
    let mut silent = TcpStream::connect(world.at).await.unwrap();
    silent.write_all(b"GET / HT").await.unwrap();
    let _ = world.stop.take().unwrap().send(());
    world.server.await.unwrap();
    assert!(TcpStream::connect(world.at).await.is_err());
}
