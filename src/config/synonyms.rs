//! Names that other tools have for andante's keys, flags and variables. A name is looked up by its meaning, never by
//! its spelling alone: `--port` is spelled like `--forget`, and means `--listen`.

mod table;

use self::table::SYNONYMS;
use super::keys::{self, Fallback, Form, KeyEntry, SECTIONS, Section};

/// Meaning of a name that andante does not know.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// The key with this name, and a value for an example.
    Key(&'static str, &'static str),
    /// The flag with this name, and a value for it: no key says the same.
    Flag(&'static str, &'static str),
    /// Advice, where andante has nothing that is called so.
    Advice(&'static str),
}

/// What to write in the place of an unknown key of `section`, if its name is known from elsewhere.
pub(super) fn key(name: &str, section: &Section) -> Option<String> {
    let rows: Vec<Meaning> = meanings(name).collect();
    let here = rows.iter().find_map(|meaning| match meaning {
        Meaning::Key(key, example) if section.names().any(|known| known == *key) => Some((*key, *example)),
        _ => None,
    });
    if let Some((key, example)) = here {
        return Some(format!("write {}", assignment(key, example)));
    }
    rows.first().map(|meaning| match meaning {
        Meaning::Key(key, example) => match SECTIONS.iter().find(|other| other.names().any(|known| known == *key)) {
            Some(other) => format!("write {} {}", assignment(key, example), place(other)),
            None => format!("write {}", assignment(key, example)),
        },
        Meaning::Flag(flag, example) => format!("no key says that; start with {flag} {example}"),
        Meaning::Advice(advice) => (*advice).to_owned(),
    })
}

/// What to write in the place of the flag `name`; `has` tells which flags the command has.
pub fn flag(name: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let by_key = |key: &str, example: &str| -> Option<String> {
        if let Some(flag) = flag_of(key).filter(|flag| has(flag)) {
            return Some(format!("write {flag} {}", flag_example(key, example)));
        }
        // Only what starts a proxy reads a file for itself.
        has("--config").then(|| in_file(key, example))
    };
    let found = meanings(name).find_map(|meaning| match meaning {
        Meaning::Key(key, example) => by_key(key, example),
        Meaning::Flag(flag, example) => has(flag).then(|| format!("write {flag} {example}")),
        Meaning::Advice(advice) => has("--config").then(|| advice.to_owned()),
    });
    found.or_else(|| {
        let name = plain(name);
        let entry = entries().find(|entry| entry.name == name)?;
        by_key(entry.name, example(entry))
    })
}

/// What to write in the place of the variable `name`, which begins with `ANDANTE_`, if its name is known from elsewhere.
pub(super) fn variable(name: &str) -> Option<String> {
    let word = plain(name.strip_prefix(super::source::PREFIX)?);
    let by_key = |key: &str, example: &str| match variable_of(key) {
        Some(variable) => format!("write {variable}={}", flag_example(key, example)),
        None => in_file(key, example),
    };
    let found = meanings(&word).next().map(|meaning| match meaning {
        Meaning::Key(key, example) => by_key(key, example),
        Meaning::Flag("--config", example) => format!("write ANDANTE_CONFIG={example}"),
        Meaning::Flag(flag, example) => format!("no variable says that; start with {flag} {example}"),
        Meaning::Advice(advice) => advice.to_owned(),
    });
    found.or_else(|| {
        let entry = entries().find(|entry| entry.name == word)?;
        Some(by_key(entry.name, example(entry)))
    })
}

/// The keys of all tables.
fn entries() -> impl Iterator<Item = &'static KeyEntry> {
    SECTIONS.into_iter().flat_map(|section| section.keys)
}

