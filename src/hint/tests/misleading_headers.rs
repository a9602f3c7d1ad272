//! Traps in fields about limits, as far as reading goes; docs/hints.md names the test of each.

use std::time::Duration;

use super::{hint, wait};
use crate::{Cause, Signal, wants_body};

#[test]
fn far_reset_without_date_is_ignored_unless_its_window_is_known() {
    let distrusted = |answer: &str| {
        let mut hint = hint(answer);
        hint.distrust_clock();
        let reset = hint.buckets[0].reset.map(|reset| reset.as_secs());
        (hint.signal, hint.wait.map(|wait| wait.as_secs()), reset)
    };
    let used_up = "429 | x-ratelimit-limit: 30 | x-ratelimit-remaining: 0 | x-ratelimit-reset";
    assert_eq!(distrusted(&format!("{used_up}: 1780315830")), (Signal::Backoff, None, None));
    assert_eq!(distrusted(&format!("{used_up}: 1780315260")), (Signal::Throttled, Some(60), Some(60)), "a minute");
    assert_eq!(distrusted(&format!("{used_up}: 630")), (Signal::Throttled, Some(630), Some(630)), "counted from now");
    let asks = format!("{used_up}: 1780315830 | retry-after: 5");
    assert_eq!(distrusted(&asks), (Signal::Throttled, Some(5), None));
    let day = "429 | x-ratelimit-limit-day: 30 | x-ratelimit-remaining-day: 0 | x-ratelimit-reset-day: 1780315830";
    assert_eq!(distrusted(day), (Signal::Throttled, Some(630), Some(630)));
}

#[test]
fn one_name_has_many_encodings() {
    for reset in ["1780315230", "30", "2026-06-01T12:00:30Z", "Mon, 01 Jun 2026 12:00:30 GMT", "1780315230000", "30s"] {
        assert_eq!(
            wait(&format!("429 | x-ratelimit-remaining: 0 | x-ratelimit-reset: {reset}")),
            Some(30.0),
            "{reset}"
        );
        assert_eq!(wait(&format!("429 | ratelimit-remaining: 0 | ratelimit-reset: {reset}")), Some(30.0), "{reset}");
    }
}

#[test]
fn a_value_in_parts_is_told_by_its_name() {
    let bucket = |answer: &str| hint(answer).buckets.remove(0);
    let policy = bucket("200 | ratelimit-policy: \"burst\";limit=10;window=60");
    assert_eq!((policy.name.as_deref(), policy.window.unwrap().as_secs()), (Some("burst"), 60));
    let zendesk = bucket("200 | zendesk-ratelimit-x: total=100; remaining=99; resets=1780315230");
    assert_eq!((zendesk.reset.unwrap().as_secs(), zendesk.coarse), (30, true));
    assert_eq!(bucket("200 | x-ratelimit-remaining: 59/60").remaining, Some(59.0));
    let day = bucket("200 | x-user-limit-24hour-remaining: 5 | x-user-limit-24hour-reset: 1780315230");
    assert!(day.coarse);
    assert_eq!(hint("200 | x-user-limit-24hour-used: 5").buckets, []);
}

#[test]
fn a_format_is_found_out_anew_on_every_answer() {
    let iso =
        hint("200 | x-ratelimit-limit: 100 | x-ratelimit-remaining: 9 | x-ratelimit-reset: 2026-06-01T12:00:41+00:00");
    let epoch = hint("200 | x-ratelimit-limit: 100 | x-ratelimit-remaining: 9 | x-ratelimit-reset: 1780315241");
    assert_eq!(iso, epoch);
}

/// The example of rate-limiter-flexible sends `Retry-After` with each answer: the time until the window ends.
#[test]
fn a_wait_that_repeats_the_reset_is_no_refusal() {
    let budget = "x-ratelimit-limit: 100 | x-ratelimit-reset: 1780315206";
    let signal = |left: u32, asked: &str| {
        hint(&format!("200 | {budget} | x-ratelimit-remaining: {left} | retry-after: {asked}")).signal
    };
    assert_eq!(signal(50, "5.2"), Signal::Ok);
    assert_eq!(signal(0, "5.2"), Signal::Exhausted);
    // A secondary limit of GitHub asks for another wait than the reset of the reported budget.
    assert_eq!(signal(50, "60"), Signal::Throttled);
}

