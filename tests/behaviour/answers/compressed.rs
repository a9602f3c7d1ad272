//! Refusals in compressed bodies, as workers get them that send `Accept-Encoding: gzip`: read by the same rules as others,
//! and passed on as they came.

use std::{
    io::Write as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};

use super::{OK, ms, now};
use crate::support::{Andante, Client, Message, Upstream};

const ETHERSCAN: &str = r#"{"status":"0","message":"NOTOK","result":"Max calls per sec rate limit reached (5/sec)"}"#;
const INSUFFICIENT: &str = r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#;
const TOO_LARGE: &str = r#"{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 36278. The input or output tokens must be reduced.","type":"tokens","code":"rate_limit_exceeded"}}"#;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn bare_deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// How a body is compressed: the name of the coding, and the encoder.
type Coding = (&'static str, fn(&[u8]) -> Vec<u8>);

const CODINGS: [Coding; 4] = [("gzip", gzip), ("X-GZIP", gzip), ("deflate", zlib), ("deflate", bare_deflate)];

/// An answer with `body` in this coding. `chunked`, its length shows at its end, as that of what nginx compresses.
fn answer(status: u16, coding: &str, body: &[u8], chunked: bool) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Encoding: {coding}\r\n");
    let (framing, end) = match chunked {
        true => (format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len()), "\r\n0\r\n\r\n"),
        false => (format!("Content-Length: {}\r\n\r\n", body.len()), ""),
    };
    [head.as_bytes(), framing.as_bytes(), body, end.as_bytes()].concat()
}

/// An upstream that answers this to its first request, and 200 to all others.
fn first(answer: Vec<u8>) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(
        move |_| {
            if count.fetch_add(1, Ordering::AcqRel) == 0 { answer.clone() } else { OK.as_bytes().to_vec() }
        },
    )
}

fn post(andante: &Andante, upstream: &Upstream) -> Message {
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/api"), upstream.address());
    client.send(format!(
        "POST {url} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip, deflate\r\nContent-Length: 2\r\n\r\n{{}}"
    ));
    client.answer()
}

#[test]
fn a_refusal_in_a_compressed_body_of_status_200_is_sent_again() {
    for (coding, encode) in CODINGS {
        for chunked in [false, true] {
            let upstream = first(answer(200, coding, &encode(ETHERSCAN.as_bytes()), chunked));
            let seen = post(&Andante::serve(&[]), &upstream);
            assert_eq!((seen.status(), seen.text().as_str()), (200, "ok"), "{coding}, chunked: {chunked}");
            assert_eq!(upstream.requests().len(), 2, "{coding}, chunked: {chunked}");
        }
    }
}

#[test]
fn a_refusal_that_waiting_does_not_help_is_recognised_in_a_compressed_body_and_passed_on_untouched() {
    for (coding, encode) in CODINGS {
        for (chunked, body) in [(false, INSUFFICIENT), (true, INSUFFICIENT), (false, TOO_LARGE), (true, TOO_LARGE)] {
            let compressed = encode(body.as_bytes());
            let upstream = first(answer(429, coding, &compressed, chunked));
            let (andante, since) = (Andante::serve(&[]), now());
            let seen = post(&andante, &upstream);
            assert_eq!((seen.status(), seen.field("content-encoding").as_deref()), (429, Some(coding)), "{body}");
            assert!(seen.body == compressed, "{coding}, chunked: {chunked}: other bytes");
            assert_eq!(post(&andante, &upstream).status(), 200, "nobody else waits");
            assert!(now().since(since) < ms(900), "{coding}, chunked: {chunked}: {:?}", now().since(since));
        }
    }
}

#[test]
fn a_compressed_body_of_status_400_with_a_known_code_is_sent_again() {
    let netsuite = r#"{"error":{"code":"SSS_REQUEST_LIMIT_EXCEEDED","message":"Concurrent request limit exceeded."}}"#;
    for (coding, encode) in CODINGS {
        let upstream = first(answer(400, coding, &encode(netsuite.as_bytes()), true));
        assert_eq!(post(&Andante::serve(&[]), &upstream).status(), 200, "{coding}");
        assert_eq!(upstream.requests().len(), 2, "{coding}");
    }
}

