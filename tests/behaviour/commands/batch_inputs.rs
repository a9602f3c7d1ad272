//! Inputs of `andante batch`: tables as spreadsheets write them, text in other encodings, pipes.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::PathBuf,
    process::Command,
};

use serde_json::Value;

use super::{andante, outcome, told};
use crate::support::{Andante, Message, Upstream, eventually};

/// Result of a batch whose input file is called `name` and contains `text`: exit code, standard error, answers.
fn batch(name: &str, text: &[u8], flags: &[&str]) -> (Option<i32>, String, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join(name), folder.path().join("out.jsonl"));
    fs::write(&input, text).unwrap();
    let mut command = andante(&["batch"]);
    let (code, _, stderr) = outcome({
        command.arg(&input).arg("--out").arg(&out).args(flags);
        command
    });
    let text = fs::read_to_string(&out).unwrap_or_default();
    (code, stderr, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn bodies(upstream: &Upstream) -> Vec<String> {
    let mut bodies: Vec<String> = upstream.requests().iter().map(Message::text).collect();
    bodies.sort();
    bodies
}

#[test]
fn a_spreadsheets_table_with_semicolons_and_a_byte_order_mark_is_read() {
    for (separator, mark) in [(";", "\u{feff}"), ("\t", ""), (",", "\u{feff}")] {
        let upstream = Upstream::ok();
        let table = ["name;city", "ü;a b", "x;c"].join("\r\n").replace(';', separator);
        let url = format!("http://{}/{{name}}?in={{city}}", upstream.address());
        let (code, stderr, answers) =
            batch("list.csv", format!("{mark}{table}\r\n").as_bytes(), &["--url", &url, "--id", "name"]);
        assert_eq!(code, Some(0), "{separator:?}: {stderr}");
        let mut names: Vec<&str> = answers.iter().map(|answer| answer["id"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["x", "ü"]);
        let mut lines: Vec<String> = upstream.requests().iter().map(Message::line).collect();
        lines.sort();
        assert_eq!(lines, ["GET /%C3%BC?in=a%20b HTTP/1.1", "GET /x?in=c HTTP/1.1"]);
    }
}

#[test]
fn a_row_fills_a_body_whose_text_is_escaped_as_json() {
    let upstream = Upstream::ok();
    let url = format!("http://{}/search", upstream.address());
    let flags = ["--url", &url, "--body", r#"{"q": "{name}", "page": {"size": {n}}}"#];
    let (code, stderr, _) = batch("list.csv", b"name,n\n\"say \"\"hi\"\"\",5\n", &flags);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(bodies(&upstream), [r#"{"q": "say \"hi\"", "page": {"size": 5}}"#]);
    let request = &upstream.requests()[0];
    assert!(
        request.line().starts_with("POST /search ")
            && request.field("content-type").as_deref() == Some("application/json")
    );
    let (code, stderr, _) = batch("list.csv", b"name,n\na,many\n", &flags);
    assert!(code == Some(1) && stderr.contains("line 2: its --body is no JSON"), "{stderr}");
}

#[test]
fn what_is_wrong_with_an_input_says_which_line_and_what_to_do() {
    let url = ["--url", "http://127.0.0.1:1/{id}"];
    for (name, text, flags, expected) in [
        (
            "a.csv",
            &b"id\nM\xfcnchen\n"[..],
            &url[..],
            "line 2: this is not UTF-8, but perhaps Latin-1: convert it: `iconv",
        ),
        ("a.jsonl", b"\xff\xfe{\0", &[], "this is UTF-16"),
        ("a.jsonl", b"{\0\"\0u\0\n\0", &[], "line 1: this is UTF-16: convert it: `iconv -f utf-16le"),
        ("a.csv", b"\0i\0d\0\n\0a\0\n", &url, "line 1: this is UTF-16: convert it: `iconv -f utf-16be"),
        (
            "a.jsonl",
            b"{\n  \"url\": \"http://a/\"\n}\n",
            &[],
            "line 1: the object does not end on this line: write each on one line, by jq -c",
        ),
        ("a.csv", b"id,x\na,1\nb,2\na,3\n", &url, "line 4: its id \"a\" is that of line 2; --id COLUMN"),
        (
            "a.jsonl",
            b"{\"id\":\"a\",\"url\":\"http://a/\"}\n\n{\"id\":\"a\",\"url\":\"http://a/\"}\n",
            &[],
            "line 3: its id \"a\" is that of line 1",
        ),
        ("a.json", b"[{\"url\":\"http://a/\"}]\n", &[], "jq -c '.[]'"),
        ("a.csv", b"id\na\n", &[], "is a table, and a table needs an address with its columns: --url"),
        (
            "a.csv",
            b"id\na\n",
            &["--url", "http://127.0.0.1:1/{name}"],
            "is a table, and there is no column \"name\"; there are: id",
        ),
        (
            "a.csv",
            b"id\na\n",
            &["--url", "http://127.0.0.1:1/", "--id", "key"],
            "there is no column \"key\"; there are: id",
        ),
        ("a.jsonl", &b"{\"url\":\"/x\"}\n".repeat(1500), &[], "--base-url https://HOST (and 1,499 more lines like it)"),
    ] {
        let (code, stderr, answers) = batch(name, text, flags);
        assert_eq!((code, answers.len()), (Some(1), 0), "{name}: {stderr}");
        assert!(stderr.contains(expected), "{expected}:\n{stderr}");
        assert!(!stderr.contains("could not read"), "it could: {stderr}");
    }
}

#[test]
fn the_number_of_a_line_is_a_number_in_its_answer() {
    let upstream = Upstream::ok();
    let (code, stderr, answers) = batch("urls", format!("\n{}\n", upstream.url("/")).as_bytes(), &[]);
    assert_eq!((code, &answers[0]["line"]), (Some(0), &2.into()), "{stderr}");
}

/// A pipe with a batch behind it.
struct Piped {
    folder: tempfile::TempDir,
    pipe: PathBuf,
}

impl Piped {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("requests");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        Self { folder, pipe }
    }

    fn command(&self) -> Command {
        let mut command = andante(&["batch"]);
        command.arg(&self.pipe).arg("--out").arg(self.folder.path().join("out.jsonl"));
        command
    }

    fn answers(&self) -> usize {
        fs::read_to_string(self.folder.path().join("out.jsonl")).map_or(0, |text| text.lines().count())
    }
}

#[test]
fn requests_from_a_pipe_are_sent_as_they_come() {
    let upstream = Upstream::ok();
    let piped = Piped::new();
    let child = piped.command().spawn().unwrap();
    let mut writer = OpenOptions::new().write(true).open(&piped.pipe).unwrap();
    for count in 1..=3 {
        writeln!(writer, "http://{}/{count}", upstream.address()).unwrap();
        // The pipe stays open meanwhile.
        eventually("its answer", || (piped.answers() == count).then_some(()));
    }
    drop(writer);
    let (code, _, stderr) = told(child.wait_with_output().unwrap());
    assert_eq!((code, upstream.requests().len()), (Some(0), 3), "{stderr}");
    assert!(stderr.contains("3 of 3 requests answered"), "{stderr}");
    let left: Vec<_> = fs::read_dir(piped.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == "out.jsonl.input"), "{left:?}");
}

#[test]
fn a_pipe_that_broke_off_goes_on_with_the_same_requests_alone() {
    let upstream = Upstream::ok();
    let piped = Piped::new();
    let line = |name: &str| format!("http://{}/{name}\n", upstream.address());
    let mut child = piped.command().spawn().unwrap();
    let mut writer = OpenOptions::new().write(true).open(&piped.pipe).unwrap();
    writer.write_all(line("one").as_bytes()).unwrap();
    eventually("its answer", || (piped.answers() == 1).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(writer);
    let again = |text: String| {
        let child = piped.command().spawn().unwrap();
        fs::write(&piped.pipe, text).unwrap();
        told(child.wait_with_output().unwrap())
    };
    let (code, _, stderr) = again(line("other") + &line("two"));
    assert!(code == Some(1) && stderr.contains("does not begin with what"), "{stderr}");
    let (code, _, stderr) = again(line("one") + &line("two"));
    assert_eq!((code, upstream.requests().len(), piped.answers()), (Some(0), 2, 2), "{stderr}");
}

#[test]
fn a_mistake_in_a_pipe_ends_the_batch_and_names_its_line() {
    let upstream = Upstream::ok();
    let piped = Piped::new();
    let child = piped.command().spawn().unwrap();
    fs::write(
        &piped.pipe,
        format!("{{\"id\":\"a\",\"url\":\"{0}\"}}\n{{\"id\":\"a\",\"url\":\"{0}\"}}\n", upstream.url("/")),
    )
    .unwrap();
    let (code, _, stderr) = told(child.wait_with_output().unwrap());
    assert!(code == Some(1) && stderr.contains("line 2: its id \"a\" is that of line 1"), "{stderr}");
}

#[test]
fn a_pipe_whose_mistake_is_mended_goes_on() {
    let upstream = Upstream::ok();
    let piped = Piped::new();
    let line = |name: &str| format!("http://{}/{name}\n", upstream.address());
    let send = |text: String| {
        let child = piped.command().spawn().unwrap();
        fs::write(&piped.pipe, text).unwrap();
        told(child.wait_with_output().unwrap())
    };
    let (code, _, stderr) = send(line("one") + "oops\n" + &line("two"));
    assert!(code == Some(1) && stderr.contains("line 2: this is no URL"), "{stderr}");
    let (code, _, stderr) = send(line("one") + &line("mended") + &line("two"));
    assert_eq!((code, upstream.requests().len(), piped.answers()), (Some(0), 3, 3), "{stderr}");
}

#[test]
fn a_limit_for_none_of_the_hosts_of_a_batch_is_told_before_and_after() {
    let upstream = Upstream::ok();
    let (code, stderr, _) = batch("urls", upstream.url("/").as_bytes(), &["--limit", "localhost=5/s"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("warning: no request is for localhost"), "{stderr}");
    assert!(stderr.contains("  no request was for localhost\n"), "{stderr}");
    let limit = format!("{}=5/s", upstream.address());
    let (_, stderr, _) = batch("urls", upstream.url("/").as_bytes(), &["--limit", &limit]);
    assert!(!stderr.contains("no request"), "{stderr}");
}

#[test]
fn another_server_than_an_andante_is_no_proxy() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&[]);
    let admin = andante.admin().to_string();
    for other in [upstream.address().to_string(), admin] {
        let url = format!("http://{other}");
        let (code, stderr, answers) = batch("urls", upstream.url("/").as_bytes(), &["--proxy", &url]);
        assert_eq!((code, answers.len()), (Some(1), 0), "{other}: {stderr}");
        assert!(stderr.contains("is no andante that takes requests"), "{stderr}");
    }
    let url = format!("http://{}", andante.proxy());
    let (code, stderr, answers) = batch("urls", upstream.url("/").as_bytes(), &["--proxy", &url]);
    assert_eq!((code, answers.len()), (Some(0), 1), "{stderr}");
}
