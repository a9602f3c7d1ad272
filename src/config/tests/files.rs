//! Claims about the files in `config/`.

use super::{super::*, load, rule};

const MINIMAL: &str = include_str!("../../../config/minimal.toml");
const FULL: &str = include_str!("../../../config/full.toml");

#[test]
fn the_minimal_file_says_one_thing() {
    let config = load(MINIMAL);
    assert_eq!(rule(&config, "api.example.com").limits.len(), 1);
    assert_eq!(Config { rules: Rules::default(), file: None, ..config }, Config::default());
}

#[test]
fn the_full_file_mentions_every_key() {
    load(FULL);
    let tables = [layer::TIMEOUTS, rules::KEYS].concat();
    // Tables are no keys to be set with `=`.
    let top = layer::TOP.iter().filter(|key| !["timeouts", "rule"].contains(key));
    for key in top.chain(&tables) {
        assert!(FULL.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key} is missing");
    }
}

#[test]
fn what_the_full_file_calls_a_default_is_one() {
    let full = load(FULL);
    let claims: Vec<&str> = FULL.lines().filter(|line| line.ends_with("# default")).collect();
    assert_eq!(claims.len(), layer::TOP.len() - 2 + layer::TIMEOUTS.len() + rules::KEYS.len() - 4);
    for claim in claims {
        let without: String = FULL.lines().filter(|line| *line != claim).map(|line| format!("{line}\n")).collect();
        assert_eq!(load(&without), full, "{claim}");
    }
}

#[test]
fn the_page_on_configuration_has_a_row_for_every_key() {
    let page = include_str!("../../../docs/configuration.md");
    let tables = [layer::TIMEOUTS, rules::KEYS].concat();
    let top = layer::TOP.iter().filter(|key| !["timeouts", "rule"].contains(key));
    for key in top.chain(&tables) {
        assert!(page.contains(&format!("\n| `{key}` |")), "{key} is missing");
    }
}
