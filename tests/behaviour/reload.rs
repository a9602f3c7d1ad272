//! Reload of the configuration of a running andante: a new one takes effect at once and forgets nothing. A bad one
//! changes nothing, and the log says why.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use andante::clock::Clock;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    commands::{self, outcome},
    lifecycle::pass,
    support::{Andante, Client, Mock, Upstream, eventually},
};

/// An andante, and the folder with its configuration file.
struct Reloading {
    folder: TempDir,
    andante: Andante,
}

impl Reloading {
    fn start(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("andante.toml"), toml).unwrap();
        let andante = Andante::serve(&["--config", folder.path().join("andante.toml").to_str().unwrap()]);
        Self { folder, andante }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("andante.toml")
    }

    /// Writes the file as editors do: another one takes its place.
    fn write(&self, toml: &str) {
        let new = self.folder.path().join("andante.toml.new");
        fs::write(&new, toml).unwrap();
        fs::rename(&new, self.file()).unwrap();
    }

    /// Writes the file, asks for a reload, and waits until it is done.
    fn reload(&self, toml: &str) {
        let before = self.reloads();
        self.write(toml);
        self.andante.signal(Signal::HUP);
        self.andante.wait_for(|status| status["config"]["reloads_total"] == before + 1);
    }

    fn reloads(&self) -> u64 {
        self.andante.status()["config"]["reloads_total"].as_u64().unwrap()
    }

    fn get(&self, url: &str) -> u16 {
        Client::get(self.andante.proxy(), url).status()
    }
}

fn rule(host: impl std::fmt::Display, keys: &str) -> String {
    format!("[[rule]]\nhost = \"{host}\"\n{keys}\n")
}

fn lane(status: &Value) -> &Value {
    &status["lanes"][0]
}

#[test]
fn a_hundred_reloads_under_load_lose_nothing_and_break_no_window() {
    let mock = Mock::start(&["--limit", "60/s"]);
    let limits = |n: u64| match n % 4 {
        0 => rule(mock.address(), "limits = '60/s'"),
        1 => rule(mock.address(), "limits = '30/s'\nin-flight = 20"),
        2 => rule(mock.address(), "limits = ['60/s', '1000/min']"),
        // The host goes to a rule of another name.
        _ => rule(mock.address().ip(), "limits = '45/s'\nname = 'other'"),
    };
    let andante = Reloading::start(&limits(0));
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(andante.get(&mock.url("/")), 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        (1..=100).for_each(|n| {
            andante.reload(&limits(n));
            pass(Duration::from_millis(30));
        });
        done.store(true, Ordering::Relaxed);
    });
    let (status, stats) = (andante.andante.status(), mock.stats());
    assert_eq!(status["config"]["reloads_total"], 100);
    assert_eq!(status["requests"]["failed"], 0, "{status:#}");
    // Every one of them reached the API once, and none was too many.
    assert_eq!(stats["refused"], 0, "{stats:#}");
    assert_eq!(lane(&status)["answered_429_total"], 0);
    assert_eq!(
        lane(&status)["sent_total"],
        answered.load(Ordering::Relaxed),
        "the lane is the same through all reloads"
    );
    // The least that the limits give in that time, with room for a slow machine.
    assert!(answered.load(Ordering::Relaxed) > 60, "{answered:?}");
}

#[test]
fn requests_that_wait_leave_as_soon_as_the_new_limit_lets_them() {
    let upstream = Upstream::ok();
    let andante = Reloading::start(&rule(upstream.address(), "limits = '1/min'"));
    assert_eq!(andante.get(&upstream.url("/")), 200);
    let ask = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address());
    let mut waiting: Vec<Client> = (0..5)
        .map(|_| {
            let mut client = Client::connect(andante.andante.proxy());
            client.send(&ask);
            client
        })
        .collect();
    andante.andante.wait_for(|status| lane(status)["waiting"] == 5);
    andante.reload(&rule(upstream.address(), "limits = '100/s'\nname = 'faster'"));
    for client in &mut waiting {
        assert_eq!(client.answer().status(), 200);
    }
    let status = andante.andante.status();
    assert_eq!((&lane(&status)["rule"], &lane(&status)["sent_total"]), (&"faster".into(), &6.into()));
    assert!(andante.andante.metrics().contains("andante_waiting{rule=\"faster\"} 0"));
}

