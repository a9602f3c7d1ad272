//! Grammar of an OpenTelemetry collector's URL.

use super::grammar::{Grammar, ParseHint};
use crate::config::otlp::OtlpUrl;

pub(in crate::config) const OTLP: Grammar<Option<OtlpUrl>> = Grammar {
    expected: "the URL of an OpenTelemetry collector, or \"off\"",
    example: "\"http://collector.example:4318\" or \"off\"",
    read: |text| match text {
        "off" => Ok(None),
        url => url.parse().map(Some).map_err(|instead: &str| ParseHint::hint(instead)),
    },
};
