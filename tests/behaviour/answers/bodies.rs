//! Bodies of refused requests: small ones are stored for a retry, large ones stream.

use super::{OK, SOON, ask, beginning_with, ms, same, send, timed};
use crate::support::{Andante, Client, Upstream};

const MIB: usize = 1024 * 1024;

fn body_of(length: usize) -> String {
    format!("Content-Length: {length}\r\n\r\n{}", "x".repeat(length))
}

#[test]
fn a_body_above_the_bound_streams_and_its_refusal_is_passed_on() {
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[SOON]));
    let (answer, _) = timed(&andante, &upstream, "POST", &body_of(MIB + 1));
    assert_eq!((answer.status(), answer.text().as_str()), (429, "soon"));
    assert_eq!(answer.field("retry-after-ms").as_deref(), Some("100"));
    assert_eq!(upstream.request().body.len(), MIB + 1);
    let upstream = beginning_with(&[SOON]);
    let (answer, _) = timed(&andante, &upstream, "POST", &body_of(MIB));
    assert_eq!((answer.status(), upstream.requests().len()), (200, 2), "at the bound");
    same(&upstream.requests());
}

#[test]
fn retry_body_of_a_rule_bounds_the_bodies_that_are_sent_again() {
    for (length, tries) in [(10, 2), (11, 1), (1, 2), (0, 2)] {
        let upstream = beginning_with(&[SOON]);
        let andante = Andante::with_config(&format!(
            "[[rule]]\nhost = \"{}\"\nretry = {{ body = \"10B\" }}\n",
            upstream.address()
        ));
        let (answer, _) = timed(&andante, &upstream, "POST", &body_of(length));
        assert_eq!((answer.status(), upstream.requests().len()), (if tries == 2 { 200 } else { 429 }, tries));
    }
}

/// An upstream that refuses its first request in the midst of it, reads on or closes, and takes the others.
fn early(reads_on: bool) -> Upstream {
    let first = std::sync::atomic::AtomicBool::new(true);
    Upstream::scripted(move |mut connection| {
        if !first.swap(false, std::sync::atomic::Ordering::AcqRel) {
            while connection.request().is_some() {
                connection.send(OK);
            }
            return;
        }
        let _ = connection.head();
        if !reads_on {
            // Unread bytes at the end would cause a reset, which the answer may not survive.
            let _ = connection.bytes(30_000);
        }
        connection.send(SOON);
        if reads_on {
            let _ = connection.rest();
        }
    })
}

#[test]
fn a_refusal_that_comes_while_the_body_is_on_its_way_is_waited_out_too() {
    for reads_on in [true, false] {
        let (andante, upstream) = (Andante::serve(&[]), early(reads_on));
        let mut client = ask(&andante, &upstream, "POST", "Content-Length: 60000\r\n\r\n");
        client.send("a".repeat(30_000));
        upstream.wait_for(1);
        std::thread::park_timeout(ms(300));
        client.send("b".repeat(30_000));
        let answer = client.answer();
        assert_eq!(answer.status(), 200, "reads on: {reads_on}: {answer:?}");
        let seen = upstream.requests().pop().unwrap();
        assert!(seen.body == ["a".repeat(30_000), "b".repeat(30_000)].concat().into_bytes(), "another body");
        assert_eq!(upstream.requests().len(), 2);
        send(&mut client, &upstream, "GET", "\r\n");
        assert_eq!(client.answer().status(), 200, "the connection is good for more");
    }
}

#[test]
fn an_early_refusal_of_a_slow_upload_is_passed_on_at_the_latest() {
    let (andante, upstream) = (Andante::serve(&[]), early(true));
    let mut client = ask(&andante, &upstream, "POST", "Content-Length: 1000\r\n\r\nfirst");
    upstream.wait_for(1);
    // The rest never comes.
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (429, "soon"), "{answer:?}");
}

#[test]
fn what_is_kept_of_a_body_does_not_grow_with_it() {
    let upstream = Upstream::scripted(|mut connection| {
        let _ = connection.head();
        for _ in 0..64 {
            let _ = connection.bytes(MIB);
        }
        connection.send(SOON);
        let _ = connection.rest();
    });
    let andante = Andante::serve(&[]);
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", andante.pid().as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let mut client = Client::connect(andante.proxy());
    let before = resident();
    send(&mut client, &upstream, "POST", &format!("Content-Length: {}\r\n\r\n", 64 * MIB));
    let piece = vec![b'x'; MIB];
    for _ in 0..64 {
        client.send(&piece);
    }
    assert_eq!(client.answer().status(), 429);
    let grown = resident() - before;
    assert!(grown < 12 * 1024, "{grown} KiB");
}

