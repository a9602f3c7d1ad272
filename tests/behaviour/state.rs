//! Persisted state: neither a restart nor a kill forgets usage.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Andante, Client, Mock};

/// An API, and the state of the andante that paces calls to it.
struct World {
    api: Mock,
    limits: String,
    folder: TempDir,
}

impl World {
    fn new(enforced: &str, limits: &str) -> Self {
        let api = Mock::start(&["--limit", enforced]);
        let limits = format!("{}={limits}", api.address());
        Self { api, limits, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("limits.redb")
    }

    fn serve(&self, more: &[&str]) -> Andante {
        let file = self.file();
        let args = ["--state", file.to_str().unwrap(), "--limit", &self.limits];
        Andante::serve(&[&args[..], more].concat())
    }

    /// Eight workers that ask for more and more, until andante goes away.
    fn press(&self, proxy: SocketAddr) {
        for _ in 0..8 {
            let ask = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", self.api.url("/"), self.api.address());
            thread::spawn(move || {
                let Ok(mut stream) = TcpStream::connect(proxy) else { return };
                let mut answer = [0; 4096];
                while stream.write_all(ask.as_bytes()).is_ok() && stream.read(&mut answer).is_ok_and(|read| read > 0) {}
            });
        }
    }

    /// Asks once, with little patience; says whether it was sent.
    fn asks(&self, andante: &Andante) -> bool {
        self.asks_within(andante, 1)
    }

    /// Asks once, with so many seconds of patience; says whether it was sent.
    fn asks_within(&self, andante: &Andante, seconds: u32) -> bool {
        let (url, host) = (self.api.url("/"), self.api.address());
        let ask = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nPrefer: wait={seconds}\r\n\r\n");
        Client::ask(andante.proxy(), ask).status() == 200
    }

    /// Kills andante again and again, at any moment.
    fn kill_often(&self) {
        for _ in 0..kills() {
            let andante = self.serve(&[]);
            self.press(andante.proxy());
            let life = fastrand::u64(20..2500);
            thread::park_timeout(Duration::from_millis(life));
            // Sends SIGKILL, which cannot be caught.
            drop(andante);
        }
        // Whatever a burst could do after the last one shows.
        let andante = self.serve(&[]);
        self.press(andante.proxy());
        thread::park_timeout(Duration::from_secs(2));
    }
}

/// Number of kills in each test.
fn kills() -> u64 {
    std::env::var("ANDANTE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4)
}

fn count(stats: &Value, name: &str) -> u64 {
    stats[name].as_u64().unwrap()
}

#[test]
fn no_kill_exceeds_a_pace() {
    let world = World::new("100/s", "100/s");
    world.kill_often();
    let stats = world.api.stats();
    assert_eq!(count(&stats, "refused"), 0, "{stats}");
    assert!(count(&stats, "worst_window") <= 100 && count(&stats, "accepted") > 20 * kills(), "{stats}");
}

#[test]
fn no_kill_sends_a_burst_twice() {
    let world = World::new("100/10s", "100/10s burst 100");
    world.kill_often();
    let stats = world.api.stats();
    assert_eq!(count(&stats, "refused"), 0, "{stats}");
    assert!(count(&stats, "worst_window") <= 100 && count(&stats, "accepted") > 0, "{stats}");
}

#[test]
fn a_kill_costs_one_block_of_a_month_at_most() {
    let world = World::new("10000/month", "100/s burst 100, 10000/month");
    world.kill_often();
    let andante = world.serve(&[]);
    // The lane is there from here on, whatever becomes of this request.
    world.asks(&andante);
    let limits = andante.status()["lanes"][0]["limits"].clone();
    let month =
        limits.as_array().unwrap().iter().find(|limit| limit["limit"].as_str().unwrap().contains("month")).unwrap();
    let stats = world.api.stats();
    let (used, accepted) = (count(month, "used"), count(&stats, "accepted"));
    println!("{accepted} sent, {used} counted, {} kills", kills() + 1);
    assert_eq!(count(&stats, "refused"), 0, "{stats}");
    assert!(used >= accepted && used - accepted <= (kills() + 1) * 100, "{used} counted of {accepted}");
}

#[test]
fn an_orderly_restart_goes_on_where_it_ended() {
    let world = World::new("3/min", "3/min burst 3");
    let mut andante = world.serve(&[]);
    assert!(world.asks(&andante) && world.asks(&andante));
    andante.signal(Signal::TERM);
    assert!(andante.ended().success());
    let andante = world.serve(&[]);
    let lanes = andante.status()["lanes"].clone();
    assert_eq!((&lanes[0]["limits"][0]["used"], &lanes[0]["sent_total"]), (&2.into(), &0.into()), "{lanes}");
    assert_eq!([(); 2].map(|()| world.asks(&andante)), [true, false], "two of three were used");
    assert_eq!(count(&world.api.stats(), "refused"), 0);
    let state = andante.status()["state"].clone();
    assert_eq!(state["file"], world.file().to_str().unwrap());
    assert!(state["problem"].is_null() && andante.metrics().contains("\nandante_state_written 1\n"), "{state}");
}

#[test]
fn one_process_at_a_time_has_a_state() {
    let world = World::new("3/min", "3/min");
    let andante = world.serve(&[]);
    let second = Andante::command()
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--state", world.file().to_str().unwrap()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    let pid = andante.pid().as_raw_nonzero();
    assert!(!second.status.success() && said.contains(&format!("is in use by process {pid}")), "{said}");
    assert!(said.contains("hint: ") && said.contains("--state"), "{said}");
}

#[test]
fn a_state_that_cannot_be_read_is_set_aside_and_quotas_count_as_used() {
    let world = World::new("3/d", "3/d burst 3");
    fs::write(world.file(), "no state of andante's").unwrap();
    let andante = world.serve(&[]);
    assert!(!world.asks(&andante), "nobody knows what was used of the day");
    assert!(andante.stderr().contains("--forget"), "{}", andante.stderr());
    let aside = |folder: &Path| {
        fs::read_dir(folder)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().to_string_lossy().contains("aside-"))
            .count()
    };
    assert_eq!(aside(world.folder.path()), 1);
    drop(andante);
    let andante = world.serve(&[]);
    assert!(!world.asks(&andante), "nor does the next one");
    drop(andante);
    let andante = world.serve(&["--forget"]);
    assert!(world.asks(&andante), "somebody says that nothing was");
}

/// Number of damages that are tried.
fn damages() -> u64 {
    std::env::var("ANDANTE_DAMAGES").ok().and_then(|damages| damages.parse().ok()).unwrap_or(25)
}

#[test]
fn no_damage_keeps_it_from_starting_and_none_is_passed_over() {
    let world = World::new("100/s", "100/s, 100000/d");
    let (file, lock) = (world.file(), world.file().with_extension("redb.lock"));
    let other = Mock::start(&[]);
    // After a kill, and after an orderly end.
    for signal in [Signal::KILL, Signal::TERM] {
        let limit = format!("{}=1000/s", other.address());
        let mut andante = world.serve(&["--limit", &limit]);
        world.press(andante.proxy());
        Client::get(andante.proxy(), &other.url("/"));
        andante.wait_for(|status| status["state"]["commits_total"].as_u64().unwrap() > 3);
        andante.signal(signal);
        andante.ended();
        let whole = [&file, &lock].map(|path| fs::read(path).unwrap());
        let mut aside = 0;
        for damage in 0..damages() {
            let mut state = whole[0].clone();
            match damage % 5 {
                0 => state.truncate(fastrand::usize(..state.len())),
                1 => state[fastrand::usize(..512)] ^= 1 << fastrand::u8(..8),
                2 => (0..100).for_each(|_| state[fastrand::usize(..whole[0].len())] ^= 1 << fastrand::u8(..8)),
                3 => state[fastrand::usize(..whole[0].len() / 4096) * 4096..][..4096].fill(fastrand::u8(..)),
                _ => state[fastrand::usize(..whole[0].len())] ^= 1 << fastrand::u8(..8),
            }
            fs::write(&file, &state).unwrap();
            fs::write(&lock, &whole[1]).unwrap();
            // `serve` returns only if andante starts.
            let mut andante = world.serve(&[]);
            // The second before a kill counts as used to the full.
            let answered = world.asks_within(&andante, 5);
            andante.signal(Signal::TERM);
            assert!(andante.ended().success());
            let said = andante.stderr();
            // Where a panic ends only its thread, as in this build, it would have ended all in a release.
            assert!(!said.contains("panic") && !said.contains("cannot be written"), "{said}");
            let is_aside = said.contains("cannot be read and is set aside");
            assert!(answered != is_aside, "the day counts as used up, or it goes on: {said}");
            aside += u64::from(is_aside);
        }
        println!("{aside} of {} damages were set aside, after {signal:?}", damages());
        assert!(aside > 0);
        fs::write(&file, &whole[0]).unwrap();
        fs::write(&lock, &whole[1]).unwrap();
    }
}

/// A disk of 256 KiB, which only the process has that is started on it.
const SMALL_DISK: &str = "mount -t tmpfs -o size=256k tmpfs \"$0\" && if [ -n \"$FULL\" ]; then \
     dd if=/dev/zero of=\"$0\"/full bs=1k; fi; exec \"$@\" --state \"$0\"/limits.redb --limit \"$LIMIT\"";

#[test]
fn a_full_disk_is_said_once_and_written_to_once_there_is_room() {
    let is_allowed = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    if !is_allowed.is_ok_and(|output| output.status.success()) {
        eprintln!("not tried: this user cannot mount a disk");
        return;
    }
    let world = World::new("100/s", "100/s, 100000/d");
    let folder = world.folder.path().to_str().unwrap();
    for full in ["", "FULL=1"] {
        let limit = format!("LIMIT={}", world.limits);
        let program = ["env", &limit, full, "unshare", "--mount", "sh", "-c", SMALL_DISK, folder];
        let program: Vec<&str> = program.into_iter().filter(|word| !word.is_empty()).collect();
        let andante = Andante::started_by(&program);
        let filler = format!("/proc/{}/root{folder}/full", andante.pid().as_raw_nonzero());
        if full.is_empty() {
            assert!(andante.status()["state"]["problem"].is_null());
            // Fills the disk.
            let _ = fs::write(&filler, [7; 256 << 10]);
        }
        assert!(world.asks(&andante), "pacing goes on");
        andante.wait_for(|status| status["state"]["problem"].as_str().is_some_and(|problem| problem.contains("space")));
        assert!(andante.metrics().contains("\nandante_state_written 0\n"));
        thread::park_timeout(Duration::from_millis(2500));
        assert!(world.asks(&andante), "pacing goes on");
        let commits = andante.status()["state"]["commits_total"].as_u64().unwrap();
        fs::remove_file(&filler).unwrap();
        andante.wait_for(|status| status["state"]["problem"].is_null());
        assert!(andante.metrics().contains("\nandante_state_written 1\n"));
        assert!(world.asks(&andante));
        andante.wait_for(|status| status["state"]["commits_total"].as_u64().unwrap() > commits + 1);
        let said = andante.stderr();
        let count = |what: &str| said.matches(what).count();
        assert_eq!((count("cannot be written"), count("is written again")), (1, 1), "{said}");
    }
}

/// Sends a request for `path` with `fields`, and little patience; says whether it was sent.
fn passes(andante: &Andante, api: &Mock, path: &str, fields: &str) -> bool {
    let (url, host) = (api.url(path), api.address());
    let ask = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=1\r\n{fields}\r\n");
    Client::ask(andante.proxy(), ask).status() == 200
}

/// An andante with these rules beside one for all of `api`, on the state in `folder`.
fn narrower(api: &Mock, folder: &Path, rules: &[&str]) -> Andante {
    let host = api.address();
    let rules: Vec<_> = rules.iter().map(|rule| format!("[[rule]]\nhost = \"{host}\"\n{rule}\n")).collect();
    let state = folder.join("limits.redb");
    let toml = format!("[[rule]]\nhost = \"{host}\"\n{}", rules.concat());
    Andante::with_config_and(&toml, &["--state", state.to_str().unwrap()])
}

#[test]
fn quotas_of_rules_with_a_path_method_header_or_key_survive_an_orderly_restart() {
    let (api, folder) = (Mock::start(&["--limit", "1000/s"]), tempfile::tempdir().unwrap());
    let rules = [
        "path = \"/day\"\nlimits = [\"3/day in UTC\"]",
        "path = \"/five\"\nmethod = \"GET\"\nlimits = [\"2/5min burst 2\"]",
        "header = \"x-batch\"\nlimits = [\"2/h burst 2\"]",
        "name = \"key\"\npath = \"/key\"\nkey = \"header:authorization\"\nlimits = [\"2/h burst 2\"]",
    ];
    let mut andante = narrower(&api, folder.path(), &rules);
    let (batch, one, two) = ("X-Batch: 1\r\n", "Authorization: Bearer one\r\n", "Authorization: Bearer two\r\n");
    assert_eq!([(); 4].map(|()| passes(&andante, &api, "/day", "")), [true, true, true, false]);
    assert_eq!([(); 3].map(|()| passes(&andante, &api, "/five", "")), [true, true, false]);
    assert!(passes(&andante, &api, "/", batch));
    assert!(passes(&andante, &api, "/key", one) && passes(&andante, &api, "/key", one));
    assert!(passes(&andante, &api, "/key", two));
    for _ in 0..2 {
        andante.signal(Signal::TERM);
        assert!(andante.ended().success());
        andante = narrower(&api, folder.path(), &rules);
    }
    assert!(!passes(&andante, &api, "/day", ""), "three were used today");
    assert!(!passes(&andante, &api, "/five", ""), "two were used in five minutes");
    assert_eq!([(); 2].map(|()| passes(&andante, &api, "/", batch)), [true, false], "one of two was left");
    assert!(!passes(&andante, &api, "/key", one), "the first credential has used its two");
    assert_eq!([(); 2].map(|()| passes(&andante, &api, "/key", two)), [true, false], "the second has one left");
    let written = fs::read(folder.path().join("limits.redb")).unwrap();
    assert!(!written.windows(10).any(|bytes| bytes == b"Bearer one"), "no credential is written");
}

#[test]
fn a_kill_forgets_no_quota_of_a_narrower_rule_that_is_older_than_two_seconds() {
    let (api, folder) = (Mock::start(&["--limit", "1000/s"]), tempfile::tempdir().unwrap());
    let rules = ["path = \"/day\"\nlimits = [\"3/day in UTC\"]", "path = \"/h\"\nlimits = [\"2/h burst 2\"]"];
    let andante = narrower(&api, folder.path(), &rules);
    assert!(passes(&andante, &api, "/day", "") && passes(&andante, &api, "/day", ""));
    assert!(passes(&andante, &api, "/h", ""));
    thread::park_timeout(Duration::from_millis(2500));
    drop(andante);
    let andante = narrower(&api, folder.path(), &rules);
    assert_eq!([(); 2].map(|()| passes(&andante, &api, "/day", "")), [true, false], "two of three were used");
    assert_eq!([(); 2].map(|()| passes(&andante, &api, "/h", "")), [true, false], "one of two was used");
}
