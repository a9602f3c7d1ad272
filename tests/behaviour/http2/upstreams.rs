//! HTTP/2 towards upstreams: one connection for many requests, and the fate of the requests when it ends.

use std::{
    collections::HashMap,
    io,
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Barrier,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use andante::clock::{Clock, Instant};
use parking_lot::Mutex;

use crate::support::{
    Client, PATIENCE, Upstream, eventually,
    h2::{Client2, Frames, Upstream2, kind},
    message::Stream,
    tls::{Interceptor, Server, TRUSTED},
};

pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;

/// Number of requests that each connection has carried.
type Counts = Arc<Mutex<HashMap<usize, usize>>>;

/// Where a script stops.
pub(super) struct Halt {
    come: Sender<()>,
    going_on: Mutex<Receiver<()>>,
}

/// The other end of a [`Halt`], which lets the script continue.
pub(super) struct Halted {
    came: Receiver<()>,
    go_on: Sender<()>,
}

/// andante with one thread, so with one pool, and with a rule that says `more` and makes HTTPS of HTTP.
pub(super) fn andante(port: u16, more: &str) -> Interceptor {
    let rule = format!("[[rule]]\nhost = \"127.0.0.1:{port}\"\nupstream = \"https\"\n{more}\n");
    Interceptor::with_config(&rule, &["--threads", "1"])
}

/// An upstream whose frames `script` reads and writes, with the number of its connection.
pub(super) fn framed(
    settings: &'static [(u16, u32)],
    script: impl Fn(usize, Frames<Box<dyn Stream>>) + Send + Sync + 'static,
) -> Upstream {
    let count = Mutex::new(0);
    let leaf = TRUSTED.leaf(&["127.0.0.1"]);
    Upstream::secure(Server::new(&leaf, &["h2"]), move |connection| {
        let number = {
            let mut count = count.lock();
            *count += 1;
            *count
        };
        if let Some(frames) = connection.frames(settings) {
            script(number, frames);
        }
    })
}

/// An upstream whose first connection `script` handles; requests on other connections are answered with `elsewhere`.
pub(super) fn framed_first(
    settings: &'static [(u16, u32)],
    other: &'static str,
    script: impl Fn(&mut Frames<Box<dyn Stream>>) + Send + Sync + 'static,
) -> Upstream {
    framed(settings, move |number, mut frames| match number {
        1 => script(&mut frames),
        _ => answer_all(&mut frames, other),
    })
}

/// A place in a script that is not passed before the test says so, and the test's end of it.
pub(super) fn halt() -> (Halt, Halted) {
    let ((come, came), (go_on, going_on)) = (channel(), channel());
    (Halt { come, going_on: Mutex::new(going_on) }, Halted { came, go_on })
}

/// The next request's stream.
pub(super) fn request(frames: &mut Frames<Box<dyn Stream>>) -> Option<u32> {
    frames.next_of(kind::HEADERS).map(|head| head.stream)
}

/// Answers each request that is still to come.
fn answer_all(frames: &mut Frames<Box<dyn Stream>>, body: &str) {
    while let Some(stream) = request(frames) {
        answer(frames, stream, body);
    }
}

fn answer(frames: &mut Frames<Box<dyn Stream>>, stream: u32, body: &str) {
    frames.headers(stream, &[(":status", "200")], false);
    frames.data(stream, body.as_bytes(), true);
}

// === impl Halt ===

impl Halt {
    /// Says that it has come here, and waits.
    pub(super) fn here(&self) {
        let _ = self.come.send(());
        let _ = self.going_on.lock().recv_timeout(PATIENCE);
    }
}

// === impl Halted ===

impl Halted {
    /// Waits until the script has come to its halt.
    pub(super) fn reached(&self) {
        self.came.recv_timeout(PATIENCE).expect("the script to come to its halt");
    }

    /// Lets one go on.
    pub(super) fn go_on(&self) {
        self.go_on.send(()).unwrap();
    }
}

#[test]
fn requests_share_one_connection() {
    const MANY: usize = 30;
    let all = Arc::new(tokio::sync::Barrier::new(MANY));
    let upstream = Upstream2::serving(move |exchange| {
        let all = all.clone();
        async move {
            all.wait().await;
            exchange.answer(200, &[], "ok");
        }
    });
    let andante = andante(upstream.address().port(), "");
    let (proxy, url) = (andante.andante.proxy(), upstream.url("/"));
    let mut client = Client2::connect(proxy);
    let older: Vec<_> = (0..MANY / 2)
        .map(|_| {
            let url = url.clone();
            thread::spawn(move || Client::get(proxy, &url).status())
        })
        .collect();
    let newer: Vec<_> = (0..MANY / 2).map(|_| client.get(&url)).collect();
    assert!(newer.into_iter().all(|asked| asked.answer().status() == 200));
    assert!(older.into_iter().all(|asked| asked.join().unwrap() == 200));
    assert_eq!((upstream.requests().len(), upstream.connections()), (MANY, 1));
}

#[test]
fn a_request_is_what_http2_wants_it_to_be() {
    let upstream = Upstream2::ok();
    let andante = andante(upstream.address().port(), "");
    let mut client = Client::connect(andante.andante.proxy());
    client.send(format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: gzip\r\n\
         Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        upstream.url("/a//b?c=%2f"),
        upstream.address()
    ));
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    assert!(answer.field("via").unwrap().starts_with("2 andante-"), "the upstream spoke 2: {answer:?}");
    let request = upstream.request();
    assert_eq!(request.line(), format!("POST https://{}/a//b?c=%2f HTTP/2", upstream.address()));
    assert!(request.field("via").unwrap().starts_with("1.1 andante-"), "{request:?}");
    for gone in ["host", "connection", "x-hop", "keep-alive", "te", "transfer-encoding", "content-length"] {
        assert!(!request.has(gone), "{gone}: {request:?}");
    }
    assert_eq!(request.text(), "hi");
}

