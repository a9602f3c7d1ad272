//! `andante run`: a command behind a proxy of its own, which it must notice as little as can be.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
};

use rustix::process::Signal;

use super::{andante, outcome, signal, told};
use crate::support::{Mock, Upstream};

/// `andante run` with `flags`, around a shell that runs `script`.
fn shell(flags: &[&str], script: &str) -> Command {
    andante(&[&["run"], flags, &["--", "sh", "-c", script]].concat())
}

#[test]
fn the_commands_exit_code_is_ours() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
        ("kill -SEGV $$", 139),
    ] {
        let (ended, _, stderr) = outcome(shell(&[], script));
        assert_eq!(ended, Some(code), "{script}: {stderr}");
    }
}

#[test]
fn the_exit_code_survives_a_standard_error_that_takes_nothing() {
    let program = env!("CARGO_BIN_EXE_andante");
    let mut sh = Command::new("sh");
    sh.args(["-c", &format!("{program} run -- sh -c 'exit 6' 2>/dev/full")]);
    assert_eq!(outcome(sh).0, Some(6));
}

#[test]
fn a_command_that_does_not_run_is_told_from_one_that_fails() {
    let (code, stdout, stderr) = outcome(andante(&["run", "--", "/nonexistent/program"]));
    assert_eq!((code, stdout.as_str()), (Some(127), ""));
    assert!(stderr.starts_with("error: cannot run \"/nonexistent/program\"\ncaused by: "), "{stderr}");
    assert!(stderr.contains("hint: "), "{stderr}");
    let (code, _, stderr) = outcome(andante(&["run", "--", "/etc/passwd"]));
    assert_eq!(code, Some(126), "{stderr}");
    let (code, _, stderr) = outcome(andante(&["run", "--limit", "a=1 a s", "--", "true"]));
    assert_eq!(code, Some(2), "{stderr}");
}

#[test]
fn two_hyphens_before_the_command_may_be_left_out() {
    let (code, stdout, stderr) = outcome(andante(&["run", "--quiet", "printf", "%s|", "-q", "--json", "--", "x"]));
    assert_eq!((code, stdout.as_str()), (Some(0), "-q|--json|--|x|"), "flags behind it are its own: {stderr}");
    let (code, _, stderr) = outcome(andante(&["run", "--quite", "true"]));
    assert!(code == Some(2) && stderr.contains("hint: write --quiet"), "a slip before it is no command: {stderr}");
}

#[test]
fn the_variables_are_set_in_capitals_and_small_letters() {
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let print = names.map(|name| format!("echo ${name};")).concat();
    let (code, stdout, _) = outcome(shell(&[], &format!("{print} echo $NODE_USE_ENV_PROXY; echo [$NO_PROXY]")));
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = stdout.lines().collect();
    let port = lines[0].strip_prefix("http://127.0.0.1:").and_then(|port| port.parse::<u16>().ok());
    assert!(port.is_some_and(|port| port > 0), "{stdout}");
    assert!(lines[..6].iter().all(|line| *line == lines[0]), "{stdout}");
    assert_eq!(&lines[6..], ["1", "[]"]);
}

#[test]
fn standard_streams_are_the_commands_own() {
    let mut command = shell(&[], "cat; echo said >&2");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\0two\n").unwrap();
    let (code, stdout, stderr) = told(child.wait_with_output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(0), "one\0two\n"));
    // The summary comes last, and on standard error.
    assert!(stderr.starts_with("said\nandante: 0 requests sent in "), "{stderr}");
    assert!(stderr.contains("nothing came through"), "{stderr}");
    let (_, _, stderr) = outcome(shell(&["--quiet"], "echo said >&2"));
    assert_eq!(stderr, "said\n");
}

#[test]
fn a_command_that_reads_the_variables_is_paced() {
    let mock = Mock::start(&["--limit", "10/s"]);
    let address = mock.address().to_string();
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8; do curl -sS -o /dev/null -w '%{{http_code}} ' http://{address}/ & done; wait"
    );
    let (code, stdout, stderr) = outcome(shell(&["--limit", &format!("{address}=10/s")], &script));
    assert_eq!((code, stdout.as_str()), (Some(0), "200 200 200 200 200 200 200 200 "), "{stderr}");
    assert!(stderr.contains("andante: 8 requests sent in ") && stderr.contains("8 sent, "), "{stderr}");
    let stats = mock.stats();
    assert_eq!((&stats["accepted"], &stats["refused"]), (&8.into(), &0.into()));
    assert!(stats["span_seconds"].as_f64().unwrap() >= 0.65, "{stats:#}");
}

#[test]
fn a_loopback_api_with_a_rule_is_taken_out_of_no_proxy() {
    let upstream = Upstream::ok();
    let flags = ["--limit", &format!("{}=10/s", upstream.address())];
    let script = format!("curl -sS {}; echo \" $NO_PROXY\"", upstream.url("/"));
    let mut command = shell(&flags, &script);
    command.env("NO_PROXY", "localhost,127.0.0.1,intra.example").env("no_proxy", "127.0.0.1");
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stdout.as_str()), (Some(0), "ok intra.example\n"), "{stderr}");
    assert!(upstream.request().has("via"));
}

#[test]
fn signals_reach_the_command_which_decides() {
    for (sent, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1")] {
        let script = format!("trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.02; done");
        let mut child = shell(&["--quiet"], &script).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        signal(&child, sent);
        line.clear();
        stdout.read_to_string(&mut line).unwrap();
        assert_eq!(line, format!("got {name}\n"));
        assert_eq!(child.wait().unwrap().code(), Some(9));
    }
}

#[test]
fn a_command_that_a_signal_ends_is_told_as_shells_do() {
    let mut child = shell(&["--quiet"], "echo ready; exec sleep 60").spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
