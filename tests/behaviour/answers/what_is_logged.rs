//! Log lines and metrics about waiting and retries.

use serde_json::Value;

use super::{CUT, DOWN, SECOND, SOON, ask, beginning_with, timed};
use crate::support::{Andante, Client, DeadPort, Upstream};

const SECRET: &str = "hunter2";

fn lines(andante: &Andante, words: &str) -> Vec<String> {
    andante.stderr().lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
}

#[test]
fn each_try_is_logged_and_counted_once_with_its_reason() {
    for (answers, reason) in [(&[SOON, SOON], "refused"), (&[DOWN, DOWN], "failed"), (&[CUT, CUT], "cut")] {
        let (andante, upstream) = (Andante::logging("debug", &[]), beginning_with(answers));
        assert_eq!(timed(&andante, &upstream, "GET", "\r\n").0.status(), 200);
        let again = lines(&andante, "sending a request again");
        assert_eq!(again.len(), 2, "{}", andante.stderr());
        for (line, attempt) in again.iter().zip(["attempt=2", "attempt=3"]) {
            let host = "host=127.0.0.1";
            for word in
                [&format!("reason=\"{reason}\""), attempt, "back_off_s=", "patience_left_s=", host, "rule=default"]
            {
                assert!(line.contains(word), "{word}: {line}");
            }
        }
        let metrics = andante.metrics();
        let counted = metrics
            .lines()
            .find(|line| line.starts_with("andante_retries_total{") && line.contains(&format!("reason=\"{reason}\"")));
        assert!(counted.is_some_and(|line| line.ends_with(" 2")), "{counted:?}");
    }
}

#[test]
fn requests_that_are_sent_again_for_one_cause_are_one_line_with_their_number() {
    let (mut andante, upstream) = (Andante::serve(&["--log", "json"]), beginning_with(&[DOWN, DOWN, DOWN]));
    assert_eq!(timed(&andante, &upstream, "GET", "\r\n").0.status(), 200);
    andante.signal(rustix::process::Signal::TERM);
    andante.ended();
    let told: Vec<Value> = lines(&andante, "again").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(told.iter().all(|line| line["message"] == "sent requests again" && line["level"] == "INFO"), "{told:#?}");
    // The first few seconds may end in their midst.
    assert!((1..=2).contains(&told.len()), "{told:#?}");
    assert_eq!(told.iter().map(|line| line["count"].as_u64().unwrap()).sum::<u64>(), 3, "{told:#?}");
    for line in &told {
        assert_eq!((line["reason"].as_str(), line["host"].as_str()), (Some("failed"), Some("127.0.0.1")), "{line:#}");
        assert!(line["within_s"].is_f64() && line["rule"] == "default", "{line:#}");
    }
}

/// A line a second, and the numbers in them make up all of them.
#[test]
fn many_failures_of_a_dead_upstream_are_few_lines_with_their_number() {
    let dead = DeadPort::reserve();
    let config =
        format!("[[rule]]\nhost = '{}'\nretry = 'off'\nbreaker = 'off'\nallow-private = true\n", dead.address());
    let mut andante = Andante::with_config_and(&config, &["--log", "json"]);
    let since = super::now();
    for _ in 0..200 {
        assert_eq!(Client::get(andante.proxy(), &dead.url()).status(), 502);
    }
    let took = super::now().since(since);
    andante.signal(rustix::process::Signal::TERM);
    andante.ended();
    let told: Vec<Value> = lines(&andante, "failed").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    // A line when the pause begins, one each second, and one at the end.
    assert!(told.len() as u64 <= 3 + took.as_secs(), "{}: {told:#?}", told.len());
    let counted = |line: &Value| match line["message"].as_str() {
        Some("an upstream failed") => 1 + line["more_before"].as_u64().unwrap_or(0),
        Some("the upstream failed more requests") => line["count"].as_u64().unwrap(),
        _ => 0,
    };
    assert_eq!(told.iter().map(counted).sum::<u64>(), 200, "{told:#?}");
    assert!(told.iter().all(|line| line["error"].as_str().unwrap().contains("could not connect")), "{told:#?}");
}

#[test]
fn a_pause_is_logged_once_however_many_wait_for_its_end() {
    let (andante, upstream) = (Andante::logging("info", &[]), beginning_with(&[SECOND]));
    let mut clients: Vec<_> = vec![ask(&andante, &upstream, "GET", "\r\n")];
    andante.wait_for(|status| status["lanes"][0]["gate"].is_object());
    clients.extend((0..10).map(|_| ask(&andante, &upstream, "GET", "\r\n")));
    for client in &mut clients {
        assert_eq!(client.answer().status(), 200);
    }
    let (pauses, ends) = (lines(&andante, "pausing"), lines(&andante, "resumed after a pause"));
    assert_eq!((pauses.len(), ends.len()), (1, 1), "{}", andante.stderr());
    for word in ["reason=\"retry-after\"", "wait_s=1.0", "host=127.0.0.1"] {
        assert!(pauses[0].contains(word), "{word}: {}", pauses[0]);
    }
}

#[test]
fn a_request_without_time_for_another_try_is_not_logged_as_sent_again() {
    const FIVE: &str = "HTTP/1.1 429 No\r\nRetry-After: 5\r\nContent-Length: 4\r\n\r\nfive";
    let (andante, upstream) = (Andante::logging("debug", &[]), Upstream::always(FIVE));
    assert_eq!(timed(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n").0.status(), 429);
    assert!(lines(&andante, "sending a request again").is_empty(), "{}", andante.stderr());
    let metrics = andante.metrics();
    let mut counted = metrics.lines().filter(|line| line.starts_with("andante_retries_total{"));
    assert!(counted.all(|line| line.ends_with(" 0")), "{metrics}");
}

#[test]
fn no_credential_of_a_request_that_is_sent_again_is_repeated() {
    let secrets = format!(
        "Authorization: Bearer {SECRET}\r\nProxy-Authorization: Basic {SECRET}\r\nCookie: s={SECRET}\r\n\
         X-Api-Key: {SECRET}\r\nIdempotency-Key: {SECRET}\r\nContent-Length: 7\r\n\r\n{SECRET}"
    );
    for level in ["debug", "trace"] {
        let (andante, upstream) = (Andante::logging(level, &[]), beginning_with(&[SOON, DOWN, CUT]));
        let answer = ask(&andante, &upstream, "POST", &secrets).answer();
        assert_eq!(answer.status(), 200);
        assert!(andante.stderr().contains("sending a request again"));
        for (place, text) in
            [("log", andante.stderr()), ("metrics", andante.metrics()), ("status", andante.status().to_string())]
        {
            assert!(!text.contains(SECRET), "{place}: {text}");
        }
        let seen = upstream.requests();
        assert_eq!(seen.len(), 4);
        for request in &seen {
            assert_eq!(request.field("authorization"), Some(format!("Bearer {SECRET}")));
            assert!(!request.has("proxy-authorization"));
        }
    }
}
