//! The format of `/metrics`, which depends on the reader's `Accept`.

use http::{HeaderMap, HeaderValue, header::ACCEPT};

use crate::metrics::Metrics;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposition {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0, which supports exemplars.
    OpenMetrics,
}

/// Versions of OpenMetrics with the same text as 1.0.
const VERSIONS: [&str; 2] = ["1.0.0", "0.0.1"];

// === impl Exposition ===

impl Exposition {
    /// The format that these fields ask for: OpenMetrics where it is named, and no other format has a higher
    /// weight.
    pub(super) fn accepted(fields: &HeaderMap) -> Self {
        let ranges =
            || fields.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        let weight = |kind: &str| ranges().filter_map(|range| weight(range, kind)).reduce(f32::max).unwrap_or(0.0);
        let (openmetrics, text) = (weight("application/openmetrics-text"), weight("text/plain"));
        if openmetrics > 0.0 && openmetrics >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// Value of `Content-Type`.
    pub(super) fn kind(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        })
    }

    /// All `metrics` in this format.
    pub(super) fn write(self, metrics: &Metrics) -> String {
        match self {
            Self::Text => metrics.render(),
            Self::OpenMetrics => metrics.render_openmetrics(),
        }
    }
}

/// Weight of a range of `Accept` for `kind` (RFC 9110 §12.5.1), if the range includes it, in a known version.
fn weight(range: &str, kind: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    parts.next().filter(|name| name.eq_ignore_ascii_case(kind))?;
    let mut weight = 1.0;
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.eq_ignore_ascii_case("q") {
            weight = value.parse().ok()?;
        } else if name.eq_ignore_ascii_case("version") && kind.starts_with("application/") && !VERSIONS.contains(&value)
        {
            return None;
        }
    }
    Some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(accept: &str) -> Exposition {
        let mut fields = HeaderMap::new();
        if !accept.is_empty() {
            fields.insert(ACCEPT, accept.parse().unwrap());
        }
        Exposition::accepted(&fields)
    }

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        // Prometheus 3.
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in [prometheus, "application/openmetrics-text", "Application/OpenMetrics-Text; version=\"1.0.0\""] {
            assert_eq!(accepted(accept), Exposition::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text; version=2.0.0",
            "application/openmetrics-text; q=0",
            "text/plain, application/openmetrics-text; q=0.5",
        ] {
            assert_eq!(accepted(accept), Exposition::Text, "{accept}");
        }
    }
}
