//! Reads the requests of a batch: JSON lines, a table with an address for each row, or one URL a line.

mod line;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE},
};
use url::Url;

use self::line::{InputLine, LineBody};
use super::{
    item::{Id, Item, gateway_address},
    template::Template,
};

/// How an input is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    JsonLines,
    /// Comma-separated values with a line of names, for the places of an address.
    Csv,
    /// One URL a line.
    Urls,
}

/// What holds for each request that does not say otherwise.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// The method; else GET, or POST with a body.
    pub method: Option<Method>,
    /// Fields.
    pub headers: HeaderMap,
    /// What addresses are relative to.
    pub base: Option<Url>,
    /// The address for each row of a table.
    pub template: Option<String>,
}

/// The requests of a file, one after the other.
pub struct Input {
    rows: Rows,
    defaults: Defaults,
    template: Option<Template>,
}

enum Rows {
    Json(u64, Lines<BufReader<File>>),
    Urls(u64, Lines<BufReader<File>>),
    Csv(csv::StringRecord, csv::StringRecordsIntoIter<File>),
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("could not read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line says something that is no request.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The address for rows of a table is of no use.
    #[error("{0}")]
    Template(String),
}

/// What a request is sent with is not the input's to say: hop by hop (RFC 9110 §7.6.1), or about the length.
const OURS: [HeaderName; 6] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE, EXPECT];

// === impl Format ===

impl Format {
    /// How `path` is written, by its name, or by its first character that is no space.
    pub fn of(path: &Path) -> Result<Self, InputError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
        match ending.as_str() {
            "jsonl" | "ndjson" | "json" => return Ok(Self::JsonLines),
            "csv" => return Ok(Self::Csv),
            _ => {}
        }
        let unread = |source| InputError::File { path: path.to_owned(), source };
        for line in BufReader::new(File::open(path).map_err(unread)?).lines() {
            match line.map_err(unread)?.trim_start().chars().next() {
                Some('{') => return Ok(Self::JsonLines),
                Some(_) => return Ok(Self::Urls),
                None => {}
            }
        }
        Ok(Self::Urls)
    }
}

// === impl Input ===

impl Input {
    /// Opens `path`.
    pub fn open(path: &Path, format: Format, defaults: &Defaults) -> Result<Self, InputError> {
        let unread = |source| InputError::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(unread)?;
        let mut template = None;
        let rows = match format {
            Format::JsonLines => Rows::Json(0, BufReader::new(file).lines()),
            Format::Urls => Rows::Urls(0, BufReader::new(file).lines()),
            Format::Csv => {
                let mut reader = csv::Reader::from_reader(file);
                let names = reader.headers().map_err(|error| unread(io::Error::other(error)))?.clone();
                let address = defaults.template.as_deref().ok_or_else(|| {
                    InputError::Template("a table needs an address with its columns: --url 'https://…/{id}'".into())
                })?;
                let parsed = Template::parse(address).map_err(InputError::Template)?;
                if let Some(unknown) = parsed.columns().find(|column| !names.iter().any(|name| name == *column)) {
                    let names = names.iter().collect::<Vec<_>>().join(", ");
                    return Err(InputError::Template(format!("there is no column {unknown:?}; there are: {names}")));
                }
                template = Some(parsed);
                Rows::Csv(names, reader.into_records())
            }
        };
        Ok(Self { rows, defaults: defaults.clone(), template })
    }
}

impl Iterator for Input {
    type Item = Result<Item, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (number, read) = match &mut self.rows {
                Rows::Json(number, lines) | Rows::Urls(number, lines) => {
                    *number += 1;
                    (*number, lines.next()?)
                }
                Rows::Csv(names, records) => {
                    let row = match records.next()? {
                        Ok(row) => row,
                        Err(error) => {
                            let line = error.position().map_or(0, csv::Position::line);
                            return Some(Err(InputError::Line { line, what: error.to_string() }));
                        }
                    };
                    let line = row.position().map_or(0, csv::Position::line);
                    let value = |column: &str| {
                        names.iter().zip(row.iter()).find(|(name, _)| *name == column).map(|pair| pair.1)
                    };
                    let id = [Id::MEMBER, Id::CUSTOM]
                        .into_iter()
                        .find_map(|member| Some(Id { member, name: value(member)?.to_owned() }));
                    let template = self.template.as_ref().expect("a table has one");
                    let item = self.defaults.item(
                        id.unwrap_or_else(|| numbered(line)),
                        None,
                        &template.fill(value),
                        HeaderMap::new(),
                        Bytes::new(),
                    );
                    return Some(item.map_err(|what| InputError::Line { line, what }));
                }
            };
            let text = match read {
                Ok(text) => text,
                Err(error) => return Some(Err(InputError::Line { line: number, what: error.to_string() })),
            };
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            let item = if matches!(self.rows, Rows::Json(..)) {
                self.defaults.json(number, text)
            } else if text.starts_with('#') {
                continue;
            } else {
                self.defaults.plain(number, text)
            };
            return Some(item.map_err(|what| InputError::Line { line: number, what }));
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
        self.item(line.id(number)?, line.method()?.as_deref(), &line.url()?, headers, body)
    }

    /// A line with a URL alone. What else it says is not told: it may be a secret.
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
        self.item(numbered(number), None, text, HeaderMap::new(), Bytes::new())
    }

    fn item(
        &self,
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
        Ok(Item { id, method, url: self.address(url)?, headers, body })
    }

    fn address(&self, text: &str) -> Result<Url, String> {
        let parsed = match &self.base {
            Some(base) => base.join(text),
            None => Url::parse(text),
        };
        let url = parsed.map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => {
                "`url` is not a whole one: name the API by --base-url".to_owned()
            }
            error => format!("`url` cannot be read: {error}"),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            // What stands before the first colon may be a user name.
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

/// A field that an input may set.
pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    // What is no name may have its value in it, and that may be a secret.
    let known: HeaderName = name.trim().parse().map_err(|_| "what stands before its colon is no field name")?;
    if OURS.contains(&known) || known.as_str().starts_with("proxy-") {
        return Err(format!("the field {known} is not for a request to say: leave it out"));
    }
    let value = HeaderValue::from_str(value.trim()).map_err(|_| format!("the value of {known} is no field value"))?;
    Ok((known, value))
}
