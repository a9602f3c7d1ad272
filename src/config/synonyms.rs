//! Names in other tools for andante's keys, flags and variables. A name is looked up by its meaning, never by
//! its spelling alone: `--port` is spelled like `--forget`, and means `--listen`.

mod table;

use self::table::SYNONYMS;
use super::keys::{self, Fallback, Form, KeyEntry, SECTIONS, Section};

/// Meaning of a name that andante does not know.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// The key with this name, and an example value.
    Key(&'static str, &'static str),
    /// The flag with this name, and a value for it: there is no equivalent key.
    Flag(&'static str, &'static str),
    /// Advice, where andante has no equivalent.
    Advice(&'static str),
}

/// Advice for an unknown key of `section`, if other tools use its name.
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

/// Flags of the command that is being parsed.
pub trait CommandFlags {
    /// Returns whether the command has this flag.
    fn has(&self, flag: &str) -> bool;
    /// Returns whether the command accepts this value for this flag.
    fn takes(&self, flag: &str, value: &str) -> bool;
    /// The default of this flag, if the command has one of its own.
    fn default_of(&self, flag: &str) -> Option<String>;
    /// Returns whether the command starts a proxy, which reads a file with rules for itself.
    fn starts_proxy(&self) -> bool;
}

/// Replacement for the flag `name` of `command`, which has this `value`.
pub fn flag(name: &str, value: Option<&str>, command: &impl CommandFlags) -> Option<String> {
    if let Some(value) = value.filter(|value| is_limit_of_host(value) && command.takes("--limit", value)) {
        return Some(format!("write --limit {}", in_quotes(value)));
    }
    let by_key = |key: &str, example: &str| -> Option<String> {
        let flag = flag_of(key).filter(|flag| command.has(flag));
        let written = flag.and_then(|flag| {
            let examples = [command.default_of(flag), Some(flag_example(key, example)), Some(example.to_owned())];
            let taken = examples.into_iter().flatten().find(|example| command.takes(flag, example))?;
            Some(format!("write {flag} {}", in_quotes(&taken)))
        });
        written.or_else(|| command.starts_proxy().then(|| in_file(key, example)))
    };
    let by_meaning = |meaning| match meaning {
        Meaning::Key(key, example) => by_key(key, example),
        Meaning::Flag(flag, example) => command.has(flag).then(|| format!("write {flag} {example}")),
        Meaning::Advice(advice) => command.starts_proxy().then(|| advice.to_owned()),
    };
    // A flag of this command alone is a better guess than a flag that several commands share.
    let own = meanings(name).filter(|meaning| matches!(meaning, Meaning::Flag(..)));
    let found = own.chain(meanings(name)).find_map(by_meaning);
    found.or_else(|| {
        let name = plain(name);
        let entry = entries().find(|entry| entry.name == name)?;
        by_key(entry.name, example(entry))
    })
}

/// Example of the flag of `command` whose value is missing.
pub fn example_of(flag: &str, command: &impl CommandFlags) -> Option<String> {
    let (entry, _) = keys::with_flags().find(|(_, known)| known.name == flag)?;
    // A single flag contains a rule's host and its limits.
    let key = if entry.name == keys::RULES.entry.name { LIMITING[0] } else { entry.name };
    let example = entries().find(|entry| entry.name == key).map(example)?;
    let example = [command.default_of(flag), Some(flag_example(key, example)), Some(example.to_owned())];
    let taken = example.into_iter().flatten().find(|example| *example != "…" && command.takes(flag, example))?;
    Some(format!("write {flag} {}", in_quotes(&taken)))
}

/// A name from other tools for each meaning.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    SYNONYMS.iter().filter_map(|(names, _)| names.split(' ').next())
}

/// Advice for the variable `name`, which begins with `ANDANTE_`, if other tools use its name.
pub(super) fn variable(name: &str) -> Option<String> {
    let word = plain(name.strip_prefix(super::source::PREFIX)?);
    let by_key = |key: &str, example: &str| match variable_of(key).filter(|_| !is_table(example)) {
        Some(variable) => format!("write {variable}={}", in_quotes(&flag_example(key, example))),
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
    sections().flat_map(|section| section.keys)
}

/// All tables, including the table form of `retry`.
fn sections() -> impl Iterator<Item = &'static Section> {
    SECTIONS.into_iter().chain([&keys::RETRY_TABLE])
}

/// An example value of `entry`.
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

/// Returns whether `text` is a host with its limits, in the form of `--limit`.
fn is_limit_of_host(text: &str) -> bool {
    super::value::LIMIT_OF_HOST.read(text).is_ok()
}

/// Quotes a value so that a shell takes it for one word.
fn in_quotes(value: &str) -> String {
    if value.contains([' ', '*', '{', ';']) { format!("'{value}'") } else { value.to_owned() }
}

/// Returns whether a value is a table, which only a file can have.
fn is_table(value: &str) -> bool {
    value.starts_with('{')
}

/// Normalizes a name: `--Log_Level` becomes `log-level`.
fn plain(name: &str) -> String {
    name.trim_start_matches('-').to_ascii_lowercase().replace('_', "-")
}

/// Flag key for `key`: limits are keys of rules, but a single flag contains a host and its limits.
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
        "in-flight" => format!("api.example.com=in-flight {example}"),
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

/// Assignment in a file: `listen = "127.0.0.1:3128"`.
fn assignment(key: &str, example: &str) -> String {
    let form = entries().find(|entry| entry.name == key).map(|entry| entry.form);
    match form {
        Some(Form::Tables(_)) => format!("[[{key}]] on a line of its own, and its keys below"),
        Some(Form::Table(_)) => format!("[{key}] on a line of its own, and its keys below"),
        _ if is_table(example) => format!("{key} = {example}"),
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
                let own = sections().find(|section| section.names().any(|name| name == *key)).unwrap();
                for name in names.split(' ') {
                    assert!(name == *key || !own.names().any(|known| known == name), "{name} is a key beside {key}");
                }
            }
        }
    }
}
