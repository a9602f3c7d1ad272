//! Sets up logging: to standard error, so that standard output stays the command's own.

use std::{env, io};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use super::{Failure, terminal};
use crate::config::LogFormat;

/// Starts logging; `level` holds unless `ANDANTE_LOG` says otherwise.
pub(super) fn start(format: LogFormat, level: &str) -> Result<(), Failure> {
    let said = env::var("ANDANTE_LOG").unwrap_or_default();
    let filter = filter(if said.trim().is_empty() { level } else { &said })?;
    let registry = tracing_subscriber::registry().with(filter);
    let begun = match format {
        LogFormat::Text => {
            registry.with(fmt::layer().with_ansi(terminal::colourful()).with_writer(io::stderr)).try_init()
        }
        LogFormat::Json => registry
            .with(fmt::layer().json().flatten_event(true).with_current_span(false).with_writer(io::stderr))
            .try_init(),
    };
    begun.map_err(|error| Failure::new("could not start logging").because(error))
}

/// What h2 says of every frame is for its own developers, who name it; a peer could fill a disk with it.
const QUIET: &str = "h2=info";

fn filter(text: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| {
        Failure::new(format!("ANDANTE_LOG is not a log filter: {text:?}"))
            .because(error)
            .hinting("write a level, as in ANDANTE_LOG=debug, or levels by module: info,andante::pace=trace")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        assert!(filter("debug").is_ok() && filter("info,andante::pace=trace").is_ok());
        assert!(filter("andante=loud").unwrap_err().hint().is_some_and(|hint| hint.contains("ANDANTE_LOG=debug")));
    }
}
