//! Several andantes with one store keep one limit: the real programs, and a real Redis.

mod cluster;
mod in_flight;
mod new_store;
mod pauses;
mod reported;
mod sentinel;
mod tls;
mod waiting;
mod without_store;

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Andante, Client, Mock, Redis, Upstream, eventually};

/// An API, a store, and the andantes that share it.
struct World {
    api: Mock,
    store: Redis,
    /// Where members find it.
    url: String,
    limits: String,
    /// More keys of the members' rule for the API.
    keys: &'static str,
    members: Vec<Andante>,
}

impl World {
    fn new(limit: &str, members: usize) -> Self {
        Self::with_store(Redis::for_a_fleet(), limit, members)
    }

    fn with_store(store: Redis, limit: &str, members: usize) -> Self {
        Self::keeping(store, limit, limit, members)
    }

    /// The members find the store by this URL.
    fn found_by(url: &str, store: Redis, limit: &str, members: usize) -> Self {
        let mut world = Self::with_store(store, limit, 0);
        world.url = url.to_owned();
        (0..members).for_each(|_| world.join());
        world
    }

    /// The API enforces one limit, and the members keep another.
    fn keeping(store: Redis, enforced: &str, kept: &str, members: usize) -> Self {
        let api = Mock::start(&["--limit", enforced]);
        let limits = format!("{}={kept}", api.address());
        let mut world = Self { api, url: store.url(), store, limits, keys: "", members: Vec::new() };
        for _ in 0..members {
            world.join();
        }
        world
    }

