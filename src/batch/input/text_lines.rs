//! Lines of a UTF-8 text. Errors about other encodings say how to convert the text.

use std::io::{self, BufRead, Read as _};

use super::InputError;

/// Maximum length of a line: 64 MiB. The bound keeps a pipe without line ends from filling the memory.
pub(super) const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;
/// Advice about text that is not UTF-8.
pub(super) const NOT_UTF8: &str =
    "this is not UTF-8, but perhaps Latin-1: convert it: `iconv -f latin1 -t utf-8 FILE > UTF8_FILE`";
/// UTF-8 byte-order mark, with which spreadsheets and editors on Windows begin files.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Iterator over lines, without line ends and byte-order mark.
pub(super) struct TextLines<R> {
    reader: R,
    number: u64,
    max_bytes: u64,
}

/// Returns advice if `text` begins like UTF-16: with a byte-order mark, or with a zero byte beside a nonzero one.
pub(super) fn utf16_advice(text: &[u8]) -> Option<String> {
    let encoding = match text {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "utf-16",
        [first, 0, ..] if *first != 0 => "utf-16le",
        [0, second, ..] if *second != 0 => "utf-16be",
        _ => return None,
    };
    Some(format!("this is UTF-16: convert it: `iconv -f {encoding} -t utf-8 FILE > UTF8_FILE`"))
}

// === impl TextLines ===

impl<R: BufRead> TextLines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, number: 0, max_bytes: MAX_LINE_BYTES }
    }
}

impl<R: BufRead> Iterator for TextLines<R> {
    /// Number of a line, from 1, and its text.
    type Item = (u64, Result<String, InputError>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(self.max_bytes + 1).read_until(b'\n', &mut bytes);
        self.number += 1;
        let line = self.number;
        let wrong = |what: String| Some((line, Err(InputError::Line { line, what })));
        match read {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return wrong(error.to_string()),
        }
        if bytes.len() as u64 > self.max_bytes {
            if let Err(error) = skip_line(&bytes, &mut self.reader) {
                return wrong(error.to_string());
            }
            return wrong(format!("it is longer than {} bytes: write one request on each line", self.max_bytes));
        }
        if line == 1
            && let Some(advice) = utf16_advice(&bytes)
        {
            // Every later line would fail for this reason, so all of them are skipped.
            let _ = io::copy(&mut self.reader, &mut io::sink());
            return wrong(advice);
        }
        let text = if line == 1 { bytes.strip_prefix(BOM).unwrap_or(&bytes) } else { &bytes };
        match std::str::from_utf8(text) {
            Ok(text) => Some((line, Ok(text.trim_end_matches(['\n', '\r']).to_owned()))),
            Err(_) => wrong(NOT_UTF8.to_owned()),
        }
    }
}

/// Skips the rest of a line whose first part, `begun`, was read.
fn skip_line(begun: &[u8], reader: &mut impl BufRead) -> io::Result<()> {
    if begun.ends_with(b"\n") {
        return Ok(());
    }
    reader.skip_until(b'\n').map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<(u64, Result<String, String>)> {
        TextLines::new(bytes).map(|(line, text)| (line, text.map_err(|error| error.to_string()))).collect()
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        assert_eq!(read(b"\xef\xbb\xbfa\r\nb"), [(1, Ok("a".into())), (2, Ok("b".into()))]);
    }

    #[test]
    fn a_line_that_is_too_long_is_an_error_with_its_number_and_the_next_is_read() {
        let bound = |bytes: &'static [u8]| TextLines { max_bytes: 3, ..TextLines::new(bytes) };
        let lines: Vec<_> = bound(b"ab\nabcdef\nabc\ncd\nabcd").map(|(line, text)| (line, text.ok())).collect();
        assert_eq!(lines, [(1, Some("ab".into())), (2, None), (3, None), (4, Some("cd".into())), (5, None)]);
        let error = bound(b"abcdef").next().unwrap().1.unwrap_err().to_string();
        assert!(error.starts_with("line 1: it is longer than 3 bytes"), "{error}");
    }

    #[test]
    fn text_in_another_encoding_is_told_what_to_do() {
        let lines = read(b"a\nM\xfcnchen\nb\n");
        assert_eq!((&lines[0].1, &lines[2].1), (&Ok("a".into()), &Ok("b".into())));
        assert!(lines[1].1.as_ref().unwrap_err().starts_with("line 2: this is not UTF-8"), "{lines:?}");
        let lines = read(b"\xff\xfea\0\n\0b\0\n\0");
        assert!(lines.len() == 1 && lines[0].1.as_ref().unwrap_err().contains("iconv -f utf-16 "), "{lines:?}");
        for (text, encoding) in [(b"a\0\n\0b\0\n\0", "utf-16le"), (b"\0a\0\n\0b\0\n", "utf-16be")] {
            let lines = read(text);
            let told = lines[0].1.as_ref().unwrap_err();
            assert!(lines.len() == 1 && told.contains(&format!("iconv -f {encoding} ")), "{lines:?}");
        }
    }
}