#[test]
fn a_delay_in_milliseconds_is_known_by_its_unit_alone() {
    assert_eq!(
        hint("200 | x-rate-limit-remaining: 5 | x-rate-limit-reset-ms: 1000").buckets[0].reset.unwrap().as_secs(),
        1
    );
    // The unit is undecidable, so the longer wait counts; a requested wait goes first.
    assert_eq!(wait("429 | x-rate-limit-remaining: 0 | x-rate-limit-reset: 1000"), Some(1000.0));
    assert_eq!(wait("429 | x-rate-limit-remaining: 0 | x-rate-limit-reset: 1000 | retry-after: 1"), Some(1.0));
}

#[test]
fn what_refills_all_the_time_is_marked() {
    let bucket = |answer: &str| hint(answer).buckets.remove(0);
    let requests = bucket(
        "200 | x-ratelimit-limit-requests: 10000 | x-ratelimit-remaining-requests: 9999 | x-ratelimit-reset-requests: 8.64s",
    );
    assert!(requests.refills && requests.window.unwrap().as_secs() == 86_400, "{requests:?}");
    let window = bucket("200 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 59 | x-ratelimit-reset: 1780315230");
    assert!(!window.refills && window.coarse, "{window:?}");
}

#[test]
fn a_refusal_with_quota_left_is_another_limits() {
    let hint = hint("429 | ratelimit: \"api\";r=99794;t=241 | ratelimit-policy: \"api\";q=100000;w=300");
    assert_eq!((hint.signal, hint.wait, hint.cause), (Signal::Backoff, None, Cause::Quota));
}

#[test]
fn zero_is_never_at_once() {
    for answer in [
        "429 | retry-after: 0",
        "429 | retry-after-ms: 0",
        "429 | x-ratelimit-remaining-requests: 0 | x-ratelimit-reset-requests: 0s",
        "429 | ratelimit: \"a\";r=0;t=0",
        "429 | {\"retry_after\":0}",
        "503 | retry-after: 0",
    ] {
        assert_eq!((hint(answer).signal, wait(answer)), (Signal::Backoff, None), "{answer}");
    }
    assert_eq!(
        wait(
            "429 | x-ratelimit-remaining-requests: 0 | x-ratelimit-reset-requests: 9s | x-ratelimit-remaining-tokens: 0 | x-ratelimit-reset-tokens: 0s"
        ),
        Some(9.0)
    );
}

#[test]
fn a_limit_of_zero_stops_us_only_when_we_were_refused() {
    let of = |status: u16, more: &str| {
        hint(&format!("{status} | x-rate-limit-limit: 0{more} | x-rate-limit-remaining: 0 | x-rate-limit-reset: 40"))
    };
    assert_eq!(of(200, "").signal, Signal::Ok);
    assert_eq!((of(429, "").signal, of(429, "").cause), (Signal::Throttled, Cause::Concurrency));
    assert_eq!((of(429, ", 15;w=20").signal, of(429, ", 15;w=20").cause), (Signal::Throttled, Cause::Quota));
}

#[test]
fn what_is_used_and_what_is_left_are_told_apart() {
    let left = |answer: &str| hint(answer).buckets[0].remaining;
    assert_eq!(left("200 | x-shopify-shop-api-call-limit: 32/40"), Some(8.0));
    assert_eq!(left("200 | sforce-limit-info: api-usage=135/5000"), Some(4865.0));
    assert_eq!(left("200 | zendesk-ratelimit-x: total=100; remaining=99; resets=41"), Some(99.0));
    assert_eq!(left("200 | x-mbx-used-weight-1m: 4"), None);
    assert_eq!(left("200 | x-ratelimit-limit: 60 | x-ratelimit-used: 13"), Some(47.0));
}

#[test]
fn everybodys_numbers_are_not_ours() {
    let shared = hint(
        "200 | x-ratelimit-zone: search | x-ratelimit-limit: 1900 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 9",
    );
    assert_eq!((shared.signal, shared.buckets[0].requests), (Signal::Ok, false));
    let ours = hint(
        "200 | x-ratelimit-zone: per-ip | x-ratelimit-limit: 19 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 9",
    );
    assert_eq!((ours.signal, ours.buckets[0].requests), (Signal::Exhausted, true));
    let other = "429 | x-ratelimit-remaining: 0 | x-ratelimit-reset-after: 600 | x-ratelimit-scope: shared";
    assert_eq!(hint(other).signal, Signal::Backoff);
}

