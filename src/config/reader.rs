//! Reads typed values from a parsed TOML table, and collects all problems.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use toml::de::{DeTable, DeValue};

use super::{
    diagnostic::{Diagnostic, Place, Severity, Spanned},
    keys::{Key, SECTIONS, Section, TOP},
    synonyms,
    value::grammar,
};

/// A file being read, with the problems found so far.
pub(super) struct Reader<'a> {
    name: Arc<str>,
    /// Folder against which relative file names are resolved.
    folder: PathBuf,
    text: &'a str,
    /// Offsets of the lines.
    lines: Vec<usize>,
    pub(super) problems: Vec<Diagnostic>,
}

/// A table of a file.
#[derive(Clone)]
pub(super) struct Table<'a> {
    entries: &'a DeTable<'a>,
    /// Prefix of the paths of its keys: `timeouts.`, or nothing.
    prefix: &'static str,
    span: Range<usize>,
}

/// A value, with the path that names it in problems.
struct RawValue<'a> {
    key: String,
    value: &'a DeValue<'a>,
    span: Range<usize>,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// A reader of the file at `path`, whose content is `text`.
    pub(super) fn new(path: &Path, text: &'a str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(newline, _)| newline + 1)).collect();
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self { name: path.to_string_lossy().into(), folder, text, lines, problems: Vec::new() }
    }

    /// Line and column of the byte at `offset`.
    pub(super) fn place(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = self.lines.partition_point(|start| *start <= before.len());
        let column = before[self.lines[line - 1]..].chars().count() + 1;
        Place::File { name: self.name.clone(), at: Some((line, column)) }
    }

    /// Position of the header of `table`, for problems.
    pub(super) fn header(&self, table: &Table<'_>) -> Spanned<()> {
        Spanned { value: (), text: String::new(), key: None, place: self.place(table.span.start) }
    }

    /// The lines of `table`: from its header to the line before the next header of another table.
    pub(super) fn lines_of(&self, table: &Table<'_>) -> Range<usize> {
        let first = self.lines.partition_point(|start| *start <= table.span.start);
        let is_header = |line: &str| line.starts_with('[') && !line.starts_with("[rule.");
        let rest = self.text.lines().skip(first);
        first..first + 1 + rest.take_while(|line| !is_header(line.trim_start())).count()
    }

    /// Reports every key of `table` that is not in `section`, with a guess: a similar key, or the same key of another
    /// table.
    pub(super) fn only(&mut self, table: &Table<'_>, section: &Section) {
        let known: Vec<&str> = section.names().collect();
        let other_table = |name: &str| {
            let others = SECTIONS.into_iter().filter(|other| other.title != section.title);
            others.into_iter().find(|other| other.names().any(|key| key == name))
        };
        for key in table.entries.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let elsewhere = || match other_table(name) {
                Some(other) if other.title == TOP.title => Some(format!("write it above {}", other.title)),
                other => other.map(|other| format!("write it under {}", other.title)),
            };
            let spelled_like = |least| nearest_by(least, name, &known).map(|meant| format!("write `{meant}`"));
            let hint = spelled_like(CERTAIN_SLIP)
                .or_else(elsewhere)
                .or_else(|| synonyms::key(name, section))
                .or_else(|| spelled_like(LIKELY_SLIP))
                .unwrap_or_else(|| format!("known here: {}", known.join(", ")));
            let at = self.at(key.span(), format!("{}{name}", table.prefix));
            self.problems.push(Diagnostic::error(&at, "unknown key", hint));
        }
    }

    /// The value of `key`.
    pub(super) fn one<T>(&mut self, table: &Table<'a>, key: &Key<T>) -> Option<Spanned<T>> {
        let item = table.item(key.entry.name)?;
        self.read(&item, key)
    }

    /// The values of `key`; a single one may stand without brackets. `None` if the key is missing; unreadable values
    /// are reported and left out.
    pub(super) fn several<T>(&mut self, table: &Table<'a>, key: &Key<T>) -> Option<Spanned<Vec<Spanned<T>>>> {
        let whole = table.item(key.entry.name)?;
        let values: Vec<_> = match whole.value {
            DeValue::Array(array) => {
                let items = array.iter().enumerate().map(|(index, value)| RawValue {
                    key: format!("{}[{index}]", whole.key),
                    value: value.get_ref(),
                    span: value.span(),
                });
                items.filter_map(|item| self.read(&item, key)).collect()
            }
            _ => self.read(&whole, key).into_iter().collect(),
        };
        Some(self.at(whole.span.clone(), whole.key.clone()).with(values))
    }

    /// The file that `key` names.
    pub(super) fn file(&mut self, table: &Table<'a>, key: &Key<PathBuf>) -> Option<Spanned<PathBuf>> {
        self.one(table, key).map(|file| self.beside(file))
    }

    /// The files that `key` names.
    pub(super) fn files(&mut self, table: &Table<'a>, key: &Key<PathBuf>) -> Option<Vec<Spanned<PathBuf>>> {
        let files = self.several(table, key)?.value;
        Some(files.into_iter().map(|file| self.beside(file)).collect())
    }

    /// Makes `path` relative to the folder of its file, independent of the current folder.
    pub(super) fn beside(&self, path: Spanned<PathBuf>) -> Spanned<PathBuf> {
        Spanned { value: self.folder.join(&path.value), ..path }
    }

    /// The folder of the file.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The value of `key`, which is `true` or `false`.
    pub(super) fn switch(&mut self, table: &Table<'a>, key: &Key<bool>) -> Option<Spanned<bool>> {
        let item = table.item(key.entry.name)?;
        match item.value {
            DeValue::Boolean(on) => Some(self.at(item.span.clone(), item.key.clone()).with(*on)),
            _ => {
                self.wrong_kind(&item, key.grammar.expected, key.grammar.example);
                None
            }
        }
    }

    /// The table under `key`.
    pub(super) fn table(&mut self, table: &Table<'a>, key: &str, prefix: &'static str) -> Option<Table<'a>> {
        let item = table.item(key)?;
        match item.value {
            DeValue::Table(entries) => Some(Table { entries, prefix, span: item.span }),
            _ => {
                self.wrong_kind(&item, "a table", &format!("[{key}] on a line of its own, and its keys below"));
                None
            }
        }
    }

    /// The tables under `[[key]]`. Problems name keys without a prefix, because the line shows the table.
    pub(super) fn tables(&mut self, table: &Table<'a>, key: &str) -> Vec<Table<'a>> {
        let Some(whole) = table.item(key) else { return Vec::new() };
        let example = format!("[[{key}]] on a line of its own, and its keys below");
        let DeValue::Array(array) = whole.value else {
            self.wrong_kind(&whole, "a list of tables", &example);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (index, value) in array.iter().enumerate() {
            match value.get_ref() {
                DeValue::Table(entries) => tables.push(Table { entries, prefix: "", span: value.span() }),
                other => {
                    let item = RawValue { key: format!("{key}[{index}]"), value: other, span: value.span() };
                    self.wrong_kind(&item, "a table", &example);
                }
            }
        }
        tables
    }

    fn read<T>(&mut self, item: &RawValue<'_>, key: &Key<T>) -> Option<Spanned<T>> {
        let grammar = &key.grammar;
        // Whole numbers go through the same grammar: `threads = 4` is valid, and `drain = 30` gets the hint "30s".
        let text = match item.value {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            _ => {
                match key.entry.secret {
                    false => self.wrong_kind(item, grammar.expected, grammar.example),
                    true => self.expected(item, grammar.expected, "something else", grammar.example),
                }
                return None;
            }
        };
        let at = Spanned { text: text.to_owned(), ..self.at(item.span.clone(), item.key.clone()) };
        match key.read(text) {
            Ok(value) => Some(at.with(value)),
            Err(wrong) => {
                self.problems.push(Diagnostic::error(&at, wrong.what, wrong.hint));
                None
            }
        }
    }

    fn wrong_kind(&mut self, item: &RawValue<'_>, expected: &str, example: &str) {
        let found = match item.value {
            DeValue::String(text) => format!("{:?}", grammar::shown(text)),
            DeValue::Table(_) => "a table".to_owned(),
            DeValue::Array(_) => "a list".to_owned(),
            _ => self.text.get(item.span.clone()).unwrap_or_default().to_owned(),
        };
        self.expected(item, expected, &found, example);
    }

    fn expected(&mut self, item: &RawValue<'_>, expected: &str, found: &str, example: &str) {
        let at = self.at(item.span.clone(), item.key.clone());
        let what = format!("expected {expected}, found {found}");
        self.problems.push(Diagnostic::error(&at, what, format!("write {example}")));
    }

    fn at(&self, span: Range<usize>, key: String) -> Spanned<()> {
        Spanned { value: (), text: String::new(), key: Some(key), place: self.place(span.start) }
    }
}

/// Parses the text of `reader`'s file. If there are syntax errors, reports nothing else: text after a syntax error
/// cannot be judged.
pub(super) fn parse<'a>(reader: &mut Reader<'a>) -> Option<serde_spanned::Spanned<DeTable<'a>>> {
    let (root, errors) = DeTable::parse_recoverable(reader.text);
    let hint = not_toml(reader.text);
    for error in &errors {
        let place = match error.span() {
            Some(span) => reader.place(span.start),
            None => Place::File { name: reader.name.clone(), at: None },
        };
        let what = format!("not TOML: {}", error.message().trim().replace('\n', "; "));
        let first = reader.problems.is_empty();
        let hint = match hint {
            Some(_) if !first => break,
            Some(hint) => Some(hint.to_owned()),
            None => error.span().map(|span| hint_for_line(reader.text, span.start)),
        };
        // Reports one mistake per line.
        let same = |problem: &Diagnostic| match (&problem.place, &place) {
            (Place::File { at: Some((line, _)), .. }, Place::File { at: Some((other, _)), .. }) => line == other,
            _ => false,
        };
        if !reader.problems.iter().any(same) {
            reader.problems.push(Diagnostic { severity: Severity::Error, place, key: None, what, hint });
        }
    }
    errors.is_empty().then_some(root)
}

