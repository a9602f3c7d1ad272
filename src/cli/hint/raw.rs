//! An HTTP answer as text, as `curl -i` prints it.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Parts of the answer.
#[derive(Debug)]
pub(super) struct Raw<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: &'a [u8],
}

/// Reason why a text is no answer.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum RawError {
    #[error("it is empty")]
    Empty,
    #[error("line {line}: expected a status line, found {found:?}")]
    Status { line: usize, found: String },
    #[error("line {line}: expected a field as in \"Retry-After: 5\", found {found:?}")]
    Field { line: usize, found: String },
}

/// Characters that are shown of a wrong line.
const SHOWN: usize = 80;

// === impl Raw ===

impl<'a> Raw<'a> {
    /// Parses an answer whose lines end with CRLF or LF. Of several answers the last one counts: earlier ones are
    /// interim answers (1xx), a proxy's answer to CONNECT, and followed redirections.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, RawError> {
        let mut lines = Lines { rest: text, number: 0 };
        loop {
            let status = lines.status()?;
            let headers = lines.fields()?;
            if !lines.rest.starts_with(b"HTTP/") {
                return Ok(Self { status, headers, body: lines.rest });
            }
        }
    }
}

struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

// === impl Lines ===

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let end = self.rest.iter().position(|c| *c == b'\n');
        let (line, rest) = end.map_or((self.rest, &[][..]), |end| (&self.rest[..end], &self.rest[end + 1..]));
        self.rest = rest;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn status(&mut self) -> Result<StatusCode, RawError> {
        let mut line = self.next();
        // Editors leave a line or two above the status line.
        while line.is_some_and(|line| line.trim_ascii().is_empty()) {
            line = self.next();
        }
        let line = line.ok_or(RawError::Empty)?;
        let wrong = || RawError::Status { line: self.number, found: shown(line) };
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let mut words = line.split(|c| *c == b' ').filter(|word| !word.is_empty());
        let version = words.next().filter(|word| word.starts_with(b"HTTP/"));
        version.and(words.next()).and_then(|code| StatusCode::from_bytes(code).ok()).ok_or_else(wrong)
    }

    fn fields(&mut self) -> Result<HeaderMap, RawError> {
        let mut fields: Vec<(HeaderName, Vec<u8>)> = Vec::new();
        while let Some(line) = self.next().filter(|line| !line.is_empty()) {
            let wrong = || RawError::Field { line: self.number, found: shown(line) };
            if line.starts_with(b" ") || line.starts_with(b"\t") {
                // A continuation of the field above (RFC 9112 §5.2), which is obsolete.
                let (_, value) = fields.last_mut().ok_or_else(wrong)?;
                value.push(b' ');
                value.extend_from_slice(line.trim_ascii());
                continue;
            }
            let colon = line.iter().position(|c| *c == b':').ok_or_else(wrong)?;
            let name = HeaderName::from_bytes(line[..colon].trim_ascii_end()).map_err(|_| wrong())?;
            fields.push((name, line[colon + 1..].trim_ascii().to_vec()));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let wrong = || RawError::Field { line: self.number, found: shown(&value) };
            let value = HeaderValue::from_bytes(&value).map_err(|_| wrong())?;
            headers
                .try_append(name, value)
                .map_err(|_| RawError::Field { line: self.number, found: "too many fields".to_owned() })?;
        }
        Ok(headers)
    }
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_either_way_and_reasons_are_left_out() {
        for text in [
            "HTTP/1.1 429 Too Many\r\nA: 1\r\na: 2\r\n\r\n{}\n",
            "\nHTTP/2 429\nA : 1\na:2\n\n{}\n",
            "HTTP/1.1 429 \nA: 1\nA:\t2\n\n{}\n",
        ] {
            let raw = Raw::parse(text.as_bytes()).unwrap();
            assert_eq!(raw.status, 429, "{text}");
            assert_eq!(raw.headers.get_all("a").iter().collect::<Vec<_>>(), ["1", "2"], "{text}");
            assert_eq!(raw.body, b"{}\n", "{text}");
        }
        assert_eq!(Raw::parse(b"HTTP/2 204").unwrap().body, b"");
    }

    #[test]
    fn what_came_before_the_answer_is_passed_over() {
        let text = b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/2 302\r\n\r\nHTTP/2 503 \r\nretry-after: 5\r\n\r\n";
        let raw = Raw::parse(text).unwrap();
        assert_eq!((raw.status.as_u16(), raw.headers.len()), (503, 1));
    }

    #[test]
    fn what_is_no_answer_is_told_by_its_line() {
        let wrong = |text: &str| Raw::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(wrong(""), "it is empty");
        assert_eq!(wrong("{\"a\":1}"), "line 1: expected a status line, found \"{\\\"a\\\":1}\"");
        assert!(wrong("HTTP/1.1 OK").starts_with("line 1: expected a status line"));
        assert_eq!(
            wrong("HTTP/1.1 200 OK\nfine\n"),
            "line 2: expected a field as in \"Retry-After: 5\", found \"fine\""
        );
        assert!(wrong("HTTP/1.1 200 OK\n continued\n").starts_with("line 2: "));
    }
}