    fn join(&mut self) {
        if self.keys.is_empty() {
            let args = ["--store", &self.url, "--limit", &self.limits];
            return self.members.push(Andante::serve(&args));
        }
        let ((host, limits), url, keys) = (self.limits.split_once('=').unwrap(), &self.url, self.keys);
        let rule = format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"{limits}\"]\n{keys}\n");
        self.members.push(Andante::with_config(&format!("store = \"{url}\"\n{rule}")));
    }

    /// Workers that ask `member` for more and more, until it goes away.
    fn press(&self, member: usize, workers: usize) {
        self.press_with(member, workers, "");
    }

    /// Presses with these fields in each request.
    fn press_with(&self, member: usize, workers: usize, fields: &str) {
        for _ in 0..workers {
            let proxy: SocketAddr = self.members[member].proxy();
            let (url, host) = (self.api.url("/"), self.api.address());
            let ask = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
            thread::spawn(move || work(proxy, &ask));
        }
    }

    fn press_all(&self) {
        (0..self.members.len()).for_each(|member| self.press(member, 10));
    }

    /// Number of requests that the API accepts in this time.
    fn accepts_in(&self, time: Duration) -> u64 {
        let before = self.count("accepted");
        thread::park_timeout(time);
        self.count("accepted") - before
    }

    fn count(&self, name: &str) -> u64 {
        self.api.stats()[name].as_u64().unwrap()
    }

    fn sent(&self, member: usize) -> u64 {
        self.members[member].status()["lanes"][0]["sent_total"].as_u64().unwrap_or(0)
    }

    fn standing(&self, member: usize) -> Value {
        self.members[member].status()["fleet"]["standing"].clone()
    }

    /// Asserts that no request was refused, and that no window exceeded the limit.
    fn kept(&self, limit: u64) {
        let stats = self.api.stats();
        assert_eq!(stats["refused"], 0, "{stats}");
        assert!(stats["worst_window"].as_u64().unwrap() <= limit, "{stats}");
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Asks for more and more, until the proxy goes away. Answers are short.
fn work(proxy: SocketAddr, ask: &str) {
    let Ok(mut stream) = TcpStream::connect(proxy) else { return };
    let mut answer = [0; 4096];
    while stream.write_all(ask.as_bytes()).is_ok() && stream.read(&mut answer).is_ok_and(|read| read > 0) {}
}

#[test]
fn three_andantes_keep_one_limit_and_share_it_alike() {
    let world = World::new("60/s", 3);
    world.press_all();
    thread::park_timeout(2 * SECOND);
    let before = [0, 1, 2].map(|member| world.sent(member));
    let accepted = world.accepts_in(4 * SECOND);
    assert!(accepted >= 200, "{accepted} of 240");
    for (member, before) in before.into_iter().enumerate() {
        let sent = world.sent(member) - before;
        assert!((60..=105).contains(&sent), "{sent} of 80 by {member}");
    }
    let status = world.members[0].status();
    assert_eq!((&status["fleet"]["standing"], &status["fleet"]["members"]), (&"shared".into(), &3.into()));
    let share = &status["lanes"][0]["limits"][0]["share"];
    assert!((15..=25).contains(&share["held"].as_u64().unwrap()), "{share}");
    let metrics = world.members[0].metrics();
    for line in
        ["andante_fleet_members 3", "andante_fleet_mode{mode=\"shared\"} 1", "andante_fleet_mode{mode=\"open\"} 0"]
    {
        assert!(metrics.lines().any(|shown| shown == line), "{line}: {metrics}");
    }
    let tokens = metrics.lines().filter(|line| line.starts_with("andante_tokens{"));
    let tokens: f64 = tokens.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    assert!((15.0..=25.0).contains(&tokens), "{tokens}");
    world.kept(60);
}

/// 400 tokens are 40 requests of 10.
#[test]
fn a_limit_in_tokens_is_shared_as_one_in_requests_is() {
    let world = World::keeping(Redis::for_a_fleet(), "40/s", "400 tokens/s", 3);
    (0..3).for_each(|member| world.press_with(member, 10, "Andante-Cost: tokens=10\r\n"));
    thread::park_timeout(2 * SECOND);
    let before = [0, 1, 2].map(|member| world.sent(member));
    let accepted = world.accepts_in(5 * SECOND);
    assert!(accepted >= 170, "{accepted} of 200");
    for (member, before) in before.into_iter().enumerate() {
        let sent = world.sent(member) - before;
        assert!((50..=84).contains(&sent), "{sent} of 67 by {member}");
    }
    let limit = &world.members[0].status()["lanes"][0]["limits"][0];
    assert_eq!(limit["limit"], "400 tokens/s burst 40", "a tenth, as docs/costs.md says: {limit}");
    assert!((100..=170).contains(&limit["share"]["held"].as_u64().unwrap()), "{limit}");
    world.kept(40);
}

/// Each answer reports a usage of 10 tokens, which no request states before: 200 tokens a second are 20 requests.
#[test]
fn what_only_answers_tell_is_shared() {
    let (used, store) = ("{\"used\":10}", Redis::for_a_fleet());
    let api = Upstream::always(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{used}",
        used.len()
    ));
    let (host, store) = (api.address(), store.url());
    let config = format!(
        "store = \"{store}\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"200 tokens/s\"]\nusage = [\"tokens=used\"]\n"
    );
    let members = [(); 2].map(|()| Andante::with_config(&config));
    for member in members.iter().cycle().take(10) {
        let (proxy, ask) = (member.proxy(), format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        thread::spawn(move || work(proxy, &ask));
    }
    // At first the usage of answers is unknown, and becomes a debt.
    thread::park_timeout(4 * SECOND);
    let before = api.requests().len();
    thread::park_timeout(5 * SECOND);
    let sent = api.requests().len() - before;
    assert!((85..=104).contains(&sent), "{sent} of 100");
}

#[test]
fn one_that_is_alone_has_everything_and_a_second_one_its_part() {
    let mut world = World::new("50/s", 1);
    world.press(0, 10);
    thread::park_timeout(2 * SECOND);
    let alone = world.accepts_in(4 * SECOND);
    assert!(alone >= 180, "{alone} of 200");
    world.join();
    world.press(1, 10);
    thread::park_timeout(2 * SECOND);
    let before = world.sent(1);
    thread::park_timeout(2 * SECOND);
    let sent = world.sent(1) - before;
    assert!((38..=62).contains(&sent), "{sent} of 50");
    // A member that ends properly leaves no lease to wait for.
    let mut first = world.members.remove(0);
    first.signal(Signal::TERM);
    assert!(first.ended().success());
    thread::park_timeout(2 * SECOND);
    let alone = world.accepts_in(2 * SECOND);
    assert!(alone >= 88, "{alone} of 100");
    world.kept(50);
}

/// A single request of cost 11 fits into each window of 20/s, from any member. The API counts requests, and not their
/// cost.
#[test]
fn requests_that_cost_more_than_an_equal_part_have_their_turns() {
    let mut world = World::new("20/s", 0);
    world.keys = "max-cost = 11";
    (0..3).for_each(|_| world.join());
    (0..3).for_each(|member| world.press_with(member, 3, "Andante-Cost: 11\r\n"));
    thread::park_timeout(2 * SECOND);
    let before = [0, 1, 2].map(|member| world.sent(member));
    let accepted = world.accepts_in(10 * SECOND);
    assert!((9..=10).contains(&accepted), "{accepted} of 10");
    for (member, before) in before.into_iter().enumerate() {
        let sent = world.sent(member) - before;
        assert!((2..=5).contains(&sent), "{sent} of 3 by {member}");
    }
}

#[test]
fn no_window_has_more_whatever_becomes_of_the_store() {
    let mut world = World::new("60/s", 3);
    world.press_all();
    thread::park_timeout(2 * SECOND);
    // The store forgets everything.
    assert_eq!(world.store.ask("FLUSHALL").as_deref(), Some("+OK\r\n"));
    let flushed = world.accepts_in(2 * SECOND);
    // The store stops answering.
    world.store.signal(Signal::STOP);
    let stopped = world.accepts_in(3 * SECOND);
    world.store.signal(Signal::CONT);
    // An empty store takes its place, and a member dies meanwhile.
    world.store.kill();
    drop(world.members.remove(0));
    thread::park_timeout(SECOND);
    world.store.restart();
    world.join();
    world.press(2, 10);
    let restarted = world.accepts_in(3 * SECOND);
    assert!(
        flushed >= 95 && stopped >= 140 && restarted >= 90,
        "{flushed} of 120, {stopped} of 180, {restarted} of 120"
    );
    world.kept(60);
}

#[test]
fn without_a_store_nothing_leaves_once_the_lease_is_over() {
    let mut world = World::with_store(Redis::start(), "100/s", 0);
    let url = world.store.url();
    let config = format!(
        "lease = \"1s\"\nstore = \"{url}\"\n[[rule]]\nname = \"api\"\nhost = \"{}\"\nlimits = [\"100/s\"]\nallow-private = true\n",
        world.api.address()
    );
    world.members = vec![Andante::with_config(&config)];
    // An empty store could be one that has forgotten. It waits for a lease, a window, and the guard times.
    world.press(0, 4);
    eventually("that it learns", || (world.standing(0) == "learning").then_some(()));
    assert_eq!(world.accepts_in(SECOND), 0);
    eventually("the first request", || (world.count("accepted") > 0).then_some(()));
    assert_eq!(world.standing(0), "shared");
    assert_eq!(world.members[0].page("/readyz").status(), 200);
    world.store.kill();
    eventually("that it is cut off", || (world.standing(0) == "cut-off").then_some(()));
    assert_eq!(world.accepts_in(SECOND), 0);
    assert_eq!(world.members[0].page("/readyz").status(), 503);
    assert!(world.members[0].stderr().contains("the lease is over"));
    world.store.restart();
    let before = world.count("accepted");
    eventually("that it goes on", || (world.count("accepted") > before).then_some(()));
    world.kept(100);
}

/// Members of a fleet that is configured by `keys`, each with 10 workers, and a lease of two seconds.
fn configured(keys: &str, members: usize) -> World {
    let mut world = World::with_store(Redis::for_a_fleet_with(&["--lease", "2s"]), "100/s", 0);
    let (url, host) = (world.store.url(), world.api.address());
    let config = format!(
        "lease = \"2s\"\nstore = \"{url}\"\n{keys}\n[[rule]]\nname = \"api\"\nhost = \"{host}\"\nlimits = [\"100/s\"]\nallow-private = true\n"
    );
    for member in 0..members {
        world.members.push(Andante::with_config(&config));
        eventually("that it joins", || (world.standing(member) == "shared").then_some(()));
    }
    world.press_all();
    world
}

#[test]
fn without_a_store_each_goes_on_with_its_floor() {
    // Two own 20 each of 100, and 60 are lent. The third comes too late for a floor.
    let mut world = configured("store-down = \"floor\"\nfleet-size = 2\nfloor = \"40%\"", 3);
    // The possible usage of earlier processes has left the window by then.
    thread::park_timeout(3 * SECOND);
    let shared = world.accepts_in(3 * SECOND);
    assert!(shared >= 240, "{shared} of 300");
    assert!(world.members[2].stderr().contains("more andantes than fleet-size"));
    assert_eq!(world.members[0].status()["lanes"][0]["limits"][0]["share"]["own"], 20);
    world.store.kill();
    for (member, standing) in ["floor", "floor", "cut-off"].into_iter().enumerate() {
        eventually("the end of the lease", || (world.standing(member) == standing).then_some(()));
    }
    thread::park_timeout(2 * SECOND);
    let (alone, before) = (world.accepts_in(5 * SECOND), world.sent(2));
    assert!((160..=204).contains(&alone), "{alone} of 200");
    assert_eq!(world.sent(2), before);
    let ready = world.members[0].page("/readyz");
    assert!(ready.status() == 200 && ready.text().contains("floor"), "{ready:?}");
    assert_eq!(world.members[2].page("/readyz").status(), 503);
    assert!(world.members[0].stderr().contains("continuing with this andante's floor"));
    // The restarted store is empty. While it learns, only floors are used.
    world.store.restart();
    eventually("that it is back", || (world.standing(0) == "shared").then_some(()));
    thread::park_timeout(4 * SECOND);
    let again = world.accepts_in(2 * SECOND);
    assert!(again >= 160, "{again} of 200");
    world.kept(100);
}

/// A lease other than the fleet's would be refused.
#[test]
fn terms_of_a_fleet_come_from_flags_and_variables_too() {
    let mut world = World::with_store(Redis::for_a_fleet_with(&["--lease", "2s"]), "100/s", 0);
    let mut command = Andante::command();
    command.envs([("ANDANTE_LEASE", "2s"), ("ANDANTE_FLEET_SIZE", "3"), ("ANDANTE_STORE_DOWN", "floor")]);
    let flags = ["--store", &world.url, "--fleet-size", "2", "--floor", "40%", "--limit", &world.limits];
    world.members = vec![Andante::launched(&mut command, &flags)];
    world.press_all();
    let status = world.members[0].wait_for(|status| status["lanes"][0]["limits"][0]["share"]["own"] == 20);
    assert_eq!(status["fleet"]["standing"], "shared", "two own 20 of 100 each: {status:#}");
}

#[test]
fn an_open_fleet_goes_on_without_a_store_and_says_what_it_risks() {
    let mut world = configured("store-down = \"open\"", 2);
    thread::park_timeout(2 * SECOND);
    assert_eq!(world.members[0].page("/readyz").text(), "ready\n");
    world.store.kill();
    for member in [0, 1] {
        eventually("the end of the lease", || (world.standing(member) == "open").then_some(()));
    }
    thread::park_timeout(SECOND);
    let alone = world.accepts_in(3 * SECOND);
    assert!((240..=310).contains(&alone), "{alone} of 300");
    let ready = world.members[0].page("/readyz");
    assert!(ready.status() == 200 && ready.text().contains("may be exceeded"), "{ready:?}");
    assert!(world.members[0].stderr().contains("the limits may be exceeded"));
}

/// Whether `andante check` accepts this configuration, and its output.
fn check(toml: &str) -> (bool, String) {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), toml).unwrap();
    let done = Andante::command().arg("check").arg(file.path()).output().unwrap();
    (done.status.success(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap())
}

