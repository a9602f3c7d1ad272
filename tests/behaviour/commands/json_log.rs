//! With `--log json` all that andante says is JSON, one object a line: in a container a collector reads both streams.

use std::process::Stdio;

use serde_json::Value;

use super::{andante, file, outcome};
use crate::support::Andante;

/// The objects in `text`, one on each line.
fn objects(text: &str) -> Vec<Value> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\nin:\n{text}"));
    text.lines().map(read).collect()
}

#[test]
fn what_keeps_andante_from_starting_is_json() {
    let taken = Andante::serve(&[]);
    let port = taken.proxy().to_string();
    let bad = file("log = 'json'\nlimits = '5/s'\n");
    let good = file("log = 'json'\n");
    let (bad, good) = (bad.path().to_str().unwrap(), good.path().to_str().unwrap());
    let admin = ["--admin", "off", "--state", "off"];
    for (args, code, words) in [
        (&["serve", "--log", "json", "--port", "1"][..], 2, "--listen"),
        (&["serve", "--log=json", "--limit", "a=500rpm"], 2, "500/min"),
        (&["serve", "--log", "json", "--listen", &port], 1, "another program listens there"),
        (&["serve", "--config", good, "--listen", &port], 1, "another program listens there"),
        (&["serve", "--config", bad], 1, "[[rule]]"),
        (&["run", "--log", "json", "--lisen", "x"], 2, "--listen"),
        (&["batch", "--log", "json", "no/such.jsonl", "--out", "x"], 1, "could not read"),
    ] {
        let starts = args.contains(&"--listen");
        let args = if starts { [args, &admin].concat() } else { args.to_vec() };
        let (found, stdout, stderr) = outcome(andante(&args));
        assert_eq!((found, stdout.as_str()), (Some(code), ""), "{args:?}: {stderr}");
        let said = objects(&stderr);
        let error =
            said.iter().find(|object| object["level"] == "ERROR").unwrap_or_else(|| panic!("{args:?}: {stderr}"));
        assert!(error["message"].is_string() && error["timestamp"].is_string(), "{error}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
    let mut by_variable = andante(&["serve", "--lisen", "x"]);
    by_variable.env("ANDANTE_LOG_FORMAT", "json");
    assert_eq!(objects(&outcome(by_variable).2)[0]["level"], "ERROR");
}

#[test]
fn the_line_that_andante_is_ready_is_json_and_so_is_all_that_follows() {
    let mut command =
        andante(&["serve", "--log", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state", "off"]);
    let mut child = command.env("ANDANTE_LOG", "trace").stdin(Stdio::null()).spawn().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let ready = &objects(&line)[0];
    assert_eq!((&ready["event"], &ready["level"]), (&"ready".into(), &"INFO".into()));
    assert!(ready["listen"][0].as_str().unwrap().starts_with("http://127.0.0.1:"), "{ready}");
    assert!(ready["admin"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{ready}");
    super::signal(&child, rustix::process::Signal::TERM);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(!objects(&String::from_utf8(output.stderr).unwrap()).is_empty());
}

/// The objects that andante says around a command that says nothing.
fn around(args: &[&str]) -> Vec<Value> {
    let (_, _, stderr) = outcome(andante(&[&["run", "--log", "json"], args].concat()));
    objects(&stderr)
}

#[test]
fn the_summary_of_a_run_is_the_last_object() {
    for args in [&["--", "sh", "-c", "exit 3"][..], &["--json", "--", "sh", "-c", "exit 3"]] {
        let said = around(args);
        let last = said.last().unwrap();
        assert_eq!((&last["exit_code"], &last["sent"]), (&3.into(), &0.into()), "{args:?}: {said:#?}");
    }
    assert!(around(&["--quiet", "--", "true"]).iter().all(|object| object["exit_code"].is_null()));
}

#[test]
fn why_a_command_did_not_run_is_an_object() {
    let said = around(&["--", "./no/such/program"]);
    let error = said.last().unwrap();
    assert_eq!((&error["level"], error["hints"].as_array().map(Vec::len)), (&"ERROR".into(), Some(1)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("no/such/program"), "{error}");
}