#[test]
fn waits_may_be_broken_dated_or_very_long() {
    for (value, seconds) in [
        ("2.0", 2.0),
        ("64.57", 64.57),
        ("2026-06-02T12:00:00Z", 86_400.0),
        ("79892", 79_892.0),
        ("99999999999", 34_560_000.0),
    ] {
        assert_eq!(wait(&format!("429 | retry-after: {value}")), Some(seconds), "{value}");
    }
}

#[test]
fn refusals_come_with_any_status() {
    for answer in [
        "400 | {\"__type\":\"ThrottlingException\"}",
        "401 | Rate Limit Exceeded",
        "403 | {\"message\":\"API rate limit exceeded for x\"}",
        "420",
        "503",
        "529",
        "200 | {\"errors\":[{\"type\":\"RATE_LIMITED\"}]}",
        "200 | grpc-status: 8",
    ] {
        assert_eq!(hint(answer).signal, Signal::Backoff, "{answer}");
    }
    assert_eq!(hint("418").signal, Signal::Banned);
    for status in [400, 401, 403, 404, 500, 502] {
        assert_eq!(hint(&format!("{status} | {{\"message\":\"no\"}}")).signal, Signal::Ok, "{status}");
    }
}

#[test]
fn only_small_legible_bodies_are_held_back() {
    let wanted = |status: u16, fields: &[(&'static str, &'static str)]| {
        let headers =
            fields.iter().map(|(name, value)| (name.parse().unwrap(), http::HeaderValue::from_static(value))).collect();
        wants_body(http::StatusCode::from_u16(status).unwrap(), &headers)
    };
    let (json, small) = (("content-type", "application/json; charset=utf-8"), ("content-length", "200"));
    assert!(wanted(200, &[json, small]) && wanted(429, &[json, small]) && wanted(403, &[json, small]));
    assert!(wanted(400, &[("content-type", "application/x-amz-json-1.1"), small]));
    assert!(
        wanted(503, &[("content-type", "application/xml"), small])
            && wanted(420, &[("content-type", "text/plain"), small])
    );
    assert!(wanted(429, &[json, small, ("retry-after", "0")]));
    // Waiting may not help: a request that is too large is also refused with a wait.
    assert!(wanted(429, &[json, small, ("retry-after", "30")]));
    assert!(!wanted(503, &[json, small, ("retry-after", "30")]));
    assert!(
        !wanted(200, &[json])
            && !wanted(200, &[json, ("content-length", "16385")])
            && !wanted(200, &[json, ("content-length", "0")])
    );
    assert!(
        !wanted(200, &[json, small, ("content-encoding", "br")])
            && !wanted(200, &[("content-type", "text/event-stream"), small])
    );
    assert!(!wanted(204, &[json, small]) && !wanted(404, &[json, small]));
    // Without a length, only answers that may be refusals are read: chunks (RFC 9112 §7.1), or a stream of HTTP/2.
    for status in [400, 401, 403, 429, 500, 503] {
        assert!(wanted(status, &[json]), "{status}");
    }
    assert!(!wanted(404, &[json]) && !wanted(429, &[json, ("content-encoding", "zstd")]));
    // A server that compresses while sending does not know the length.
    for coding in ["gzip", "x-gzip", "deflate"] {
        let coding = ("content-encoding", coding);
        assert!(wanted(200, &[json, coding]) && wanted(200, &[json, small, coding]) && wanted(429, &[json, coding]));
        assert!(!wanted(200, &[json, ("content-length", "16385"), coding]) && !wanted(404, &[json, coding]));
    }
    for kind in ["application/x-ndjson", "application/json-seq", "application/jsonl", "application/stream+json"] {
        let (kind, coding) = (("content-type", kind), ("content-encoding", "gzip"));
        assert!(!wanted(200, &[kind, coding]) && wanted(200, &[kind, small, coding]), "{kind:?} comes bit by bit");
    }
    assert!(!wanted(503, &[json, ("retry-after", "30")]) && !wanted(429, &[json, ("content-length", "16385")]));
}

