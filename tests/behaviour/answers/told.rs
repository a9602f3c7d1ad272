//! What is said in the log and in metrics about waiting and trying again.

use super::{CUT, DOWN, SECOND, SOON, ask, beginning_with, timed};
use crate::support::{Andante, Upstream};

const SECRET: &str = "hunter2";

fn lines(andante: &Andante, words: &str) -> Vec<String> {
    andante.stderr().lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
}

#[test]
fn each_try_is_logged_and_counted_once_with_its_reason() {
    for (answers, reason) in [(&[SOON, SOON], "refused"), (&[DOWN, DOWN], "failed"), (&[CUT, CUT], "cut")] {
        let (andante, upstream) = (Andante::logging("info", &[]), beginning_with(answers));
        assert_eq!(timed(&andante, &upstream, "GET", "\r\n").0.status(), 200);
        let again = lines(&andante, "sending a request again");
        assert_eq!(again.len(), 2, "{}", andante.stderr());
        for (line, attempt) in again.iter().zip(["attempt=2", "attempt=3"]) {
            let host = "host=127.0.0.1";
            for word in [&format!("reason=\"{reason}\""), attempt, "back_off=", "patience_left=", host, "rule="] {
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
fn a_pause_is_logged_once_however_many_wait_for_its_end() {
    let (andante, upstream) = (Andante::logging("info", &[]), beginning_with(&[SECOND]));
    let mut clients: Vec<_> = vec![ask(&andante, &upstream, "GET", "\r\n")];
    andante.wait_for(|status| status["lanes"][0]["gate"].is_object());
    clients.extend((0..10).map(|_| ask(&andante, &upstream, "GET", "\r\n")));
    for client in &mut clients {
        assert_eq!(client.answer().status(), 200);
    }
    let (pauses, ends) = (lines(&andante, "pausing"), lines(&andante, "going on after a pause"));
    assert_eq!((pauses.len(), ends.len()), (1, 1), "{}", andante.stderr());
    for word in ["reason=\"retry-after\"", "wait=1s", "host=127.0.0.1"] {
        assert!(pauses[0].contains(word), "{word}: {}", pauses[0]);
    }
}

#[test]
fn who_has_no_time_to_be_sent_again_is_not_said_to_be() {
    const FIVE: &str = "HTTP/1.1 429 No\r\nRetry-After: 5\r\nContent-Length: 4\r\n\r\nfive";
    let (andante, upstream) = (Andante::logging("info", &[]), Upstream::always(FIVE));
    assert_eq!(timed(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n").0.status(), 429);
    assert!(lines(&andante, "sending a request again").is_empty(), "{}", andante.stderr());
    assert!(!andante.metrics().contains("andante_retries_total{"), "{}", andante.metrics());
}

#[test]
fn no_credential_of_a_request_that_is_sent_again_is_repeated() {
    let secrets = format!(
        "Authorization: Bearer {SECRET}\r\nProxy-Authorization: Basic {SECRET}\r\nCookie: s={SECRET}\r\n\
         X-Api-Key: {SECRET}\r\nIdempotency-Key: {SECRET}\r\nContent-Length: 7\r\n\r\n{SECRET}"
    );
    for level in ["info", "trace"] {
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
