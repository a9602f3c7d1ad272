//! Table whose rows fill an address and perhaps a body. Commas, semicolons or tabs separate its columns.

use std::{
    collections::VecDeque,
    io::{self, BufRead, Cursor, Read},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};

use super::{
    Defaults, InputError, numbered,
    text_lines::{MAX_LINE_BYTES, NOT_UTF8, utf16_advice},
};
use crate::batch::{
    item::{Id, Item},
    template::{Encoding, Template},
};

/// Iterator over the rows of a table.
pub(super) struct Table {
    names: csv::StringRecord,
    records: csv::StringRecordsIntoIter<Rest>,
    address: Template,
    body: Option<Template>,
    /// Column that names the rows.
    id: Option<String>,
}

/// Reader of a table whose first line was read ahead.
struct Rest {
    title: Cursor<Vec<u8>>,
    file: Box<dyn BufRead + Send>,
    lines: Lines,
    /// Bytes that may still be read before the current record ends. The bound keeps an unclosed quote from filling the
    /// memory.
    room: u64,
}

/// Line numbers of the records to be read next. The csv crate treats CR LF as the end of one record and the start of
/// another. It counts an empty line as part of the record below.
struct Lines {
    /// Number of bytes read.
    offset: u64,
    /// Line of the next byte, from 1.
    line: u64,
    /// True at the start of a line, and after a CR.
    is_empty: bool,
    /// Offset and line of the first byte of each run of bytes without CR and LF.
    begins: VecDeque<(u64, u64)>,
}

/// Separators of columns. Spreadsheets write semicolons where the comma is the decimal separator.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

// === impl Table ===

impl Table {
    /// Opens the table in `file`, with the address and the body of `defaults` for its rows.
    pub(super) fn open(mut file: Box<dyn BufRead + Send>, defaults: &Defaults) -> Result<Self, InputError> {
        let mut title = Vec::new();
        // The first MiB suffices to choose the separator. The csv reader gets the rest of a longer line, too.
        let read = file.by_ref().take(1 << 20).read_until(b'\n', &mut title);
        read.map_err(|error| InputError::Line { line: 1, what: error.to_string() })?;
        if let Some(what) = utf16_advice(&title) {
            return Err(InputError::Line { line: 1, what });
        }
        let separator = separator(&title);
        let rest = Rest { title: Cursor::new(title), file, lines: Lines::new(), room: MAX_LINE_BYTES };
        let mut reader = csv::ReaderBuilder::new().delimiter(separator).from_reader(rest);
        let names = match reader.headers() {
            Ok(names) => names.clone(),
            Err(error) => return Err(InputError::Line { line: 1, what: what(&error) }),
        };
        let address = defaults.template.as_deref().ok_or_else(|| {
            InputError::Template("a table needs an address with its columns: --url 'https://…/{id}'".into())
        })?;
        let address = Template::parse(address).map_err(InputError::Template)?;
        let known = |column: &str| names.iter().any(|name| name == column);
        let listed = || names.iter().collect::<Vec<_>>().join(", ");
        for column in address.columns().chain(defaults.id.as_deref()) {
            if !known(column) {
                return Err(InputError::Template(format!("there is no column {column:?}; there are: {}", listed())));
            }
        }
        let body = defaults.body.as_deref().map(|text| Template::of_body(text, encoding(text, defaults), known));
        if body.as_ref().is_some_and(|body| body.columns().next().is_none()) {
            let hint = format!("the body of --body names no column, as in {{NAME}}; there are: {}", listed());
            return Err(InputError::Template(hint));
        }
        if address.columns().chain(body.iter().flat_map(Template::columns)).next().is_none() {
            let hint = format!("the address of --url names no column, as in {{NAME}}; there are: {}", listed());
            return Err(InputError::Template(hint));
        }
        Ok(Self { names, records: reader.into_records(), address, body, id: defaults.id.clone() })
    }

    /// Returns the next row as a request, completed by `defaults`.
    pub(super) fn next(&mut self, defaults: &Defaults) -> Option<Result<Item, InputError>> {
        self.records.reader_mut().get_mut().room = MAX_LINE_BYTES;
        let read = self.records.next()?;
        let position = match &read {
            Ok(row) => row.position(),
            Err(error) => error.position(),
        };
        let lines = &mut self.records.reader_mut().get_mut().lines;
        let line = position.map_or(lines.line, |position| lines.of_record(position.byte()));
        let row = match read {
            Ok(row) => row,
            Err(error) => return Some(Err(InputError::Line { line, what: what(&error) })),
        };
        Some(self.item(&row, line, defaults).map_err(|what| InputError::Line { line, what }))
    }

