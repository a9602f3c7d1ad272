//! `andante ctl`: changes by operators while andante runs.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::{andante, outcome};
use crate::support::{Andante, Client, Message, Upstream, eventually};

const TOKEN: &str = "0123456789abcdef";

/// An andante with a rule called `api` for an API that answers at once, and an operator with a token.
struct Steered {
    andante: Andante,
    upstream: Upstream,
    token: tempfile::NamedTempFile,
}

impl Steered {
    fn start(rule: &str) -> Self {
        let upstream = Upstream::ok();
        let token = tempfile::NamedTempFile::new().unwrap();
        fs::write(token.path(), TOKEN).unwrap();
        let (host, file) = (upstream.address(), token.path().display());
        let toml = format!("admin-token = '{file}'\n[[rule]]\nname = 'api'\nhost = '{host}'\n{rule}\n");
        Self { andante: Andante::with_config(&toml), upstream, token }
    }

    fn ctl(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let admin = self.andante.admin().to_string();
        let token = self.token.path().to_str().unwrap();
        outcome(andante(&[&["ctl", "--admin", &admin, "--token", token], args].concat()))
    }

    fn ask(&self, fields: &str) -> Client {
        let mut client = Client::connect(self.andante.proxy());
        let (url, host) = (self.upstream.url("/"), self.upstream.address());
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        client
    }

    /// Whether another request leaves at once.
    fn served(&self) -> bool {
        self.ask("Prefer: wait=0\r\n").answer().status() == 200
    }

    fn waiting(&self, count: u64) -> Value {
        self.andante.wait_for(|status| status["lanes"][0]["waiting"] == count)
    }

    fn host(&self) -> String {
        self.upstream.address().ip().to_string()
    }
}

#[test]
fn a_limit_holds_for_a_while_and_then_the_rules_own_holds_again() {
    let world = Steered::start("limits = '2/h burst 2'");
    assert!(world.served() && world.served() && !world.served());
    let (code, said, stderr) = world.ctl(&["limit", "api", "36000/h", "--for", "2s"]);
    assert_eq!((code, said.as_str()), (Some(0), "1 lane\n"), "{stderr}");
    let limits = |status: &Value| status["lanes"][0]["limits"][0]["limit"].clone();
    let used = || world.andante.status()["lanes"][0]["limits"][0]["used"].clone();
    assert_eq!((limits(&world.andante.status()), used()), ("36000/h".into(), 2.into()), "what was sent counts");
    assert!(world.andante.status()["lanes"][0]["limits"][0]["ends_in_s"].as_f64() <= Some(2.0), "it says until when");
    // Ten a second: a request that waits a little is served.
    assert!((0..2).all(|_| world.ask("").answer().status() == 200));
    assert_eq!(used(), 4);
    world.andante.wait_for(|status| limits(status) == "2/h burst 2");
    assert!(world.andante.status()["lanes"][0]["limits"][0]["ends_in_s"].is_null());
    assert!(!world.served());
    let log = world.andante.stderr();
    assert!(log.contains("changed by an operator") && log.contains("36000/h"), "{log}");
    assert!(log.contains("the limits that an operator has set are over"), "{log}");
    for (args, words) in [
        (&["limit", "none", "5/h", "--for", "1s"][..], "no such rule"),
        (&["limit", "api", "much", "--for", "1s"], "400"),
        (&["weights", "api", "batch=0"], "a whole number from 1 to 65535"),
        (&["weights", "api", "batch"], "NAME=WEIGHT"),
        (
            &["weights", "api", "10.0.0.0/33=2"],
            "expected a network, found \"10.0.0.0/33\": write a prefix from 0 to 32",
        ),
    ] {
        let (code, _, stderr) = world.ctl(args);
        assert!(code == Some(1) && stderr.contains(words) && stderr.contains("hint: "), "{args:?}: {stderr}");
    }
    assert_eq!(world.ctl(&["limit", "api", "5/h"]).0, Some(2), "for how long?");
}

#[test]
fn a_limit_that_was_set_for_a_while_is_ended_by_one_for_no_time() {
    let world = Steered::start("limits = '9/s'");
    assert!(world.served());
    // Longer than the clock can tell is for good.
    assert_eq!(world.ctl(&["limit", "api", "1/h burst 1", "--for", "9999999d"]).0, Some(0));
    assert!(!world.served());
    assert_eq!(world.ctl(&["limit", "api", "1/h burst 1", "--for", "0s"]).0, Some(0));
    world.andante.wait_for(|status| status["lanes"][0]["limits"][0]["limit"] == "9/s");
    eventually("the next slot", || world.served().then_some(()));
}

