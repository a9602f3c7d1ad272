//! The variables of the environment that every OpenTelemetry SDK reads. An invalid value is ignored with a warning, as
//! the specification requires.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::endpoint::OtlpUrl;
use crate::{
    config::diagnostic::{Diagnostic, Place, Spanned},
    trace::Sampler,
};

/// Values of the variables that andante reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtelVariables(Vec<(&'static str, OtelText)>);

/// The text of a variable, which may hold a credential: never shown.
#[derive(Clone, PartialEq, Eq)]
struct OtelText(String);

const NAMES: [&str; 21] = [
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_METRIC_EXPORT_INTERVAL",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];

/// The protocol that andante speaks.
const HTTP: &str = "http/protobuf";

// === impl OtelVariables ===

impl OtelVariables {
    /// Reads the variables by `variable`. An empty one counts as unset.
    pub(in crate::config) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        Self(NAMES.into_iter().filter_map(|name| Some((name, OtelText(text(name)?)))).collect())
    }

    /// Returns these variables, or `weaker` if there are none.
    pub(in crate::config) fn or(self, weaker: Self) -> Self {
        if self.0.is_empty() { weaker } else { self }
    }

    pub(super) fn of(&self, name: &str) -> Option<&str> {
        debug_assert!(NAMES.contains(&name), "{name} is not read");
        self.0.iter().find(|(known, _)| *known == name).map(|(_, text)| text.0.as_str())
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.of(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    pub(super) fn url(&self, name: &str, problems: &mut Vec<Diagnostic>) -> Option<OtlpUrl> {
        let read = self.of(name)?.parse();
        read.map_err(|hint: &str| problems.push(ignored(name, "expected the URL of a collector", hint))).ok()
    }

    /// A whole number from 1.
    pub(super) fn number(&self, name: &str, problems: &mut Vec<Diagnostic>) -> Option<u64> {
        let read = self.of(name)?.parse().ok().filter(|number| *number > 0);
        if read.is_none() {
            problems.push(ignored(name, "expected a whole number from 1", "write 5000"));
        }
        read
    }

    /// Pairs such as `team=data,stage=test`, their values decoded as in URLs.
    pub(super) fn pairs(&self, name: &str, problems: &mut Vec<Diagnostic>) -> Vec<(String, String)> {
        let text = self.of(name).unwrap_or_default();
        let pair = |text: &str| {
            let (key, value) = text.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            (!key.trim().is_empty()).then(|| (key.trim().to_owned(), value.into_owned()))
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let read: Vec<_> = parts.map(pair).collect();
        if read.contains(&None) {
            problems.push(ignored(
                name,
                "expected pairs, found something else among them",
                "write key=value,key=value",
            ));
        }
        read.into_iter().flatten().collect()
    }

    /// Fields for a signal: its own after the common ones.
    pub(super) fn headers(&self, signal: &str, problems: &mut Vec<Diagnostic>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in ["OTEL_EXPORTER_OTLP_HEADERS", &format!("OTEL_EXPORTER_OTLP_{signal}_HEADERS")] {
            for (key, value) in self.pairs(name, problems) {
                let field = HeaderName::try_from(key).ok().zip(HeaderValue::try_from(value).ok());
                match field {
                    Some((key, mut value)) => {
                        value.set_sensitive(true);
                        headers.insert(key, value);
                    }
                    None => problems.push(ignored(
                        name,
                        "expected header fields, found something else",
                        "write api-key=KEY",
                    )),
                }
            }
        }
        headers
    }

    pub(super) fn sampler(&self, problems: &mut Vec<Diagnostic>) -> Sampler {
        let Some(name) = self.of("OTEL_TRACES_SAMPLER") else { return Sampler::default() };
        let sampler = Sampler::named(name, self.of("OTEL_TRACES_SAMPLER_ARG"));
        sampler.unwrap_or_else(|| {
            let hint = format!("write {}, with a ratio from 0 to 1 in OTEL_TRACES_SAMPLER_ARG", Sampler::NAMES);
            problems.push(ignored(
                "OTEL_TRACES_SAMPLER",
                "andante knows no such sampler, or not with this argument",
                &hint,
            ));
            Sampler::default()
        })
    }

    /// Returns whether the environment asks for andante's protocol, or names none.
    pub(super) fn speaks_http(&self, signal: &str, problems: &mut Vec<Diagnostic>) -> bool {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_PROTOCOL");
        let names = [own.as_str(), "OTEL_EXPORTER_OTLP_PROTOCOL"];
        let Some((name, protocol)) = names.into_iter().find_map(|name| Some((name, self.of(name)?))) else {
            return true;
        };
        if protocol == HTTP {
            return true;
        }
        let hint =
            "name the collector's address for HTTP, as in --otlp http://collector.example:4318, or say --otlp off";
        let problem = ignored(name, "andante exports by http/protobuf alone, and exports nothing here", hint);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
        false
    }
}

impl std::fmt::Debug for OtelText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

fn ignored(name: &str, what: &str, hint: &str) -> Diagnostic {
    let at = Spanned { place: Place::Variable(name.to_owned().into()), ..Spanned::default(()) };
    Diagnostic::warning(&at, what, hint)
}