/// Advice for a whole file in another language.
fn not_toml(text: &str) -> Option<&'static str> {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.clone().next()?;
    if first.starts_with('{') {
        return Some("this is JSON: write TOML, as in listen = \"127.0.0.1:3128\" (andante init prints a file)");
    }
    let is_yaml = |line: &str| {
        let entry = line.trim_start().trim_start_matches("- ");
        let key = entry.split_once(':').map(|(key, rest)| (key, rest.is_empty() || rest.starts_with(' ')));
        key.is_some_and(|(key, spaced)| spaced && !key.is_empty() && !key.contains(['=', '"', '\'', '[', ' ']))
    };
    (first == "---" || lines.all(is_yaml))
        .then_some("this is YAML: write TOML, as in limits = \"500/min\" below [[rule]] (andante init prints a file)")
}

/// Advice for the line at `offset`, which is not TOML.
fn hint_for_line(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next().unwrap_or_default().trim();
    let is_key =
        |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let is_secret = |key: &str| SECTIONS.iter().flat_map(|section| section.keys).any(|e| e.secret && e.name == key);
    let may_show = |key: &str, value: &str| {
        is_key(key.trim()) && !is_secret(key.trim()) && !value.contains('@') && !value.trim().is_empty()
    };
    let quoted = |value: &str| format!("\"{}\"", value.trim().trim_matches(['"', '\'']));
    match (line.split_once('='), line.split_once(':')) {
        (Some((key, _)), _) if line_has_twin(text, start, key) => {
            format!("write `{}` once; several values are a list: [\"a\", \"b\"]", key.trim())
        }
        (Some((key, value)), _) if value.trim().starts_with('[') && value.trim_end().ends_with(']') => {
            format!("write each text in quotes: {} = [\"…\", \"…\"]", key.trim())
        }
        (Some((key, value)), _) if value.trim_start().starts_with('[') => {
            format!("close the list: {} = [\"…\", \"…\"]", key.trim())
        }
        // The quoted text may be a password.
        (Some((key, value)), _) if may_show(key, value) => {
            format!("write text in quotes: {} = {}", key.trim(), quoted(value))
        }
        (None, Some((key, value))) if may_show(key, value) => {
            format!("write {} = {}", key.trim(), quoted(value))
        }
        (Some((key, _)), _) if is_key(key.trim()) => format!("write text in quotes: {} = \"…\"", key.trim()),
        _ if line.starts_with('[') => "write [[rule]], with as many brackets behind as before".to_owned(),
        _ => "write key = \"value\", as in limits = \"500/min\"".to_owned(),
    }
}