#[test]
fn a_body_that_is_sent_again_is_sent_to_its_end_although_the_answer_has_begun() {
    const LENGTH: usize = 6 * MIB;
    for sized in [true, false] {
        let first = std::sync::atomic::AtomicBool::new(true);
        let upstream = Upstream::scripted(move |mut connection| {
            if first.swap(false, std::sync::atomic::Ordering::AcqRel) {
                let _ = connection.request();
                return connection.send(SOON);
            }
            let _ = connection.head();
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            std::thread::park_timeout(ms(300));
            let mut read = 0;
            while let Ok(byte) = connection.bytes(if sized { LENGTH } else { 1 }) {
                read += byte.iter().filter(|byte| **byte == b'x').count();
                if read == LENGTH {
                    break;
                }
            }
            let text = format!("{read}");
            connection.send(format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len()));
        });
        let rule = format!("[[rule]]\nhost = \"{}\"\nretry = {{ body = \"8MiB\" }}\n", upstream.address());
        let andante = Andante::with_config(&rule);
        let mut client = Client::connect(andante.proxy());
        if sized {
            send(&mut client, &upstream, "POST", &body_of(LENGTH));
        } else {
            send(&mut client, &upstream, "POST", "Transfer-Encoding: chunked\r\n\r\n");
            for _ in 0..6 {
                client.send(format!("{MIB:x}\r\n{}\r\n", "x".repeat(MIB)));
            }
            client.send("0\r\n\r\n");
        }
        let answer = client.answer();
        assert_eq!((answer.status(), answer.text()), (200, format!("first{LENGTH}")), "sized: {sized}");
    }
}

#[test]
fn a_body_in_very_many_pieces_is_kept_in_few() {
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[SOON]));
    let chunks = "1\r\nx\r\n".repeat(20_000);
    let (answer, _) =
        timed(&andante, &upstream, "POST", &format!("Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"));
    assert_eq!(answer.status(), 200);
    let seen = upstream.requests();
    assert_eq!(seen.iter().map(|request| request.body.len()).collect::<Vec<_>>(), [20_000, 20_000]);
}

#[test]
fn bodies_of_all_requests_together_are_kept_up_to_a_bound_and_no_further() {
    // The bound is 64 MiB for all bodies: of a hundred bodies of a megabyte some are sent again, and the others'
    // refusals are passed on.
    const MANY: usize = 100;
    let refused = std::sync::Arc::new(std::sync::Barrier::new(MANY));
    let upstream = Upstream::scripted(move |mut connection| {
        let mut first = true;
        while connection.request().is_some() {
            if std::mem::take(&mut first) {
                refused.wait();
                connection.send(super::SECOND);
            } else {
                connection.send(OK);
            }
        }
    });
    let andante = Andante::serve(&[]);
    let mut clients: Vec<_> = (0..MANY).map(|_| ask(&andante, &upstream, "POST", &body_of(MIB))).collect();
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.answer().status()).collect();
    let again = statuses.iter().filter(|status| **status == 200).count();
    assert!((50..=64).contains(&again), "{again} of {MANY} were sent again");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), MANY - again);
    // The memory of the stored bodies is free again.
    let (answer, _) = timed(&andante, &beginning_with(&[SOON]), "POST", &body_of(MIB));
    assert_eq!(answer.status(), 200);
}

/// Etherscan's refusal, by its page on rate limits; most servers of PHP send such JSON in chunks. The other answers
/// begin otherwise, or do not end: they pass as they come.
#[test]
fn a_refusal_in_a_200_is_known_without_a_length() {
    let chunks = |pieces: &[&str]| {
        let body: String = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
    };
    let refusal = r#"{"status":"0","message":"NOTOK","result":"Max calls per sec rate limit reached (5/sec)"}"#;
    for (first, requests) in [
        (chunks(&[refusal, ""]), 2),
        (chunks(&[r#"{"rows":["#, r#"{"error":1}]}"#, ""]), 1),
        (chunks(&[r#"{"error":null,"#, r#""rows":[]}"#, ""]), 1),
    ] {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let (andante, sent) = (Andante::serve(&[]), first.clone());
        let upstream = Upstream::scripted(move |mut connection| {
            while connection.request().is_some() {
                let is_first = next.fetch_add(1, std::sync::atomic::Ordering::AcqRel) == 0;
                connection.send(if is_first { &sent } else { OK });
            }
        });
        let (answer, _) = timed(&andante, &upstream, "GET", "\r\n");
        assert_eq!((answer.status(), upstream.requests().len()), (200, requests), "{first}");
    }
}

/// The first piece of an answer that may be a refusal waits for the rest for 200 ms at most.
#[test]
fn json_that_goes_on_is_passed_on_as_it_comes() {
    let andante = Andante::serve(&[]);
    let upstream = Upstream::scripted(|mut connection| {
        let _ = connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
        connection.send("a\r\n{\"error\":[\r\n");
        let _ = connection.rest();
    });
    let mut client = ask(&andante, &upstream, "GET", "\r\n");
    client.until("{\"error\":[");
}
