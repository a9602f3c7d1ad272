//! `andante batch`: each request of a file is answered once, whatever happens in between.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use super::{andante, outcome, signal, told};
use crate::support::{Andante, DeadPort, Message, Upstream, eventually};

/// A folder with a batch in it.
struct Batch {
    folder: tempfile::TempDir,
    input: PathBuf,
}

impl Batch {
    /// A batch whose input file is called `name` and contains `text`.
    fn of(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join(name);
        fs::write(&input, text).unwrap();
        Self { folder, input }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out.jsonl")
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = andante(&["batch"]);
        command.arg(&self.input).arg("--out").arg(self.out()).args(flags);
        command
    }

    fn run(&self, flags: &[&str]) -> (Option<i32>, String) {
        let (code, stdout, stderr) = outcome(self.command(flags));
        assert_eq!(stdout, "");
        (code, stderr)
    }

    fn start(&self, flags: &[&str]) -> Child {
        self.command(flags).stdin(Stdio::null()).spawn().unwrap()
    }

    /// Number of lines of a file beside the answers.
    fn lines(&self, ending: &str) -> usize {
        let path = format!("{}{ending}", self.out().display());
        fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }

    /// The answers by the names of their requests. Each request has one.
    fn answers(&self) -> BTreeMap<String, Value> {
        let text = fs::read_to_string(self.out()).unwrap();
        let mut answers = BTreeMap::new();
        for line in text.lines() {
            let answer: Value = serde_json::from_str(line).unwrap();
            let named = ["id", "custom_id"].iter().find_map(|member| answer[member].as_str());
            let name = named.map_or_else(|| answer["line"].as_u64().unwrap().to_string(), str::to_owned);
            assert!(answers.insert(name, answer).is_none(), "twice: {line}");
        }
        answers
    }

