//! APIs of language models: one bucket per dimension (requests, tokens); a reset means that its bucket is full again.

use super::{
    ietf::SECONDS,
    words::{BARE, DialectRow},
};

const LIMIT: (&str, &str) = ("x-ratelimit-limit-requests", "$limit");
const REMAINING: (&str, &str) = ("x-ratelimit-remaining-requests", "$remaining");
const RESET: (&str, &str) = ("x-ratelimit-reset-requests", "$reset.go");
const COMPLAINT: &str =
    r#"{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;

pub(super) const ROWS: &[DialectRow] = &[
    DialectRow {
        name: "openai",
        help: "x-ratelimit-reset-requests as a Go duration (6m0s), an unused tokens bucket; retry-after(-ms)",
        always: &[
            LIMIT,
            REMAINING,
            RESET,
            ("x-ratelimit-limit-tokens", "4000000"),
            ("x-ratelimit-remaining-tokens", "4000000"),
            // The bucket of tokens is full, hence zero. Clients must still wait for the bucket of requests.
            ("x-ratelimit-reset-tokens", "0s"),
        ],
        refused: &[("retry-after-ms", "$wait.ms"), SECONDS],
        complaint: COMPLAINT,
        ..BARE
    },
    DialectRow {
        name: "groq",
        help: "as openai, with retry-after alone, and nothing about tokens",
        always: &[LIMIT, REMAINING, RESET],
        refused: &[SECONDS],
        complaint: COMPLAINT,
        ..BARE
    },
    DialectRow {
        name: "anthropic",
        help: "anthropic-ratelimit-requests-reset in RFC 3339, a tokens bucket with room; retry-after",
        always: &[
            ("anthropic-ratelimit-requests-limit", "$limit"),
            ("anthropic-ratelimit-requests-remaining", "$remaining"),
            ("anthropic-ratelimit-requests-reset", "$reset.rfc3339"),
            ("anthropic-ratelimit-tokens-limit", "400000"),
            ("anthropic-ratelimit-tokens-remaining", "400000"),
            ("anthropic-ratelimit-tokens-reset", "$reset.rfc3339"),
        ],
        refused: &[SECONDS],
        complaint: concat!(
            r#"{"type":"error","error":{"type":"rate_limit_error","#,
            r#""message":"This request would exceed your organization's rate limit."}}"#
        ),
        ..BARE
    },
    DialectRow {
        name: "azure",
        help: "Azure OpenAI: retry-after-ms and retry-after, counts without a reset",
        always: &[LIMIT, REMAINING],
        refused: &[("retry-after-ms", "$wait.ms"), SECONDS],
        complaint: r#"{"error":{"code":"429","message":"Requests have exceeded call rate limit. Please retry."}}"#,
        ..BARE
    },
    DialectRow {
        name: "together",
        help: "x-ratelimit-reset in seconds, on 429 alone",
        refused: &[("x-ratelimit-reset", "$wait.s")],
        complaint: r#"{"error":{"message":"Rate limited","type":"dynamic_request_limited"}}"#,
        ..BARE
    },
];
