//! Description of this process, which precedes everything that it exports.

use super::messages::{KeyValue, Resource, Scope};

/// Attributes of this process: the configured ones, and defaults for the rest
/// (<https://opentelemetry.io/docs/specs/semconv/resource/>).
pub(super) fn resource(configured: &[(String, String)]) -> Resource {
    let own = [
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        // Several instances on a machine export the same counters.
        ("service.instance.id", format!("{:032x}", fastrand::u128(..))),
        ("process.pid", std::process::id().to_string()),
        ("telemetry.sdk.name", "andante".to_owned()),
        ("telemetry.sdk.language", "rust".to_owned()),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let own = own.into_iter().filter(|(name, _)| !configured.iter().any(|(configured, _)| configured == name));
    let configured = configured.iter().map(|(name, value)| KeyValue::text(name, value));
    Resource { attributes: configured.chain(own.map(|(name, value)| KeyValue::text(name, value))).collect() }
}

/// Instrumentation scope: andante itself.
pub(super) fn scope() -> Scope {
    Scope { name: "andante".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_over_what_the_process_says_of_itself() {
        let configured = [("service.name", "a"), ("service.instance.id", "one")];
        let resource = resource(&configured.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let of = |key: &str| resource.attributes.iter().filter(|attribute| attribute.key == key).collect::<Vec<_>>();
        assert_eq!(of("service.instance.id"), [&KeyValue::text("service.instance.id", "one")]);
        assert_eq!(of("service.version").len(), 1);
    }
}
