//! Standards: `Retry-After` in every form, and the four generations of the IETF's RateLimit fields.

use super::words::{BARE, DialectRow};

/// `Retry-After` in whole seconds (RFC 9110 §10.2.3).
pub(super) const SECONDS: (&str, &str) = ("retry-after", "$wait.s");
/// Remaining requests, in the field of draft-00 to draft-06, which many other APIs use as well.
pub(super) const REMAINING: (&str, &str) = ("ratelimit-remaining", "$remaining");
/// Seconds until the reset, in the field of draft-00 to draft-06.
pub(super) const RESET: (&str, &str) = ("ratelimit-reset", "$reset.s");

pub(super) const ROWS: &[DialectRow] = &[
    // The first row is the default dialect.
    DialectRow {
        name: "retry-after",
        help: "429 with Retry-After in seconds, nothing before that (RFC 9110)",
        refused: &[SECONDS],
        ..BARE
    },
    DialectRow {
        name: "retry-after-date",
        help: "429 with Retry-After as an HTTP date (RFC 9110)",
        refused: &[("retry-after", "$wait.date")],
        ..BARE
    },
    DialectRow {
        name: "retry-after-ms",
        help: "429 with retry-after-ms alone (Azure App Configuration)",
        refused: &[("retry-after-ms", "$wait.ms")],
        ..BARE
    },
    DialectRow { name: "none", help: "a bare 429: the limit has to be found out", ..BARE },
    DialectRow {
        name: "ietf",
        help: "RateLimit: \"default\";r=…;t=… and RateLimit-Policy (draft-08 and later), Retry-After",
        always: &[("ratelimit-policy", "\"default\";q=$limit$w"), ("ratelimit", "\"default\";r=$remaining;t=$reset.s")],
        refused: &[SECONDS],
        complaint: concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""violated-policies":["default"]}"#
        ),
        ..BARE
    },
    DialectRow {
        name: "ietf-draft7",
        help: "RateLimit: limit=…, remaining=…, reset=… (draft-07), Retry-After",
        always: &[
            ("ratelimit-policy", "$limit$w"),
            ("ratelimit", "limit=$limit, remaining=$remaining, reset=$reset.s"),
        ],
        refused: &[SECONDS],
        ..BARE
    },
    DialectRow {
        name: "ietf-draft6",
        help: "RateLimit-Limit, -Remaining, -Reset and -Policy (draft-04 to 06), Retry-After",
        always: &[("ratelimit-policy", "$limit$w"), ("ratelimit-limit", "$limit"), REMAINING, RESET],
        refused: &[SECONDS],
        ..BARE
    },
    DialectRow {
        name: "ietf-draft3",
        help: "RateLimit-Limit: 100, 100;w=60 with the policy inside (draft-00 to 03), and no Retry-After",
        always: &[("ratelimit-limit", "$limit, $limit$w"), REMAINING, RESET],
        ..BARE
    },
];