    /// Names of the files in the folder, except the input.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<String> = entries.filter(|path| *path != self.input).map(|path| name(&path)).collect();
        names.sort();
        names
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn code(answer: &Value) -> u64 {
    answer["response"]["status_code"].as_u64().unwrap()
}

/// Half of them GET and half POST, named after their paths.
fn mixed(host: &str, count: usize) -> String {
    let line = |n| match n % 2 {
        0 => format!("{{\"id\":\"/{n}\",\"url\":\"http://{host}/{n}\"}}\n"),
        _ => format!("{{\"id\":\"/{n}\",\"url\":\"http://{host}/{n}\",\"body\":{{\"n\":{n}}}}}\n"),
    };
    (0..count).map(line).collect()
}

/// Answers 404 to /no and 200 to everything else, after a while.
fn slow(millis: u64) -> Upstream {
    Upstream::answering(move |request: &Message| {
        thread::park_timeout(Duration::from_millis(millis));
        let status = if request.target() == "/no" { "404 Not Found" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{{\"a\": 1}}")
    })
}

#[test]
fn each_request_has_its_answer_and_the_exit_code_says_whether_all_went_well() {
    let upstream = slow(0);
    let host = upstream.address();
    let lines = format!(
        "{{\"custom_id\":\"one\",\"url\":\"/v1/x\",\"body\":{{\"k\":1}},\"headers\":{{\"X-A\":\"b\"}}}}\n\n{{\"url\":\"http://{host}/no\"}}\n"
    );
    let batch = Batch::of("in.jsonl", &lines);
    let base = format!("http://{host}");
    let (code, stderr) = batch.run(&["--base-url", &base]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.starts_with("andante: 2 of 2 requests answered in ") && stderr.contains("200: 1, 404: 1"),
        "{stderr}"
    );
    let answers = batch.answers();
    assert_eq!([self::code(&answers["one"]), self::code(&answers["3"])], [200, 404]);
    assert_eq!(answers["one"]["response"]["body"]["a"], 1);
    assert_eq!(answers["one"]["error"], Value::Null);
    let sent = upstream.requests().into_iter().find(|request| request.target() == "/v1/x").unwrap();
    assert_eq!((sent.line().as_str(), sent.text().as_str()), ("POST /v1/x HTTP/1.1", "{\"k\":1}"));
    assert_eq!((sent.field("x-a").as_deref(), sent.has("andante-gateway")), (Some("b"), false));
    let known = ["out.jsonl", "out.jsonl.journal"];
    assert_eq!(batch.files(), known, "the second one goes by its line, so its input stays known");
    let (code, stderr) = batch.run(&["--base-url", &base]);
    assert_eq!((code, upstream.requests().len()), (Some(1), 2), "what is answered is not sent again: {stderr}");
}

#[test]
fn a_batch_that_is_killed_goes_on_where_it_was() {
    let upstream = slow(30);
    let host = upstream.address().to_string();
    let batch = Batch::of("in.jsonl", &mixed(&host, 120));
    let limit = format!("{host}=60/s");
    let flags = ["--limit", limit.as_str(), "--quiet"];
    for least in [20, 45, 70] {
        let mut child = batch.start(&flags);
        eventually("some answers", || (batch.lines("") >= least).then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (code, stderr) = batch.run(&flags[..2]);
    let unknown = 120 - batch.answers().len();
    assert_eq!(code, Some(i32::from(unknown > 0)), "{stderr}");
    let posts = |path: &str| {
        upstream.requests().iter().filter(|request| request.line() == format!("POST {path} HTTP/1.1")).count()
    };
    for n in (1..120).step_by(2) {
        assert!(posts(&format!("/{n}")) <= 1, "/{n} was sent twice");
    }
    let answers = batch.answers();
    assert!((0..120).step_by(2).all(|n| answers.contains_key(&format!("/{n}"))), "all that may be repeated is there");
    if unknown > 0 {
        assert!(stderr.contains("must not be executed twice"), "{stderr}");
        assert_eq!(batch.run(&["--resend-unknown"]).0, Some(0));
    }
    assert_eq!((batch.answers().len(), batch.files()), (120, vec!["out.jsonl".to_owned()]));
}

#[test]
fn what_waits_for_its_slot_has_not_begun() {
    let upstream = slow(0);
    let host = upstream.address();
    let lines: String = (0..9).map(|n| format!("{{\"url\":\"http://{host}/{n}\",\"body\":\"x\"}}\n")).collect();
    let batch = Batch::of("in.jsonl", &lines);
    let limit = format!("{host}=1/20s");
    let mut child = batch.start(&["--limit", &limit]);
    eventually("the first answer", || (batch.lines("") == 1).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    // The first line describes the input.
    assert_eq!((batch.lines(".journal"), upstream.requests().len()), (2, 1));
    let (code, stderr) = batch.run(&[]);
    assert_eq!((code, batch.answers().len(), upstream.requests().len()), (Some(0), 9, 9), "{stderr}");
}

#[test]
fn an_interrupt_ends_it_and_the_same_command_goes_on() {
    ends_and_resumes(Signal::INT, 130);
}

#[test]
fn sigterm_ends_it_with_143_and_the_same_command_resumes() {
    ends_and_resumes(Signal::TERM, 143);
}

fn ends_and_resumes(ending: Signal, expected: i32) {
    let upstream = slow(0);
    let batch = Batch::of("in.jsonl", &mixed(&upstream.address().to_string(), 40));
    let limit = format!("{}=20/s", upstream.address());
    let child = batch.start(&["--limit", &limit]);
    eventually("some answers", || (batch.lines("") >= 5).then_some(()));
    signal(&child, ending);
    let (code, _, stderr) = told(child.wait_with_output().unwrap());
    assert_eq!(code, Some(expected), "{stderr}");
    assert!(stderr.contains("run the same command again to continue") && !stderr.contains("twice"), "{stderr}");
    assert!(stderr.contains("taken back at the interrupt: ") && !stderr.contains("client"), "{stderr}");
    assert!(batch.lines("") < 40);
    assert_eq!(batch.run(&[]).0, Some(0));
    assert_eq!(batch.answers().len(), 40);
}

/// A request that is cancelled after a whole second looks like a client's time-out, for which andante has a warning.
#[test]
fn nobody_is_warned_of_clients_that_an_interrupt_takes_back() {
    let upstream = slow(0);
    let batch = Batch::of("urls.txt", &format!("http://{}/x\n", upstream.address()).repeat(40));
    let child = batch.start(&["--limit", &format!("{}=2/s", upstream.address())]);
    eventually("the first answer", || (batch.lines("") >= 1).then_some(()));
    thread::park_timeout(Duration::from_millis(960));
    signal(&child, Signal::INT);
    let (code, _, stderr) = told(child.wait_with_output().unwrap());
    assert!(code == Some(130) && !stderr.contains("client"), "{stderr}");
}

#[test]
fn in_a_terminal_a_line_says_how_far_it_is_and_an_interrupt_leaves_the_terminal_as_it_was() {
    let upstream = slow(0);
    let batch = Batch::of("in.jsonl", &mixed(&upstream.address().to_string(), 200));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/behaviour/commands/batch_terminal.py");
    let command = batch.command(&["--limit", &format!("{}=20/s", upstream.address())]);
    let mut terminal = Command::new("python3");
    terminal.arg(script).arg(command.get_program()).args(command.get_args());
    let (code, stdout, stderr) = told(terminal.output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(0), "ok\n"), "{stderr}");
}

#[test]
fn a_proxy_that_goes_is_waited_for() {
    let upstream = slow(0);
    let limit = format!("{}=20/s", upstream.address());
    let gone = Andante::serve(&["--limit", &limit]);
    let proxy = gone.proxy();
    let batch =
        Batch::of("urls.txt", &(0..30).map(|n| format!("http://{}/{n}\n", upstream.address())).collect::<String>());
    let child = batch.start(&["--proxy", &format!("http://{proxy}")]);
    eventually("some answers", || (batch.lines("") >= 5).then_some(()));
    drop(gone);
    let back = Andante::serve(&["--listen", &proxy.to_string()]);
    let (code, _, stderr) = told(child.wait_with_output().unwrap());
    assert_eq!((code, batch.answers().len()), (Some(0), 30), "{stderr}");
    drop(back);
}

#[test]
fn equal_requests_are_sent_once_if_asked_for() {
    let upstream = slow(0);
    let batch = Batch::of("urls.txt", &format!("http://{0}/a\nhttp://{0}/b\n", upstream.address()).repeat(5));
    assert_eq!(batch.run(&["--dedupe"]).0, Some(0));
    assert_eq!((batch.answers().len(), upstream.requests().len()), (10, 2));
}

#[test]
fn a_mistake_in_the_last_line_is_told_before_the_first_is_sent() {
    let upstream = slow(0);
    let good = format!("{{\"url\":\"http://{}/\"}}\n", upstream.address());
    for (bad, word) in [
        ("{\"url\":\"http://a/\",\"boddy\":1}", "line 2: unknown field `boddy`"),
        ("{\"url\":\"/relative\"}", "line 2: `url` is not a whole one: name the API by --base-url"),
        ("not json", "line 2: expected"),
        (
            "{\"id\":\"1\",\"url\":\"http://a/\"}\n{\"id\":\"1\",\"url\":\"http://a/\"}",
            "line 2: its id \"1\" is that of line 1",
        ),
    ] {
        let batch = Batch::of("in.jsonl", &format!("{good}{bad}\n"));
        let (code, stderr) = batch.run(&[]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.contains(word) && stderr.contains("nothing was sent"),
            "{stderr}"
        );
        assert_eq!(batch.files(), Vec::<String>::new());
    }
    assert!(upstream.requests().is_empty());
}

#[test]
fn files_of_something_else_are_left_alone() {
    let upstream = slow(0);
    let url = format!("http://{}/\n", upstream.address());
    let batch = Batch::of("urls.txt", &url);
    fs::write(batch.out(), "my notes\n").unwrap();
    let (code, stderr) = batch.run(&[]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no answer of a batch") && stderr.contains("hint: "), "{stderr}");
    assert_eq!(fs::read_to_string(batch.out()).unwrap(), "my notes\n");
    // Lines without names are identified by their numbers, which mean other lines after a change of the file.
    let limit = format!("{}=1/20s", upstream.address());
    let batch = Batch::of("urls.txt", &url.repeat(3));
    let mut child = batch.start(&["--limit", &limit]);
    eventually("the first answer", || (batch.lines("") == 1).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(&batch.input, format!("http://other.example/\n{url}")).unwrap();
    let (code, stderr) = batch.run(&[]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("the input is not the one"), "{stderr}");
}

#[test]
fn a_folder_for_the_answers_that_is_not_there_is_named_as_such() {
    let batch = Batch::of("urls.txt", "http://127.0.0.1:1/\n");
    let mut command = andante(&["batch"]);
    command.arg(&batch.input).arg("--out").arg(batch.folder.path().join("none/out.jsonl"));
    let (code, _, stderr) = outcome(command);
    assert!(code == Some(1) && stderr.contains("none/out.jsonl"), "{stderr}");
    assert!(stderr.contains("hint: make that folder, or name another file by --out"), "{stderr}");
}

#[test]
fn answers_are_not_written_to_what_is_no_file() {
    let batch = Batch::of("urls.txt", "http://127.0.0.1:1/\n");
    for out in ["/dev/full", "/dev/stdout", "."] {
        let mut command = andante(&["batch"]);
        command.arg(&batch.input).args(["--out", out]).current_dir(batch.folder.path());
        let (code, _, stderr) = outcome(command);
        assert!(code == Some(1) && stderr.contains("no file that can be read again"), "{out}: {stderr}");
        assert!(!Path::new(&format!("{out}.journal")).exists(), "{out}");
    }
}

#[test]
fn it_stops_at_the_failures_that_it_may_have() {
    let upstream = slow(0);
    let batch = Batch::of("urls.txt", &format!("http://{}/no\n", upstream.address()).repeat(50));
    let (code, stderr) = batch.run(&["--max-failures", "3", "--parallel", "1"]);
    assert_eq!((code, batch.answers().len()), (Some(1), 3), "{stderr}");
}

#[test]
fn an_api_that_is_not_there_ends_the_batch_and_no_line_and_a_dead_host_ends_its_own_line() {
    let (dead, upstream) = (DeadPort::reserve(), slow(0));
    let line = |host: &str, number: usize| format!("http://{host}/{number}\n");
    let gone = dead.address().to_string();
    let batch = Batch::of("urls.txt", &(0..100).map(|number| line(&gone, number)).collect::<String>());
    for _ in 0..2 {
        let (code, stderr) = batch.run(&["--limit", &format!("{gone}=50/s")]);
        assert_eq!((code, batch.lines("")), (Some(1), 0), "none of them is over: {stderr}");
        assert!(stderr.contains(&gone) && stderr.contains("run the same command again"), "{stderr}");
    }
    // A few lines behave so, and a line whose answer never came.
    let batch = Batch::of("urls.txt", &(0..5).map(|number| line(&gone, number)).collect::<String>());
    let (code, stderr) = batch.run(&[]);
    assert_eq!((code, batch.lines("")), (Some(1), 0), "{stderr}");
    assert!(stderr.contains("0 of 5 requests answered") && stderr.contains("run the same command again"), "{stderr}");
    // Among answered lines it is a mistake in this line.
    let mixed = (0..100).map(|number| line(&upstream.address().to_string(), number)).collect::<String>();
    let batch = Batch::of("urls.txt", &(line(&gone, 7) + &mixed));
    let (code, stderr) = batch.run(&["--limit", &format!("{}=20/s", upstream.address())]);
    assert_eq!((code, batch.answers().len(), upstream.requests().len()), (Some(1), 101, 100), "{stderr}");
    assert!(
        stderr.contains("100 of 101 requests answered") && stderr.contains("1 request without an answer"),
        "{stderr}"
    );
    let (_, stderr) = batch.run(&["--json"]);
    let summary: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!((&summary["answered"], &summary["unanswered"]), (&100.into(), &1.into()), "{summary}");
}

#[test]
fn a_table_fills_an_address_and_standard_input_is_read() {
    let upstream = slow(0);
    let batch = Batch::of("ids.csv", "id,q\nfirst,a b\nsecond,c&d\n");
    let template = format!("http://{}/find?q={{q}}", upstream.address());
    assert_eq!(batch.run(&["--url", &template, "--method", "DELETE"]).0, Some(0));
    let mut lines: Vec<String> = upstream.requests().iter().map(Message::line).collect();
    lines.sort();
    assert_eq!(lines, ["DELETE /find?q=a%20b HTTP/1.1", "DELETE /find?q=c%26d HTTP/1.1"]);
    assert!(batch.answers().contains_key("second"));
    let out = batch.folder.path().join("two");
    let mut command = andante(&["batch", "-", "--json", "--out"]);
    command
        .arg(&out)
        .stdin(fs::File::open(Batch::of("u", &format!("http://{}/x\n", upstream.address())).input).unwrap());
    let (code, _, stderr) = outcome(command);
    let summary: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!((code, &summary["answered"], &summary["answers"]["200"]), (Some(0), &1.into(), &1.into()));
}

#[test]
fn what_another_batch_has_answered_in_the_same_file_is_no_answer_of_this_one() {
    let upstream = slow(0);
    let line = |id: &str| format!("{{\"id\":\"{id}\",\"url\":\"http://{}/{id}\"}}\n", upstream.address());
    let batch = Batch::of("in.jsonl", &(line("a") + &line("b") + &line("c")));
    assert_eq!(batch.run(&[]).0, Some(0));
    fs::write(&batch.input, line("c") + &line("d") + &line("e")).unwrap();
    let (code, stderr) = batch.run(&[]);
    assert!(stderr.contains("3 of 3 requests answered"), "{stderr}");
    let names: Vec<String> = batch.answers().into_keys().collect();
    assert_eq!((code, names.concat().as_str(), upstream.requests().len()), (Some(0), "abcde", 5), "{stderr}");
}

#[test]
fn a_pipe_is_read_once_and_all_of_it_is_sent() {
    let upstream = slow(0);
    let batch = Batch::of("urls", "");
    fs::remove_file(&batch.input).unwrap();
    assert!(Command::new("mkfifo").arg(&batch.input).status().unwrap().success());
    let (pipe, lines) = (batch.input.clone(), format!("http://{}/x\n", upstream.address()).repeat(3));
    let writer = thread::spawn(move || fs::write(pipe, lines));
    let mut child = batch.start(&[]);
    eventually("its end", || child.try_wait().unwrap());
    let (code, _, stderr) = told(child.wait_with_output().unwrap());
    assert_eq!((code, batch.answers().len(), upstream.requests().len()), (Some(0), 3, 3), "{stderr}");
    writer.join().unwrap().unwrap();
}
