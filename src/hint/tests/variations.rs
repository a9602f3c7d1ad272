//! Variations of the cases within their families: letter cases, orders, units, statuses, more or fewer fields than
//! usual.

mod bodies;
mod examined;
mod vendors;

use super::hint;
use crate::Signal::{self, Backoff, Banned, Exhausted, Informational, Ok, Throttled};

type Expected = (Signal, Option<f64>, [Option<f64>; 3]);

/// Checks signal and wait, and limit, remaining and reset of the binding bucket.
fn check(answers: &[(&str, Expected)]) {
    let wrong: Vec<String> = answers
        .iter()
        .filter_map(|(answer, expected)| {
            let hint = hint(answer);
            let first = hint.buckets.first();
            let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
            let bucket =
                [first.and_then(|b| b.limit), first.and_then(|b| b.remaining), seconds(first.and_then(|b| b.reset))];
            let found = (hint.signal, seconds(hint.wait), bucket);
            (found != *expected).then(|| format!("{answer}\n  expected {expected:?}\n  found    {found:?}\n  {hint:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

const GO: Option<f64> = Some(0.0);
const NONE: [Option<f64>; 3] = [None; 3];

const fn bucket(limit: f64, remaining: f64, reset: f64) -> [Option<f64>; 3] {
    [Some(limit), Some(remaining), Some(reset)]
}

const fn counts(limit: f64, remaining: f64) -> [Option<f64>; 3] {
    [Some(limit), Some(remaining), None]
}

#[test]
fn waits_that_are_asked_for_are_kept_in_any_form() {
    let dated = |reset| [None, None, Some(reset)];
    check(&[
        ("429 | Retry-After: 5", (Throttled, Some(5.0), NONE)),
        ("429 | RETRY-AFTER:  2.50 ", (Throttled, Some(2.5), NONE)),
        ("429 | retry-after: 30s", (Throttled, Some(30.0), NONE)),
        ("429 | retry-after: Mon, 01 Jun 2026 12:00:30 GMT", (Throttled, Some(30.0), dated(30.0))),
        ("429 | retry-after: Monday, 01-Jun-26 12:00:30 GMT", (Throttled, Some(30.0), dated(30.0))),
        ("429 | retry-after: Mon Jun  1 12:00:30 2026", (Throttled, Some(30.0), dated(30.0))),
        ("429 | retry-after: 2026-06-01T14:00:30+02:00", (Throttled, Some(30.0), dated(30.0))),
        ("429 | retry-after: 2026-06-01 12:00:30.5", (Throttled, Some(30.5), dated(30.5))),
        // The server's clock is two minutes ahead, and so is its date.
        (
            "429 | date: Mon, 01 Jun 2026 12:02:00 GMT | retry-after: Mon, 01 Jun 2026 12:02:30 GMT",
            (Throttled, Some(30.0), dated(30.0)),
        ),
        // The server's clock is three days ahead here, and two days behind in the next answer.
        (
            "429 | date: Thu, 04 Jun 2026 12:00:00 GMT | retry-after: Thu, 04 Jun 2026 12:00:30 GMT",
            (Throttled, Some(30.0), dated(30.0)),
        ),
        (
            "429 | date: Sat, 30 May 2026 12:00:00 GMT | retry-after: Sat, 30 May 2026 12:00:30 GMT",
            (Throttled, Some(30.0), dated(30.0)),
        ),
        ("429 | retry-after: 3 | retry-after: 7", (Throttled, Some(7.0), NONE)),
        ("429 | retry-after-ms: 1500 | retry-after: 2", (Throttled, Some(1.5), NONE)),
        ("429 | retry-after-ms: 0 | retry-after: 2", (Throttled, Some(2.0), NONE)),
        ("429 | retry-after-ms: NaN | retry-after: 2", (Throttled, Some(2.0), NONE)),
        ("503 | x-ms-retry-after-ms: 250", (Throttled, Some(0.25), NONE)),
        ("403 | retry-after: 60", (Throttled, Some(60.0), NONE)),
        ("500 | retry-after: 60", (Throttled, Some(60.0), NONE)),
        ("200 | retry-after: 60", (Throttled, Some(60.0), NONE)),
        ("418 | retry-after: 60", (Banned, Some(60.0), NONE)),
        ("418", (Banned, None, NONE)),
        ("529", (Backoff, None, NONE)),
        // The wait is not for the next request, but for the status of work in progress, or for a moved resource.
        ("202 | retry-after: 60", (Ok, GO, NONE)),
        ("301 | retry-after: 60", (Ok, GO, NONE)),
        ("404", (Ok, GO, NONE)),
        ("500", (Ok, GO, NONE)),
        ("403", (Ok, GO, NONE)),
    ]);
    for nothing in [
        "0",
        "0.0",
        "-1",
        "",
        "NaN",
        "inf",
        "1e999",
        "soon",
        "5x",
        "0x5",
        "5 6",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "+5",
        "٣",
    ] {
        check(&[(&format!("429 | retry-after: {nothing}"), (Backoff, None, NONE))]);
    }
}

#[test]
fn plain_trios_are_read_under_any_name_and_in_any_encoding() {
    for names in [
        "ratelimit",
        "RateLimit",
        "x-ratelimit",
        "X-RateLimit",
        "X-Rate-Limit",
        "x-rate_limit",
        "llm_provider-x-ratelimit",
    ] {
        for (reset, seconds) in [
            ("30", 30.0),
            ("30.0", 30.0),
            ("30s", 30.0),
            ("1780315230", 30.0),
            ("1780315230.5", 30.5),
            ("1780315230000", 30.0),
            ("1780315230000000", 30.0),
            ("2026-06-01T12:00:30Z", 30.0),
            ("2026-06-01T12:00:30.000000Z", 30.0),
            ("Mon, 01 Jun 2026 12:00:30 GMT", 30.0),
        ] {
            for (status, left, expected) in [
                (200, "7", (Ok, GO, bucket(60.0, 7.0, seconds))),
                (200, "0", (Exhausted, Some(seconds), bucket(60.0, 0.0, seconds))),
                (200, "0.0", (Exhausted, Some(seconds), bucket(60.0, 0.0, seconds))),
                (429, "0", (Throttled, Some(seconds), bucket(60.0, 0.0, seconds))),
                (403, "0", (Throttled, Some(seconds), bucket(60.0, 0.0, seconds))),
                (429, "7", (Backoff, None, bucket(60.0, 7.0, seconds))),
                (403, "7", (Ok, GO, bucket(60.0, 7.0, seconds))),
                (200, "99", (Ok, GO, bucket(60.0, 60.0, seconds))),
            ] {
                let answer =
                    format!("{status} | {names}-Limit: 60 | {names}-Remaining: {left} | {names}-Reset: {reset}");
                check(&[(&answer, expected)]);
            }
        }
    }
    check(&[
        // A past or malformed reset is ignored; the remainder still counts.
        ("429 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1780315199", (Backoff, None, [None, Some(0.0), None])),
        ("429 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1780315200", (Backoff, None, [None, Some(0.0), None])),
        (
            "200 | x-ratelimit-limit: 60 | x-ratelimit-remaining: many | x-ratelimit-reset: soon",
            (Ok, GO, [Some(60.0), None, None]),
        ),
        ("200 | x-ratelimit-limit: unlimited | x-ratelimit-remaining: unlimited", (Ok, GO, NONE)),
        ("200 | x-ratelimit-limit: -1 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 30", (Ok, GO, NONE)),
        ("200 | x-ratelimit-limit: 60 | x-ratelimit-remaining: -1", (Ok, GO, [Some(60.0), None, None])),
        (
            "200 | x-ratelimit-limit: 0 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 30",
            (Ok, GO, bucket(0.0, 0.0, 30.0)),
        ),
        ("200 | x-ratelimit-limit: 5000, 5000 | x-ratelimit-remaining: 4999, 4998", (Ok, GO, counts(5000.0, 4998.0))),
        ("200 | x-ratelimit-used: 10 | x-ratelimit-limit: 60", (Ok, GO, counts(60.0, 50.0))),
        ("200 | ratelimit-limit: 60 | ratelimit-observed: 67", (Exhausted, None, counts(60.0, 0.0))),
        ("200 | x-ratelimit-max: 60 | x-ratelimit-left: 3 | x-ratelimit-reset-in: 4", (Ok, GO, bucket(60.0, 3.0, 4.0))),
        (
            "404 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 9",
            (Exhausted, Some(9.0), bucket(60.0, 0.0, 9.0)),
        ),
        ("429 | x-ratelimit-limit: 60 | x-ratelimit-reset: 9", (Throttled, Some(9.0), [Some(60.0), None, Some(9.0)])),
        ("429 | x-rate-limit-limit: 3 | x-rate-limit-interval: 1s", (Throttled, Some(1.0), [Some(3.0), None, None])),
        // Symfony sends the present time of day in served answers.
        (
            "200 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 5 | x-ratelimit-retry-after: 1780315260",
            (Ok, GO, counts(60.0, 5.0)),
        ),
        (
            "429 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 0 | x-ratelimit-retry-after: 1780315260",
            (Throttled, Some(60.0), bucket(60.0, 0.0, 60.0)),
        ),
    ]);
}

#[test]
fn every_generation_of_the_draft_is_read() {
    check(&[
        ("200 | ratelimit: \"default\";r=50;t=30", (Ok, GO, [None, Some(50.0), Some(30.0)])),
        (
            "200 | ratelimit: default ; t=30 ; r=50 | ratelimit-policy: default;w=60;q=100",
            (Ok, GO, bucket(100.0, 50.0, 30.0)),
        ),
        (
            "429 | ratelimit: \"a,b;c\";r=0;t=12 | ratelimit-policy: \"a,b;c\";q=10;w=60",
            (Throttled, Some(12.0), bucket(10.0, 0.0, 12.0)),
        ),
        (
            "200 | ratelimit: \"default\";r=0;t=30 | ratelimit-policy: \"burst\";q=100;w=60",
            (Exhausted, Some(30.0), bucket(100.0, 0.0, 30.0)),
        ),
        (
            "429 | ratelimit: \"day\";r=0;t=3000, \"min\";r=0;t=20, \"sec\";r=4;t=1",
            (Throttled, Some(3000.0), [None, Some(0.0), Some(3000.0)]),
        ),
        (
            "429 | ratelimit: \"day\";r=100;t=3000 | ratelimit: \"min\";r=0;t=20",
            (Throttled, Some(20.0), [None, Some(0.0), Some(20.0)]),
        ),
        (
            "429 | retry-after: 5 | ratelimit: \"day\";r=0;t=3000",
            (Throttled, Some(5.0), [None, Some(0.0), Some(3000.0)]),
        ),
        ("429 | ratelimit: \"day\";r=0", (Backoff, None, [None, Some(0.0), None])),
        (
            "429 | ratelimit: \"sec\";r=0 | ratelimit-policy: \"sec\";q=10;w=1",
            (Throttled, Some(1.0), counts(10.0, 0.0)),
        ),
        ("200 | ratelimit: quota;t=1 | ratelimit-policy: quota;q=100;w=1", (Ok, GO, [Some(100.0), None, Some(1.0)])),
        ("200 | ratelimit: \"x\";r=-1;t=NaN;z, ;;, \"y\";r=5;t=9", (Ok, GO, [None, Some(5.0), Some(9.0)])),
        ("200 | ratelimit: limit=100, remaining=50, reset=30", (Ok, GO, bucket(100.0, 50.0, 30.0))),
        (
            "429 | ratelimit: reset=30,remaining=0,limit=100 | ratelimit-policy: 100;w=60, 1000;w=3600",
            (Throttled, Some(30.0), bucket(100.0, 0.0, 30.0)),
        ),
        ("429 | ratelimit: limit=100; remaining=0; reset=30", (Throttled, Some(30.0), bucket(100.0, 0.0, 30.0))),
        (
            "200 | ratelimit-limit: 10, 10;w=1, 150;w=60 | ratelimit-remaining: 149 | ratelimit-reset: 42",
            (Ok, GO, bucket(150.0, 149.0, 42.0)),
        ),
        (
            "429 | ratelimit-limit: 10, 10;w=1, 150;w=60 | ratelimit-remaining: 0 | ratelimit-reset: 42",
            (Throttled, Some(42.0), bucket(150.0, 0.0, 42.0)),
        ),
        (
            "200 | ratelimit-limit: 10, 10;w=1, 150;w=60 | ratelimit-remaining: 8 | ratelimit-reset: 1",
            (Ok, GO, bucket(10.0, 8.0, 1.0)),
        ),
        (
            "200 | x-ratelimit-limit: 10, 10;w=1;name=\"a, b\", 100;w=60 | x-ratelimit-remaining: 9 | x-ratelimit-reset: 1",
            (Ok, GO, bucket(10.0, 9.0, 1.0)),
        ),
        (
            "429 | ratelimit-limit: 100;w=21600 | ratelimit-remaining: 0;w=21600",
            (Throttled, Some(216.0), counts(100.0, 0.0)),
        ),
        ("429 | beta-ratelimit: \"q\";r=0;t=50 | beta-retry-after: 50", (Backoff, None, NONE)),
        ("200 | x-beta-ratelimit-limit: 100 | x-beta-ratelimit-remaining: 0", (Informational, GO, counts(100.0, 0.0))),
        ("200 | beta-ratelimit: \"q\";r=0;t=50 | ratelimit: \"p\";r=5;t=3", (Ok, GO, [None, Some(5.0), Some(3.0)])),
        ("200 | age: 30 | ratelimit: \"q\";r=0;t=50", (Ok, GO, NONE)),
        ("200 | age: 0 | ratelimit: \"q\";r=0;t=50", (Exhausted, Some(50.0), [None, Some(0.0), Some(50.0)])),
    ]);
}

#[test]
fn dimensions_are_budgets_of_their_own() {
    check(&[
        (
            "429 | x-ratelimit-limit-tokens: 9000 | x-ratelimit-remaining-tokens: 0 | x-ratelimit-reset-tokens: 7m12s | x-ratelimit-limit-requests: 60 | x-ratelimit-remaining-requests: 59 | x-ratelimit-reset-requests: 1s",
            (Throttled, Some(432.0), bucket(9000.0, 0.0, 432.0)),
        ),
        (
            "429 | x-ratelimit-remaining-requests: 5 | x-ratelimit-reset-requests: 1s",
            (Backoff, None, [None, Some(5.0), Some(1.0)]),
        ),
        (
            "429 | x-ratelimit-remaining-requests: 0 | x-ratelimit-reset-requests: 0s",
            (Backoff, None, [None, Some(0.0), Some(0.0)]),
        ),
        (
            "200 | x-ratelimit-remaining-requests: 0 | x-ratelimit-limit-requests: 5 | x-ratelimit-reset-requests: 12s",
            (Exhausted, Some(12.0), bucket(5.0, 0.0, 12.0)),
        ),
        (
            "429 | anthropic-ratelimit-input-tokens-limit: 1000 | anthropic-ratelimit-input-tokens-remaining: 0 | anthropic-ratelimit-input-tokens-reset: 2026-06-01T12:00:20Z",
            (Throttled, Some(20.0), bucket(1000.0, 0.0, 20.0)),
        ),
        (
            "400 | x-ratelimit-requests-limit: 1500 | x-ratelimit-requests-remaining: 0 | x-ratelimit-requests-reset: 1780315260000 | x-ratelimit-complexity-limit: 250000 | x-ratelimit-complexity-remaining: 0 | x-ratelimit-complexity-reset: 1780315300000 | {\"errors\":[{\"extensions\":{\"code\":\"RATELIMITED\"}}]}",
            (Throttled, Some(100.0), bucket(250_000.0, 0.0, 100.0)),
        ),
        (
            "200 | x-ratelimit-limit-minute: 60 | x-ratelimit-remaining-minute: 59 | x-ratelimit-limit-hour: 500 | x-ratelimit-remaining-hour: 10 | ratelimit-limit: 60 | ratelimit-remaining: 59 | ratelimit-reset: 30",
            (Ok, GO, bucket(60.0, 59.0, 30.0)),
        ),
        (
            "429 | x-rate-limit-api-token-interval-ms: 10000 | x-rate-limit-api-token-max: 100 | x-rate-limit-api-token-remaining: 0 | x-rate-limit-api-key-interval-ms: 10000 | x-rate-limit-api-key-max: 300 | x-rate-limit-api-key-remaining: 200",
            (Throttled, Some(10.0), counts(100.0, 0.0)),
        ),
        (
            "200 | x-hubspot-ratelimit-daily: 250000 | x-hubspot-ratelimit-daily-remaining: 249000 | x-hubspot-ratelimit-interval-milliseconds: 10000 | x-hubspot-ratelimit-max: 100 | x-hubspot-ratelimit-remaining: 98 | x-hubspot-ratelimit-secondly: 10 | x-hubspot-ratelimit-secondly-remaining: 9",
            (Ok, GO, counts(100.0, 98.0)),
        ),
        (
            "429 | x-hubspot-ratelimit-interval-milliseconds: 10000 | x-hubspot-ratelimit-max: 100 | x-hubspot-ratelimit-remaining: 0",
            (Throttled, Some(10.0), counts(100.0, 0.0)),
        ),
        (
            "200 | x-rate-limit-requests-left: 0 | x-rate-limit-time-reset-ms: 15000 | x-rate-limit-requests-quota: 450 | x-rate-limit-time-window-ms: 30000",
            (Exhausted, Some(15.0), bucket(450.0, 0.0, 15.0)),
        ),
        ("200 | x-ms-ratelimit-remaining-subscription-reads: 0", (Exhausted, None, [None, Some(0.0), None])),
        (
            "200 | x-ms-ratelimit-remaining-resource: Microsoft.Compute/HighCostGet3Min;159,Microsoft.Compute/HighCostGet30Min;1260",
            (Ok, GO, [None, Some(159.0), None]),
        ),
        (
            "429 | x-contentful-ratelimit-reset: 1 | x-contentful-ratelimit-second-limit: 7 | x-contentful-ratelimit-second-remaining: 0 | x-contentful-ratelimit-hour-limit: 36000 | x-contentful-ratelimit-hour-remaining: 35900",
            (Throttled, Some(1.0), bucket(7.0, 0.0, 1.0)),
        ),
        (
            "429 | x-user-limit-24hour-limit: 100 | x-user-limit-24hour-remaining: 0 | x-user-limit-24hour-reset: 1780400000 | x-rate-limit-limit: 40000 | x-rate-limit-remaining: 39000 | x-rate-limit-reset: 1780315300",
            (Throttled, Some(84_800.0), bucket(100.0, 0.0, 84_800.0)),
        ),
        (
            "429 | x-ratelimit-limit: 10 | x-ratelimit-remaining: 0 | x-ratelimit-interval-seconds: 60 | x-ratelimit-fillrate: 5 | retry-after: 12",
            (Throttled, Some(12.0), counts(10.0, 0.0)),
        ),
        (
            "200 | x-quota-limit: 1000 | x-quota-remaining: 0 | x-quota-reset: 1780315300000 | x-rate-limit-limit: 10 | x-rate-limit-remaining: 9",
            (Exhausted, Some(100.0), bucket(1000.0, 0.0, 100.0)),
        ),
    ]);
}
