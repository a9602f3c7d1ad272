//! Nothing is forgotten: not by a restart, and not by a kill.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Andante, Client, Mock};

/// An API and the state of whoever paces calls to it.
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
        let (url, host) = (self.api.url("/"), self.api.address());
        let ask = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=1\r\n\r\n");
        Client::ask(andante.proxy(), ask).status() == 200
    }

    /// Kills andante again and again, at any moment.
    fn kill_often(&self) {
        for _ in 0..kills() {
            let andante = self.serve(&[]);
            self.press(andante.proxy());
            let life = fastrand::u64(20..2500);
            thread::park_timeout(Duration::from_millis(life));
            // A kill that nobody can catch.
            drop(andante);
        }
        // Whatever a burst could do after the last one shows.
        let andante = self.serve(&[]);
        self.press(andante.proxy());
        thread::park_timeout(Duration::from_secs(2));
    }
}

/// How many times each test kills it.
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