#[test]
fn what_was_learned_and_a_pause_survive_a_reload() {
    let mock = Mock::start(&["--limit", "50/s", "--dialect", "ietf"]);
    let andante = Reloading::start(&rule(mock.address(), "limits = '100/s'"));
    assert_eq!(andante.get(&mock.url("/")), 200);
    let learned = |status: &Value| -> Vec<Value> {
        let limits = lane(status)["limits"].as_array().unwrap();
        limits.iter().filter(|limit| limit["source"] == "learned").map(|limit| limit["limit"].clone()).collect()
    };
    let before = learned(&andante.andante.status());
    assert_eq!(before.len(), 1, "the API has told its limit");
    mock.control("PUT", "next", r#"{"status": 429, "headers": {"Retry-After": "3000"}, "count": 1}"#);
    let ask = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", mock.url("/"), mock.address());
    let mut refused = Client::connect(andante.andante.proxy());
    refused.send(&ask);
    andante.andante.wait_for(|status| lane(status)["gate"]["opens_in_s"].as_f64().is_some_and(|s| s > 2000.0));
    andante.reload(&rule(mock.address(), "limits = '80/s'\nname = 'renamed'\nbreaker = 'off'"));
    let status = andante.andante.status();
    assert_eq!(learned(&status), before);
    assert!(lane(&status)["gate"]["opens_in_s"].as_f64().unwrap() > 2000.0, "{status:#}");
    assert_eq!(lane(&status)["rule"], "renamed");
}

#[test]
fn a_broken_file_changes_nothing_and_is_told_once() {
    let upstream = Upstream::ok();
    let good = rule(upstream.address(), "limits = '1000/s'");
    let andante = Reloading::start(&good);
    assert!(andante.andante.metrics().contains("\nandante_config_last_reload_successful 1\n"));
    andante.write(&good.replace("1000/s", "a thousand"));
    let status = andante.andante.wait_for(|status| status["config"]["last_reload_successful"] == false);
    let problem = status["config"]["problems"][0].as_str().unwrap();
    assert!(problem.contains("andante.toml:3") && problem.contains("a thousand"), "{problem}");
    assert!(andante.andante.metrics().contains("\nandante_config_last_reload_successful 0\n"));
    let admin = andante.andante.admin().to_string();
    let shown = || outcome(commands::andante(&["status", "--admin", &admin])).1;
    assert!(
        shown().contains("reload failed, the previous configuration stays in force") && shown().contains("a thousand"),
        "{}",
        shown()
    );
    assert_eq!(andante.get(&upstream.url("/")), 200);
    assert_eq!(lane(&andante.andante.status())["limits"][0]["limit"], "1000/s");
    // andante checks the file every second.
    pass(Duration::from_secs(3));
    assert_eq!(andante.andante.stderr().matches("kept the configuration").count(), 1);
    andante.write(&good.replace("1000/s", "2000/s"));
    andante.andante.wait_for(|status| status["config"]["last_reload_successful"] == true);
    let status = andante.andante.status();
    assert_eq!(
        (&status["config"]["problems"], &lane(&status)["limits"][0]["limit"]),
        (&Value::Array(vec![]), &"2000/s".into())
    );
}

#[test]
fn a_config_map_that_swaps_its_link_is_seen() {
    let upstream = Upstream::ok();
    let folder = tempfile::tempdir().unwrap();
    let publish = |version: &str, limit: &str| {
        let data = folder.path().join(version);
        fs::create_dir(&data).unwrap();
        fs::write(data.join("andante.toml"), rule(upstream.address(), &format!("limits = '{limit}'"))).unwrap();
        let link = folder.path().join("..data_tmp");
        symlink(version, &link).unwrap();
        fs::rename(&link, folder.path().join("..data")).unwrap();
    };
    publish("..2026_1", "100/s");
    symlink(Path::new("..data/andante.toml"), folder.path().join("andante.toml")).unwrap();
    let andante = Andante::serve(&["--config", folder.path().join("andante.toml").to_str().unwrap()]);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    publish("..2026_2", "200/s");
    fs::remove_dir_all(folder.path().join("..2026_1")).unwrap();
    andante.wait_for(|status| lane(status)["limits"][0]["limit"] == "200/s");
}

#[test]
fn what_cannot_change_is_named_and_the_rest_holds() {
    let upstream = Upstream::ok();
    let andante = Reloading::start(&rule(upstream.address(), "limits = '100/s'"));
    assert_eq!(andante.get(&upstream.url("/")), 200);
    andante.reload(&format!("threads = 3\n{}", rule(upstream.address(), "limits = '200/s'")));
    let log = eventually("a line about the threads", || {
        Some(andante.andante.stderr()).filter(|log| log.contains("needs a restart"))
    });
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("threads: auto → 3")), "{log}");
    assert!(log.contains("limits: 100/s → 200/s"), "{log}");
    assert_eq!(lane(&andante.andante.status())["limits"][0]["limit"], "200/s");
}

