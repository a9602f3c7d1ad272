//! The decision whether a trace is recorded, as `OTEL_TRACES_SAMPLER` names it
//! (<https://opentelemetry.io/docs/specs/otel/trace/sdk/#sampling>).

use super::context::{TraceContext, TraceId};

/// Decides which requests are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// True if a decision of the caller also decides for andante.
    parent_based: bool,
    /// Share of the other traces that is recorded, from 0 to 1.
    ratio: f64,
}

impl Sampler {
    /// Known names, for hints.
    pub const NAMES: &str = "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or \
                             parentbased_traceidratio";

    /// Sampler with this name and argument; `None` if either is unknown. The argument is a ratio from 0 to 1, and 1 by
    /// default.
    pub fn named(name: &str, argument: Option<&str>) -> Option<Self> {
        let (parent_based, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument.map_or(Ok(1.0), |text| text.trim().parse()).ok()?,
            _ => return None,
        };
        (0.0..=1.0).contains(&ratio).then_some(Self { parent_based, ratio })
    }

    /// Returns true if a request in `trace` with the caller's context `parent` is recorded.
    pub(super) fn records(&self, parent: Option<&TraceContext>, trace: TraceId) -> bool {
        match parent {
            Some(parent) if self.parent_based => parent.is_sampled(),
            // Like the SDKs, so that all services of a trace decide alike.
            _ => self.ratio >= 1.0 || (trace.lower_half() as f64) < self.ratio * 2f64.powi(64),
        }
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self { parent_based: true, ratio: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(flags: u8) -> TraceContext {
        let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags:02x}");
        TraceContext::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_parent_decides_only_where_it_is_asked() {
        let records =
            |name, flags| Sampler::named(name, None).unwrap().records(Some(&context(flags)), context(0).trace);
        for name in ["parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"] {
            assert!(records(name, 1) && !records(name, 0), "{name}");
        }
        assert!(records("always_on", 0) && !records("always_off", 1));
    }

    #[test]
    fn a_ratio_records_that_share_of_traces() {
        let sampler = Sampler::named("traceidratio", Some("0.25")).unwrap();
        let recorded = (0..10_000).filter(|_| sampler.records(None, TraceId::random())).count();
        assert!((2000..3000).contains(&recorded), "{recorded}");
        let all = Sampler::named("parentbased_traceidratio", None).unwrap();
        assert!((0..100).all(|_| all.records(None, TraceId::random())));
        let none = Sampler::named("traceidratio", Some("0")).unwrap();
        assert!((0..100).all(|_| !none.records(None, TraceId::random())));
    }

    #[test]
    fn an_unknown_sampler_or_ratio_is_none() {
        for (name, argument) in [
            ("often", None),
            ("traceidratio", Some("2")),
            ("traceidratio", Some("half")),
            ("traceidratio", Some("NaN")),
        ] {
            assert_eq!(Sampler::named(name, argument), None, "{name} {argument:?}");
        }
        assert_eq!(Sampler::named("parentbased_always_on", None), Some(Sampler::default()));
    }
}
