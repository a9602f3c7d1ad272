//! A new andante takes over from the serving one, while the old one sends its waiting requests.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::Stdio,
    sync::mpsc,
    thread,
    time::Duration,
};

use andante::clock::Clock;
use parking_lot::Mutex;
use rustix::process::Signal;
use tempfile::TempDir;

use super::waiting;
use crate::support::{Andante, Client, Connection, Mock, Upstream, eventually};

/// A state that two processes have, one after the other.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("limits.redb")
    }

    fn serve(&self, more: &[&str]) -> Andante {
        let file = self.file();
        Andante::serve(&[&["--state", file.to_str().unwrap()], more].concat())
    }

    /// The next process, on the address of the one before.
    fn take_over(&self, more: &[&str]) -> Andante {
        self.serve(&[&["--take-over"], more].concat())
    }
}

/// Asks for `url` `count` times at once. The statuses of the answers come as they do.
fn ask(proxy: SocketAddr, url: &str, count: usize) -> mpsc::Receiver<u16> {
    let (sender, answers) = mpsc::channel();
    for _ in 0..count {
        let (sender, url) = (sender.clone(), url.to_owned());
        thread::spawn(move || sender.send(status(proxy, &url).unwrap_or(0)));
    }
    answers
}

/// The status of one answer; an error if the process ends before.
fn status(proxy: SocketAddr, url: &str) -> io::Result<u16> {
    let mut stream = TcpStream::connect(proxy)?;
    let host = url.split('/').nth(2).unwrap_or_default();
    stream.write_all(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn statuses(answers: mpsc::Receiver<u16>, count: usize) -> Vec<u16> {
    (0..count).map(|_| answers.recv_timeout(Duration::from_secs(60)).unwrap()).collect()
}

#[test]
fn two_processes_together_keep_the_limit_and_nobody_is_refused() {
    let place = Place::new();
    // Room for a machine that stalls; two processes that do not know of each other would send up to 40.
    let api = Mock::start(&["--limit", "25/s"]);
    let limit = format!("{}=20/s", api.address());
    let mut before = place.serve(&["--limit", &limit]);
    let proxy = before.proxy();
    let early = ask(proxy, &api.url("/"), 60);
    before.wait_for(|status| waiting(status) > 30);
    let after = place.take_over(&["--limit", &limit]);
    assert_eq!(after.proxy(), proxy, "it has the socket of the one before");
    let late = ask(proxy, &api.url("/"), 20);
    assert_eq!(statuses(early, 60), vec![200; 60]);
    assert_eq!(statuses(late, 20), vec![200; 20]);
    assert!(before.ended().success());
    let stats = api.stats();
    assert_eq!((&stats["refused"], &stats["accepted"]), (&0.into(), &80.into()), "{stats}");
    let status = after.status();
    assert_eq!(status["lanes"][0]["sent_total"], 20, "the one before has sent the rest: {status}");
}

#[test]
fn a_host_without_waiting_requests_is_served_at_once() {
    let place = Place::new();
    let (busy, idle) = (Mock::start(&[]), Upstream::ok());
    let limit = format!("{}=2/s", busy.address());
    // By another name, so that it is another host.
    let url = format!("http://localhost:{}/", idle.port());
    let before = place.serve(&["--limit", &limit]);
    let waits = ask(before.proxy(), &busy.url("/"), 20);
    before.wait_for(|status| waiting(status) > 10);
    let after = place.take_over(&["--limit", &limit]);
    let clock = Clock::start();
    assert_eq!(Client::get(after.proxy(), &url).status(), 200);
    assert!(clock.now().since(clock.began()) < Duration::from_secs(2), "{:?}", clock.now());
    drop(waits);
}

#[test]
fn an_answer_that_goes_on_does_not_keep_the_host_from_the_next_process() {
    let place = Place::new();
    let api = Upstream::scripted(|mut connection: Connection| {
        while let Some(request) = connection.request() {
            if request.target() != "/stream" {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                continue;
            }
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            while connection.sent("1\r\nx\r\n") {
                crate::support::pause(Duration::from_millis(100));
            }
        }
    });
    let limit = format!("{}=50/s", api.address());
    let before = place.serve(&["--limit", &limit]);
    let mut stream = Client::connect(before.proxy());
    stream.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", api.url("/stream"), api.address()));
    stream.until("x\r\n");
    let after = place.take_over(&["--limit", &limit]);
    let clock = Clock::start();
    assert_eq!(Client::get(after.proxy(), &api.url("/")).status(), 200);
    assert!(clock.now().since(clock.began()) < Duration::from_secs(6), "{:?}", clock.now());
    stream.until("x\r\n");
}

#[test]
fn a_limit_on_what_is_under_way_counts_the_answers_of_the_process_before() {
    let place = Place::new();
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let api = Upstream::scripted(move |mut connection: Connection| {
        while let Some(request) = connection.request() {
            if request.target() == "/slow" {
                let _ = held.lock().recv();
            }
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let limit = format!("{}=in-flight 1", api.address());
    let before = place.serve(&["--limit", &limit]);
    let slow = ask(before.proxy(), &api.url("/slow"), 1);
    api.wait_for(1);
    let after = place.take_over(&["--limit", &limit]);
    let next = ask(after.proxy(), &api.url("/"), 1);
    assert!(next.recv_timeout(Duration::from_secs(4)).is_err(), "one is under way by the process before");
    release.send(()).unwrap();
    assert_eq!((statuses(slow, 1), statuses(next, 1)), (vec![200], vec![200]));
}

#[test]
fn a_process_that_is_killed_while_it_hands_over_counts_as_having_used_its_limit() {
    let place = Place::new();
    let api = Mock::start(&["--limit", "13/s"]);
    let limit = format!("{}=10/s", api.address());
    let before = place.serve(&["--limit", &limit]);
    let lost = ask(before.proxy(), &api.url("/"), 60);
    before.wait_for(|status| waiting(status) > 30);
    let after = place.take_over(&["--limit", &limit]);
    let late = ask(after.proxy(), &api.url("/"), 15);
    before.signal(Signal::KILL);
    assert_eq!(statuses(late, 15), vec![200; 15]);
    drop(lost);
    let stats = api.stats();
    assert_eq!(stats["refused"], 0, "{stats}");
}

#[test]
fn without_another_andante_it_just_starts_and_its_socket_goes_with_it() {
    let place = Place::new();
    let api = Upstream::ok();
    let mut alone = place.take_over(&[]);
    assert_eq!(Client::get(alone.proxy(), &api.url("/")).status(), 200);
    let socket = place.0.path().join("limits.redb.handover");
    assert!(socket.exists());
    alone.signal(Signal::TERM);
    assert!(alone.ended().success() && !socket.exists());
    // A killed process leaves the socket behind.
    let killed = place.serve(&[]);
    killed.signal(Signal::KILL);
    eventually("the state to be free", || {
        fs::read_link(format!("/proc/{}/exe", killed.pid().as_raw_nonzero())).is_err().then_some(())
    });
    assert!(socket.exists());
    assert_eq!(Client::get(place.take_over(&[]).proxy(), &api.url("/")).status(), 200);
}

#[test]
fn one_process_after_the_other_takes_over() {
    let place = Place::new();
    let api = Mock::start(&["--limit", "60/s"]);
    let limit = format!("{}=50/s", api.address());
    let mut serving = place.serve(&["--limit", &limit]);
    let proxy = serving.proxy();
    for _ in 0..4 {
        let answers = ask(proxy, &api.url("/"), 40);
        let mut before = std::mem::replace(&mut serving, place.take_over(&["--limit", &limit]));
        assert_eq!(statuses(answers, 40), vec![200; 40]);
        assert!(before.ended().success());
    }
    let stats = api.stats();
    assert_eq!((&stats["refused"], &stats["accepted"]), (&0.into(), &160.into()), "{stats}");
}

#[test]
fn a_third_process_waits_until_the_first_one_has_sent_everything() {
    let place = Place::new();
    let api = Mock::start(&["--limit", "25/s"]);
    let limit = format!("{}=20/s", api.address());
    let mut first = place.serve(&["--limit", &limit]);
    let early = ask(first.proxy(), &api.url("/"), 60);
    first.wait_for(|status| waiting(status) > 30);
    let mut second = place.take_over(&["--limit", &limit]);
    let between = ask(second.proxy(), &api.url("/"), 20);
    let third = place.take_over(&["--limit", &limit]);
    let late = ask(third.proxy(), &api.url("/"), 20);
    assert!(first.ended().success());
    assert_eq!(statuses(early, 60), vec![200; 60]);
    assert_eq!(statuses(between, 20), vec![200; 20]);
    assert_eq!(statuses(late, 20), vec![200; 20]);
    assert!(second.ended().success());
    let stats = api.stats();
    assert_eq!((&stats["refused"], &stats["accepted"]), (&0.into(), &100.into()), "{stats}");
}

#[test]
fn two_rules_for_ports_of_one_host_keep_what_each_of_them_has_sent() {
    let place = Place::new();
    let (busy, quota) = (Mock::start(&["--limit", "25/s"]), Mock::start(&["--limit", "5/h"]));
    let limits = [format!("{}=20/s", busy.address()), format!("{}=5/h burst 5", quota.address())];
    let flags = ["--limit", &limits[0], "--limit", &limits[1]];
    let before = place.serve(&flags);
    assert_eq!(statuses(ask(before.proxy(), &quota.url("/"), 4), 4), vec![200; 4]);
    let early = ask(before.proxy(), &busy.url("/"), 40);
    before
        .wait_for(|status| status["lanes"].as_array().unwrap().iter().any(|lane| lane["waiting"].as_u64() > Some(20)));
    let after = place.take_over(&flags);
    assert_eq!(statuses(ask(after.proxy(), &quota.url("/"), 1), 1), vec![200]);
    let (url, host) = (quota.url("/"), quota.address());
    let sixth = Client::ask(after.proxy(), format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=1\r\n\r\n"));
    assert_eq!(sixth.status(), 429, "five of an hour are used up");
    assert_eq!(statuses(early, 40), vec![200; 40]);
    assert_eq!(quota.stats()["accepted"], 5);
}

#[test]
fn a_process_that_ends_before_it_has_taken_over_does_not_forget_what_was_sent() {
    let place = Place::new();
    let api = Mock::start(&["--limit", "100/s"]);
    let limit = format!("{}=5/s, 100/h burst 100", api.address());
    let mut before = place.serve(&["--limit", &limit]);
    let early = ask(before.proxy(), &api.url("/"), 20);
    before.wait_for(|status| waiting(status) > 5);
    let mut between = place.take_over(&["--limit", &limit]);
    let sent = api.stats()["accepted"].as_u64().unwrap();
    between.signal(Signal::TERM);
    assert!(between.ended().success());
    assert_eq!(statuses(early, 20), vec![200; 20]);
    assert!(before.ended().success());
    let after = place.serve(&["--limit", &limit]);
    let limits = after.status()["lanes"][0]["limits"].clone();
    let hour = limits.as_array().unwrap().iter().find(|limit| limit["limit"].as_str().unwrap().contains('h')).unwrap();
    assert!(hour["used"].as_u64().unwrap() >= sent && sent > 0, "{sent} were sent: {limits}");
}

#[test]
fn a_process_that_takes_over_without_admin_pages_has_none() {
    let place = Place::new();
    let before = place.serve(&[]);
    let admin = before.admin();
    let after = place.take_over(&["--admin", "off"]);
    assert_eq!(Client::get(after.proxy(), &Upstream::ok().url("/")).status(), 200);
    drop(before);
    assert!(TcpStream::connect(admin).is_err());
}

#[test]
fn a_process_that_keeps_no_state_says_that_it_cannot_be_found() {
    let output = Andante::command()
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--state", "off", "--take-over"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no state is kept") && said.contains("--state FILE"), "{said}");
}
