//! Export of traces and metrics: the key `otlp`, and the variables that every OpenTelemetry SDK reads
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>,
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>).

mod endpoint;
mod variables;

use std::time::Duration;

pub use self::endpoint::{OtlpEndpoint, OtlpUrl};
pub(super) use self::variables::OtelVariables;
use super::diagnostic::Diagnostic;
use crate::trace::Sampler;

/// Settings for the export of traces and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpConfig {
    /// Endpoint for spans; `None` records none.
    pub traces: Option<OtlpEndpoint>,
    /// Endpoint for metrics.
    pub metrics: Option<OtlpEndpoint>,
    /// Sampling of requests.
    pub sampler: Sampler,
    /// Attributes of this process, including `service.name`.
    pub resource: Vec<(String, String)>,
    /// Spans that may wait for the exporter.
    pub queue: usize,
    /// Spans in one export.
    pub batch: usize,
    /// Time for which a span waits for others.
    pub delay: Duration,
    /// Interval of exports of metrics.
    pub interval: Duration,
    /// Time limit for a collector's answer.
    pub timeout: Duration,
}

/// Default service name of andante.
const SERVICE_NAME: &str = "andante";

// Defaults of the specification.
const QUEUE_SPANS: usize = 2048;
const BATCH_SPANS: usize = 512;
const BATCH_DELAY_MS: u64 = 5_000;
const METRIC_INTERVAL_MS: u64 = 60_000;
const TIMEOUT_MS: u64 = 10_000;

// === impl OtlpConfig ===