/// An upstream that holds all requests until a command, and records the connection of each.
fn holding(settings: &'static [(u16, u32)]) -> (Upstream, Counts, Halted) {
    let (halt, halted) = halt();
    let open = Counts::default();
    let counted = open.clone();
    let upstream = framed(settings, move |number, mut frames| {
        let mut streams = Vec::new();
        let most = settings[0].1 as usize;
        while streams.len() < most {
            let Some(stream) = request(&mut frames) else { return };
            streams.push(stream);
            *counted.lock().entry(number).or_default() += 1;
        }
        halt.here();
        streams.iter().for_each(|stream| answer(&mut frames, *stream, "ok"));
        while let Some(stream) = request(&mut frames) {
            *counted.lock().entry(number).or_default() += 1;
            answer(&mut frames, stream, "ok");
        }
    });
    (upstream, open, halted)
}

#[test]
fn no_more_requests_are_under_way_than_the_upstream_allows() {
    let (upstream, open, halted) = holding(&[(MAX_CONCURRENT_STREAMS, 4)]);
    let andante = andante(upstream.port(), "");
    let mut client = Client2::connect(andante.andante.proxy());
    let asked: Vec<_> = (0..12).map(|_| client.get(&upstream.url("/"))).collect();
    eventually("all requests", || (open.lock().values().sum::<usize>() == 12).then_some(()));
    assert_eq!(*open.lock(), HashMap::from([(1, 4), (2, 4), (3, 4)]));
    (0..3).for_each(|_| halted.go_on());
    assert!(asked.into_iter().all(|asked| asked.answer().text() == "ok"));
    assert_eq!(client.get(&upstream.url("/")).answer().text(), "ok");
    assert_eq!(upstream.connections(), 3, "there is room again");
}

#[test]
fn an_upstream_that_lowers_its_stream_limit_is_obeyed() {
    let (halt, halted) = halt();
    let upstream = framed_first(&[(MAX_CONCURRENT_STREAMS, 10)], "another connection", move |frames| {
        let streams = [request(frames).unwrap(), request(frames).unwrap()];
        frames.settings(&[(MAX_CONCURRENT_STREAMS, 2)]);
        while frames.next_of(kind::SETTINGS).expect("an acknowledgement").flags == 0 {}
        halt.here();
        streams.iter().for_each(|stream| answer(frames, *stream, "first connection"));
        answer_all(frames, "first connection");
    });
    let andante = andante(upstream.port(), "");
    let mut client = Client2::connect(andante.andante.proxy());
    let first: Vec<_> = (0..2).map(|_| client.get(&upstream.url("/"))).collect();
    halted.reached();
    assert_eq!(client.get(&upstream.url("/")).answer().text(), "another connection");
    halted.go_on();
    assert!(first.into_iter().all(|asked| asked.answer().text() == "first connection"));
}

#[test]
fn an_upstream_that_allows_no_stream_is_a_502_that_names_the_setting() {
    let upstream = framed(&[(MAX_CONCURRENT_STREAMS, 0)], |_, mut frames| while frames.next().is_some() {});
    let andante = andante(upstream.port(), "");
    let answer = Client::get(andante.andante.proxy(), &upstream.url("/"));
    crate::support::rejected(&answer, 502, "http_protocol_error", "no room at all");
    assert!(answer.text().contains("SETTINGS_MAX_CONCURRENT_STREAMS"), "{answer:?}");
}

