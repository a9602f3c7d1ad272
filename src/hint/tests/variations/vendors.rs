//! Fields that one vendor alone sends.

use super::{GO, NONE, bucket, check, counts};
use crate::Signal::{Backoff, Exhausted, FatalQuota, Ok, Slow, Throttled};

#[test]
fn names_and_values_of_their_own_are_read() {
    check(&[
        ("200 | x-shopify-shop-api-call-limit: 40/40", (Exhausted, None, counts(40.0, 0.0))),
        (
            "429 | http_x_shopify_shop_api_call_limit: 80/80 | retry-after: 1.0",
            (Throttled, Some(1.0), counts(80.0, 0.0)),
        ),
        (
            "403 | sforce-limit-info: api-usage=5000/5000 | [{\"errorCode\":\"REQUEST_LIMIT_EXCEEDED\",\"message\":\"TotalRequests Limit exceeded.\"}]",
            (FatalQuota, None, counts(5000.0, 0.0)),
        ),
        (
            "200 | sforce-limit-info: api-usage=25/5000; per-app-api-usage=17/250(appName=sample-connected-app)",
            (Ok, GO, counts(250.0, 233.0)),
        ),
        ("200 | x-app-rate-limit: 100:120,20:1 | x-app-rate-limit-count: 3:1,57:120", (Ok, GO, counts(100.0, 43.0))),
        (
            "429 | x-app-rate-limit: 100:120,20:1 | x-app-rate-limit-count: 20:1,57:120",
            (Throttled, Some(1.0), counts(20.0, 0.0)),
        ),
        (
            "429 | x-rate-limit-rules: Ip | x-rate-limit-ip: 8:10:60,15:60:120 | x-rate-limit-ip-state: 9:10:60,3:60:0",
            (Throttled, Some(60.0), bucket(8.0, 0.0, 60.0)),
        ),
        (
            "200 | x-rate-limit-rules: Ip | x-rate-limit-ip: 8:10:60 | x-rate-limit-ip-state: 3:10:0",
            (Ok, GO, counts(8.0, 5.0)),
        ),
        (
            "429 | x-ratelimit-limit: 200,2000 | x-ratelimit-usage: 10,2001",
            (Throttled, Some(43_200.0), bucket(2000.0, 0.0, 43_200.0)),
        ),
        (
            "200 | x-readratelimit-limit: 100,1000 | x-readratelimit-usage: 100,200 | x-ratelimit-limit: 200,2000 | x-ratelimit-usage: 100,200",
            (Exhausted, Some(900.0), bucket(100.0, 0.0, 900.0)),
        ),
        (
            "200 | x-limit-per-second: 10 | x-remaining-this-second: 0 | x-limit-per-day: 10000 | x-remaining-today: 9998",
            (Exhausted, Some(1.0), counts(10.0, 0.0)),
        ),
        (
            "429 | x-rate-limit-problem: concurrent | x-minlimit-remaining: 50 | x-daylimit-remaining: 4000 | retry-after: 1",
            (Throttled, Some(1.0), [None, Some(50.0), None]),
        ),
        (
            "200 | zendesk-ratelimit-search: total=100; remaining=0; resets=41 | ratelimit-limit: 700 | ratelimit-remaining: 600 | ratelimit-reset: 20",
            (Exhausted, Some(41.0), bucket(100.0, 0.0, 41.0)),
        ),
        ("429 | x-amzn-ratelimit-limit: 0.0167", (Throttled, Some(59.880_239_521), [Some(0.0167), None, None])),
        (
            "429 | x-sentry-rate-limits: 60:error:organization, 2700::organization:quota",
            (Throttled, Some(2700.0), NONE),
        ),
        (
            "200 | x-app-usage: {\"call_count\":85,\"total_cputime\":10,\"total_time\":15}",
            (Slow, GO, [Some(1.0), Some(1.0 - 0.85), None]),
        ),
        (
            "400 | x-business-use-case-usage: {\"1\":[{\"type\":\"ads_insights\",\"call_count\":100,\"total_cputime\":2,\"total_time\":5,\"estimated_time_to_regain_access\":19}]} | {\"error\":{\"type\":\"OAuthException\",\"code\":80000}}",
            (Throttled, Some(1140.0), bucket(1.0, 0.0, 1140.0)),
        ),
        (
            "403 | {\"error\":{\"message\":\"(#4) Application request limit reached\",\"type\":\"OAuthException\",\"code\":4}}",
            (Backoff, None, NONE),
        ),
        ("200 | x-ms-throttle-limit-percentage: 1.2 | x-ms-throttle-scope: Tenant/Read", (Slow, GO, counts(1.0, 0.0))),
        ("429 | stripe-rate-limited-reason: endpoint-rate", (Backoff, None, NONE)),
        (
            "200 | anthropic-ratelimit-unified-status: allowed | anthropic-ratelimit-unified-5h-status: allowed | anthropic-ratelimit-unified-5h-reset: 1780320000 | anthropic-ratelimit-unified-5h-utilization: 0.02 | anthropic-ratelimit-unified-reset: 1780320000",
            (Ok, GO, bucket(1.0, 0.98, 4800.0)),
        ),
        (
            "429 | anthropic-ratelimit-unified-status: rejected | anthropic-ratelimit-unified-5h-status: rejected | anthropic-ratelimit-unified-5h-reset: 1780320000 | anthropic-ratelimit-unified-7d-status: rejected | anthropic-ratelimit-unified-7d-reset: 1780330000 | anthropic-ratelimit-unified-overage-status: rejected | anthropic-ratelimit-unified-overage-reset: 1790000000",
            (Throttled, Some(14_800.0), [None, Some(0.0), Some(14_800.0)]),
        ),
        (
            "429 | anthropic-ratelimit-unified-status: rejected | anthropic-ratelimit-unified-reset: 1780320000",
            (Throttled, Some(4800.0), [None, Some(0.0), Some(4800.0)]),
        ),
        (
            "200 | x-ratelimit-limit: 5 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1780315300.5 | x-ratelimit-reset-after: 0.85 | x-ratelimit-bucket: a",
            (Exhausted, Some(0.85), bucket(5.0, 0.0, 0.85)),
        ),
        (
            "429 | retry-after: 2 | x-ratelimit-limit: 5 | x-ratelimit-remaining: 4 | x-ratelimit-reset-after: 600 | x-ratelimit-bucket: a | x-ratelimit-scope: shared",
            (Throttled, Some(2.0), bucket(5.0, 4.0, 600.0)),
        ),
        (
            "429 | retry-after: 1233 | x-ratelimit-limit: 5 | x-ratelimit-remaining: 0 | x-ratelimit-reset-after: 1.233 | x-ratelimit-bucket: a | x-ratelimit-scope: user",
            (Throttled, Some(1.233), bucket(5.0, 0.0, 1.233)),
        ),
        ("200 | x-mbx-used-weight-1m: 1200 | x-sapi-used-ip-weight-1m: 5", (Ok, GO, NONE)),
        (
            "200 | grpc-status: 0 | x-ratelimit-limit: 10, 10;w=60 | x-ratelimit-remaining: 3 | x-ratelimit-reset: 37",
            (Ok, GO, bucket(10.0, 3.0, 37.0)),
        ),
        ("200 | grpc-status: 14", (Backoff, None, NONE)),
        ("200 | grpc-status: 8 | grpc-retry-pushback-ms: 700", (Throttled, Some(0.7), NONE)),
        ("200 | x-ratelimit-limit: 350 | x-ratelimit-nearlimit: true", (Slow, GO, [Some(350.0), None, None])),
        (
            "429 | x-ratelimit-limit: 350 | x-ratelimit-nearlimit: false | x-ratelimit-resource: api",
            (Backoff, None, [Some(350.0), None, None]),
        ),
    ]);
}
