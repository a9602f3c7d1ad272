//! Reads the requests of a batch: JSON lines, a table whose rows fill an address, or one URL per line.

mod line;
mod table;
#[cfg(test)]
mod tests;
mod text_lines;

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE},
};
use url::Url;

use self::{
    line::{InputLine, LineBody},
    table::Table,
    text_lines::TextLines,
};
use super::item::{Id, Item, gateway_address};

/// Format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON objects, one per line.
    JsonLines,
    /// Table with a line of column names, separated by commas, semicolons or tabs. Each row fills an address.
    Csv,
    /// URLs, one per line.
    Urls,
}

/// Values for requests that do not state their own.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// Method; `None` means GET, or POST for a request with a body.
    pub method: Option<Method>,
    /// Header fields, each for requests that have no field of its name.
    pub headers: HeaderMap,
    /// Base of relative URLs.
    pub base: Option<Url>,
    /// Address for each row of a table, with places for columns.
    pub template: Option<String>,
    /// Body for each row of a table, with places for columns.
    pub body: Option<String>,
    /// Column of a table that names its rows.
    pub id: Option<String>,
}

/// Iterator over the requests of an input, in their order.
pub struct Input {
    rows: Rows,
    defaults: Defaults,
}

enum Rows {
    Json(TextLines<Box<dyn BufRead + Send>>),
    Urls(TextLines<Box<dyn BufRead + Send>>),
    Csv(Box<Table>),
}

/// Reason why a request cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("could not read {}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line cannot be read, or is not a valid request.
    #[error("line {line}: {what}")]
    Line {
        /// Line number, from 1.
        line: u64,
        /// Description of the mistake.
        what: String,
    },
    /// The address, body or id column for the rows of a table is missing, or does not fit its columns.
    #[error("{0}")]
    Template(String),
}

/// Fields that an input may not set, because the sender sets them: hop-by-hop fields (RFC 9110 §7.6.1), the length of
/// the body, `Host` and `Expect`.
const OURS: [HeaderName; 6] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE, EXPECT];

// === impl Format ===

impl Format {
    /// Returns the format that the ending of `path` states; `None` for other endings.
    pub fn named(path: &Path) -> Option<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
        match ending.as_str() {
            "jsonl" | "ndjson" | "json" => Some(Self::JsonLines),
            "csv" => Some(Self::Csv),
            _ => None,
        }
    }

    /// Returns the format of an input that begins with `text`: JSON lines or URLs.
    pub fn of_text(text: &[u8]) -> Self {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{' | b'[') => Self::JsonLines,
            _ => Self::Urls,
        }
    }

    /// Returns the format of the file at `path`, by its name, or else by its first character other than white space.
    pub fn of(path: &Path) -> Result<Self, InputError> {
        if let Some(format) = Self::named(path) {
            return Ok(format);
        }
        let unread = |source| InputError::File { path: path.to_owned(), source };
        for (_, line) in TextLines::new(BufReader::new(File::open(path).map_err(unread)?)) {
            match line?.trim_start().chars().next() {
                Some('{' | '[') => return Ok(Self::JsonLines),
                Some(_) => return Ok(Self::Urls),
                None => {}
            }
        }
        Ok(Self::Urls)
    }
}

// === impl Input ===

impl Input {
    /// Opens the input at `path`.
    pub fn open(path: &Path, format: Format, defaults: &Defaults) -> Result<Self, InputError> {
        let unread = |source| InputError::File { path: path.to_owned(), source };
        Self::from_reader(Box::new(BufReader::new(File::open(path).map_err(unread)?)), format, defaults)
    }

    /// Reads requests as they arrive from `reader`.
    pub fn from_reader(
        reader: Box<dyn BufRead + Send>,
        format: Format,
        defaults: &Defaults,
    ) -> Result<Self, InputError> {
        let rows = match format {
            Format::JsonLines => Rows::Json(TextLines::new(reader)),
            Format::Urls => Rows::Urls(TextLines::new(reader)),
            Format::Csv => Rows::Csv(Box::new(Table::open(reader, defaults)?)),
        };
        Ok(Self { rows, defaults: defaults.clone() })
    }
}