#[test]
fn what_is_changed_before_the_first_request_holds_for_it() {
    let world = Steered::start("limits = '9/s burst 9'");
    let (host, upstream) = (world.host(), world.upstream.address().to_string());
    let (code, said, stderr) = world.ctl(&["pause", &host, "--rule", "api"]);
    assert_eq!((code, said.as_str()), (Some(0), "1 lane\n"), "{stderr}");
    assert!(!world.served(), "{upstream}");
    assert_eq!(world.ctl(&["resume", &host]).1, "1 lane\n", "all lanes of a host");
    assert!(world.served());
    let other = Steered::start("limits = '9/s burst 9'");
    let (code, said, stderr) = other.ctl(&["limit", "api", "1/h burst 1", "--for", "10m"]);
    assert!(code == Some(0) && said.starts_with("done: applies to future lanes"), "{said}{stderr}");
    assert!(other.served() && !other.served());
    let ends = other.andante.status()["lanes"][0]["limits"][0]["ends_in_s"].as_f64().unwrap();
    assert!((500.0..=600.0).contains(&ends), "{ends}");
    let admin = other.andante.admin().to_string();
    let (_, said, _) = outcome(andante(&["explain", &other.upstream.url("/"), "--admin", &admin]));
    assert!(said.contains("1/h (set by an operator for "), "{said}");
    let (code, _, stderr) = other.ctl(&["pause", "slip.example"]);
    assert!(code == Some(1) && stderr.contains("no such lane"), "what no rule is for may be a slip: {stderr}");
}

#[test]
fn all_lanes_of_a_host_are_meant_where_rules_tell_its_ports_apart() {
    let [one, other] = [Upstream::ok(), Upstream::ok()];
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), TOKEN).unwrap();
    let rule = |name: &str, upstream: &Upstream| {
        format!("[[rule]]\nname = '{name}'\nhost = '{}'\nlimits = '9/s burst 9'\n", upstream.address())
    };
    let toml = format!("admin-token = '{}'\n{}{}", token.path().display(), rule("one", &one), rule("other", &other));
    let andante_ = Andante::with_config(&toml);
    let (admin, token) = (andante_.admin().to_string(), token.path().to_str().unwrap());
    let ctl = |args: &[&str]| outcome(andante(&[&["ctl", "--admin", &admin, "--token", token], args].concat()));
    let served = |upstream: &Upstream| {
        let mut client = Client::connect(andante_.proxy());
        let (url, host) = (upstream.url("/"), upstream.address());
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=0\r\n\r\n"));
        client.answer().status() == 200
    };
    // No request has been sent to the other host yet.
    assert!(served(&one));
    assert_eq!(ctl(&["pause", "127.0.0.1"]).1, "2 lanes\n");
    assert_eq!([served(&one), served(&other)], [false, false]);
    assert_eq!(ctl(&["resume", "127.0.0.1", "--rule", "other"]).1, "1 lane\n");
    assert_eq!([served(&one), served(&other)], [false, true]);
    let (_, _, stderr) = ctl(&["limit", "127.0.0.1", "1/s", "--for", "1s"]);
    assert!(stderr.contains("the rules for that host are \"one\", \"other\""), "{stderr}");
}

#[test]
fn a_rule_for_some_requests_says_too_until_when_an_operators_limits_hold() {
    let some = "[[rule]]\nname = 'some'\nhost = '127.0.0.1'\npath = '/*'\nlimits = '9/h burst 9'";
    let world = Steered::start(&format!("limits = '9/s burst 9'\n{some}"));
    assert!(world.served());
    assert_eq!(world.ctl(&["limit", "some", "8/h burst 8", "--for", "10m"]).0, Some(0));
    let lane = world.andante.status()["lanes"][0].clone();
    let limit = &lane["rules"][0]["limits"][0];
    assert_eq!(limit["limit"], "8/h burst 8", "{lane:#}");
    assert!(limit["ends_in_s"].as_f64().is_some_and(|ends| (500.0..=600.0).contains(&ends)), "{lane:#}");
    assert!(lane["limits"][0]["ends_in_s"].is_null(), "{lane:#}");
}

#[test]
fn a_reload_ends_a_limit_that_was_set_for_a_while() {
    let world = Steered::start("limits = '2/h burst 2'");
    assert!(world.served());
    assert_eq!(world.ctl(&["limit", "api", "9/h", "--for", "1h"]).0, Some(0));
    world.andante.signal(Signal::HUP);
    world.andante.wait_for(|status| status["lanes"][0]["limits"][0]["limit"] == "2/h burst 2");
    // A second limit is set beside other weights, and both hold.
    assert_eq!(world.ctl(&["limit", "api", "9/h burst 9", "--for", "3s"]).0, Some(0));
    assert_eq!(world.ctl(&["weights", "api", "batch=2"]).0, Some(0));
    assert_eq!(world.andante.status()["lanes"][0]["limits"][0]["limit"], "9/h burst 9");
    world.andante.wait_for(|status| status["lanes"][0]["limits"][0]["limit"] == "2/h burst 2");
    let (code, _, stderr) = world.ctl(&["weights", "api", "batch"]);
    assert_eq!(code, Some(1), "{stderr}");
}