#[test]
fn a_quota_per_day_is_told_beside_a_short_wait() {
    let hint = hint(
        "429 | {\"error\":{\"details\":[{\"violations\":[{\"quotaId\":\"RequestsPerDay-Free\",\"quotaValue\":\"20\"}]},{\"retryDelay\":\"34s\"}]}}",
    );
    assert_eq!(hint.wait.unwrap().as_secs(), 34);
    assert_eq!((hint.buckets[0].limit, hint.buckets[0].window.unwrap().as_secs()), (Some(20.0), 86_400));
}

#[test]
fn names_that_do_not_agree_mean_each_other_if_there_is_one_of_each() {
    let one = hint("200 | ratelimit: \"default\";r=5;t=9 | ratelimit-policy: \"burst\";q=10;w=60");
    assert_eq!((one.buckets.len(), one.buckets[0].limit, one.buckets[0].remaining), (1, Some(10.0), Some(5.0)));
    let two = hint("200 | ratelimit: \"default\";r=5;t=9 | ratelimit-policy: \"a\";q=10;w=60, \"b\";q=20;w=90");
    assert_eq!(two.buckets.len(), 3);
}

#[test]
fn commas_in_strings_and_further_lines_are_understood() {
    let hint = hint("200 | ratelimit: \"a, b\";  r=5;t=9 | ratelimit: c;r=0;t=7");
    assert_eq!((hint.buckets.len(), hint.wait.unwrap().as_secs()), (2, 7));
}

#[test]
fn nothing_said_is_nothing_learnt() {
    for answer in
        ["200 | date: Tue, 10 Sep 2024 23:58:08 GMT | openai-version: 2020-10-01", "304", "202 | content-length: 0"]
    {
        let hint = hint(answer);
        assert!(hint.buckets.is_empty() && hint.signal == Signal::Ok && hint.dialect.as_str() == "none", "{answer}");
    }
}

#[test]
fn windows_are_inferred_from_what_refills_and_never_assumed() {
    let window = |answer: &str| hint(answer).buckets[0].window.map(|window| window.as_secs());
    let of = |reset: &str| {
        window(&format!(
            "200 | x-ratelimit-limit-requests: 14400 | x-ratelimit-remaining-requests: 14370 | x-ratelimit-reset-requests: {reset}"
        ))
    };
    assert_eq!((of("2m59.56s"), of("125ms"), of("77s")), (Some(86_400), Some(60), None));
    assert_eq!(window("200 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 59 | x-ratelimit-reset: 30"), None);
}

#[test]
fn too_many_at_once_is_told_from_too_many() {
    for answer in [
        "429 | stripe-rate-limited-reason: global-concurrency",
        "429 | {\"error\":{\"code\":\"lock_timeout\"}}",
        "429 | x-rate-limit-problem: concurrent | retry-after: 1",
        "429 | ratelimit: \"c\";r=0 | ratelimit-policy: \"c\";q=10;qu=\"concurrent-requests\"",
    ] {
        assert_eq!(hint(answer).cause, Cause::Concurrency, "{answer}");
    }
    for answer in
        ["503", "529 | retry-after: 5", "429 | {\"error\":{\"type\":\"overloaded_error\"}}", "500 | retry-after: 9"]
    {
        assert_eq!(hint(answer).cause, Cause::Overload, "{answer}");
    }
    assert_eq!((hint("429").cause, hint("200").cause), (Cause::Quota, Cause::None));
}

#[test]
fn times_are_measured_by_the_servers_clock_and_the_past_is_unknown() {
    let at =
        |date: &str| wait(&format!("429 | date: {date} | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1780315230"));
    assert_eq!(at("Mon, 01 Jun 2026 12:00:10 GMT"), Some(20.0));
    assert_eq!(at("Mon, 01 Jun 2026 11:50:00 GMT"), Some(630.0));
    assert_eq!(at("Mon, 01 Jun 2026 12:00:30 GMT"), None);
    // A `Date` that is malformed or of another year is ignored, and our own clock counts.
    assert_eq!((at("soon"), at("Thu, 01 Jan 1970 00:00:00 GMT")), (Some(30.0), Some(30.0)));
}