#[test]
fn connections_that_are_open_follow_new_rules_and_gateways() {
    let upstream = Upstream::ok();
    let andante = Reloading::start("");
    let mut client = Client::connect(andante.andante.proxy());
    let ask = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address());
    client.send(&ask);
    assert_eq!(client.answer().status(), 200);
    andante.reload(&format!(
        "[[gateway]]\npath = '/api'\nto = '{}'\n{}",
        upstream.url(""),
        rule(upstream.address(), "limits = '1/h'\nmax-wait = '1s'")
    ));
    // The request that was sent before the rule counts under it.
    client.send(&ask);
    assert_eq!(client.answer().status(), 429);
    client.send(format!("GET /api/x HTTP/1.1\r\nHost: {}\r\n\r\n", andante.andante.proxy()));
    assert_eq!(client.answer().status(), 429);
}

#[test]
fn check_says_what_would_change() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old.toml", "new.toml"].map(|name| folder.path().join(name));
    fs::write(&old, rule("a.example", "limits = '10/s'")).unwrap();
    fs::write(&new, rule("a.example", "limits = '20/s'") + &rule("b.example", "in-flight = 3")).unwrap();
    let output = Andante::command().arg("check").arg(&new).arg("--diff").arg(&old).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "~ rule a.example: limits: 10/s → 20/s\n+ rule b.example\n");
    assert!(output.status.success());
}

#[test]
fn the_budgets_of_rules_for_some_requests_keep_what_they_remember() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let rules = |limits: &str| {
        format!(
            "[[rule]]\nhost = \"{host}\"\nlimits = [\"100/s burst 50\"]\n[[rule]]\nname = \"tenant\"\nhost = \"{host}\"\n\
             path = \"/{{tenant}}\"\nkey = \"path:tenant\"\nlimits = [\"{limits}\"]\nmax-wait = \"0s\"\n"
        )
    };
    let running = Reloading::start(&rules("2/d burst 2"));
    let get = |path: &str| running.get(&upstream.url(path));
    assert_eq!([get("/a"), get("/a"), get("/a")], [200, 200, 429]);
    running.reload(&rules("3/d burst 3"));
    assert_eq!([get("/a"), get("/a")], [200, 429], "one more, and no fresh burst");
    assert_eq!([get("/b"), get("/b"), get("/b"), get("/b")], [200, 200, 200, 429]);
}

#[test]
fn a_pipe_is_read_once_and_its_limits_hold() {
    let upstream = Upstream::ok();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    // As `--config <(…)` of a shell.
    let writer = thread::spawn({
        let (pipe, toml) = (pipe.clone(), rule(upstream.address(), "limits = [\"1/h\"]"));
        move || fs::write(pipe, toml)
    });
    let andante = Andante::serve(&["--config", pipe.to_str().unwrap()]);
    writer.join().unwrap().unwrap();
    pass(Duration::from_millis(2500));
    let ask = |path| {
        let host = upstream.address();
        let url = upstream.url(path);
        Client::ask(andante.proxy(), format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=1\r\n\r\n")).status()
    };
    assert_eq!([ask("/1"), ask("/2")], [200, 429]);
}

#[test]
fn a_pipe_that_takes_the_place_of_the_file_is_not_waited_for() {
    let mock = Mock::start(&["--limit", "60/s"]);
    let andante = Reloading::start(&rule(mock.address(), "limits = '60/s'"));
    fs::remove_file(andante.file()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(andante.file()).status().unwrap().success());
    andante.andante.signal(Signal::HUP);
    let status = andante.andante.wait_for(|status| status["config"]["last_reload_successful"] == false);
    assert!(status["config"]["problems"][0].as_str().unwrap().contains("pipe"), "{}", status["config"]);
    assert_eq!(andante.get(&mock.url("/")), 200);
    andante.reload(&rule(mock.address(), "limits = '50/s'"));
}

/// An editor that has not written yet, or a full disk.
#[test]
fn an_emptied_file_changes_nothing_and_says_why() {
    let upstream = Upstream::ok();
    let world = Reloading::start(&format!("[[rule]]\nhost = '{}'\nlimits = '1/h'\n", upstream.address()));
    for content in ["", " \n\n"] {
        world.write(content);
        world.andante.signal(Signal::HUP);
        let status = world.andante.wait_for(|status| status["config"]["last_reload_successful"] == false);
        assert!(status["config"]["problems"][0].as_str().unwrap().contains("the file is empty"), "{status:#}");
        assert_eq!(status["config"]["reloads_total"], 0);
        assert!(world.andante.stderr().contains("kept the configuration"), "{}", world.andante.stderr());
    }
    assert_eq!(world.get(&upstream.url("/")), 200);
    assert!(world.andante.status()["lanes"][0]["limits"][0]["limit"] == "1/h");
    // A comment makes an empty configuration intentional.
    world.reload("# no rules\n");
    assert_eq!(world.get(&upstream.url("/")), 200);
}

/// Gets `url` `count` times with twelve workers, and returns the time that all of them took.
fn timed(andante: &Andante, url: &str, count: usize) -> Duration {
    let (clock, left, proxy) = (Clock::start(), AtomicUsize::new(count), andante.proxy());
    let work = || {
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            assert_eq!(Client::get(proxy, url).status(), 200);
        }
    };
    let begun = clock.now();
    thread::scope(|scope| (0..12).for_each(|_| drop(scope.spawn(work))));
    clock.now().since(begun)
}

