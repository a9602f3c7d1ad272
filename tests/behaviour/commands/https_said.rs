//! Screens and files say of each limited host how HTTPS to it is handled.

use super::{andante, file, outcome};
use crate::support::{Andante, Client, Upstream};

/// A rule for each value of `https`, for `localhost` and two names that no test requests.
const RULES: &str = "[[rule]]\nhost = \"localhost\"\nlimits = \"100/s\"\n\
    [[rule]]\nhost = \"blind.test\"\nlimits = \"100/s\"\nhttps = \"tunnel\"\n\
    [[rule]]\nname = \"search\"\nhost = \"localhost\"\npath = \"/search\"\nlimits = \"1/s\"\n";

const TURNS: &str = "paced by turns (refusals, paths, costs are not seen)";

#[test]
fn check_says_how_https_is_handled_and_which_keys_do_not_apply() {
    let rules = file(RULES);
    let (code, stdout, _) = outcome(andante(&["check", rules.path().to_str().unwrap()]));
    assert_eq!(code, Some(0));
    for words in
        [TURNS, "tunnel: tunnelled: each tunnel takes one slot", "path: for plain HTTP and gateway addresses only"]
    {
        assert!(stdout.contains(words), "no {words}: {stdout}");
    }
}

#[test]
fn serve_says_at_the_start_how_https_is_handled() {
    let andante = Andante::with_config(RULES);
    let log = andante.stderr();
    for words in [
        "HTTPS is paced by turns",
        "HTTPS is tunnelled: each tunnel takes one slot",
        "do not apply inside HTTPS tunnels",
    ] {
        assert_eq!(log.lines().filter(|line| line.contains(words)).count(), 1, "{words}: {log}");
    }
    let line = log.lines().find(|line| line.contains("HTTPS is tunnelled")).unwrap();
    assert!(line.contains("WARN") && line.contains("host=blind.test"), "{line}");
}

#[test]
fn doctor_does_not_call_a_tunnelled_limit_ok() {
    let rules = file(RULES);
    let args = ["doctor", "--config", rules.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--state", "off"];
    let (_, stdout, _) = outcome(andante(&args));
    assert!(stdout.lines().any(|line| line.starts_with("not ok  HTTPS") && line.contains("blind.test")), "{stdout}");
    assert!(stdout.contains(TURNS) && !stdout.contains("everything is ok"), "{stdout}");
}

#[test]
fn status_and_metrics_say_how_https_of_a_lane_is_handled() {
    let upstream = Upstream::ok();
    let andante = Andante::with_config(RULES);
    let url = format!("http://localhost:{}/", upstream.port());
    assert_eq!(Client::get(andante.proxy(), &url).text(), "ok");
    assert_eq!(andante.status()["lanes"][0]["https"], "turns");
    let metrics = andante.metrics();
    assert!(metrics.contains("andante_https_lanes{rule=\"localhost\",https=\"turns\"} 1"), "{metrics}");
}

#[test]
fn explain_says_how_https_is_handled() {
    let rules = file(RULES);
    let explain = |url| outcome(andante(&["explain", "--config", rules.path().to_str().unwrap(), url])).1;
    assert!(explain("https://localhost/").contains(TURNS), "{}", explain("https://localhost/"));
    assert!(
        explain("https://blind.test/")
            .contains("not seen inside: each tunnel takes one slot, requests inside are not paced"),
        "{}",
        explain("https://blind.test/")
    );
}
