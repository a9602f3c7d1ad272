//! Gateways and registries, which send their own variants of the fields in the IETF's drafts.

use super::{
    ietf::{REMAINING, RESET, SECONDS},
    words::{BARE, DialectRow},
};

pub(super) const ROWS: &[DialectRow] = &[
    DialectRow {
        name: "kong",
        help: "RateLimit-* and the window in a name: X-RateLimit-Limit-Minute; Retry-After",
        always: &[
            ("ratelimit-limit", "$limit"),
            REMAINING,
            RESET,
            ("x-ratelimit-limit-$unit", "$limit"),
            ("x-ratelimit-remaining-$unit", "$remaining"),
        ],
        refused: &[SECONDS],
        complaint: r#"{"message":"API rate limit exceeded"}"#,
        ..BARE
    },
    DialectRow {
        name: "envoy",
        help: "draft-03 under X- names: x-ratelimit-limit: 100, 100;w=60; no Retry-After",
        always: &[
            ("x-ratelimit-limit", "$limit, $limit$w"),
            ("x-ratelimit-remaining", "$remaining"),
            ("x-ratelimit-reset", "$reset.s"),
        ],
        refused: &[("x-envoy-ratelimited", "true")],
        complaint: "",
        ..BARE
    },
    DialectRow {
        name: "gravitee",
        help: "x-rate-limit-reset in epoch milliseconds; no Retry-After",
        always: &[
            ("x-rate-limit-limit", "$limit"),
            ("x-rate-limit-remaining", "$remaining"),
            ("x-rate-limit-reset", "$reset.epoch_ms"),
        ],
        complaint: r#"{"message":"Rate limit exceeded !","http_status_code":429}"#,
        ..BARE
    },
    DialectRow {
        name: "docker",
        help: "ratelimit-limit: 100;w=21600, the window on both counts and no reset",
        always: &[
            ("ratelimit-limit", "$limit$w"),
            ("ratelimit-remaining", "$remaining$w"),
            ("docker-ratelimit-source", "192.0.2.1"),
        ],
        complaint: r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit."}]}"#,
        ..BARE
    },
    DialectRow {
        name: "cloudflare",
        help: "x-ratelimit-reset as an HTTP date; retry-after",
        always: &[
            ("x-ratelimit-limit", "$limit"),
            ("x-ratelimit-remaining", "$remaining"),
            ("x-ratelimit-reset", "$reset.date"),
        ],
        refused: &[SECONDS],
        ..BARE
    },
];
