//! Reading the largest answer takes time linear in its size.

use std::time::Duration;

use andante_clock::{assert_linear, cpu_time_of};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::NOON;
use crate::{Answer, Glance, StreamBeginning, read, wants_body};

/// Size of a head in bytes. The bound is ten times what the test profile takes for it, and a tenth of what a pass over
/// all pairs would take.
const HEAD: usize = 512 * 1024;
const BOUND: Duration = Duration::from_secs(3);
/// Bytes of a body that are read ahead.
const BODY: usize = 16 * 1024;

fn check(status: u16, headers: &HeaderMap, body: Option<&[u8]>, case: &str) {
    let status = StatusCode::from_u16(status).unwrap();
    let took = cpu_time_of(|| {
        wants_body(status, headers);
        read(&Answer { status, headers, body, arrived: NOON });
    });
    assert!(took < BOUND, "{case}: {took:?}");
}

#[test]
fn largest_list_in_any_field_is_read_in_linear_time() {
    let names = [
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
        "x-ratelimit-limit",
        "x-ratelimit-used",
        "x-rate-limit-rules",
        "x-shopify-shop-api-call-limit",
        "x-business-use-case-usage",
        "x-app-rate-limit",
        "x-app-rate-limit-count",
        "retry-after",
        "grpc-status",
    ];
    let members =
        ["1", "1;w=1", "\"a\";q=1;w=1;r=1", "a=1", "1:1", "{\"a\":[{\"a\":1}]}", "[", "\"", "\\", ";", "1 per 1"];
    for member in members {
        for separator in [",", ";", " ", ""] {
            // The lengths are those of a field that is read, and of a whole head.
            for bytes in [8_000, HEAD / names.len()] {
                let line =
                    HeaderValue::try_from([member, separator].concat().repeat(bytes / (member.len() + 1))).unwrap();
                let headers: HeaderMap = names.iter().map(|name| (name.parse().unwrap(), line.clone())).collect();
                for status in [200, 429] {
                    check(status, &headers, None, &format!("{member}{separator}"));
                }
            }
        }
    }
}

#[test]
fn as_many_budgets_as_a_head_has_room_for_are_read_in_linear_time() {
    for quantities in [&["limit", "remaining", "reset"][..], &["remaining"]] {
        let mut headers = HeaderMap::new();
        for number in 0..20_000 / quantities.len() {
            for quantity in quantities {
                let name: HeaderName = format!("x-ratelimit-{quantity}-n{number}").parse().unwrap();
                headers.insert(name, HeaderValue::from(number));
            }
        }
        for status in [200, 429] {
            check(status, &headers, None, quantities[0]);
        }
    }
}

#[test]
fn largest_body_is_read_in_linear_time() {
    let of_kind = |kind| HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let (json, events) = (of_kind("application/json"), of_kind("text/event-stream"));
    let pieces = [
        "[",
        "{\"a\":",
        "{\"errors\":[",
        "<a>",
        "<!--",
        "<![CDATA[",
        "\"",
        "\\",
        "retry in 1 s ",
        "1 ",
        "try again in ",
        "rate limit ",
        "1.",
        "seconds ",
        ",",
        "2026-08-03T08:31:12Z ",
        "limit: 1, ",
        "\u{e9}",
    ];
    for piece in pieces {
        let text = piece.repeat(BODY / piece.len());
        let said = [text.clone(), format!("{{\"error\":{{\"message\":\"{}\"}}}}", text.replace(['"', '\\'], "'"))];
        for body in said {
            for status in [200, 403, 429, 503] {
                check(status, &json, Some(body.as_bytes()), piece);
            }
            check(200, &events, Some(format!("data: {body}\n\n").as_bytes()), piece);
        }
    }
}

#[test]
fn largest_batch_is_read_in_linear_time() {
    let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let text = |bytes: usize| {
        let response = r#"{"id":"1","status":429}"#;
        let responses = vec![response; bytes / (response.len() + 1)].join(",");
        format!(r#"{{"responses":[{responses}],"@error":"error"}}"#)
    };
    assert_linear("throttled responses", BODY, text, |text| {
        read(&Answer { status: StatusCode::OK, headers: &headers, body: Some(text.as_bytes()), arrived: NOON });
    });
}

/// An API may send each byte in a piece of its own, and an event that is nothing but an empty line.
#[test]
fn longest_beginning_of_a_stream_is_read_in_linear_time_however_it_is_cut() {
    let events = [
        "\n",
        "\r",
        ":\n\n",
        "data: {\"a\":1}\n",
        "data\n",
        "event: ping\ndata\n\n",
        "data: {\"type\":\"response.created\"}\n\n",
        "x",
        "event: ping\n",
        "\u{feff}",
        "\u{e9}",
    ];
    for event in events {
        for piece in [1, 7, BODY] {
            let text = |bytes: usize| event.repeat(bytes / event.len());
            assert_linear(&format!("{event:?} in pieces of {piece}"), BODY, text, |text| {
                let mut stream = StreamBeginning::new(&Glance::of(&HeaderMap::new()));
                text.as_bytes().chunks(piece).for_each(|piece| _ = stream.push(piece));
            });
        }
    }
}
