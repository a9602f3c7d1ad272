//! Row of the table of keys.

use std::time::Duration;

use crate::config::value::{
    self,
    grammar::{Grammar, Wrong},
};

/// Description of one key.
#[derive(Clone, Copy, Debug)]
pub struct KeyEntry {
    /// Name in a file.
    pub name: &'static str,
    /// Form of its value.
    pub form: Form,
    /// Value when the key is missing.
    pub default: Fallback,
    /// Meaning, in one line.
    pub doc: &'static str,
    /// The equivalent flag and variable.
    pub flag: Option<Flag>,
    /// Gives a rule a purpose although the rule limits nothing.
    pub purpose: bool,
    /// Marks a value that may be or contain a credential, so that no problem quotes it.
    pub secret: bool,
}

/// The shape of a value in a file. For texts, prose says more than JSON Schema can.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A string.
    One(&'static str),
    /// A number, or a string.
    Number(&'static str),
    /// A string or a list of strings.
    OneOrList(&'static str),
    /// A string, one of these words.
    Words(&'static [&'static str]),
    /// A string, one of these words, or a table.
    OneOrTable(&'static [&'static str], &'static Section),
    /// `true` or `false`.
    Switch,
    /// A table.
    Table(&'static Section),
    /// A list of tables.
    Tables(&'static Section),
}

/// Value where a key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// This value, in TOML.
    Value(&'static str),
    /// No value expresses it, but these words do.
    Prose(&'static str),
    /// No value: the key is required.
    Nothing,
}

/// A flag, and the equivalent variable.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Name with its hyphens.
    pub name: &'static str,
    /// Name with its prefix.
    pub variable: &'static str,
    /// Separators of several values in the variable; a flag is repeated instead.
    pub separators: &'static [char],
    /// Default in the help text, if the help names one.
    pub default: Option<&'static str>,
}

/// The keys of one table of a file.
#[derive(Debug)]
pub struct Section {
    /// Name of the table in hints.
    pub title: &'static str,
    /// Keys in the order in which they are listed.
    pub keys: &'static [KeyEntry],
}

/// A key with the grammar of its value.
pub(in crate::config) struct Key<T> {
    pub(in crate::config) entry: KeyEntry,
    pub(in crate::config) grammar: Grammar<T>,
}

// === impl Section ===

impl Section {
    /// Names of the keys.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|entry| entry.name)
    }
}

// === impl KeyEntry ===

impl KeyEntry {
    /// Returns whether the key is required in its table.
    pub fn is_required(&self) -> bool {
        self.default == Fallback::Nothing
    }

    pub(in crate::config) const fn new(name: &'static str, form: Form, doc: &'static str, default: Fallback) -> Self {
        Self { name, form, default, doc, flag: None, purpose: false, secret: false }
    }
}

// === impl Key ===

impl<T> Key<T> {
    pub(in crate::config) const fn new(name: &'static str, grammar: Grammar<T>, form: Form, doc: &'static str) -> Self {
        Self { entry: KeyEntry::new(name, form, doc, Fallback::Nothing), grammar }
    }

    pub(in crate::config) const fn default(mut self, toml: &'static str) -> Self {
        self.entry.default = Fallback::Value(toml);
        self
    }

    pub(in crate::config) const fn otherwise(mut self, prose: &'static str) -> Self {
        self.entry.default = Fallback::Prose(prose);
        self
    }

    pub(in crate::config) const fn flag(
        self,
        name: &'static str,
        variable: &'static str,
        default: Option<&'static str>,
    ) -> Self {
        self.flags(name, variable, &[], default)
    }

    pub(in crate::config) const fn flags(
        mut self,
        name: &'static str,
        variable: &'static str,
        separators: &'static [char],
        default: Option<&'static str>,
    ) -> Self {
        self.entry.flag = Some(Flag { name, variable, separators, default });
        self
    }

    pub(in crate::config) const fn secret(mut self) -> Self {
        self.entry.secret = true;
        self
    }

    pub(in crate::config) const fn purpose(mut self) -> Self {
        self.entry.purpose = true;
        self
    }
}

impl<T> Key<T> {
    /// Parses `text`; if it may be a credential, errors do not quote it.
    pub(in crate::config) fn read(&self, text: &str) -> Result<T, Wrong> {
        self.grammar.read(text).map_err(|wrong| match self.entry.secret {
            true if wrong.what.contains(text.trim()) || wrong.what == self.grammar.unexpected(text) => {
                Wrong { what: format!("expected {}, found something else", self.grammar.expected), ..wrong }
            }
            _ => wrong,
        })
    }
}

// A timeout has the grammar of durations and no flag.
impl Key<Duration> {
    pub(in crate::config) const fn timeout(name: &'static str, doc: &'static str, default: &'static str) -> Self {
        Self::new(name, value::TIMEOUT, Form::One("duration"), doc).default(default)
    }

    /// The timeout for the hosts of one rule.
    pub(in crate::config) const fn in_rule(self) -> Self {
        self.otherwise("that of `[timeouts]`")
    }
}
