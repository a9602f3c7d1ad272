//! The promise, against an API that counts: `andante mock`, or an upstream that looks how many are with it.
//!
//! The tests assert to the letter that no request is refused, unless the machine itself stops programs for longer than
//! a margin for jitter can cover. They assert the used share of the limit only as far as a busy machine allows.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use andante::clock::{Clock, Instant};

use crate::support::{Andante, Client, Message, Mock, Upstream};

/// All of `workers` send `each` requests one after the other, each on a connection of its own; their answers.
fn burst(andante: &Andante, to: SocketAddr, workers: usize, each: usize) -> Vec<Message> {
    let proxy = andante.proxy();
    let work = move || {
        let mut client = Client::connect(proxy);
        let request = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n");
        let answer = |_| {
            client.send(&request);
            client.answer()
        };
        (0..each).map(answer).collect::<Vec<_>>()
    };
    let workers: Vec<_> = (0..workers).map(|_| thread::spawn(work)).collect();
    workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
}

/// A program that has nothing to do but to be on time, and sees how late it is at most.
struct Watch {
    stop: Arc<AtomicBool>,
    late: thread::JoinHandle<Duration>,
}

impl Watch {
    const TURN: Duration = Duration::from_millis(2);

    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, clock) = (stop.clone(), Clock::start());
        let late = thread::spawn(move || {
            let mut most = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let before = clock.now();
                thread::park_timeout(Self::TURN);
                most = most.max(clock.now().since(before).saturating_sub(Self::TURN));
            }
            most
        });
        Self { stop, late }
    }

    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.late.join().unwrap()
    }
}

fn count(answers: &[Message], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status() == status).count()
}

/// A machine that stops programs for longer than the margin that andante starts with.
const STALL: Duration = Duration::from_millis(10);

/// Sends `requests` of up to 100 workers to an API that enforces `limit` as `mock` says, through an andante with the
/// limit `ours`. Asserts that none is refused unless the machine was stalled, and that `least` of the limit is used.
fn none_refused(limit: &str, mock: &[&str], ours: &str, requests: usize, least: f64) {
    let each = requests.div_ceil(100);
    let workers = requests / each;
    let mock = Mock::start(&[&["--limit", limit], mock].concat());
    let andante = Andante::serve(&["--limit", &format!("{}={ours}", mock.address())]);
    let watch = Watch::start();
    let answers = burst(&andante, mock.address(), workers, each);
    let (stats, late) = (mock.stats(), watch.stop());
    let refused = stats["refused"].as_u64().unwrap() as usize;
    // What is refused is sent again.
    assert_eq!((count(&answers, 200), &stats["accepted"]), (requests, &requests.into()));
    // A process that is stopped between a slot and the socket sends late, like a delayed packet: `strict` covers that.
    let stalled = late > STALL;
    let excused = if stalled && !ours.contains("strict") { requests / 10 } else { 0 };
    let least = match (stalled, refused) {
        (false, _) => least,
        (true, 0) => least * 0.9,
        // A refusal may pause all requests for one of the six seconds.
        (true, _) => least * 0.75,
    };
    assert!(refused <= excused, "{refused} refused, the machine was {late:?} late at most: {stats:#}");
    let share = stats["used_share"].as_f64().unwrap();
    assert!(share >= least, "{share} of the limit was used, the machine was {late:?} late at most: {stats:#}");
}

#[test]
fn a_burst_from_many_workers_uses_all_of_the_limit_and_no_more() {
    none_refused("50/s", &[], "50/s", 300, 0.97);
}

#[test]
fn latency_and_jitter_of_the_answers_change_little() {
    none_refused("50/s", &["--latency", "20ms", "--jitter", "30ms"], "50/s", 200, 0.92);
}

#[test]
fn strict_holds_for_any_jitter() {
    // Each window lasts from the first request to the last answer.
    none_refused("20/s", &["--latency", "20ms", "--jitter", "60ms"], "20/s strict", 80, 0.85);
}

#[test]
fn a_fixed_window_refuses_nothing() {
    none_refused("40/s", &["--window", "fixed"], "40/s", 120, 0.95);
}

#[test]
fn a_token_bucket_refuses_nothing() {
    none_refused("40/s", &["--window", "bucket"], "40/s", 120, 0.95);
}

#[test]
fn a_burst_that_is_allowed_leaves_at_once_and_the_window_is_kept() {
    none_refused("30/s", &[], "30/s burst 30", 90, 0.9);
}

#[test]
fn of_two_limits_both_hold() {
    let one = thread::spawn(|| none_refused("30/s", &[], "30/s burst 30,40/2s burst 40", 100, 0.5));
    none_refused("40/2s", &[], "30/s burst 30,40/2s burst 40", 100, 0.9);
    one.join().unwrap();
}

#[test]
fn a_lane_is_first_come_first_served() {
    const CROWD: usize = 25;
    let mock = Mock::start(&[]);
    let andante = Andante::serve(&["--limit", &format!("{}=10/s,in-flight 1", mock.address())]);
    let mut clients: Vec<_> = (1..=CROWD)
        .map(|arrived| {
            let mut client = Client::connect(andante.proxy());
            client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", mock.url("/"), mock.address()));
            let here = |lane: &serde_json::Value| lane["sent_total"].as_u64()?.checked_add(lane["waiting"].as_u64()?);
            andante.wait_for(|status| here(&status["lanes"][0]) == Some(arrived as u64));
            client
        })
        .collect();
    let numbers: Vec<u64> =
        clients.iter_mut().map(|client| client.answer().json()["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=CROWD as u64).collect::<Vec<_>>());
}

#[test]
fn no_more_are_in_flight_than_may_be() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (here, peak) = (now.clone(), most.clone());
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            peak.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
            thread::park_timeout(Duration::from_millis(10));
            // The request is in flight until the last byte, so the next one can only come later.
            here.fetch_sub(1, Ordering::SeqCst);
            connection.send("k");
        }
    });
    let andante = Andante::serve(&["--limit", &format!("{}=in-flight 5", upstream.address())]);
    let answers = burst(&andante, upstream.address(), 40, 10);
    assert_eq!((count(&answers, 200), most.load(Ordering::SeqCst)), (400, 5));
    // Each of andante's threads has connections of its own.
    assert!(upstream.connections() <= 40, "{} connections for 5 in flight", upstream.connections());
}

#[test]
fn a_window_that_others_have_spent_delays_the_lane_and_no_worker_sees_it() {
    let mock = Mock::start(&["--limit", "20/2s"]);
    for _ in 0..20 {
        assert_eq!(Client::ask(mock.address(), "GET / HTTP/1.1\r\nHost: mock\r\n\r\n").status(), 200);
    }
    let andante = Andante::serve(&["--limit", &format!("{}=20/2s", mock.address())]);
    let clock = Clock::start();
    let answers = burst(&andante, mock.address(), 40, 1);
    let took = clock.now().since(Instant::START);
    assert_eq!(count(&answers, 200), 40);
    assert!(took < Duration::from_secs(9), "40 requests at 10/s after a pause of 2 s took {took:?}");
    let status = andante.status();
    // The first refusal shows it. Requests in flight beside it are refused, too.
    let refused = status["lanes"][0]["answered_429_total"].as_u64().unwrap();
    assert!((1..=5).contains(&refused), "{refused} refused");
    assert!(status["lanes"][0]["limits"][0]["margin_ms"].as_f64().unwrap() < 500.0, "{status:#}");
    let after = burst(&andante, mock.address(), 10, 1);
    assert_eq!(count(&after, 200), 10);
}
