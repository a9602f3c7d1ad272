//! Services with their own APIs, grouped by the format of the reset.

use super::{
    ietf::SECONDS,
    words::{BARE, DialectRow},
};

const LIMIT: (&str, &str) = ("x-ratelimit-limit", "$limit");
const REMAINING: (&str, &str) = ("x-ratelimit-remaining", "$remaining");
const USED: (&str, &str) = ("x-ratelimit-used", "$used");

pub(super) const ROWS: &[DialectRow] = &[
    // === epoch seconds ===
    DialectRow {
        name: "github",
        help: "x-ratelimit-reset in epoch seconds; refuses with 403 and no Retry-After",
        always: &[LIMIT, REMAINING, USED, ("x-ratelimit-reset", "$reset.epoch"), ("x-ratelimit-resource", "core")],
        // GitHub documents "403 or 429"; 403 reveals clients that only recognise 429.
        status: 403,
        complaint: r#"{"message":"API rate limit exceeded for user ID 1."}"#,
        ..BARE
    },
    DialectRow {
        name: "github-secondary",
        help: "403 with retry-after, while the numbers are another bucket's, which has room",
        always: &[
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4312"),
            ("x-ratelimit-used", "688"),
            ("x-ratelimit-reset", "$hour"),
            ("x-ratelimit-resource", "core"),
        ],
        refused: &[SECONDS],
        status: 403,
        complaint: r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}"#,
        ..BARE
    },
    DialectRow {
        name: "graphql",
        help: "GitHub GraphQL: as github, but refuses with 200 and errors in the body",
        always: &[LIMIT, REMAINING, USED, ("x-ratelimit-reset", "$reset.epoch"), ("x-ratelimit-resource", "graphql")],
        status: 200,
        complaint: r#"{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded for user ID 1."}]}"#,
        members: r#","data":{}"#,
        ..BARE
    },
    DialectRow {
        name: "gitlab",
        help: "RateLimit-Reset in epoch seconds under the IETF's name; Retry-After",
        always: &[
            ("ratelimit-limit", "$limit"),
            ("ratelimit-name", "throttle_authenticated_api"),
            ("ratelimit-observed", "$used"),
            ("ratelimit-remaining", "$remaining"),
            ("ratelimit-reset", "$reset.epoch"),
        ],
        refused: &[("ratelimit-resettime", "$reset.date"), SECONDS],
        complaint: "Retry later\n",
        ..BARE
    },
    DialectRow {
        name: "twitter",
        help: "x-rate-limit-reset in epoch seconds, rounded down; no Retry-After",
        always: &[
            ("x-rate-limit-limit", "$limit"),
            ("x-rate-limit-remaining", "$remaining"),
            ("x-rate-limit-reset", "$reset.epoch_down"),
        ],
        complaint: r#"{"title":"Too Many Requests","detail":"Too Many Requests","type":"about:blank","status":429}"#,
        ..BARE
    },
    DialectRow {
        name: "discord",
        help: "X-RateLimit-Reset and -Reset-After with decimals; Retry-After, retry_after in the body",
        always: &[
            LIMIT,
            REMAINING,
            ("x-ratelimit-reset", "$reset.epoch_millis"),
            ("x-ratelimit-reset-after", "$reset.millis"),
            ("x-ratelimit-bucket", "abcd1234"),
        ],
        refused: &[("x-ratelimit-scope", "user"), SECONDS],
        complaint: r#"{"message":"You are being rate limited.","retry_after":$wait.millis,"global":false}"#,
        ..BARE
    },
    // === seconds from now ===
    DialectRow {
        name: "reddit",
        help: "x-ratelimit-reset in seconds, remaining 57.0, no limit; 429 with no body",
        always: &[USED, ("x-ratelimit-remaining", "$remaining.0"), ("x-ratelimit-reset", "$reset.s")],
        complaint: "",
        ..BARE
    },
    DialectRow {
        name: "zendesk",
        help: "x-rate-limit, ratelimit-* and zendesk-ratelimit-…: total=100; remaining=99; resets=41; Retry-After",
        always: &[
            ("x-rate-limit", "$limit"),
            ("x-rate-limit-remaining", "$remaining"),
            ("ratelimit-limit", "$limit"),
            ("ratelimit-remaining", "$remaining"),
            ("ratelimit-reset", "$reset.s"),
            ("zendesk-ratelimit-incremental-exports", "total=$limit; remaining=$remaining; resets=$reset.s"),
        ],
        refused: &[SECONDS],
        ..BARE
    },
    DialectRow {
        name: "klaviyo",
        help: "RateLimit-Limit: 10, 10;w=1, 150;w=60, the counts are the second window's; Retry-After",
        always: &[
            ("ratelimit-limit", "$burst, $burst;w=1, $limit$w"),
            ("ratelimit-remaining", "$remaining"),
            ("ratelimit-reset", "$reset.s"),
        ],
        refused: &[SECONDS],
        complaint: r#"{"errors":[{"status":429,"code":"throttled","title":"Request was throttled."}]}"#,
        ..BARE
    },
    // === dates ===
    DialectRow {
        name: "mastodon",
        help: "X-RateLimit-Reset in RFC 3339 with microseconds; no Retry-After",
        always: &[LIMIT, REMAINING, ("x-ratelimit-reset", "$reset.rfc3339_6")],
        ..BARE
    },
    DialectRow {
        name: "atlassian",
        help: "X-RateLimit-Reset in RFC 3339, -NearLimit under a fifth; Retry-After",
        always: &[LIMIT, REMAINING, ("x-ratelimit-reset", "$reset.rfc3339"), ("x-ratelimit-nearlimit", "$near")],
        refused: &[SECONDS, ("ratelimit-reason", "confluence-quota-global-based")],
        ..BARE
    },
    DialectRow {
        name: "zoom",
        help: "counts without a reset; Retry-After in RFC 3339",
        always: &[("x-ratelimit-category", "Heavy"), ("x-ratelimit-type", "Daily-limit"), LIMIT, REMAINING],
        refused: &[("retry-after", "$wait.rfc3339")],
        complaint: r#"{"code":429,"message":"You have reached the maximum daily rate limit for this API."}"#,
        ..BARE
    },
    DialectRow {
        name: "mailgun",
        help: "420 with a date in the body's text: try again after Mon, 25 Aug 2025 07:00:31 UTC",
        status: 420,
        complaint: r#"{"message":"Domain example.com is not allowed to send: recipient limit exceeded, try again after $wait.date_utc"}"#,
        ..BARE
    },
    // === milliseconds ===
    DialectRow {
        name: "linear",
        help: "X-RateLimit-Requests-Reset in epoch milliseconds; refuses with 400 and RATELIMITED",
        always: &[
            ("x-ratelimit-requests-limit", "$limit"),
            ("x-ratelimit-requests-remaining", "$remaining"),
            ("x-ratelimit-requests-reset", "$reset.epoch_ms"),
        ],
        status: 400,
        complaint: r#"{"errors":[{"message":"Rate limit exceeded","extensions":{"code":"RATELIMITED"}}]}"#,
        ..BARE
    },
    DialectRow {
        name: "bigcommerce",
        help: "X-Rate-Limit-Time-Reset-Ms, -Requests-Left and -Time-Window-Ms",
        always: &[
            ("x-rate-limit-requests-left", "$remaining"),
            ("x-rate-limit-requests-quota", "$limit"),
            ("x-rate-limit-time-reset-ms", "$reset.ms"),
            ("x-rate-limit-time-window-ms", "$window_ms"),
        ],
        ..BARE
    },
    DialectRow {
        name: "tiendanube",
        help: "x-rate-limit-reset: 1000 in milliseconds from now, which nothing says",
        always: &[
            ("x-rate-limit-limit", "$limit"),
            ("x-rate-limit-remaining", "$remaining"),
            ("x-rate-limit-reset", "$reset.ms"),
        ],
        ..BARE
    },
    DialectRow {
        name: "hubspot",
        help: "X-HubSpot-RateLimit-Max and -Interval-Milliseconds, no reset; for limits per 10s",
        always: &[
            ("x-hubspot-ratelimit-interval-milliseconds", "$window_ms"),
            ("x-hubspot-ratelimit-max", "$limit"),
            ("x-hubspot-ratelimit-remaining", "$remaining"),
        ],
        complaint: concat!(
            r#"{"status":"error","message":"You have reached your secondly limit.","#,
            r#""errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING"}"#
        ),
        ..BARE
    },
    // === no reset ===
    DialectRow {
        name: "shopify",
        help: "X-Shopify-Shop-Api-Call-Limit: 32/40, used of all; Retry-After: 2.0",
        always: &[("x-shopify-shop-api-call-limit", "$used/$limit")],
        refused: &[("retry-after", "$wait.tenths")],
        complaint: r#"{"errors":"Exceeded 2 calls per second for api client. Reduce request rates to resume uninterrupted service."}"#,
        ..BARE
    },
    DialectRow {
        name: "shopify-graphql",
        help: "throttleStatus in every body, refuses with 200 and THROTTLED; for --window bucket",
        status: 200,
        complaint: concat!(
            r#"{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"#,
            r#""requestedQueryCost":1,"throttleStatus":{"maximumAvailable":$limit.0,"#,
            r#""currentlyAvailable":$remaining.0,"restoreRate":$rate}}}}"#
        ),
        members: concat!(
            r#","extensions":{"cost":{"requestedQueryCost":1,"actualQueryCost":1,"throttleStatus":{"#,
            r#""maximumAvailable":$limit.0,"currentlyAvailable":$remaining.0,"restoreRate":$rate}}}"#
        ),
        ..BARE
    },
    DialectRow {
        name: "slack",
        help: "429 with Retry-After, ok: false in the body",
        refused: &[SECONDS],
        complaint: r#"{"ok":false,"error":"ratelimited"}"#,
        ..BARE
    },
    DialectRow {
        name: "spotify",
        help: "429 with Retry-After rounded down, which makes it 0 under a second",
        refused: &[("retry-after", "$wait.s_down")],
        complaint: r#"{"error":{"status":429,"message":"API rate limit exceeded"}}"#,
        ..BARE
    },
    DialectRow {
        name: "telegram",
        help: "429 with retry_after in the body alone",
        complaint: concat!(
            r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after $wait.s","#,
            r#""parameters":{"retry_after":$wait.s}}"#
        ),
        ..BARE
    },
    DialectRow {
        name: "binance",
        help: "the used count under a name with the window: x-mbx-used-weight-1m; Retry-After",
        always: &[("x-mbx-used-weight-$interval", "$used")],
        refused: &[SECONDS],
        complaint: r#"{"code":-1003,"msg":"Too many requests."}"#,
        ..BARE
    },
    DialectRow {
        name: "salesforce",
        help: "Sforce-Limit-Info: api-usage=135/5000; refuses with 403",
        always: &[("sforce-limit-info", "api-usage=$used/$limit")],
        status: 403,
        complaint: r#"[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#,
        ..BARE
    },
    DialectRow {
        name: "musicbrainz",
        help: "503 with Retry-After, while the numbers are those of the whole world",
        always: &[("x-ratelimit-zone", "search"), ("x-ratelimit-limit", "1900"), ("x-ratelimit-remaining", "269")],
        refused: &[SECONDS],
        status: 503,
        complaint: r#"{"error":"The MusicBrainz web server is currently busy. Please try again later."}"#,
        ..BARE
    },
    DialectRow {
        name: "kraken",
        help: "200 with an error in an array, and nothing else",
        status: 200,
        complaint: r#"{"error":["EAPI:Rate limit exceeded"]}"#,
        ..BARE
    },
];