#[test]
fn a_floor_is_checked_against_the_fleet_and_its_limits() {
    let rule = "store = \"redis://store.example\"\n[[rule]]\nhost = \"api.example\"\nlimits = [\"500/min\"]\n";
    for (keys, words) in [
        ("store-down = \"floor\"", "fleet-size = N"),
        ("floor = \"20%\"", "store-down = \"floor\""),
        ("store-down = \"open\"\nfloor = \"20%\"", "is for nothing"),
        ("store-down = \"perhaps\"", "\"wait\", \"floor\" or \"open\""),
        ("store-down = \"floor\"\nfleet-size = 4\nfloor = \"95%\"", "from 1% to 90%"),
        ("store-down = \"floor\"\nfleet-size = 4\nfloor = \"0%\"", "from 1% to 90%"),
    ] {
        let (good, said) = check(&format!("{keys}\n{rule}"));
        assert!(!good && said.contains(words), "{keys}: {said}");
    }
    let (good, said) = check(&format!("store-down = \"floor\"\nfleet-size = 3\n{rule}"));
    assert!(good && said.contains("33 for each of 3 of 500/min: 99 together, and 401 are lent"), "{said}");
    let (good, said) = check(&format!("store-down = \"floor\"\nfleet-size = 101\n{rule}"));
    assert!(good && said.contains("less than 1 for each of 101"), "{said}");
}

