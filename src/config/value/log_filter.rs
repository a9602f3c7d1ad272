//! Grammar of `ANDANTE_LOG`: a level, or levels by module.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use super::grammar::{Grammar, ParseHint};

/// Checks a filter; the log's setup parses it once more.
pub(in crate::config) const LOG_FILTER: Grammar<()> = Grammar {
    expected: "a log level, or levels by module",
    example: "error, warn, info, debug, trace or off, or by module: info,andante::lane=debug",
    read: log_filter,
};

fn log_filter(text: &str) -> Result<(), ParseHint> {
    match text.split(',').find(|part| !is_directive(part)) {
        Some(part) => Err(ParseHint { what: Some(LOG_FILTER.unexpected(part)), hint: None }),
        None => Ok(()),
    }
}

/// Refuses a bare word that is neither a level nor a module of andante's. In tracing such a word names a module, and
/// nothing else is logged. Most likely the word is a mistyped level.
fn is_directive(part: &str) -> bool {
    let names_a_target = part.starts_with("andante") || part.contains(['=', '[']) || part.contains("::");
    part.is_empty() || (names_a_target || part.parse::<LevelFilter>().is_ok()) && EnvFilter::try_new(part).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        for text in
            ["warn", "DEBUG", "off", "3", " info ", "info,andante::lane=trace", "andante", "h2=debug", "hyper::proto"]
        {
            assert_eq!(LOG_FILTER.read(text), Ok(()), "{text}");
        }
        for (text, blamed) in [
            ("warning", "warning"),
            ("info,verbose", "verbose"),
            ("debgu,andante::lane=trace", "debgu"),
            ("andante=loud", "andante=loud"),
            ("info, debug", " debug"),
            ("6", "6"),
        ] {
            let wrong = LOG_FILTER.read(text).unwrap_err();
            assert_eq!(wrong.what, format!("expected a log level, or levels by module, found {blamed:?}"), "{text}");
            assert!(wrong.hint.starts_with("write error, warn, info, debug, trace or off"), "{}", wrong.hint);
        }
    }
}
