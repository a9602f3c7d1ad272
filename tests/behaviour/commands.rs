//! The commands, as scripts and people call them.

use std::{
    io::{Read, Write},
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Andante, Client, Mock, Upstream, eventually};

mod batch;
mod batch_inputs;
mod ca;
mod doctor;
mod env;
mod explain;
mod health;
mod hint;
mod https_said;
mod install;
mod json_log;
mod mock;
mod run;
mod service;
mod slips;
mod status;
mod steering;
mod summary;

/// `andante` with `args`.
pub(crate) fn andante(args: &[&str]) -> Command {
    let mut command = Andante::command();
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Result of a command: exit code, standard output, standard error.
pub(crate) fn outcome(mut command: Command) -> (Option<i32>, String, String) {
    told(command.spawn().unwrap().wait_with_output().unwrap())
}

fn told(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn file(toml: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    file.write_all(toml.as_bytes()).unwrap();
    file
}

#[test]
fn a_mistake_on_the_command_line_is_one_of_usage() {
    for (args, word) in [
        (&["serve", "--lisen", "127.0.0.1:0"][..], "--listen"),
        (&["serve", "--limit", "a=10 per s"], "hint: write 10/s"),
        (&["serve", "--listen", "nowhere"], "127.0.0.1:3128"),
        (&["serve", "--spend", "all"], "hint: write mostly, even or greedy"),
        (&["serve", "--breaker", "yes"], "hint: write on\n"),
        (&["run", "--trust", "me", "--", "true"], "hint: write waits, stricter or api"),
        (&["run", "--retry", "4MiB", "--", "true"], "hint: write retry = { body = '4MiB' } in a file"),
        (&["sevre"], "serve"),
        (&["mock", "--window", "open"], "sliding"),
        (&["plan", "--limit", "10/s"], "--requests"),
        (&["run", "--limit", "a=1/s"], "COMMAND"),
        (&["demo", "--workers", "0"], "from 1 to 5000"),
    ] {
        let (code, stdout, stderr) = outcome(andante(args));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains("hint: "), "{args:?}: {stderr}");
        assert!(stderr.contains(word), "{args:?}: {stderr}");
        assert!(!stderr.contains('\x1b'), "{args:?}: {stderr}");
    }
}

#[test]
fn help_and_version_are_no_mistakes() {
    for (args, word) in [
        (&["--help"][..], "Exit codes:"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["serve", "--help"], "andante serve --limit"),
        (&["run", "--help"], "andante run --limit"),
    ] {
        let (code, stdout, stderr) = outcome(andante(args));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{args:?}");
        assert!(stdout.contains(word), "{args:?}: {stdout}");
    }
}

#[test]
fn check_tells_every_problem_at_once() {
    let bad = file(
        "listen = \"nowhere\"\ndrian = \"3s\"\n[[rule]]\nhost = \"a\"\nlimits = [\"500 a min\"]\n[[rule]]\nlimits = [\"1/s\"]\n",
    );
    let path = bad.path().to_str().unwrap();
    let (code, stdout, stderr) = outcome(andante(&["check", path]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    for line in [1, 2, 5, 6] {
        assert!(stderr.contains(&format!("error: {path}:{line}")), "nothing on line {line}: {stderr}");
    }
    assert!(stderr.contains("hint: write \"500/min\""), "{stderr}");
    assert!(stderr.ends_with("4 errors, 0 warnings\n"), "{stderr}");
    // `serve` rejects a configuration that `check` rejects.
    let (code, stdout, again) = outcome(andante(&["serve", "--config", path]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{again}");
    assert!(stderr.starts_with(&again), "{again}");
}

#[test]
fn check_as_json_has_the_problems_on_standard_output() {
    let bad = file("[[rule]]\nhost = \"a\"\nlimits = [\"500 a min\"]\n[[rule]]\nhost = \"b\"\nlimits = [\"1/s\"]\n");
    let path = bad.path().to_str().unwrap();
    let (code, stdout, stderr) = outcome(andante(&["check", "--json", path]));
    assert_eq!((code, stderr.as_str()), (Some(1), ""), "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&report["good"], &report["errors"], &report["problems"][0]["line"]),
        (&false.into(), &1.into(), &3.into())
    );
    assert_eq!((&report["rules"][0]["good"], &report["rules"][1]["good"]), (&false.into(), &true.into()), "{stdout}");
    // In text the rule that is fine is named.
    assert!(outcome(andante(&["check", path])).2.ends_with("fine: the rule b\n1 error, 0 warnings\n"));
    let good = file("[[rule]]\nhost = \"a\"\nlimits = [\"1/s\"]\n");
    let (code, stdout, _) = outcome(andante(&["check", "--json", good.path().to_str().unwrap()]));
    assert_eq!((code, &serde_json::from_str::<Value>(&stdout).unwrap()["good"]), (Some(0), &true.into()), "{stdout}");
}

#[test]
fn check_says_how_a_good_file_was_understood() {
    let good = file("[[rule]]\nhost = \"api.example.com\"\nlimits = [\"500/min\"]\nin-flight = 20\n");
    let path = good.path().to_str().unwrap();
    let (code, stdout, stderr) = outcome(andante(&["check", path]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.starts_with(&format!("{path} is good\n")) && stdout.contains("500/min"), "{stdout}");
    let (code, _, stderr) = outcome(andante(&["check", "/nonexistent/andante.toml"]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("error: /nonexistent/andante.toml: cannot be read"), "{stderr}");
}

#[test]
fn check_says_what_becomes_of_answers_where_it_is_not_the_usual() {
    let file = file("spend = \"even\"\n[[rule]]\nhost = \"a\"\nretry = { body = \"64KiB\" }\nbreaker = \"off\"\n");
    let path = file.path().to_str().unwrap();
    let (code, stdout, stderr) = outcome(andante(&["check", path]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let rule = "  spend         even\n  retry         on, with bodies up to 64 KiB\n  breaker       off\n";
    assert!(stdout.contains("\nspend         even\n") && stdout.contains(rule), "{stdout}");
    assert!(!stdout.contains("trust"), "{stdout}");
    // The environment wins over the top of the file, and a rule over both.
    let mut command = andante(&["check", path]);
    command.env("ANDANTE_SPEND", "greedy").env("ANDANTE_RETRY", "off").env("ANDANTE_TRUST", "");
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("\nspend         greedy\nretry         off\n"), "{stdout}");
    assert!(stdout.contains(&rule.replace("even", "greedy")) && !stdout.contains("trust"), "{stdout}");
    let mut command = andante(&["check", path]);
    command.env("ANDANTE_BREAKER", "broken");
    let (code, _, stderr) = outcome(command);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.starts_with("error: ANDANTE_BREAKER: expected \"on\" or \"off\", found \"broken\"\n"), "{stderr}");
}

#[test]
fn a_mistyped_log_level_does_not_silence_the_log() {
    for args in [&["serve"][..], &["run", "--", "true"], &["check"]] {
        let mut command = andante(args);
        command.env("ANDANTE_LOG", "warning");
        let (code, stdout, stderr) = outcome(command);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{args:?}: {stderr}");
        let said = "error: ANDANTE_LOG: expected a log level, or levels by module, found \"warning\"\nhint: write error, warn,";
        assert!(stderr.starts_with(said), "{args:?}: {stderr}");
    }
}

#[test]
fn flags_environment_and_file_say_the_same() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let limits = "7/s burst 3,500/min,in-flight 4";
    let shown = |andante: &Andante| -> Value {
        assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
        let lane = andante.wait_for(|status| status["connections"]["client"] == 0)["lanes"][0].clone();
        let limits: Vec<Value> =
            lane["limits"].as_array().unwrap().iter().map(|limit| limit["limit"].clone()).collect();
        serde_json::json!([lane["rule"], lane["host"], limits, lane["in_flight_limit"]])
    };
    let flag = shown(&Andante::serve(&["--limit", &format!("{host}={limits}")]));
    let rule = format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"7/s burst 3\", \"500/min\"]\nin-flight = 4\n");
    let written = shown(&Andante::with_config(&rule));
    let variable = shown(&Andante::with_environment("ANDANTE_LIMIT", &format!("{host}={limits}")));
    assert_eq!(flag, serde_json::json!([host.to_string(), "127.0.0.1", ["7/s burst 3", "500/min burst 500"], 4]));
    assert_eq!((&written, &variable), (&flag, &flag));
    let stronger = format!("{host}=9/s");
    let over = shown(&Andante::with_config_and(&rule, &["--limit", &stronger]));
    assert_eq!(over[2], serde_json::json!(["9/s"]));
}

#[test]
fn serve_on_a_port_in_use_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flags in [["--listen", &address, "--admin", "off"], ["--admin", &address, "--listen", "127.0.0.1:0"]] {
        let (code, stdout, stderr) = outcome(andante(&[&["serve"], &flags[..]].concat()));
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        assert!(stderr.contains(&format!("caused by: could not listen on {address}\n")), "{stderr}");
        assert!(stderr.contains("hint: another program listens there"), "{stderr}");
    }
    let (code, _, stderr) = outcome(andante(&["mock", "--listen", &address]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("error: could not listen on") && stderr.contains("hint: "), "{stderr}");
}

#[test]
fn plan_computes_how_long_a_burst_takes() {
    for (limit, requests, seconds) in [
        ("10/s", "101", 10.0),
        ("500/min", "30000", 29_999.0 * 0.12),
        ("10/s burst 10", "10", 0.0),
        ("10/s burst 10", "21", 2.0),
        ("100/s,60/min", "61", 60.0),
        ("in-flight 5", "10", 0.2),
    ] {
        let (code, stdout, stderr) = outcome(andante(&["plan", "--limit", limit, "--requests", requests, "--json"]));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{limit}");
        let plan: Value = serde_json::from_str(&stdout).unwrap();
        let told = plan["seconds"].as_f64().unwrap();
        assert!((told - seconds).abs() < 0.01, "{requests} at {limit}: {told} instead of {seconds}");
    }
    let (code, stdout, _) = outcome(andante(&["plan", "--limit", "500/min", "--requests", "30000"]));
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with("30,000 requests at 500/min: 59 min 59.8 s\n"), "{stdout}");
}

#[test]
fn plan_says_how_long_each_flow_waits() {
    let flows = ["--flow", "batch=1000", "--flow", "live=100@10", "--flow", "alarm=2,u=0"];
    let plan = |more: &[&str]| outcome(andante(&[&["plan", "--limit", "10/s"][..], &flows[..], more].concat()));
    let (code, stdout, stderr) = plan(&["--json"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let said: Value = serde_json::from_str(&stdout).unwrap();
    let longest = |flow: usize| said["flows"][flow]["would_wait_seconds"]["longest"].as_f64().unwrap();
    // The alarms go first, but for one slot of 21. Of eleven others ten are those of live, and 1,102 take 110.1 s.
    assert!((longest(0) - 110.1).abs() < 0.01 && (longest(1) - 11.1).abs() <= 0.3 && longest(2) <= 0.2, "{stdout}");
    let (code, stdout, _) = plan(&[]);
    assert!(code == Some(0) && stdout.starts_with("1,102 requests of 3 flows at 10/s: 1 min 50.1 s\n"), "{stdout}");
    let (code, _, stderr) = outcome(andante(&["plan", "--limit", "10/s", "--flow", "live"]));
    assert!(code == Some(2) && stderr.contains("write NAME=REQUESTS"), "{stderr}");
}

#[test]
fn plan_reads_an_access_log_of_either_format() {
    let upstream = Upstream::ok();
    let host = upstream.address().ip().to_string();
    for format in ["json", "text"] {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("access.log").display().to_string();
        let running = Andante::serve(&["--log", format, "--access-log", &file]);
        for _ in 0..5 {
            assert_eq!(Client::get(running.proxy(), &upstream.url("/")).status(), 200);
        }
        eventually("5 lines", || (std::fs::read_to_string(&file).unwrap().lines().count() == 5).then_some(()));
        let (code, stdout, stderr) = outcome(andante(&["plan", "--limit", "1/min", "--log", &file, "--json"]));
        assert_eq!((code, &*stderr), (Some(0), ""));
        let plan: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((plan["requests"].as_u64(), plan["host"].as_str()), (Some(5), Some(&*host)));
        // The fifth leaves four minutes after the first one, and all came within a minute.
        let longest = plan["would_wait_seconds"]["longest"].as_f64().unwrap();
        assert!((180.0..=240.0).contains(&longest), "{longest}");
    }
}

#[test]
fn mock_reports_what_it_saw_when_it_is_stopped() {
    for signal in [Signal::INT, Signal::TERM] {
        let mock = Mock::start(&["--limit", "3/h", "--dialect", "ietf"]);
        let answers: Vec<u16> = (0..5).map(|_| Client::get(mock.address(), &mock.url("/")).status()).collect();
        assert_eq!(answers, [200, 200, 200, 429, 429]);
        let (ended, report) = mock.end(signal);
        assert!(ended.success());
        assert_eq!(report, "accepted 3, refused 2, 5 asked in the busiest window, 3 allowed\n");
    }
}

#[test]
fn demo_ends_with_none_refused() {
    let (code, stdout, stderr) = outcome(andante(&["demo", "--limit", "20/s", "--requests", "60", "--workers", "20"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let cells = |label: &str| -> Vec<String> {
        let row = stdout.lines().find(|line| line.contains(label)).unwrap_or_else(|| panic!("no {label}: {stdout}"));
        row.split('│').skip(2).take(2).map(|cell| cell.trim().to_owned()).collect()
    };
    let refused = cells("refused by the API");
    assert!(refused[0] != "0" && refused[1] == "0", "{stdout}");
    assert_eq!(cells("sent to the API")[1], "60");
}

#[test]
fn what_nobody_reads_is_no_crash() {
    let mut child = andante(&["plan", "--limit", "10/s", "--requests", "10"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!said.contains("panicked"), "{said}");
    child.wait().unwrap();
}
