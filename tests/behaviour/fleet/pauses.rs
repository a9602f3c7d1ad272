//! A pause that an API has asked one andante for holds for all that share its store.

use std::{fs, sync::Arc, thread, time::Duration};

use andante::clock::{Clock, Instant};
use parking_lot::Mutex;
use serde_json::Value;

use super::{SECOND, work};
use crate::support::{Andante, Client, Redis, Upstream};

/// An API that refuses one request on command, and serves all others.
struct Api {
    upstream: Upstream,
    clock: Clock,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Answer to the next request.
    refusal: Option<String>,
    /// When it got that.
    refused: Option<Instant>,
    /// When each request came, and from which andante.
    requests: Vec<(Instant, String)>,
}

/// Time until all other members have received a pause, on a machine that is busy with other tests. Otherwise it takes a
/// few milliseconds.
const HEARD: Duration = Duration::from_millis(300);
const TOKEN: &str = "0123456789abcdef";

impl Api {
    fn start() -> Self {
        let (clock, seen) = (Clock::start(), Arc::new(Mutex::new(Seen::default())));
        let shared = seen.clone();
        let upstream = Upstream::answering(move |request| {
            let mut seen = shared.lock();
            let now = clock.now();
            seen.requests.push((now, request.field("x-member").unwrap_or_default()));
            match seen.refusal.take() {
                Some(fields) => {
                    seen.refused = Some(now);
                    format!("HTTP/1.1 429 Too Many Requests\r\n{fields}\r\nContent-Length: 0\r\n\r\n")
                }
                None => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
            }
        });
        Self { upstream, clock, seen }
    }

    /// The next request is refused with these `fields`. Says when it was.
    fn refuses(&self, fields: &str) -> Instant {
        self.seen.lock().refusal = Some(fields.to_owned());
        crate::support::eventually("the refusal", || self.seen.lock().refused.take())
    }

    /// Number of requests of each member between these times after `since`.
    fn came(&self, since: Instant, from: Duration, to: Duration) -> Vec<usize> {
        let seen = self.seen.lock();
        let within = seen.requests.iter().filter(|(at, _)| *at >= since + from && *at < since + to);
        let members: Vec<&String> = within.map(|(_, member)| member).collect();
        (0..3).map(|at| members.iter().filter(|member| ***member == format!("m{at}")).count()).collect()
    }

    fn request(&self, member: usize) -> String {
        let (url, host) = (self.upstream.url("/"), self.upstream.address());
        format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nX-Member: m{member}\r\n\r\n")
    }

    /// A worker that asks `andante` again and again, until that goes away.
    fn press(&self, andante: &Andante, member: usize) {
        let (request, proxy) = (self.request(member), andante.proxy());
        thread::spawn(move || work(proxy, &request));
    }

    /// Asks `andante` for one more, and says when the answer came.
    fn ask(&self, andante: &Andante, member: usize) -> thread::JoinHandle<Instant> {
        let (request, proxy, clock) = (self.request(member), andante.proxy(), self.clock);
        thread::spawn(move || {
            assert_eq!(Client::ask(proxy, request).status(), 200);
            clock.now()
        })
    }
}

fn gate(andante: &Andante) -> Value {
    andante.status()["lanes"][0]["gate"].clone()
}

#[test]
fn what_one_is_asked_to_wait_all_wait() {
    let (api, store) = (Api::start(), Redis::for_a_fleet());
    let limit = format!("{}=60/s", api.upstream.address());
    let args = ["--store", &store.url(), "--limit", &limit];
    let mut members: Vec<Andante> = (0..2).map(|_| Andante::serve(&args)).collect();
    (0..2).for_each(|at| (0..5).for_each(|_| api.press(&members[at], at)));
    thread::park_timeout(2 * SECOND);
    let refused = api.refuses("Retry-After: 3");
    // A member that joins meanwhile receives the pause as well.
    members.push(Andante::serve(&args));
    (0..5).for_each(|_| api.press(&members[2], 2));
    thread::park_timeout(SECOND);
    let gates: Vec<Value> = members.iter().map(|member| gate(member)["reason"].clone()).collect();
    assert_eq!(gates, ["retry-after"; 3]);
    let told = |member: &&Andante| member.stderr().contains("as the API asked another andante");
    assert_eq!(members.iter().filter(told).count(), 2, "all but one");
    thread::park_timeout(4 * SECOND);
    assert_eq!(api.came(refused, HEARD, 3 * SECOND), [0, 0, 0], "60 a second otherwise");
    let after = api.came(refused, 3 * SECOND, 5 * SECOND);
    assert!(after.iter().all(|came| *came >= 10), "all go on: {after:?}");
}

#[test]
fn a_pause_of_a_host_without_limits_is_shared_and_an_operator_ends_it_for_all() {
    let (api, store) = (Api::start(), Redis::for_a_fleet());
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), TOKEN).unwrap();
    let config = format!("admin-token = '{}'\nstore = '{}'\n", token.path().display(), store.url());
    let members: Vec<Andante> = (0..2).map(|_| Andante::with_config(&config)).collect();
    for (at, member) in members.iter().enumerate() {
        member.wait_for(|status| status["fleet"]["standing"] == "shared");
        api.ask(member, at).join().unwrap();
    }
    let first = {
        api.seen.lock().refusal = Some("Retry-After: 3600".to_owned());
        api.ask(&members[0], 0)
    };
    let refused = crate::support::eventually("the refusal", || api.seen.lock().refused.take());
    members[1].wait_for(|status| status["lanes"][0]["gate"]["reason"] == "retry-after");
    let second = api.ask(&members[1], 1);
    thread::park_timeout(SECOND);
    assert_eq!(api.came(refused, Duration::from_nanos(1), SECOND), [0, 0, 0]);

    // The member that has only received the pause.
    let admin = members[1].admin().to_string();
    let args = ["ctl", "--admin", &admin, "--token", token.path().to_str().unwrap(), "forget"];
    let done = Andante::command().args(args).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    for answered in [first, second] {
        assert!(answered.join().unwrap().since(refused) < 10 * SECOND);
    }
    assert!(members.iter().all(|member| gate(member).is_null()));
    let told = "forgot what was learned, as an operator told another andante to";
    crate::support::eventually("the other one forgets", || members[0].stderr().contains(told).then_some(()));
}

#[test]
fn without_a_store_each_keeps_the_pauses_that_it_knows() {
    let (api, mut store) = (Api::start(), Redis::for_a_fleet());
    let limit = format!("{}=60/s", api.upstream.address());
    let args = ["--store", &store.url(), "--limit", &limit];
    let members: Vec<Andante> = (0..2).map(|_| Andante::serve(&args)).collect();
    (0..2).for_each(|at| (0..5).for_each(|_| api.press(&members[at], at)));
    thread::park_timeout(2 * SECOND);
    let refused = api.refuses("Retry-After: 4");
    thread::park_timeout(SECOND);
    store.kill();
    thread::park_timeout(SECOND);
    // An empty store takes its place.
    store.restart();
    thread::park_timeout(4 * SECOND);
    assert_eq!(api.came(refused, HEARD, 4 * SECOND), [0, 0, 0]);
}