#[test]
fn a_flow_that_waits_is_dropped_and_others_stay() {
    let world = Steered::start("limits = '1/1800s'");
    assert!(world.served());
    let mut dropped: Vec<_> = (0..2).map(|_| world.ask("Andante-Flow: batch\r\n")).collect();
    world.waiting(2);
    let _stays = world.ask("");
    let status = world.waiting(3);
    let flows = status["lanes"][0]["flows"].as_array().unwrap();
    let flow = flows.iter().find_map(|flow| flow["flow"].as_str()).expect("a flow has a name");
    let host = world.host();
    let lane = [&host[..], "--rule", "api", "--client", "127.0.0.1"];
    let (code, said, stderr) = world.ctl(&[&["drop"], &lane[..], &["--flow", flow]].concat());
    assert_eq!((code, said.as_str()), (Some(0), "2 requests\n"), "{stderr}");
    for client in &mut dropped {
        let answer: Message = client.answer();
        assert_eq!(answer.status(), 503, "{answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("operator"), "{answer:?}");
    }
    world.waiting(1);
    let (code, said, stderr) = world.ctl(&[&["first"], &lane[..]].concat());
    assert_eq!((code, said.as_str()), (Some(0), "1 request\n"), "{stderr}");
    world.waiting(1);
    let (code, said, _) = world.ctl(&[&["drop"], &lane[..]].concat());
    assert_eq!((code, said.as_str()), (Some(0), "1 request\n"));
    world.waiting(0);
    let (code, _, stderr) = world.ctl(&["drop", "elsewhere", "--client", "::1"]);
    assert!(code == Some(1) && stderr.contains("no such lane"), "{stderr}");
}

#[test]
fn what_was_learned_is_forgotten() {
    let upstream = Upstream::answering(|request| match &*request.target() {
        "/bad" => "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3000\r\nContent-Length: 0\r\n\r\n",
        _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    });
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), TOKEN).unwrap();
    let andante_now = Andante::serve(&["--admin-token", token.path().to_str().unwrap(), "--retry", "off"]);
    let url = upstream.url("/bad");
    assert_eq!(Client::get(andante_now.proxy(), &url).status(), 429);
    andante_now.wait_for(|status| status["lanes"][0]["gate"]["opens_in_s"].as_f64() > Some(2000.0));
    let admin = andante_now.admin().to_string();
    let token = token.path().to_str().unwrap();
    let (code, said, stderr) = outcome(andante(&["ctl", "--admin", &admin, "--token", token, "forget"]));
    assert_eq!((code, said.as_str()), (Some(0), "1 lane\n"), "{stderr}");
    assert!(andante_now.status()["lanes"][0]["gate"].is_null());
    assert_eq!(Client::get(andante_now.proxy(), &upstream.url("/good")).status(), 200);
}

#[test]
fn drain_ends_it_as_a_service_manager_would() {
    let mut world = Steered::start("limits = '9/s'");
    assert!(world.served());
    let (code, said, stderr) = world.ctl(&["drain"]);
    assert_eq!((code, said.as_str()), (Some(0), "draining, with 0 requests waiting\n"), "{stderr}");
    assert!(world.andante.ended().success());
}

#[test]
fn a_token_that_is_too_short_is_told_how_long_it_has_to_be() {
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), "too-short\n").unwrap();
    let token = token.path().to_str().unwrap();
    let serve =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state", "off", "--admin-token", token];
    let (code, stdout, stderr) = outcome(andante(&serve));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("caused by: it is too short: it has 9 characters, and needs 16 at least\n"), "{stderr}");
    assert!(!stderr.contains("no token"), "{stderr}");
}

#[test]
fn no_change_is_made_without_the_token() {
    let world = Steered::start("limits = '9/s'");
    assert!(world.served());
    let admin = world.andante.admin().to_string();
    for change in [
        &["limit", "api", "1/s", "--for", "1m"][..],
        &["weights", "api", "a=2"],
        &["forget"],
        &["drop", "127.0.0.1", "--client", "127.0.0.1"],
        &["first", "127.0.0.1", "--client", "127.0.0.1"],
        &["drain"],
    ] {
        let (code, _, stderr) = outcome(andante(&[&["ctl", "--admin", &admin], change].concat()));
        assert!(code == Some(1) && stderr.contains("changes need a token"), "{change:?}: {stderr}");
    }
    assert_eq!(world.ask("").answer().status(), 200, "it is as it was");
    assert!(!world.andante.stderr().contains("changed by an operator"));
}

#[test]
fn wrong_tokens_are_logged_with_their_address_and_without_the_token() {
    const WRONG: &str = "wrong-0123456789abcdef";
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), TOKEN).unwrap();
    let toml = format!("admin-token = '{}'\n", token.path().display());
    let andante = Andante::logging_with_config("warn", &toml, &["--log", "json"]);
    for _ in 0..3 {
        let mut client = Client::connect(andante.admin());
        client.send(format!(
            "POST /api/v1/pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRONG}\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        ));
        assert_eq!(client.answer().status(), 401);
    }
    let log = eventually("a line", || Some(andante.stderr()).filter(|log| log.contains("wrong admin token")));
    assert_eq!(log.matches("wrong admin token").count(), 1, "{log}");
    assert!(log.contains("\"127.0.0.1\"") && !log.contains(WRONG), "{log}");
    let metrics = andante.metrics();
    assert!(metrics.contains("andante_admin_wrong_tokens_total 3"), "{metrics}");
}