#[test]
fn what_a_rule_declares_is_found_in_compressed_bodies_of_servers_that_compress_unasked() {
    for declared in ["body.code = TOO_MANY", "status = 200 and body ~ 'daily limit'"] {
        let body = gzip(br#"{"code":"TOO_MANY","text":"the daily limit","data":1}"#);
        let upstream = first(answer(200, "gzip", &body, true));
        let config = format!("[[rule]]\nhost = \"{}\"\nrefused = [\"{declared}\"]\n", upstream.address());
        let andante = Andante::with_config(&config);
        assert_eq!((post(&andante, &upstream).text().as_str(), upstream.requests().len()), ("ok", 2), "{declared}");
    }
}

#[test]
fn a_compressed_stream_that_begins_with_a_refusal_is_asked_for_again() {
    const OVERLOADED: &str = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let count = AtomicUsize::new(0);
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            if count.fetch_add(1, Ordering::AcqRel) > 0 {
                connection.send(OK);
                continue;
            }
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(OVERLOADED.as_bytes()).unwrap();
            // Flushes an event, and continues the compressed stream.
            encoder.flush().unwrap();
            for byte in encoder.get_ref() {
                connection.send([b"1\r\n", &[*byte][..], b"\r\n"].concat());
            }
            std::thread::park_timeout(ms(3000));
            connection.send("0\r\n\r\n");
        }
    });
    let (andante, since) = (Andante::serve(&[]), now());
    let seen = post(&andante, &upstream);
    assert_eq!((seen.status(), seen.text().as_str()), (200, "ok"));
    assert!(now().since(since) < ms(5000));
}

#[test]
fn a_compressed_stream_that_begins_with_output_is_passed_on_as_it_came() {
    const DELTA: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"rate_limit_exceeded\"}}]}\n\n";
    let body = gzip(DELTA.as_bytes());
    let stream =
        String::from_utf8_lossy(&answer(200, "gzip", b"", false)).replace("application/json", "text/event-stream");
    let head = stream.replace("Content-Length: 0", &format!("Content-Length: {}", body.len()));
    let upstream = first([head.as_bytes(), &body].concat());
    let seen = post(&Andante::serve(&[]), &upstream);
    assert!(seen.body == body, "other bytes");
    assert_eq!((seen.status(), upstream.requests().len()), (200, 1));
}

/// 16 MiB of spaces around a refusal are 16 KiB in gzip: no API complains at such length.
#[test]
fn a_compressed_body_that_unfolds_to_very_much_is_passed_on_unread() {
    let mut text = vec![b' '; 12 * 1024 * 1024];
    text.extend_from_slice(ETHERSCAN.as_bytes());
    let bomb = gzip(&text);
    assert!(bomb.len() < 16 * 1024, "{}", bomb.len());
    for chunked in [false, true] {
        let upstream = first(answer(200, "gzip", &bomb, chunked));
        let andante = Andante::serve(&[]);
        let since = now();
        let seen = post(&andante, &upstream);
        assert!(seen.body == bomb, "other bytes");
        assert_eq!((seen.status(), upstream.requests().len()), (200, 1));
        assert!(now().since(since) < ms(1000));
    }
}

#[test]
fn a_compressed_body_that_is_broken_is_passed_on_as_it_came() {
    let whole = gzip(br#"{"result":[1,2,3]}"#);
    for body in [b"no gzip".to_vec(), whole[..whole.len() - 3].to_vec(), [&whole[..], b"rest"].concat()] {
        for coding in ["gzip", "deflate", "br", "gzip, gzip"] {
            let upstream = first(answer(200, coding, &body, true));
            let seen = post(&Andante::serve(&[]), &upstream);
            assert!(seen.status() == 200 && seen.body == body, "{coding}");
        }
    }
}
