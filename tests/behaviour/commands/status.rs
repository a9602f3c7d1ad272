//! `andante status` and `andante top`: the lanes of a running andante, for people in a terminal.

use std::{fs, net::Ipv4Addr, process::Command};

use serde_json::Value;

use super::{andante, outcome};
use crate::support::{Andante, Client, Name, NameServer, Upstream};

const TOKEN: &str = "0123456789abcdef";

/// An andante with 1, 2 and 3 requests waiting for a.test, b.test and c.test. Each host has served one request.
struct Busy {
    andante: Andante,
    token: tempfile::NamedTempFile,
    _upstream: (Upstream, NameServer),
    _waiting: Vec<Client>,
}

impl Busy {
    fn start() -> Self {
        let names = NameServer::start(|_| Name::At(vec![Ipv4Addr::LOCALHOST]));
        let upstream = Upstream::ok();
        let token = tempfile::NamedTempFile::new().unwrap();
        fs::write(token.path(), TOKEN).unwrap();
        let rule = "[[rule]]\nhost = ['a.test', 'b.test', 'c.test']\nname = 'api'\nlimits = '1/1800s'\n";
        let toml = format!("dns = '{}'\nadmin-token = '{}'\n{rule}", names.address(), token.path().display());
        let andante = Andante::with_config(&toml);
        let port = upstream.address().port();
        let mut waiting = Vec::new();
        for (host, clients) in [("a.test", 2), ("b.test", 3), ("c.test", 4)] {
            for at in 0..clients {
                let mut client = Client::connect(andante.proxy());
                client.send(format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"));
                if at == 0 {
                    assert_eq!(client.answer().status(), 200);
                } else {
                    waiting.push(client);
                }
            }
        }
        let sum = |status: &Value| {
            let lanes = status["lanes"].as_array().unwrap();
            lanes.iter().map(|lane| lane["waiting"].as_u64().unwrap()).sum::<u64>()
        };
        andante.wait_for(|status| sum(status) == 6);
        Self { andante, token, _upstream: (upstream, names), _waiting: waiting }
    }

    fn admin(&self) -> String {
        format!("http://{}", self.andante.admin())
    }
}

#[test]
fn status_lists_the_lanes_and_says_what_waits() {
    let busy = Busy::start();
    let admin = busy.admin();
    for command in [&["status"][..], &["top", "--once"]] {
        let list = |flags: &[&str]| {
            let args = [command, &["--admin", &admin], flags].concat();
            let (code, stdout, stderr) = outcome(andante(&args));
            assert_eq!((code, stderr.as_str()), (Some(0), ""), "{args:?}");
            stdout
        };
        let names = |text: &str| -> Vec<String> {
            let hosts = text.lines().skip(2).map(|line| line.split_whitespace().nth(1).unwrap().to_owned());
            hosts.collect()
        };
        let text = list(&[]);
        assert!(text.lines().next().unwrap().ends_with(": 3 lanes, 6 waiting"), "{text}");
        assert_eq!(names(&text), ["c.test", "b.test", "a.test"], "{text}");
        let words: Vec<_> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(words[..3], ["api", "c.test", "3"], "{text}");
        assert!(words.contains(&"100%") && text.lines().nth(2).unwrap().contains("h "), "an hour and a half: {text}");
        assert_eq!(names(&list(&["--sort", "lane"])), ["a.test", "b.test", "c.test"]);
        assert_eq!(names(&list(&["--filter", "B.TEST"])), ["b.test"]);
        assert!(list(&["--filter", "elsewhere"]).contains("no lane has \"elsewhere\" in its name"));
        let json: Value = serde_json::from_str(&list(&["--json", "--sort", "lane", "--filter", ".test"])).unwrap();
        let hosts: Vec<_> = json["lanes"].as_array().unwrap().iter().map(|lane| lane["host"].clone()).collect();
        assert_eq!(hosts, ["a.test", "b.test", "c.test"]);
    }
    let token = busy.token.path().to_str().unwrap();
    let (code, ..) =
        outcome(andante(&["ctl", "pause", "c.test", "--rule", "api", "--admin", &admin, "--token", token]));
    assert_eq!(code, Some(0));
    let (_, text, _) = outcome(andante(&["status", "--admin", &admin, "--filter", "c.test"]));
    assert!(text.lines().nth(2).unwrap().ends_with("operator"), "{text}");
    assert!(!text.contains("LIMITS END"), "{text}");
    let (code, ..) =
        outcome(andante(&["ctl", "limit", "api", "1/1800s", "--for", "30m", "--admin", &admin, "--token", token]));
    assert_eq!(code, Some(0));
    for command in [&["status"][..], &["top", "--once"]] {
        let (_, text, _) = outcome(andante(&[command, &["--admin", &admin, "--filter", "c.test"]].concat()));
        let (titles, row) = (text.lines().nth(1).unwrap(), text.lines().nth(2).unwrap());
        assert!(titles.ends_with("LIMITS END  HTTPS  PAUSED"), "{text}");
        assert!(row.contains("  in 29m ") || row.contains("  in 30m 0s"), "{text}");
    }
}

#[test]
fn nobody_there_and_no_terminal_are_failures_with_hints() {
    for command in ["status", "top"] {
        let (code, stdout, stderr) = outcome(andante(&[command, "--admin", "127.0.0.1:1"]));
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        assert!(stderr.contains("could not ask http://127.0.0.1:1/status") && stderr.contains("hint: "), "{stderr}");
        let (code, _, stderr) = outcome(andante(&[command, "--sort", "size"]));
        assert_eq!(code, Some(2), "{stderr}");
    }
    let busy = Andante::serve(&[]);
    let admin = busy.admin().to_string();
    let (code, stdout, stderr) = outcome(andante(&["top", "--admin", &admin]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("no terminal") && stderr.contains("hint: `andante top --once`"), "{stderr}");
    let (code, stdout, _) = outcome(andante(&["status", "--admin", &admin]));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("no request has come yet"), "{stdout}");
}

#[test]
fn top_is_used_in_a_terminal_which_is_restored() {
    let busy = Busy::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/behaviour/commands/top.py");
    let mut top = Command::new("python3");
    top.args([script, env!("CARGO_BIN_EXE_andante"), &busy.admin()]).arg(busy.token.path());
    let (code, stdout, stderr) = super::told(top.output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(0), "ok\n"), "{stderr}");
    let status = busy.andante.status();
    let paused: Vec<_> = status["lanes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|lane| lane["gate"]["reason"] == "operator")
        .map(|lane| lane["host"].clone())
        .collect();
    assert_eq!(paused, ["b.test"], "{status:#}");
}

#[test]
fn refusals_of_andante_are_in_the_log_in_status_and_in_top() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::serve(&["--limit", &format!("{host}=1/h")]);
    let ask = || {
        let request = format!(
            "GET http://{host}/v1?key=hunter2 HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=0\r\nConnection: close\r\n\r\n"
        );
        Client::ask(andante.proxy(), request).status()
    };
    assert_eq!([ask(), ask(), ask(), ask()], [200, 429, 429, 429]);
    let stderr = andante.stderr();
    let warnings: Vec<&str> = stderr.lines().filter(|line| line.contains("andante refused a request")).collect();
    assert_eq!(warnings.len(), 1, "one each ten seconds: {stderr}");
    for part in ["WARN", &host.ip().to_string(), "/v1", "429", "request_id", "may not wait"] {
        assert!(warnings[0].contains(part), "{part}: {}", warnings[0]);
    }
    assert!(!stderr.contains("hunter2"), "{stderr}");
    let admin = andante.admin().to_string();
    for command in [&["status", "--admin", &admin][..], &["top", "--once", "--admin", &admin]] {
        let (code, stdout, stderr) = outcome(super::andante(command));
        assert_eq!(code, Some(0), "{stderr}");
        let line =
            stdout.lines().find(|line| line.starts_with("andante refused 3 requests, the last ")).unwrap_or(&stdout);
        assert!(line.contains("no slot in the time that a request may wait"), "{stdout}");
    }
}

#[test]
fn pace_is_that_of_the_last_ten_seconds_in_status_and_on_the_page() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::serve(&["--limit", &format!("{host}=20/s")]);
    let requests = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut client = Client::connect(andante.proxy());
    for _ in 0..60 {
        client.send(&requests);
        assert_eq!(client.answer().status(), 200);
    }
    let status = andante.status();
    let lane = &status["lanes"][0];
    // 60 at 20/s: 3 s, and no wait before the first request.
    let pace = lane["pace"].as_f64().unwrap();
    assert!((15.0..=22.0).contains(&pace), "{lane:#}");
    assert_eq!(lane["https"], "turns");
    let admin = andante.admin().to_string();
    let (_, stdout, _) = outcome(super::andante(&["status", "--admin", &admin]));
    let titles: Vec<&str> = stdout.lines().find(|line| line.starts_with("LANE")).unwrap().split_whitespace().collect();
    assert!(titles.contains(&"HTTPS"), "{stdout}");
    let row = stdout.lines().find(|line| line.starts_with(&host.to_string())).unwrap();
    assert!(row.ends_with("turns"), "{stdout}");
    assert!(status["turns"]["sent"].is_number() && status["instance"].as_str().unwrap().contains("127.0.0.1:"));
}
