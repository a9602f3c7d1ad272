//! Claims about the files in `config/`.

use super::{super::*, load, rule};

const MINIMAL: &str = include_str!("../../../config/minimal.toml");
const FULL: &str = include_str!("../../../config/full.toml");

/// Tables are no keys to be set with `=`.
const TABLES: [&str; 3] = ["timeouts", "gateway", "rule"];

/// Every key that is set with `=`.
fn keys() -> impl Iterator<Item = &'static str> {
    let all = [layer::TOP, layer::TIMEOUTS, gateways::KEYS, rules::KEYS].concat();
    all.into_iter().filter(|key| !TABLES.contains(key))
}

/// The full file with every key in it set.
fn fullest() -> String {
    let set = |line: &str| match line.strip_prefix("# ") {
        Some(bare) if keys().any(|key| bare.starts_with(&format!("{key} = "))) => format!("{bare}\n"),
        _ => format!("{line}\n"),
    };
    FULL.lines().map(set).collect()
}

#[test]
fn the_minimal_file_says_one_thing() {
    let config = load(MINIMAL);
    assert_eq!(rule(&config, "api.example.com").limits.len(), 1);
    assert_eq!(Config { rules: Rules::default(), file: None, ..config }, Config::default());
}

#[test]
fn the_full_file_mentions_every_key() {
    load(FULL);
    let fullest = fullest();
    load(&fullest);
    for key in keys() {
        assert!(fullest.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key} is missing");
    }
}

#[test]
fn what_the_full_file_calls_a_default_is_one() {
    let full = load(FULL);
    let claims: Vec<&str> = FULL.lines().filter(|line| line.ends_with("# default")).collect();
    // Some keys have no default, or none that can be written.
    let without = ["data", "path", "to", "name", "host", "limits", "in-flight"];
    let without = [&without[..], &["https", "source", "sni", "client-cert", "client-key"]].concat();
    assert_eq!(claims.len(), keys().count() - without.len());
    for claim in claims {
        let without: String = FULL.lines().filter(|line| *line != claim).map(|line| format!("{line}\n")).collect();
        assert_eq!(load(&without), full, "{claim}");
    }
}

#[test]
fn the_page_on_configuration_has_a_row_for_every_key() {
    let page = include_str!("../../../docs/configuration.md");
    for key in keys() {
        assert!(page.contains(&format!("\n| `{key}` |")), "{key} is missing");
    }
}