impl Iterator for Input {
    type Item = Result<Item, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { rows, defaults } = self;
        let (lines, is_json) = match rows {
            Rows::Csv(table) => return table.next(defaults),
            Rows::Json(lines) => (lines, true),
            Rows::Urls(lines) => (lines, false),
        };
        loop {
            let (line, read) = lines.next()?;
            let text = match &read {
                Ok(text) => text.trim(),
                Err(_) => return read.err().map(Err),
            };
            if text.is_empty() || !is_json && text.starts_with('#') {
                continue;
            }
            let item = if is_json { defaults.json(line, text) } else { defaults.plain(line, text) };
            return Some(item.map_err(|what| InputError::Line { line, what }));
        }
    }
}

// === impl Defaults ===

impl Defaults {
    fn json(&self, number: u64, text: &str) -> Result<Item, String> {
        let line = InputLine::parse(text)?;
        let mut headers = line.headers()?;
        let body = match line.body()? {
            None => Bytes::new(),
            Some(LineBody::Text(text)) => text.into(),
            Some(LineBody::Json(json)) => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                Bytes::copy_from_slice(json.as_bytes())
            }
        };
        self.item(number, line.id(number)?, line.method()?.as_deref(), &line.url()?, headers, body)
    }

    /// Reads a line that holds only a URL. Errors never quote the line, because it may be a secret.
    fn plain(&self, number: u64, text: &str) -> Result<Item, String> {
        if text.starts_with('{') {
            return Err(
                "this is JSON, and the file is read as one URL a line: call it .jsonl, or add --format jsonl".into()
            );
        }
        if self.base.is_none() && Url::parse(text) == Err(url::ParseError::RelativeUrlWithoutBase) {
            let what =
                "this is no URL, and the file is read as one URL a line; what is relative to an API needs --base-url";
            return Err(what.into());
        }
        self.item(number, numbered(number), None, text, HeaderMap::new(), Bytes::new())
    }

    fn item(
        &self,
        line: u64,
        id: Id,
        method: Option<&str>,
        url: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Item, String> {
        let method = match method {
            Some(name) => name.parse().map_err(|_| format!("`method`: {name:?} is no method"))?,
            None if body.is_empty() => self.method.clone().unwrap_or(Method::GET),
            None => self.method.clone().unwrap_or(Method::POST),
        };
        if [Method::CONNECT, Method::TRACE].contains(&method) {
            return Err(format!("{method} cannot be sent in a batch"));
        }
        for (name, value) in &self.headers {
            if !headers.contains_key(name) {
                headers.append(name, value.clone());
            }
        }
        Ok(Item { line, id, method, url: self.address(url)?, headers, body })
    }

    fn address(&self, text: &str) -> Result<Url, String> {
        let parsed = match &self.base {
            Some(base) => base.join(text),
            None => Url::parse(text),
        };
        let url = parsed.map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => {
                "`url` is not a whole one: name the API by --base-url https://HOST".to_owned()
            }
            error => format!("`url` cannot be read: {error}"),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            // Does not quote the scheme: the text before the first colon may be a user name.
            return Err("`url` has to be http or https: begin it with http:// or https://".into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("`url` has a user name or password: send an Authorization field instead".into());
        }
        Uri::try_from(gateway_address(&url)).map_err(|error| format!("`url` cannot be sent: {error}"))?;
        Ok(url)
    }
}

fn numbered(line: u64) -> Id {
    Id { member: Id::LINE, name: line.to_string() }
}

/// Parses a header field that an input may set.
pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    // Does not quote an invalid name: it may include the value, which may be a secret.
    let known: HeaderName = name.trim().parse().map_err(|_| "what stands before its colon is no field name")?;
    if OURS.contains(&known) || known.as_str().starts_with("proxy-") {
        return Err(format!("the field {known} is not for a request to say: leave it out"));
    }
    let value = HeaderValue::from_str(value.trim()).map_err(|_| format!("the value of {known} is no field value"))?;
    Ok((known, value))
}
