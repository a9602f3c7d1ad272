//! What a row of the table of keys says.

use std::time::Duration;

use crate::config::value::{
    self,
    grammar::{Grammar, Wrong},
};

/// What is known of one key.
#[derive(Clone, Copy, Debug)]
pub struct KeyEntry {
    /// As it stands in a file.
    pub name: &'static str,
    /// What may stand behind it.
    pub form: Form,
    /// What holds without it.
    pub default: Fallback,
    /// What it means, in one line.
    pub doc: &'static str,
    /// The flag and the variable that say the same.
    pub flag: Option<Flag>,
    /// Whether it gives a rule a purpose although it limits nothing.
    pub purpose: bool,
    /// Whether its value may be or hold a credential: no problem quotes it.
    pub secret: bool,
}

/// The shape of a value in a file. A text says more in prose than JSON Schema can.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A string.
    One(&'static str),
    /// A number, or a string.
    Number(&'static str),
    /// A string or a list of strings.
    OneOrList(&'static str),
    /// One of these strings.
    Words(&'static [&'static str]),
    /// One of these strings, or a table.
    OneOrTable(&'static [&'static str], &'static Section),
    /// `true` or `false`.
    Switch,
    /// A table.
    Table(&'static Section),
    /// A list of tables.
    Tables(&'static Section),
}

/// What holds where a key is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The same as with this value, in TOML.
    Value(&'static str),
    /// No value says the same; these words do.
    Prose(&'static str),
    /// Nothing: the key is required.
    Nothing,
}

/// A flag, and the variable that says the same.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// With its hyphens.
    pub name: &'static str,
    /// With its prefix.
    pub variable: &'static str,
    /// What may stand between several values in the variable; a flag is repeated.
    pub separators: &'static [char],
    /// The value that the help calls the default, if it names one.
    pub default: Option<&'static str>,
}

/// The keys of one table of a file.
#[derive(Debug)]
pub struct Section {
    /// What a hint calls it.
    pub title: &'static str,
    /// Its keys, in the order in which they are listed.
    pub keys: &'static [KeyEntry],
}

/// A key, and how its value is read.
pub(in crate::config) struct Key<T> {
    pub(in crate::config) entry: KeyEntry,
    pub(in crate::config) grammar: Grammar<T>,
}

// === impl Section ===

impl Section {
    /// The names of its keys.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|entry| entry.name)
    }
}

// === impl KeyEntry ===

impl KeyEntry {
    /// Whether its table is wrong without it.
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
    /// Reads `text`, and quotes nothing of it in what is wrong if it may be a credential.
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
