//! A connection to an API that many workers share: it ends when it has no user, and no worker can take it from the
//! others.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::upstreams::andante;
use crate::{
    lifecycle::pass,
    support::{
        Andante, Client, eventually,
        h2::{Client2, Exchange, Upstream2},
    },
};

/// Number of live tasks in `/metrics`.
fn tasks(andante: &Andante) -> u64 {
    let metrics = andante.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix("andante_tasks "));
    line.expect("andante_tasks").parse().unwrap()
}

#[test]
fn a_connection_to_an_api_that_nobody_uses_is_closed_and_its_tasks_end() {
    let upstream = Upstream2::ok();
    let andante = andante(upstream.address().port(), "[timeouts]\nupstream-keep-alive = \"100ms\"");
    let before = tasks(&andante.andante);
    for round in 1..=2 {
        assert_eq!(Client::get(andante.andante.proxy(), &upstream.url("/")).text(), "ok");
        andante.andante.wait_for(|status| status["connections"]["upstream"] == 0);
        assert_eq!(upstream.connections(), round);
    }
    let was = "as many tasks as before the first request";
    eventually(was, || (tasks(&andante.andante) == before).then_some(()));
}

/// A client that reads nothing: its window is closed.
fn unread(andante: &Andante) -> Client2 {
    let settings = h2::client::Builder::new().initial_window_size(0).initial_connection_window_size(16 << 20).clone();
    Client2::with(&settings, andante.proxy())
}

/// An upstream that sends on each stream until the stream ends, and counts ended streams. It sends small pieces for
/// `/flood`, a large answer for `/large`, and otherwise an event every 100 ms.
fn upstream(ended: Arc<AtomicUsize>) -> Upstream2 {
    Upstream2::serving(move |exchange| {
        let ended = ended.clone();
        async move {
            let target = exchange.request.target();
            let Some(mut sending) = exchange.start(200, &[], false) else { return };
            let (piece, pause) = match target.rsplit('/').next() {
                Some("flood") => ("0123456789".to_owned(), None),
                Some("large") => ("x".repeat(16_000), None),
                _ => ("event\n".to_owned(), Some(Duration::from_millis(100))),
            };
            while Exchange::push(&mut sending, piece.clone(), false).await.is_ok() {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    // So that each of them is written as a frame of its own.
                    None => tokio::task::yield_now().await,
                }
            }
            ended.fetch_add(1, Ordering::AcqRel);
        }
    })
}

#[test]
fn a_worker_that_reads_is_served_beside_one_that_never_does_however_small_the_pieces() {
    /// Enough events to see the difference; a minute shows no more.
    const EVENTS: usize = 120;
    let ended = Arc::new(AtomicUsize::new(0));
    let upstream = upstream(ended.clone());
    let andante = andante(upstream.address().port(), "");
    let events: usize = std::env::var("EVENTS").ok().and_then(|events| events.parse().ok()).unwrap_or(EVENTS);
    let mut reader = Client2::connect(andante.andante.proxy());
    let mut read = reader.get(&upstream.url("/events")).head();
    let mut attacker = unread(&andante.andante);
    let floods: Vec<_> = (0..3).map(|_| attacker.get(&upstream.url("/flood")).head()).collect();
    let mut got = 0;
    while got < 6 * events {
        let piece = read.next().expect("more events").unwrap_or_else(|error| panic!("{error} after {got} bytes"));
        got += piece.len();
    }
    assert_eq!(upstream.connections(), 1);
    assert_eq!(ended.load(Ordering::Acquire), 0, "their windows stop them");
    assert_eq!(andante.andante.status()["incidents"], serde_json::json!([]));
    drop((floods, attacker));
    eventually("the streams that nobody reads to be reset", || (ended.load(Ordering::Acquire) == 3).then_some(()));
}

#[test]
fn large_answers_that_nobody_reads_leave_room_for_others_on_the_connection() {
    const MANY: usize = 60;
    let upstream = upstream(Arc::default());
    let andante = andante(upstream.address().port(), "");
    let mut idle = unread(&andante.andante);
    let unread: Vec<_> = (0..MANY).map(|_| idle.get(&upstream.url("/large")).head()).collect();
    // Waits until each stream has used its window.
    pass(Duration::from_secs(2));
    let mut reader = Client2::connect(andante.andante.proxy());
    let mut read = reader.get(&upstream.url("/events")).head();
    assert_eq!(read.next().expect("an event").unwrap(), "event\n");
    assert_eq!(upstream.connections(), 1);
    assert_eq!(unread.len(), MANY);
}

#[test]
fn a_fleet_that_leaves_in_the_middle_of_its_answers_ends_nobody_elses() {
    const FLEET: usize = 200;
    const READ: usize = 300_000;
    let upstream = upstream(Arc::default());
    let andante = andante(upstream.address().port(), "");
    let mut reader = Client2::connect(andante.andante.proxy());
    let mut read = reader.get(&upstream.url("/events")).head();
    assert_eq!(read.next().expect("an event").unwrap(), "event\n");
    let (all, url) = (Barrier::new(FLEET), upstream.url("/large"));
    thread::scope(|scope| {
        for _ in 0..FLEET {
            scope.spawn(|| {
                let mut worker = TcpStream::connect(andante.andante.proxy()).unwrap();
                write!(worker, "GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                worker.read_exact(&mut vec![0; READ]).unwrap();
                // All of them at once, as by one Ctrl-C.
                all.wait();
            });
        }
    });
    for _ in 0..10 {
        assert_eq!(read.next().expect("an event").unwrap(), "event\n");
    }
    assert_eq!(upstream.connections(), 1);
}
