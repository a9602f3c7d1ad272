//! Answering the largest request takes time linear in its size.

use tokio::runtime::Builder;

use super::*;
use crate::clock::assert_linear;

const TOKEN: &str = "0123456789abcdef";
/// Length of a head or a body; the pages read up to 16 KiB.
const LARGEST_BYTES: usize = 15_000;

/// Asserts that each of these requests gets one of the `statuses` in linear time. `request` gets the number of bytes
/// that it may have.
fn check(case: &str, statuses: &[u16], request: impl Fn(usize) -> String) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let lanes = (0..50).map(|number| lane("api", &format!("host-{number}"), 5, (1, 9))).collect();
    let world = runtime.block_on(AdminServer::with_token(lanes, Token::new(TOKEN).ok()));
    assert_linear(case, LARGEST_BYTES, request, |request| {
        let status = runtime.block_on(world.ask(request)).status;
        assert!(statuses.contains(&status), "{case}: {status}");
    });
}

fn filled(piece: &str, bytes: usize) -> String {
    piece.repeat(bytes / piece.len())
}

#[test]
fn longest_path_and_query_are_read_in_linear_time() {
    for piece in ["a", "/", "/..", "%2f", "%"] {
        check(piece, &[404], |bytes| format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", filled(piece, bytes)));
    }
    for piece in ["a", "&", "=", "a&", "limit=1&", "%6cimit=1&", "%", "+", "limit"] {
        check(piece, &[200], |bytes| {
            format!("GET /status?{}&limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", filled(piece, bytes))
        });
    }
}

#[test]
fn longest_fields_are_read_in_linear_time() {
    for name in ["Accept", "Origin", "Sec-Fetch-Site", "Connection", "User-Agent", "X-Forwarded-Host"] {
        for piece in ["text/htm", ",", "a", "a:"] {
            let request =
                |bytes| format!("GET / HTTP/1.1\r\nHost: localhost\r\n{name}: {}\r\n\r\n", filled(piece, bytes));
            check(name, &[200, 403], request);
        }
    }
}

#[test]
fn longest_body_is_read_in_linear_time() {
    let post = |path: &str, body: String| {
        format!(
            "POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for (path, before, piece, after) in [
        ("pause", "{\"rule\": \"", "a", "\", \"host\": \"a\"}"),
        ("pause", "[", "[", ""),
        ("pause", "{\"for\": \"", "1m", "\"}"),
        ("limit", "{\"rule\": \"api\", \"for\": \"1m\", \"limits\": \"1/s", ",1/s", "\"}"),
        ("limit", "{\"rule\": \"api\", \"for\": \"1m\", \"limits\": \"", "1", "\"}"),
        ("weights", "{\"rule\": \"api\", \"weights\": [\"a=1\"", ",\"a=1\"", "]}"),
        ("drop", "{\"host\": \"host-1\", \"client\": \"", "1.", "\"}"),
        ("explain", "{\"url\": \"http://a/?", "%61=b&", "\"}"),
        ("explain", "{\"url\": \"http://a", "/..", "\"}"),
        ("explain", "{\"url\": \"http://a/\", \"headers\": [\"a: b\"", ",\"a: b\"", "]}"),
    ] {
        let request = |bytes: usize| post(path, format!("{before}{}{after}", filled(piece, bytes)));
        check(&format!("{path} {piece}"), &[200, 400, 404], request);
    }
}