/// The rate of the limit that refusals have taught.
fn learned_rate(status: &Value) -> Option<f64> {
    let limits = lane(status)["limits"].as_array()?;
    limits.iter().find(|limit| limit["source"] == "learned")?["per_second"].as_f64()
}

/// Sends requests until refusals have taught a limit.
fn teach(andante: &Andante, url: &str) {
    let taught = (0..10).any(|_| {
        timed(andante, url, 60);
        learned_rate(&andante.status()).is_some()
    });
    assert!(taught, "the API refuses every second request at the configured rate");
}

#[test]
fn a_limit_raised_by_a_reload_ends_what_refusals_have_taught() {
    let mock = Mock::start(&["--limit", "20/s", "--dialect", "none"]);
    let andante = Reloading::start(&rule(mock.address(), "limits = '40/s'"));
    teach(&andante.andante, &mock.url("/"));
    mock.control("PUT", "limit", "400/s");
    andante.reload(&rule(mock.address(), "limits = '200/s'"));
    // 400 requests take 2 s at the configured rate, and more than 10 s at the one before.
    let took = timed(&andante.andante, &mock.url("/"), 400);
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn a_limit_raised_at_a_restart_ends_what_refusals_have_taught() {
    let mock = Mock::start(&["--limit", "20/s", "--dialect", "none"]);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("limits.redb");
    let serve = |limit: &str| {
        let limit = format!("{}={limit}", mock.address());
        Andante::serve(&["--state", state.to_str().unwrap(), "--limit", &limit])
    };
    let mut before = serve("40/s");
    teach(&before, &mock.url("/"));
    before.signal(Signal::TERM);
    assert!(before.ended().success());
    let mut same = serve("40/s");
    timed(&same, &mock.url("/"), 1);
    assert!(learned_rate(&same.status()).is_some(), "the configured limit is the same");
    same.signal(Signal::TERM);
    assert!(same.ended().success());
    mock.control("PUT", "limit", "400/s");
    let took = timed(&serve("200/s"), &mock.url("/"), 400);
    assert!(took < Duration::from_secs(6), "{took:?}");
}

/// Requests that wait keep the levels with which they came, and both kinds leave.
#[test]
fn levels_of_sharing_may_change_while_requests_wait() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let rule = |more: &str| {
        format!(
            "identity = \"address\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"20/s\"]\n{more}\n\
             [[rule]]\nhost = \"{host}\"\nkey = [\"flow\"]\nlimits = [\"15/s\"]\n"
        )
    };
    let reloading = Reloading::start(&rule(""));
    let andante = &reloading.andante;
    let send = |source: u8, flow: &str| {
        let mut client = Client::connect_from(source, andante.proxy());
        let url = upstream.url("/");
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nAndante-Flow: {flow}\r\n\r\n"));
        client
    };
    let mut waiting: Vec<_> = (0..20).map(|n| send(1 + n % 3, "a;rank=2")).collect();
    for more in
        ["share-by = [\"flow\", \"client\"]", "share-by = \"flow\"\nflow-order = \"rank\"", "share-by = \"client\""]
    {
        reloading.reload(&rule(&format!("{more}\nweights = [\"a=2\", \"127.0.0.2=3\"]")));
        waiting.extend((0..10).map(|n| send(1 + n % 3, if n % 2 == 0 { "a;rank=2" } else { "b;rank=1" })));
    }
    for mut client in waiting {
        assert_eq!(client.answer().status(), 200);
    }
    let lane = andante.status()["lanes"][0].clone();
    assert_eq!((&lane["waiting"], &lane["sent_total"]), (&0.into(), &50.into()), "{lane}");
}