/// Returns whether the same table contains `key` before the line that begins at `start`.
fn line_has_twin(text: &str, start: usize, key: &str) -> bool {
    let above = text[..start].lines().rev().take_while(|line| !line.trim_start().starts_with('['));
    let key = key.trim();
    above.into_iter().any(|line| line.split_once('=').is_some_and(|(other, _)| other.trim() == key))
}

// === impl Table ===

impl<'a> Table<'a> {
    /// The root table of the file.
    pub(super) fn root(root: &'a serde_spanned::Spanned<DeTable<'a>>) -> Self {
        Self { entries: root.get_ref(), prefix: "", span: root.span() }
    }

    /// Returns whether `key` is present, with a valid value or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns whether `key` is present and a table itself.
    pub(super) fn has_table(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|value| matches!(value.get_ref(), DeValue::Table(_)))
    }

    fn item(&self, key: &str) -> Option<RawValue<'a>> {
        let value = self.entries.get(key)?;
        Some(RawValue { key: format!("{}{key}", self.prefix), value: value.get_ref(), span: value.span() })
    }
}

/// The known key that `name` probably misspells.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    nearest_by(LIKELY_SLIP, name, known)
}

/// The known key that is at least this similar to `name` (Jaro-Winkler, 1 for equality).
fn nearest_by<'k>(least: f64, name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let best = known.iter().map(|key| (strsim::jaro_winkler(&name, key), *key)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > least).then_some(best.1)
}

/// Similarity of two words that differ by a typing error, whatever they mean.
const CERTAIN_SLIP: f64 = 0.94;
/// Similarity of a word to the word that it probably misspells.
const LIKELY_SLIP: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = ["host", "limits", "in-flight", "max-wait", "max-waiting"];
        for (slip, meant) in [
            ("hosts", "host"),
            ("limit", "limits"),
            ("inflight", "in-flight"),
            ("max_wait", "max-wait"),
            ("Host", "host"),
        ] {
            assert_eq!(nearest(slip, &known), Some(meant), "{slip}");
        }
        assert_eq!(nearest("colour", &known), None);
    }

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let reader = Reader::new(Path::new("f"), "a\nöb\n");
        assert_eq!(reader.place(0), Place::File { name: "f".into(), at: Some((1, 1)) });
        assert_eq!(reader.place(4), Place::File { name: "f".into(), at: Some((2, 2)) });
        assert_eq!(reader.place(99), Place::File { name: "f".into(), at: Some((3, 1)) });
    }
}