impl OtlpConfig {
    /// Combines `otlp` with the `variables`. A value of `otlp` takes precedence over the endpoint for all signals, and
    /// `Some(None)`, which is `"off"`, over all variables. A variable for one signal takes precedence for that signal.
    pub(super) fn settle(
        otlp: Option<Option<OtlpUrl>>,
        variables: &OtelVariables,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        if otlp == Some(None) || variables.is_true("OTEL_SDK_DISABLED") {
            return None;
        }
        let explicit = otlp.flatten();
        let base = explicit.clone().or_else(|| variables.url("OTEL_EXPORTER_OTLP_ENDPOINT", problems));
        let signal = |name: &str, problems: &mut Vec<Diagnostic>| {
            let own = variables.url(&format!("OTEL_EXPORTER_OTLP_{name}_ENDPOINT"), problems);
            let url = match own {
                Some(own) => own.endpoint(None),
                None => base.as_ref()?.endpoint(Some(&format!("/v1/{}", name.to_lowercase()))),
            };
            let is_off = variables.of(&format!("OTEL_{name}_EXPORTER")).is_some_and(|exporter| exporter == "none");
            if is_off || explicit.is_none() && !variables.speaks_http(name, problems) {
                return None;
            }
            Some(url.with_headers(variables.headers(name, problems)))
        };
        let (traces, metrics) = (signal("TRACES", problems), signal("METRICS", problems));
        if traces.is_none() && metrics.is_none() {
            return None;
        }
        let count = |name, usual, problems: &mut Vec<Diagnostic>| {
            variables.number(name, problems).and_then(|count| usize::try_from(count).ok()).unwrap_or(usual)
        };
        let time = |name, usual, problems: &mut Vec<Diagnostic>| {
            Duration::from_millis(variables.number(name, problems).unwrap_or(usual))
        };
        let queue = count("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS, problems);
        Some(Self {
            traces,
            metrics,
            sampler: variables.sampler(problems),
            resource: resource(variables, problems),
            queue,
            batch: count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_SPANS, problems).min(queue),
            delay: time("OTEL_BSP_SCHEDULE_DELAY", BATCH_DELAY_MS, problems),
            interval: time("OTEL_METRIC_EXPORT_INTERVAL", METRIC_INTERVAL_MS, problems),
            timeout: time("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT_MS, problems),
        })
    }
}

/// Attributes of this process by its environment. `OTEL_SERVICE_NAME` wins over `service.name` among the attributes.
fn resource(variables: &OtelVariables, problems: &mut Vec<Diagnostic>) -> Vec<(String, String)> {
    let mut attributes = variables.pairs("OTEL_RESOURCE_ATTRIBUTES", problems);
    if let Some(name) = variables.of("OTEL_SERVICE_NAME") {
        attributes.retain(|(key, _)| key != "service.name");
        attributes.push(("service.name".to_owned(), name.to_owned()));
    } else if !attributes.iter().any(|(key, _)| key == "service.name") {
        attributes.push(("service.name".to_owned(), SERVICE_NAME.to_owned()));
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(otlp: Option<&str>, variables: &[(&'static str, &str)]) -> (Option<OtlpConfig>, Vec<String>) {
        let mut problems = Vec::new();
        let otlp = otlp.map(|text| (text != "off").then(|| text.parse().unwrap()));
        let variable = |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, text)| (*text).to_owned());
        let config = OtlpConfig::settle(otlp, &OtelVariables::read(variable), &mut problems);
        assert!(problems.iter().all(|problem| !problem.is_error()));
        (config, problems.iter().map(ToString::to_string).collect())
    }

    fn places(otlp: Option<&str>, variables: &[(&'static str, &str)]) -> [String; 2] {
        let config = settled(otlp, variables).0.unwrap();
        [config.traces, config.metrics].map(|place| place.map_or_else(String::new, |place| place.to_string()))
    }

    #[test]
    fn a_signals_path_is_added_to_the_endpoint_of_all() {
        let both = ["http://c:4318/v1/traces", "http://c:4318/v1/metrics"].map(str::to_owned);
        for url in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(places(Some(url), &[]), both, "{url}");
            assert_eq!(places(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", url)]), both, "{url}");
        }
        let below = places(Some("https://c/otlp/"), &[]);
        assert_eq!(below, ["https://c:443/otlp/v1/traces", "https://c:443/otlp/v1/metrics"]);
    }

    #[test]
    fn an_endpoint_of_one_signal_is_taken_as_it_is() {
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/in");
        assert_eq!(places(None, &[traces]), ["http://t:1/in", ""]);
        assert_eq!(places(Some("http://c:4318"), &[traces]), ["http://t:1/in", "http://c:4318/v1/metrics"]);
        let off = [("OTEL_METRICS_EXPORTER", "none"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
        assert_eq!(places(None, &off), ["http://c:4318/v1/traces", ""]);
    }

    #[test]
    fn off_and_a_disabled_sdk_win_over_all() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert_eq!(settled(Some("off"), &[endpoint]), (None, Vec::new()));
        assert_eq!(settled(Some("http://c:4318"), &[("OTEL_SDK_DISABLED", "True")]), (None, Vec::new()));
        assert_eq!(settled(None, &[("OTEL_SERVICE_NAME", "x")]), (None, Vec::new()));
        assert!(settled(None, &[endpoint, ("OTEL_SDK_DISABLED", "no")]).0.is_some());
    }

    #[test]
    fn grpc_is_said_not_to_be_spoken_unless_a_url_is_given() {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        let (config, problems) = settled(None, &variables);
        assert_eq!(config, None);
        assert!(problems[0].starts_with("OTEL_EXPORTER_OTLP_PROTOCOL: "), "{problems:?}");
        assert!(settled(Some("http://c:4318"), &variables).0.is_some());
    }

    #[test]
    fn the_environment_names_the_service_and_describes_it() {
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a, team=data%20science,broken");
        let (config, problems) = settled(Some("http://c"), &[attributes]);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(config.unwrap().resource, [pair("service.name", "a"), pair("team", "data science")]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        let named = settled(Some("http://c"), &[attributes, ("OTEL_SERVICE_NAME", "b")]).0.unwrap();
        assert_eq!(named.resource, [pair("team", "data science"), pair("service.name", "b")]);
        assert_eq!(settled(Some("http://c"), &[]).0.unwrap().resource, [pair("service.name", "andante")]);
    }

    #[test]
    fn credentials_become_fields_and_are_never_shown() {
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2,x-other=a%2Cb");
        let config = settled(Some("http://me:hunter2@c"), &[headers]).0.unwrap();
        let traces = config.traces.clone().unwrap();
        assert_eq!(traces.headers["api-key"], "hunter2");
        assert_eq!(traces.headers["x-other"], "a,b");
        assert_eq!(traces.headers["authorization"], "Basic bWU6aHVudGVyMg==");
        assert!(!format!("{config:?} {traces}").contains("hunter2"));
        let (_, problems) = settled(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "hunter2")]);
        assert!(problems.len() == 1 && !problems[0].contains("hunter2"), "{problems:?}");
    }

    #[test]
    fn an_invalid_value_is_said_and_ignored() {
        let variables = [("OTEL_TRACES_SAMPLER", "often"), ("OTEL_BSP_SCHEDULE_DELAY", "soon")];
        let (config, problems) = settled(Some("http://c"), &variables);
        let config = config.unwrap();
        assert_eq!((config.sampler, config.delay), (Sampler::default(), Duration::from_secs(5)));
        assert_eq!(problems.len(), 2, "{problems:?}");
        let ratio = [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.01")];
        let sampler = settled(Some("http://c"), &ratio).0.unwrap().sampler;
        assert_eq!(Some(sampler), Sampler::named("parentbased_traceidratio", Some("0.01")));
    }
}