    fn item(&self, row: &csv::StringRecord, line: u64, defaults: &Defaults) -> Result<Item, String> {
        let value =
            |column: &str| self.names.iter().zip(row.iter()).find(|(name, _)| *name == column).map(|pair| pair.1);
        let named = |member: &'static str, column: &str| Some(Id { member, name: value(column)?.to_owned() });
        let id = match &self.id {
            Some(column) => named(Id::MEMBER, column),
            None => [Id::MEMBER, Id::CUSTOM].into_iter().find_map(|member| named(member, member)),
        };
        let mut headers = HeaderMap::new();
        let body = match &self.body {
            None => Bytes::new(),
            Some(template) => {
                let text = template.fill(value);
                if template.encoding() == Encoding::Json {
                    serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(|_| {
                        "its --body is no JSON: put places for text in quotes, as in \"{NAME}\"".to_owned()
                    })?;
                    // A Content-Type from --header takes precedence.
                    if !defaults.headers.contains_key(CONTENT_TYPE) {
                        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                    }
                }
                text.into()
            }
        };
        let id = id.unwrap_or_else(|| numbered(line));
        defaults.item(line, id, None, &self.address.fill(value), headers, body)
    }
}

// === impl Rest ===

impl Read for Rest {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = match self.title.read(buffer)? {
            0 => self.file.read(buffer)?,
            length => length,
        };
        self.lines.on_read(&buffer[..length]);
        let Some(room) = self.room.checked_sub(length as u64) else {
            let told = format!(
                "it is longer than {MAX_LINE_BYTES} bytes: close each quote, and write one request in each row"
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, told));
        };
        self.room = room;
        Ok(length)
    }
}

// === impl Lines ===

impl Lines {
    fn new() -> Self {
        Self { offset: 0, line: 1, is_empty: true, begins: VecDeque::new() }
    }

    fn on_read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => (self.line, self.is_empty) = (self.line + 1, true),
                b'\r' => self.is_empty = true,
                _ if self.is_empty => {
                    self.begins.push_back((self.offset, self.line));
                    self.is_empty = false;
                }
                _ => {}
            }
            self.offset += 1;
        }
    }

    /// Returns the line of the record that starts at offset `byte` for the csv crate. Forgets the lines before it.
    fn of_record(&mut self, byte: u64) -> u64 {
        while self.begins.front().is_some_and(|(begin, _)| *begin < byte) {
            self.begins.pop_front();
        }
        self.begins.front().map_or(self.line, |(_, line)| *line)
    }
}

/// Returns the encoding of values in the body template `text`, by its Content-Type and its first character.
fn encoding(text: &str, defaults: &Defaults) -> Encoding {
    let kind = defaults.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match text.trim_start().chars().next() {
        _ if kind.contains("x-www-form-urlencoded") => Encoding::Url,
        Some('{' | '[') if kind.is_empty() || kind.contains("json") => Encoding::Json,
        _ => Encoding::Plain,
    }
}

/// Returns the separator that occurs most often in the first line `title`. On a tie the first of [`SEPARATORS`] wins.
fn separator(title: &[u8]) -> u8 {
    let count = |separator: u8| title.iter().filter(|byte| **byte == separator).count();
    let mut best = SEPARATORS[0];
    for separator in SEPARATORS {
        if count(separator) > count(best) {
            best = separator;
        }
    }
    best
}

/// Describes the mistake in a row, without quoting its values.
fn what(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => NOT_UTF8.to_owned(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!(
                "it has {len} columns, and the first line has {expected_len}: put a text with a separator in quotes"
            )
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_an_end_is_an_error_once_its_room_is_used_up() {
        let file = Box::new(io::BufReader::new(io::repeat(b'x')));
        let rest = Rest { title: Cursor::new(b"a\n\"".to_vec()), file, lines: Lines::new(), room: 100_000 };
        let mut records = csv::Reader::from_reader(rest).into_records();
        let told = what(&records.next().unwrap().unwrap_err());
        assert!(told.starts_with("it is longer than") && told.contains("close each quote"), "{told}");
        assert!(records.next().is_none());
    }
}
