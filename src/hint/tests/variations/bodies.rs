//! Variations of bodies.

use super::{GO, NONE, bucket, check, counts};
use crate::Signal::{Backoff, Exhausted, FatalQuota, Ok, Throttled};

#[test]
fn bodies_may_be_broken_or_cut_in_the_middle_of_a_letter() {
    let long = format!("429 | try again in 5 seconds. {}", "é".repeat(16 * 1024));
    check(&[
        ("429 | \u{feff}{\"retry_after\":17}", (Throttled, Some(17.0), NONE)),
        (&long, (Throttled, Some(5.0), NONE)),
        (&format!("{long}!").replace("try", " try"), (Throttled, Some(5.0), NONE)),
    ]);
}

#[test]
fn bodies_tell_what_heads_do_not() {
    check(&[
        (
            "400 | {\"__type\":\"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException\",\"message\":\"x\"}",
            (Backoff, None, NONE),
        ),
        ("400 | x-amzn-errortype: ThrottlingException:http://internal.amazon.com/coral/ | {}", (Backoff, None, NONE)),
        (
            "400 | <ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>",
            (Backoff, None, NONE),
        ),
        ("400 | {\"__type\":\"ValidationException\",\"message\":\"rate must be positive\"}", (Ok, GO, NONE)),
        (
            "403 | {\"message\":\"Must have admin rights to Repository.\"} | x-ratelimit-remaining: 14",
            (Ok, GO, [None, Some(14.0), None]),
        ),
        (
            "429 | {\"error\":{\"message\":\"Rate limit reached for gpt. Please try again in 6m0s.\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}",
            (Throttled, Some(360.0), NONE),
        ),
        ("429 | retry-after: 5 | {\"error\":{\"type\":\"insufficient_quota\"}}", (FatalQuota, None, NONE)),
        (
            "429 | {\"error\":{\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"0s\"}]}}",
            (Backoff, None, NONE),
        ),
        (
            "429 | {\"message\":\"You are being rate limited.\",\"retry_after\":0.529,\"global\":false}",
            (Throttled, Some(0.529), NONE),
        ),
        ("429 | {\"ok\":false,\"error_code\":429,\"parameters\":{\"retry_after\":17}}", (Throttled, Some(17.0), NONE)),
        ("429 | {\"retry_after\":-5}", (Backoff, None, NONE)),
        ("429 | {\"retry_after\":1e300}", (Throttled, Some(400.0 * 86_400.0), NONE)),
        (
            "420 | {\"message\":\"Domain x is not allowed to send: rate limited, try again after Mon, 01 Jun 2026 12:00:31 UTC\"}",
            (Throttled, Some(31.0), NONE),
        ),
        ("420 | try again after Mon, 01 Jun 2026 12:00:31 UTC", (Throttled, Some(31.0), NONE)),
        ("429 | {\"status\":\"error\",\"policyName\":\"SECONDLY\"}", (Throttled, Some(1.0), NONE)),
        ("429 | {\"status\":\"error\",\"policyName\":\"DAILY\"}", (Backoff, None, NONE)),
        (
            "403 | {\"message\":\"You have exceeded a secondary rate limit.\"} | x-ratelimit-limit: 60 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1780315800",
            (Throttled, Some(600.0), bucket(60.0, 0.0, 600.0)),
        ),
        ("200 | {\"error\":[\"EService: Throttled: 1780315230\"]}", (Throttled, Some(30.0), NONE)),
        ("200 | {\"error\":[\"EOrder:Rate limit exceeded\"]}", (Backoff, None, NONE)),
        ("200 | {\"error\":[],\"result\":{\"a\":\"EAPI:Rate limit exceeded\"}}", (Ok, GO, NONE)),
        ("200 | {\"ok\":false,\"error\":\"ratelimited\"}", (Backoff, None, NONE)),
        ("200 | {\"errors\":[{\"message\":\"no such field\"}]}", (Ok, GO, NONE)),
        // GraphQL (https://spec.graphql.org/draft/#sec-Response-Format): a failed part is null, whatever else was
        // returned.
        (
            "200 | {\"data\":{\"x\":null},\"errors\":[{\"type\":\"RATE_LIMITED\",\"path\":[\"x\"]}]}",
            (Backoff, None, NONE),
        ),
        ("200 | {\"data\":null,\"errors\":[{\"extensions\":{\"code\":\"THROTTLED\"}}]}", (Backoff, None, NONE)),
        (
            "200 | {\"data\":{\"x\":null,\"y\":{\"id\":1}},\"errors\":[{\"extensions\":{\"code\":\"THROTTLED\"},\"path\":[\"x\"]}]}",
            (Backoff, None, NONE),
        ),
        (
            "200 | {\"errors\":[{\"message\":\"Too many requests, please try again in 10 seconds.\",\"path\":[\"x\"]}],\"data\":{\"x\":null}}",
            (Throttled, Some(10.0), NONE),
        ),
        (
            "200 | {\"errors\":[{\"message\":\"You are trying to access 'x' too often\"}],\"data\":{\"x\":null}}",
            (Backoff, None, NONE),
        ),
        (
            "200 | {\"errors\":[{\"message\":\"x\",\"extensions\":{\"http\":{\"status\":429}}}],\"data\":null}",
            (Backoff, None, NONE),
        ),
        // Something was done, or the answer does not complain about a limit.
        ("200 | {\"errors\":[{\"message\":\"Too many requests to y\"}],\"data\":{\"x\":1,\"y\":null}}", (Ok, GO, NONE)),
        (
            "200 | {\"errors\":[{\"message\":\"x\",\"extensions\":{\"http\":{\"status\":400}}}],\"data\":null}",
            (Ok, GO, NONE),
        ),
        (
            "200 | {\"data\":{\"retry_after\":5,\"code\":\"RATE_LIMITED\",\"error\":\"Rate limit exceeded\"}}",
            (Ok, GO, NONE),
        ),
        ("200 | {\"items\":[],\"quota_max\":300,\"quota_remaining\":0}", (Exhausted, None, counts(300.0, 0.0))),
        ("200 | {\"backoff\":10}", (Ok, GO, NONE)),
        (
            "400 | {\"error_id\":502,\"error_name\":\"throttle_violation\",\"error_message\":\"too many requests from this IP, more requests available in 48500 seconds\"}",
            (Throttled, Some(48_500.0), NONE),
        ),
        ("401 | Rate Limit Exceeded", (Backoff, None, NONE)),
        ("401 | Unauthorized", (Ok, GO, NONE)),
        (
            "503 | {\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"violated-policies\":[\"hourly\"]}",
            (Backoff, None, NONE),
        ),
        (
            "200 | {\"errors\":[{\"extensions\":{\"code\":\"THROTTLED\"}}],\"extensions\":{\"cost\":{\"requestedQueryCost\":100,\"throttleStatus\":{\"maximumAvailable\":1000,\"currentlyAvailable\":950,\"restoreRate\":50}}}}",
            (Backoff, None, bucket(1000.0, 950.0, 1.0)),
        ),
    ]);
}