/// A value of `entry` to show.
fn example(entry: &KeyEntry) -> &'static str {
    let of_default = match entry.default {
        Fallback::Value(toml) if !toml.starts_with(['{', '[']) => Some(toml.trim_matches('"')),
        _ => None,
    };
    let of_table = table::SYNONYMS.iter().find_map(|(_, meaning)| match meaning {
        Meaning::Key(key, example) if *key == entry.name => Some(*example),
        _ => None,
    });
    of_table.or(of_default).unwrap_or("…")
}

fn meanings(name: &str) -> impl Iterator<Item = Meaning> {
    let name = plain(name);
    SYNONYMS.iter().filter(move |(names, _)| names.split(' ').any(|known| known == name)).map(|(_, meaning)| *meaning)
}

/// `--Log_Level` as `log-level`.
fn plain(name: &str) -> String {
    name.trim_start_matches('-').to_ascii_lowercase().replace('_', "-")
}

/// Limits stand in rules, and a flag names a rule's host and its limits in one.
fn flagged(key: &str) -> &str {
    if LIMITING.contains(&key) { keys::RULES.entry.name } else { key }
}

/// Keys of a rule that `--limit` sets as well.
const LIMITING: [&str; 2] = ["limits", "in-flight"];

fn flag_of(key: &str) -> Option<&'static str> {
    keys::with_flags().find(|(entry, _)| entry.name == flagged(key)).map(|(_, flag)| flag.name)
}

fn variable_of(key: &str) -> Option<&'static str> {
    keys::with_flags().find(|(entry, _)| entry.name == flagged(key)).map(|(_, flag)| flag.variable)
}

fn flag_example(key: &str, example: &str) -> String {
    match key {
        "limits" => format!("api.example.com={example}"),
        "in-flight" => format!("'api.example.com=in-flight {example}'"),
        _ => example.to_owned(),
    }
}

fn in_file(key: &str, example: &str) -> String {
    let under = SECTIONS.iter().find(|section| section.names().any(|known| known == key));
    let under = under.filter(|section| section.title != keys::TOP.title).map(|section| format!(" {}", place(section)));
    format!(
        "no flag and no variable says that: write {}{} in a file, and start with --config FILE",
        assignment(key, example),
        under.unwrap_or_default()
    )
}

fn place(section: &Section) -> String {
    match section.title {
        title if title == keys::TOP.title => "above the first table".to_owned(),
        title => format!("under {title}"),
    }
}

/// `listen = "127.0.0.1:3128"`, as it stands in a file.
fn assignment(key: &str, example: &str) -> String {
    let form = entries().find(|entry| entry.name == key).map(|entry| entry.form);
    match form {
        Some(Form::Tables(_)) => format!("[[{key}]] on a line of its own, and its keys below"),
        Some(Form::Table(_)) => format!("[{key}] on a line of its own, and its keys below"),
        Some(Form::Switch) => format!("{key} = {example}"),
        Some(Form::Number(_)) if example.bytes().all(|byte| byte.is_ascii_digit()) => format!("{key} = {example}"),
        _ => format!("{key} = \"{example}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_synonym_means_a_key_that_exists_and_is_none_itself() {
        for (names, meaning) in SYNONYMS {
            if let Meaning::Key(key, _) = meaning {
                assert!(entries().any(|entry| entry.name == *key), "{key}");
                let own = SECTIONS.iter().find(|section| section.names().any(|name| name == *key)).unwrap();
                for name in names.split(' ') {
                    assert!(name == *key || !own.names().any(|known| known == name), "{name} is a key beside {key}");
                }
            }
        }
    }

    #[test]
    fn a_flag_of_another_tool_is_answered_by_meaning() {
        assert_eq!(flag("--port", |_| true).unwrap(), "write --listen 127.0.0.1:3128");
        assert_eq!(flag("--rate", |_| true).unwrap(), "write --limit api.example.com=500/min");
        assert!(flag("--drain", |_| true).unwrap().contains("drain = \"30s\" in a file"));
        assert_eq!(flag("--colour", |_| true), None);
        assert_eq!(flag("--port", |_| false), None, "the command has neither");
    }
}