#[test]
fn an_upstream_that_closes_before_it_has_said_what_it_allows_has_seen_nothing() {
    let leaf = TRUSTED.leaf(&["127.0.0.1"]);
    let first = Mutex::new(true);
    let upstream = Upstream::secure(Server::new(&leaf, &["h2"]), move |connection| {
        if !std::mem::take(&mut *first.lock()) {
            answer_all(&mut connection.frames(&[]).unwrap(), "ok");
        }
    });
    let andante = andante(upstream.port(), "");
    let post =
        format!("POST {} HTTP/1.1\r\nHost: {}\r\nContent-Length: 2\r\n\r\nhi", upstream.url("/"), upstream.address());
    assert_eq!(Client::ask(andante.andante.proxy(), post).text(), "ok");
    assert_eq!(upstream.connections(), 2);
}

/// Lets connections to `port` through: the first at once, the next when there are `more`.
fn gate(port: u16, more: usize) -> u16 {
    let gate = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, all) = (gate.local_addr().unwrap().port(), Arc::new(Barrier::new(more)));
    let pipe = |mut from: TcpStream, mut to: TcpStream| thread::spawn(move || io::copy(&mut from, &mut to));
    thread::spawn(move || {
        for (index, worker) in gate.incoming().enumerate() {
            let (worker, all) = (worker.unwrap(), all.clone());
            thread::spawn(move || {
                if index > 0 {
                    all.wait();
                }
                let upstream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                pipe(worker.try_clone().unwrap(), upstream.try_clone().unwrap());
                pipe(upstream, worker);
            });
        }
    });
    at
}

#[test]
fn connections_that_cannot_be_shared_are_made_side_by_side() {
    const MANY: usize = 6;
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &["http/1.1"]));
    let port = gate(upstream.port(), MANY - 1);
    let andante = andante(port, "");
    let (proxy, url) = (andante.andante.proxy(), format!("http://127.0.0.1:{port}/"));
    let clock = Clock::start();
    let mut client = Client2::connect(proxy);
    let asked: Vec<_> = (0..MANY).map(|_| client.get(&url)).collect();
    assert!(asked.into_iter().all(|asked| asked.answer().status() == 200));
    let took = clock.now().since(Instant::START);
    assert!(took < std::time::Duration::from_millis(900), "one waited for the other: {took:?}");
}

#[test]
fn a_worker_that_does_not_read_small_frames_stops_nobody_else() {
    const FRAMES: usize = 300;
    let upstream = Upstream2::serving(|exchange| async move {
        let target = exchange.request.target();
        let mut sending = exchange.start(200, &[], false).unwrap();
        if target.ends_with("/small") {
            return drop(sending.send_data("ok".into(), true));
        }
        for frame in 0..FRAMES {
            sending.send_data(vec![b'x'; 20].into(), frame + 1 == FRAMES).unwrap();
            // So that each of them is written as a frame of its own.
            tokio::task::yield_now().await;
        }
    });
    let andante = andante(upstream.address().port(), "");
    // The window is so small that no byte passes: the answer stays with andante.
    let settings = h2::client::Builder::new().initial_window_size(0).initial_connection_window_size(16 << 20).clone();
    let mut slow = Client2::with(&settings, andante.andante.proxy());
    let stuck = slow.get(&upstream.url("/many")).head();
    let mut other = Client2::connect(andante.andante.proxy());
    for _ in 0..50 {
        assert_eq!(other.get(&upstream.url("/small")).answer().text(), "ok");
    }
    assert_eq!(upstream.connections(), 1);
    slow.widen(65_535);
    assert_eq!(stuck.rest().body.len(), 20 * FRAMES);
}

#[test]
fn the_time_to_an_answer_is_that_of_its_own_request_and_not_of_the_last_one_on_the_connection() {
    let (halt, halted) = halt();
    let upstream = framed(&[], move |_, mut frames| {
        let Some(slow) = request(&mut frames) else { return };
        halt.here();
        let Some(quick) = request(&mut frames) else { return };
        answer(&mut frames, quick, "quick");
        answer(&mut frames, slow, "slow");
        answer_all(&mut frames, "ok");
    });
    let andante = andante(upstream.port(), "");
    let mut client = Client2::connect(andante.andante.proxy());
    let slow = client.get(&upstream.url("/"));
    halted.reached();
    thread::park_timeout(std::time::Duration::from_millis(800));
    halted.go_on();
    let quick = client.get(&upstream.url("/"));
    assert_eq!((quick.answer().text(), slow.answer().text()), ("quick".into(), "slow".into()));
    let metrics = andante.andante.metrics();
    let sum = metrics.lines().find(|line| line.starts_with("andante_upstream_seconds_sum")).expect("a histogram");
    let sum: f64 = sum.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(sum >= 0.75, "one of them took 0.8 s: {sum}");
}
