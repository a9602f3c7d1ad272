//! Cloud providers, which report most in the body, and refuse with various statuses.

use super::words::{BARE, DialectRow};

pub(super) const ROWS: &[DialectRow] = &[
    DialectRow {
        name: "gcp",
        help: "Google: 429 with RetryInfo in the body (retryDelay: \"45.837906927s\"), no fields",
        complaint: concat!(
            r#"{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","#,
            r#""status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","#,
            r#""retryDelay":"$wait.proto"}]}}"#
        ),
        ..BARE
    },
    DialectRow {
        name: "aws",
        help: "400 with ThrottlingException in the body, and no word on when",
        status: 400,
        refused: &[("content-type", "application/x-amz-json-1.1")],
        complaint: r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#,
        ..BARE
    },
    DialectRow {
        name: "aws-s3",
        help: "503 with SlowDown in XML",
        status: 503,
        refused: &[("content-type", "application/xml")],
        complaint: "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
        ..BARE
    },
    DialectRow {
        name: "amazon-sp",
        help: "x-amzn-RateLimit-Limit as a rate per second (0.5), also on success; no Retry-After",
        always: &[("x-amzn-ratelimit-limit", "$rate")],
        complaint: r#"{"errors":[{"code":"QuotaExceeded","message":"You exceeded your quota for the requested resource."}]}"#,
        ..BARE
    },
    DialectRow {
        name: "azure-cosmos",
        help: "429 with x-ms-retry-after-ms alone",
        refused: &[("x-ms-retry-after-ms", "$wait.ms")],
        complaint: r#"{"code":"429","message":"Request rate is large."}"#,
        ..BARE
    },
    DialectRow {
        name: "azure-apim",
        help: "429 with Retry-After in RFC 3339, seven decimals",
        refused: &[("retry-after", "$wait.rfc3339_7")],
        complaint: r#"{"statusCode":429,"message":"Rate limit is exceeded."}"#,
        ..BARE
    },
];
