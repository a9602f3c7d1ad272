//! The access log, and the fields by which an operator finds a request in it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::Stdio,
};

use serde_json::Value;
use tempfile::TempDir;

use super::quiet;
use crate::answers::beginning_with;
use crate::support::{Andante, Client, DeadPort, Upstream, eventually, rejected};

const SECRET: &str = "hunter2";

/// andante with an access log in JSON, and the place of that.
fn logging(flags: &[&str]) -> (Andante, TempDir) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("access.log");
    let log = ["--log", "json", "--access-log", file.to_str().unwrap()];
    (Andante::serve(&[&log, flags].concat()), place)
}

/// The lines of the access log, once there are `count`.
fn lines(place: &TempDir, count: usize) -> Vec<Value> {
    eventually(&format!("{count} lines"), || {
        let text = fs::read_to_string(place.path().join("access.log")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() <= count, "{lines:#?}");
        (lines.len() == count).then_some(lines)
    })
}

#[test]
fn each_request_is_a_line_of_the_access_log_whatever_becomes_of_it() {
    let (upstream, dead) = (Upstream::ok(), DeadPort::reserve());
    let host = upstream.address();
    let (andante, place) = logging(&["--retry", "off", "--limit", &format!("{host}=1/h")]);
    let ask = |request: String| Client::ask(andante.proxy(), format!("{request}Connection: close\r\n\r\n"));
    let get = |path: &str, more: &str| ask(format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{more}"));
    let answered = get(
        &format!("/v1/things?key={SECRET}"),
        "X-Request-Id: mine-7\r\nAndante-Flow: secret-flow\r\nPriority: u=5\r\n",
    );
    let refused = get("/v1/later", "Prefer: wait=0\r\n");
    let failed = ask(format!("POST {}v2?key={SECRET} HTTP/1.1\r\nHost: a\r\n", dead.url()));
    let denied = ask("GET ftp://a.test/x HTTP/1.1\r\nHost: a.test\r\n".into());
    let unreadable = ask("GET HTTP/1.1\r\n".into());
    assert_eq!([&answered, &refused, &failed, &denied, &unreadable].map(|one| one.status()), [200, 429, 502, 501, 400]);
    let mut leaving = Client::connect(andante.proxy());
    leaving.send(format!("GET http://{host}/left HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    andante.wait_for(|status| status["lanes"].as_array().unwrap().iter().any(|lane| lane["waiting"] == 1));
    leaving.reset();
    andante.wait_for(quiet);

    let lines = lines(&place, 6);
    let (host, gone) = (host.ip().to_string(), dead.address().ip().to_string());
    let rule = upstream.address().to_string();
    let expected = [
        ("GET", Some(&*host), Some("/v1/things"), Some(200), "answered", &*rule, 1),
        ("GET", Some(&*host), Some("/v1/later"), Some(429), "refused", &*rule, 0),
        ("POST", Some(&*gone), Some("/v2"), Some(502), "failed", "default", 1),
        ("GET", Some("a.test"), Some("/x"), Some(501), "rejected", "none", 0),
        ("", None, None, Some(400), "rejected", "none", 0),
        ("GET", Some(&*host), Some("/left"), None, "left", &*rule, 0),
    ];
    for (line, (method, host, path, status, outcome, rule, attempts)) in lines.iter().zip(expected) {
        assert_eq!(line["method"].as_str().unwrap_or_default(), method, "{line:#}");
        assert_eq!((line["host"].as_str(), line["path"].as_str()), (host, path), "{line:#}");
        assert_eq!((line["status"].as_u64(), line["outcome"].as_str()), (status, Some(outcome)), "{line:#}");
        assert_eq!((line["rule"].as_str(), line["attempts"].as_u64()), (Some(rule), Some(attempts)), "{line:#}");
        assert_eq!(line["client"], "127.0.0.1", "{line:#}");
        for time in ["waited_s", "upstream_s", "took_s"] {
            assert!(line[time].is_f64(), "{time}: {line:#}");
        }
        assert!(line["timestamp"].is_string(), "{line:#}");
        assert!(!line.to_string().contains(SECRET), "{line:#}");
    }
    assert_eq!(lines[0]["x_request_id"], "mine-7");
    assert!(
        lines[0]["flow"].as_str().is_some_and(|flow| flow.len() == 8) && lines[1]["flow"].is_null(),
        "{:#}",
        lines[0]
    );
    let urgencies: Vec<_> = lines.iter().map(|line| line["urgency"].as_u64()).collect();
    assert_eq!(urgencies, [Some(5), Some(3), Some(3), None, None, Some(3)]);
    assert!(!lines[0].to_string().contains("secret-flow"), "{:#}", lines[0]);
    assert_eq!(upstream.requests()[0].field("x-request-id").as_deref(), Some("mine-7"), "passed on as it is");
    assert!(lines[5]["waited_s"].as_f64() > Some(0.0) && lines[5]["took_s"].as_f64() > Some(0.0), "{:#}", lines[5]);
    assert!(lines[0]["upstream_s"].as_f64() > Some(0.0), "{:#}", lines[0]);
    for (answer, line) in [answered, refused, failed, denied, unreadable].iter().zip(&lines) {
        assert_eq!(answer.field("andante-request-id").as_deref(), line["request_id"].as_str(), "{line:#}");
    }
}

#[test]
fn all_that_a_request_waited_and_all_its_tries_are_in_its_line() {
    const DOWN: &str = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
    let upstream = beginning_with(&[DOWN, DOWN]);
    let (andante, place) = logging(&["--limit", &format!("{}=2/s burst 1", upstream.address())]);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let line = &lines(&place, 1)[0];
    assert_eq!((line["attempts"].as_u64(), line["status"].as_u64()), (Some(3), Some(200)), "{line:#}");
    // Three slots at two a second, the first of them at once.
    let waited = line["waited_s"].as_f64().unwrap();
    assert!((0.95..3.0).contains(&waited), "{line:#}");
    assert!(line["took_s"].as_f64().unwrap() >= waited, "{line:#}");
}

#[test]
fn requests_inside_of_a_tunnel_are_lines_and_a_blind_tunnel_is_one() {
    let upstream = Upstream::ok();
    let (andante, place) = logging(&[]);
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", upstream.address()));
    let opened = client.opened();
    assert!(!opened.has("andante-request-id"), "{opened:?}");
    let line = &lines(&place, 1)[0];
    assert_eq!((line["method"].as_str(), line["outcome"].as_str()), (Some("CONNECT"), Some("tunnelled")), "{line:#}");
    assert!(line.get("path").is_none(), "{line:#}");
}

#[test]
fn without_an_access_log_no_request_is_logged_and_no_answer_has_an_id() {
    let (andante, upstream) = (Andante::logging("trace", &[]), Upstream::ok());
    let answer = Client::get(andante.proxy(), &upstream.url("/some/path"));
    assert!(!answer.has("andante-request-id"), "{answer:?}");
    assert!(!andante.stderr().contains("/some/path"), "{}", andante.stderr());
}

#[test]
fn the_access_log_is_text_where_the_log_is_and_may_go_where_the_log_goes() {
    let (andante, upstream) = (Andante::serve(&["--access-log", "stderr"]), Upstream::ok());
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/some/path?query")).status(), 200);
    let line = eventually("a line", || {
        andante.stderr().lines().find(|line| line.contains("path=\"/some/path\"")).map(str::to_owned)
    });
    for word in ["request ", "client=127.0.0.1", "method=\"GET\"", "status=200", "outcome=\"answered\"", "attempts=1"] {
        assert!(line.contains(word), "{word}: {line}");
    }
}

#[test]
fn an_upstream_that_failed_is_logged_with_the_request_that_it_failed() {
    let dead = DeadPort::reserve();
    let andante = Andante::serve(&["--log", "json", "--retry", "off"]);
    let url = format!("{}bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/getMe?key={SECRET}", dead.url());
    let answer = Client::get(andante.proxy(), &url);
    rejected(&answer, 502, "connection_refused", "nobody there");
    let id = answer.field("andante-request-id").expect("an id");
    assert_eq!(answer.json()["request_id"], *id, "{answer:?}");
    let log = andante.stderr();
    let line = log.lines().find(|line| line.contains("an upstream failed")).expect(&log);
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((line["level"].as_str(), line["request_id"].as_str()), (Some("WARN"), Some(&*id)), "{line:#}");
    assert_eq!((line["method"].as_str(), line["host"].as_str()), (Some("GET"), Some("127.0.0.1")), "{line:#}");
    // A path segment that holds a key is redacted.
    assert_eq!(line["path"], "/…/getMe", "{line:#}");
    assert!(line["error"].as_str().unwrap().starts_with("could not connect to "), "{line:#}");
}

#[test]
fn the_status_of_a_lane_has_its_last_error_and_who_has_waited_longest() {
    let (gone, upstream) = (Upstream::always("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), Upstream::ok());
    let andante = Andante::serve(&["--limit", &format!("{}=1/h", upstream.address())]);
    let lane = |status: &Value, rule: &str| -> Value {
        status["lanes"].as_array().unwrap().iter().find(|lane| lane["rule"] == *rule).unwrap().clone()
    };
    assert_eq!(Client::get(andante.proxy(), &gone.url("/")).status(), 500);
    let failed = lane(&andante.status(), "default");
    assert_eq!(failed["last_error"]["detail"], "it answered 500 Internal Server Error", "{failed:#}");
    assert!(failed["last_error"]["last_s"].as_f64().unwrap() < 10.0, "{failed:#}");
    assert!(failed["oldest_waiting_s"].is_null(), "{failed:#}");

    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let wait_for = |count: u64| {
        andante.wait_for(|status| status["lanes"].as_array().unwrap().iter().any(|lane| lane["waiting"] == count))
    };
    let mut clients: Vec<_> = (0..2).map(|_| Client::connect(andante.proxy())).collect();
    let ask = |client: &mut Client| client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", upstream.url("/")));
    ask(&mut clients[0]);
    wait_for(1);
    super::pass(std::time::Duration::from_millis(200));
    ask(&mut clients[1]);
    let status = wait_for(2);
    let waiting = lane(&status, &upstream.address().to_string());
    assert!(waiting["oldest_waiting_s"].as_f64().unwrap() >= 0.2, "{waiting:#}");
    assert!(waiting["last_error"].is_null(), "{waiting:#}");
}

/// Sends `count` requests, each on a connection of its own.
fn ask(andante: &Andante, upstream: &Upstream, count: usize) {
    let host = upstream.address();
    for _ in 0..count {
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(Client::ask(andante.proxy(), request).status(), 200, "no request is held up");
    }
}

fn lost(andante: &Andante) -> u64 {
    let metrics = andante.metrics();
    let line = metrics.lines().find(|line| line.starts_with("andante_access_log_lost_total ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

const CANNOT: &str = "the access log cannot be written";

#[test]
fn an_access_log_on_a_full_disk_warns_once_and_counts_what_is_lost() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&["--access-log", "/dev/full"]);
    ask(&andante, &upstream, 20);
    eventually("all are counted", || (lost(&andante) == 20).then_some(()));
    let stderr = andante.stderr();
    assert_eq!(stderr.matches(CANNOT).count(), 1, "{stderr}");
    assert!(stderr.contains("WARN") && stderr.contains("No space left on device"), "{stderr}");
    let status = andante.status();
    assert_eq!(status["access_log"]["lost_total"], 20);
    assert!(status["access_log"]["problem"].as_str().unwrap().contains("No space left"), "{status:#}");
    let admin = andante.admin().to_string();
    let (_, stdout, _) = crate::commands::outcome(crate::commands::andante(&["status", "--admin", &admin]));
    assert!(stdout.contains("the access log cannot be written, and 20 lines are lost: No space left"), "{stdout}");
}

#[test]
fn an_access_log_whose_folder_is_removed_warns_and_goes_on_when_it_is_back() {
    let upstream = Upstream::ok();
    let (andante, place) = logging(&[]);
    ask(&andante, &upstream, 1);
    lines(&place, 1);
    fs::remove_dir_all(place.path()).unwrap();
    let warned = eventually("a warning", || {
        ask(&andante, &upstream, 1);
        let stderr = andante.stderr();
        stderr.contains(CANNOT).then_some(stderr)
    });
    assert!(warned.contains("No such file or directory"), "{warned}");
    fs::create_dir(place.path()).unwrap();
    eventually("lines again", || {
        ask(&andante, &upstream, 1);
        fs::read_to_string(place.path().join("access.log")).is_ok_and(|text| !text.is_empty()).then_some(())
    });
    assert!(andante.status()["access_log"]["problem"].is_null());
}

#[test]
fn an_access_log_without_trouble_says_nothing() {
    let upstream = Upstream::ok();
    let (andante, place) = logging(&[]);
    ask(&andante, &upstream, 3);
    lines(&place, 3);
    assert_eq!((lost(&andante), andante.stderr().contains("access log")), (0, false));
}

#[test]
fn an_access_log_into_a_pipe_that_nobody_reads_any_more_warns_once_and_counts_what_is_lost() {
    let upstream = Upstream::ok();
    let serve = ["serve", "--log", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state", "off"];
    let mut command = crate::commands::andante(&[&serve[..], &["--access-log", "stdout"]].concat());
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut ready = String::new();
    stdout.read_line(&mut ready).unwrap();
    drop(stdout);
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let [proxy, admin]: [SocketAddr; 2] = [&ready["listen"][0], &ready["admin"]]
        .map(|url| url.as_str().unwrap().trim_start_matches("http://").trim_end_matches('/').parse().unwrap());
    for _ in 0..20 {
        assert_eq!(Client::get(proxy, &upstream.url("/")).status(), 200, "no request is held up");
    }
    let lost = eventually("all are counted", || {
        let status = Client::ask(admin, format!("GET /status HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"));
        Some(status.json()["access_log"].clone()).filter(|log| log["lost_total"] == 20)
    });
    assert!(lost["problem"].as_str().unwrap().contains("Broken pipe"), "{lost}");
    crate::commands::signal(&child, rustix::process::Signal::TERM);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.matches(CANNOT).count(), 1, "{stderr}");
}

#[test]
fn a_long_path_is_cut_in_the_log_and_sent_whole() {
    let upstream = Upstream::ok();
    let (andante, place) = logging(&[]);
    let path = format!("/{}", "p".repeat(58_000));
    assert_eq!(Client::get(andante.proxy(), &upstream.url(&path)).status(), 200);
    let line = &lines(&place, 1)[0];
    assert_eq!(line["path"].as_str(), Some(&*format!("{}…", &path[..2048])));
    assert!(upstream.requests()[0].line().contains(&path));
}
