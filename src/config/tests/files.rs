//! Claims about the files in `config/`.

use super::{super::*, load, rule};
use crate::{
    config::keys::{Fallback, Form, KeyEntry, SECTIONS},
    policy::Rules,
};

const MINIMAL: &str = include_str!("../../../config/minimal.toml");
const FULL: &str = include_str!("../../../config/full.toml");
const PAGE: &str = include_str!("../../../docs/configuration.md");

/// Every key that is set with `=`, with its section.
fn entries() -> impl Iterator<Item = (&'static str, &'static KeyEntry)> {
    let all = SECTIONS.into_iter().flat_map(|section| section.keys.iter().map(|entry| (section.title, entry)));
    all.filter(|(_, entry)| !matches!(entry.form, Form::Table(_) | Form::Tables(_)))
}

fn keys() -> impl Iterator<Item = &'static str> {
    entries().map(|(_, entry)| entry.name)
}

/// The full file with every key in it set.
fn fullest() -> String {
    let set = |line: &str| match line.strip_prefix("# ") {
        Some(bare) if keys().any(|key| bare.starts_with(&format!("{key} = "))) => format!("{bare}\n"),
        _ => format!("{line}\n"),
    };
    // `floor` needs a certain value of another key.
    FULL.lines().map(set).collect::<String>().replace("store-down = \"wait\"", "store-down = \"floor\"")
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
    for (section, entry) in entries() {
        let Fallback::Value(value) = entry.default else { continue };
        // The rule in the file uses the short form.
        let value = if section == "a [[rule]]" && entry.name == "retry" { "\"on\"" } else { value };
        let claim = format!("{} = {value} # default", entry.name);
        assert!(claims.contains(&claim.as_str()), "{claim} is missing");
    }
    let with_default = entries().filter(|(_, entry)| matches!(entry.default, Fallback::Value(_)));
    assert_eq!(claims.len(), with_default.count());
    for claim in claims {
        let without: String = FULL.lines().filter(|line| *line != claim).map(|line| format!("{line}\n")).collect();
        assert_eq!(load(&without), full, "{claim}");
    }
}

#[test]
fn the_page_on_configuration_says_of_every_key_what_the_table_says() {
    let mut lacking = Vec::new();
    for (section, entry) in entries() {
        // A single row of the page describes keys that rules have too.
        if section == "the first table" && entry.purpose {
            let named = |line: &str| line.contains("as in a rule") && line.contains(&format!("`{}`", entry.name));
            assert!(PAGE.lines().any(named), "{}", entry.name);
            continue;
        }
        let row = row(section, entry);
        let is_in_page = PAGE.lines().any(|line| {
            // A link to details may follow.
            let rest = line.strip_prefix(row.trim_end_matches(" |"));
            rest.is_some_and(|rest| rest == " |" || rest.starts_with(": [") && rest.ends_with(") |"))
        });
        if !is_in_page {
            lacking.push(row);
        }
    }
    assert!(lacking.is_empty(), "docs/configuration.md lacks\n{}", lacking.join("\n"));
}

/// The row of a key in the table of its section.
fn row(section: &str, entry: &KeyEntry) -> String {
    let KeyEntry { name, form, default, doc, .. } = entry;
    let quoted = |words: &[&str]| words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ");
    let value = match *form {
        Form::One(text) | Form::Number(text) | Form::OneOrList(text) => text.to_owned(),
        Form::Words(words) => quoted(words),
        Form::OneOrTable(words, table) => {
            let number = |form| if matches!(form, Form::Number("size")) { "SIZE" } else { "N" };
            let inner = table.keys.iter().map(|key| format!("{} = {}", key.name, number(key.form)));
            format!("{}, `{{ {} }}`", quoted(words), inner.collect::<Vec<_>>().join(", "))
        }
        Form::Switch => "`true`, `false`".to_owned(),
        Form::Table(_) | Form::Tables(_) => unreachable!("tables have sections, not rows"),
    };
    let default = match *default {
        Fallback::Value(toml) => format!("`{toml}`"),
        Fallback::Prose(text) => text.to_owned(),
        Fallback::Nothing => "required".to_owned(),
    };
    match section {
        // Defaults of timeouts are durations.
        "[timeouts]" => format!("| `{name}` | {default} | {doc} |"),
        _ => format!("| `{name}` | {value} | {default} | {doc} |"),
    }
}

#[test]
fn the_page_on_configuration_has_every_flag_and_variable_beside_its_key() {
    let rows: Vec<Vec<&str>> = PAGE.lines().map(|line| line.split(" | ").collect()).collect();
    for (entry, flag) in keys::with_flags() {
        let key = if matches!(entry.form, Form::Tables(_)) { "[[rule]]" } else { entry.name };
        let row = rows.iter().find(|cells| cells[0].starts_with(&format!("| `{} ", flag.name)));
        let row = row.unwrap_or_else(|| panic!("docs/configuration.md lacks {}", flag.name));
        assert!(row[1].starts_with(&format!("`{}`", flag.variable)), "{row:?}");
        assert_eq!(row[1].contains("several separated by"), !flag.separators.is_empty(), "{row:?}");
        assert_eq!(row[0].contains("repeatable"), !flag.separators.is_empty(), "{row:?}");
        assert_eq!(row[2], format!("`{key}`"), "{row:?}");
        assert!(flag.default.is_none_or(|default| row[3].contains(&format!("`{default}`"))), "{row:?}");
    }
}
