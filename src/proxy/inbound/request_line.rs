//! Escapes bytes of a target that the parser refuses, before it sees them.
//!
//! Clients send `"`, `<` and `>` in queries (PromQL, JSON filters), a grave accent in paths, and text in Latin-1. RFC
//! 3986 allows none of these in a URI, but servers accept them. Browsers escape exactly these bytes (WHATWG URL §1.3),
//! and servers treat both spellings alike. A request line without such bytes is not touched.

/// Position of the next byte in a request line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestLine {
    /// In the method, or before it.
    #[default]
    Method,
    /// In the target, before its query.
    Path,
    /// In the query.
    Query,
    /// Behind the line.
    Over,
}

// === impl RequestLine ===

impl RequestLine {
    /// Continues with the `read` bytes. Returns them with escapes, if bytes of the target need some.
    pub(crate) fn escaped(&mut self, read: &[u8]) -> Option<Vec<u8>> {
        if *self == Self::Over {
            return None;
        }
        let start = match self {
            // Empty lines before a request are skipped (RFC 9112 §2.2).
            Self::Method => read.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(read.len()),
            _ => 0,
        };
        let end = memchr::memchr(b'\n', &read[start..]).map_or(read.len(), |end| start + end);
        let line = &read[start..end];
        let is_plain = line.is_ascii()
            && memchr::memchr3(b'"', b'<', b'>', line).is_none()
            && memchr::memchr(b'`', line).is_none();
        let escaped = (!is_plain).then(|| {
            let mut escaped = read[..start].to_vec();
            self.escape(line, &mut escaped);
            escaped.extend_from_slice(&read[end..]);
            escaped
        });
        if escaped.is_none() && end == read.len() {
            // The rest of the line comes later.
            line.iter().for_each(|byte| self.pass(*byte));
        }
        if end < read.len() {
            *self = Self::Over;
        }
        escaped.filter(|escaped| escaped.len() != read.len())
    }

    fn escape(&mut self, line: &[u8], escaped: &mut Vec<u8>) {
        let is_text = std::str::from_utf8(line).is_ok();
        for byte in line {
            let refused = match (*self, byte) {
                (Self::Method | Self::Over, _) => false,
                (_, 0x80..) => !is_text,
                (_, b'<' | b'>') | (Self::Query, b'"') | (Self::Path, b'`') => true,
                _ => false,
            };
            match refused {
                true => escaped.extend_from_slice(format!("%{byte:02X}").as_bytes()),
                false => escaped.push(*byte),
            }
            self.pass(*byte);
        }
    }

    fn pass(&mut self, byte: u8) {
        *self = match (*self, byte) {
            (Self::Method, b' ') => Self::Path,
            (Self::Path, b'?') => Self::Query,
            (Self::Path | Self::Query, b' ') => Self::Over,
            (line, _) => line,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(pieces: &[&[u8]]) -> Vec<u8> {
        let mut line = RequestLine::default();
        pieces.iter().flat_map(|piece| line.escaped(piece).unwrap_or_else(|| piece.to_vec())).collect()
    }

    #[test]
    fn refused_bytes_of_a_target_are_escaped_and_others_stay() {
        for (target, sent) in [
            (&b"/q?query=up{job=\"api\"}"[..], &b"/q?query=up{job=%22api%22}"[..]),
            (b"/q?a=<b>&c=`|^\\[]", b"/q?a=%3Cb%3E&c=`|^\\[]"),
            (b"/a\"b`c", b"/a\"b%60c"),
            (b"http://a.test/caf\xe9", b"http://a.test/caf%E9"),
            ("/café?ü".as_bytes(), "/café?ü".as_bytes()),
            (b"/%22%zz", b"/%22%zz"),
        ] {
            let line = |target: &[u8]| [b"GET ", target, b" HTTP/1.1\r\nX: \"<\xe9\r\n\r\n\"`<"].concat();
            assert_eq!(escaped(&[&line(target)]), line(sent));
            let whole = line(target);
            // Text that comes in two reads may be escaped, which has the same meaning.
            let ascii = target.is_ascii();
            (0..whole.len()).filter(|_| ascii).for_each(|at| {
                assert_eq!(escaped(&[&whole[..at], &whole[at..]]), line(sent));
            });
        }
    }

    #[test]
    fn empty_lines_before_a_request_may_come_in_reads_of_their_own() {
        let line: &[u8] = b"GET /q?a=\"b\" HTTP/1.1\r\n\r\n";
        for before in [&[&b"\r\n"[..]][..], &[b"\r", b"\n"], &[b"\n", b"\r\n\r", b"\n"]] {
            let pieces: Vec<&[u8]> = before.iter().copied().chain([line]).collect();
            assert_eq!(escaped(&pieces), [&before.concat(), &b"GET /q?a=%22b%22 HTTP/1.1\r\n\r\n"[..]].concat());
        }
    }

    #[test]
    fn method_and_fields_are_not_touched() {
        for request in
            [&b"G\"T / HTTP/1.1\r\n\r\n"[..], b"\r\nGET / HTTP/1.1\r\nA: \"b\"\r\n\r\n", b"\x16\x03\x01\xff\"", b""]
        {
            assert_eq!(escaped(&[request]), request);
        }
    }
}