#[test]
fn what_is_not_shared_is_divided_or_refused() {
    let rule = "store = \"redis://:hunter2@store.example\"\n[[rule]]\nhost = \"api.example\"\nlimits = [\"10/s\", \"90/day\"]\n";
    let (good, said) = check(rule);
    assert!(!good && said.contains("90/d") && said.contains("fleet-size") && !said.contains("hunter2"), "{said}");
    let (good, said) = check(&format!("fleet-size = 3\n{rule}"));
    assert!(good && said.contains("30/d") && said.contains("10/s") && !said.contains("hunter2"), "{said}");
    let (good, said) = check(&format!("fleet-size = 100\n{rule}"));
    assert!(!good && said.contains("cannot be divided"), "{said}");
    let found = rule.replace("limits = [\"10/s\", \"90/day\"]", "in-flight = \"auto\"");
    let (good, said) = check(&found);
    assert!(good && said.contains("auto"), "each finds its own part: {said}");
}

#[test]
fn a_lower_limit_of_another_one_holds_and_is_said() {
    let mut world = World::new("100/s", 1);
    world.limits = world.limits.replace("100/s", "60/s");
    world.join();
    world.press_all();
    let said = "another andante of the fleet has a lower limit";
    world.members[0].wait_for(|status| status["fleet"]["problem"] == said);
    assert!(world.accepts_in(2 * SECOND) <= 125);
    let log = world.members[0].stderr();
    let line = log.lines().find(|line| line.contains(said)).expect("a line says so");
    assert!(line.contains("limit=100 lower=60") && line.contains("host=\"127.0.0.1\""), "{line}");
    assert_eq!(log.matches(said).count(), 1, "{log}");
    assert!(!world.members[1].stderr().contains(said));
    // The member ends, and its report with it.
    let mut leaves = world.members.remove(1);
    leaves.signal(Signal::TERM);
    assert!(leaves.ended().success());
    world.members[0].wait_for(|status| status["fleet"]["problem"].is_null());
}

#[test]
fn the_password_of_a_store_is_shown_nowhere() {
    // An address without a listener.
    let store = "redis://someone:hunter2@127.0.0.1:1";
    let andante = Andante::with_environment("ANDANTE_STORE", store);
    eventually("its complaint", || andante.stderr().contains("cannot join the fleet").then_some(()));
    let status = andante.status();
    assert_eq!(status["fleet"]["store"], "redis://…@127.0.0.1:1");
    assert!(status["fleet"]["problem"].as_str().is_some_and(|problem| !problem.is_empty()), "{status}");
    for said in [andante.stderr(), status.to_string(), andante.metrics()] {
        assert!(!said.contains("hunter2") && !said.contains("someone"), "{said}");
    }
    let answer = Client::ask(andante.admin(), "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.status(), 503);
}