#[test]
fn a_clock_that_is_ahead_does_not_make_a_wait_longer_than_its_window() {
    // The server's clock is ten minutes ahead, and there is no `Date`.
    let fields = "429 | x-ratelimit-limit: 30 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1780315810";
    assert_eq!(wait(&format!("{fields} | x-ratelimit-window: 10")), Some(11.0));
    assert_eq!(wait(fields), Some(610.0), "of a window of unknown length");
    let dated = "date: Mon, 01 Jun 2026 12:10:00 GMT | x-ratelimit-window: 10";
    assert_eq!(wait(&format!("{fields} | {dated}")), Some(10.0));
}

#[test]
fn resets_have_the_unit_of_their_name_or_of_their_digits() {
    let of = |name: &str, value: &str| wait(&format!("429 | x-ratelimit-remaining: 0 | {name}: {value}"));
    for (name, value) in [
        ("x-ratelimit-reset", "1780315230"),
        ("x-ratelimit-reset", "1780315230000"),
        ("x-ratelimit-reset", "1780315230000000"),
        ("x-ratelimit-reset", "1780315230000000000"),
        ("x-ratelimit-reset-ms", "30000"),
        ("x-ratelimit-reset-us", "30000000"),
        ("x-ratelimit-reset-microseconds", "30000000"),
        ("x-ratelimit-reset-ns", "30000000000"),
        ("x-ratelimit-reset-us", "1780315230000000"),
    ] {
        assert_eq!(of(name, value), Some(30.0), "{name}: {value}");
    }
}

#[test]
fn a_limit_in_a_field_of_json_is_read() {
    let basecamp = r#"x-ratelimit: {"name":"API","period":10,"limit":50,"remaining":0,"until":"2026-06-01T12:00:03Z"}"#;
    let hint = hint(&format!("429 | {basecamp} | {{}}"));
    assert_eq!((hint.signal, hint.wait), (Signal::Throttled, Some(Duration::from_secs(3))));
    let bucket = &hint.buckets[0];
    assert_eq!((bucket.limit, bucket.remaining, bucket.window), (Some(50.0), Some(0.0), Some(Duration::from_secs(10))));
}

#[test]
fn budgets_of_another_tier_are_not_the_standard_ones() {
    let tier = "anthropic-fast-input-tokens-remaining: 0 | anthropic-fast-input-tokens-reset: 2026-06-01T12:00:30Z";
    let standard = "anthropic-ratelimit-input-tokens-limit: 1000 | anthropic-ratelimit-input-tokens-remaining: 900";
    let served = hint(&format!("200 | {tier} | {standard}"));
    assert_eq!((served.signal, served.buckets.len()), (Signal::Ok, 1), "{served:?}");
    assert_eq!(wait(&format!("429 | {tier} | {standard}")), Some(30.0));
    assert!(
        hint("200 | ratelimit-policy: \"a\";q=10;w=60;qu=\"request\" | ratelimit: \"a\";r=3;t=20").buckets[0].requests
    );
}

#[test]
fn what_is_not_about_limits_of_requests_is_left_alone() {
    for answer in [
        "200 | x-disk-quota-limit: 100 | x-disk-quota-remaining: 0 | x-disk-quota-reset: 600",
        "200 | x-seats-quota-remaining: 0 | x-seats-quota-reset: 600",
        "200 | x-amz-meta-ratelimit-remaining: 0 | x-amz-meta-ratelimit-reset: 600",
        "200 | content-type: application/json | {\"quota_max\": 15, \"quota_remaining\": 0, \"name\": \"disk\"}",
        "200 | content-type: application/json | {\"id\": 5, \"error\": {\"message\": \"declined after too many requests\"}}",
        "400 | content-type: application/json | {\"message\": \"This room is booked; available in 5 days\"}",
        "403 | content-type: application/json | {\"message\": \"invalid title: please wait for 2 h\"}",
    ] {
        let hint = hint(answer);
        assert_eq!((hint.signal, hint.cause, hint.buckets.len()), (Signal::Ok, Cause::None, 0), "{answer}: {hint:?}");
    }
}
