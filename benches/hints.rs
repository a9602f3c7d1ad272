//! Cost of reading an answer, which happens once per answer on the path of every request. Answers without limits, as
//! most are, and answers of well-known APIs.
//!
//! `cargo bench --bench hints`. Targets: 150 ns for an answer without limits, 2 µs for one with limits.

use std::{hint::black_box, time::Duration};

use andante::hint::{self, Answer};
use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Lines = &'static [(&'static str, &'static str)];

/// Ordinary fields of any answer, beside limits.
const ORDINARY: Lines = &[
    ("date", "Mon, 01 Jun 2026 12:00:00 GMT"),
    ("content-type", "application/json"),
    ("content-length", "532"),
    ("server", "nginx"),
    ("cache-control", "no-store"),
    ("x-request-id", "4bf92f35"),
    ("vary", "accept-encoding"),
    ("etag", "\"x\""),
];

const ANSWERS: [(&str, u16, Lines); 10] = [
    ("nothing said", 200, &[]),
    ("retry-after", 429, &[("retry-after", "5")]),
    (
        "x-ratelimit",
        200,
        &[("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4999"), ("x-ratelimit-reset", "1780315800")],
    ),
    (
        "github",
        200,
        &[
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4312"),
            ("x-ratelimit-used", "688"),
            ("x-ratelimit-reset", "1780317000"),
            ("x-ratelimit-resource", "core"),
        ],
    ),
    (
        "openai",
        200,
        &[
            ("x-ratelimit-limit-requests", "10000"),
            ("x-ratelimit-limit-tokens", "200000"),
            ("x-ratelimit-remaining-requests", "9999"),
            ("x-ratelimit-remaining-tokens", "199968"),
            ("x-ratelimit-reset-requests", "8.64s"),
            ("x-ratelimit-reset-tokens", "9ms"),
        ],
    ),
    (
        "anthropic",
        200,
        &[
            ("anthropic-ratelimit-requests-limit", "4000"),
            ("anthropic-ratelimit-requests-remaining", "3999"),
            ("anthropic-ratelimit-requests-reset", "2026-06-01T12:00:15Z"),
            ("anthropic-ratelimit-input-tokens-limit", "400000"),
            ("anthropic-ratelimit-input-tokens-remaining", "399000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-06-01T12:00:15Z"),
            ("anthropic-ratelimit-output-tokens-limit", "80000"),
            ("anthropic-ratelimit-output-tokens-remaining", "80000"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-06-01T12:00:15Z"),
        ],
    ),
    (
        "ietf",
        200,
        &[
            ("ratelimit", "\"burst\";r=8;t=1, \"sustained\";r=95;t=37"),
            ("ratelimit-policy", "\"burst\";q=10;w=1, \"sustained\";q=100;w=60"),
        ],
    ),
    (
        "ietf draft 3",
        200,
        &[("x-ratelimit-limit", "10, 10;w=1, 100;w=60"), ("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "1")],
    ),
    ("shopify", 200, &[("x-shopify-shop-api-call-limit", "32/40")]),
    (
        "discord",
        200,
        &[
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "4"),
            ("x-ratelimit-reset", "1780315201.000"),
            ("x-ratelimit-reset-after", "1.000"),
            ("x-ratelimit-bucket", "abcd1234"),
        ],
    ),
];

fn hints(c: &mut Criterion) {
    let mut group = c.benchmark_group("hint");
    for (name, status, more) in ANSWERS {
        let fields = ORDINARY.iter().chain(more);
        let headers: HeaderMap =
            fields.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
        let status = StatusCode::from_u16(status).expect("a valid status");
        let answer = Answer { status, headers: &headers, body: None, arrived: Duration::from_secs(1_780_315_200) };
        group.bench_function(name, |b| b.iter(|| hint::read(black_box(&answer))));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = hints
}
criterion_main!(benches);
