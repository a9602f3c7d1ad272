//! The lines of a text, which has to be UTF-8. Says what to do about one that is not.

use std::io::{self, BufRead};

use super::InputError;

/// What to do about text that is not UTF-8.
pub(super) const NOT_UTF8: &str =
    "this is not UTF-8, but perhaps Latin-1: write the file anew by `iconv -f latin1 -t utf-8 FILE > UTF8_FILE`";
/// Advice for text in UTF-16.
pub(super) const UTF16: &str = "this is UTF-16: write the file anew by `iconv -f utf-16 -t utf-8 FILE > UTF8_FILE`";
/// A byte-order mark in UTF-8: spreadsheets and Windows' editors begin files with it.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Lines, without their ends and without a byte-order mark.
pub(super) struct TextLines<R> {
    reader: R,
    number: u64,
}

/// Whether a text that begins like this is UTF-16, by its byte-order mark.
pub(super) fn is_utf16(text: &[u8]) -> bool {
    text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff")
}

// === impl TextLines ===

impl<R: BufRead> TextLines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, number: 0 }
    }
}

impl<R: BufRead> Iterator for TextLines<R> {
    /// The number of a line, from 1, and what it says.
    type Item = (u64, Result<String, InputError>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Vec::new();
        let read = self.reader.read_until(b'\n', &mut bytes);
        self.number += 1;
        let line = self.number;
        let wrong = |what: String| Some((line, Err(InputError::Line { line, what })));
        match read {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return wrong(error.to_string()),
        }
        if line == 1 && is_utf16(&bytes) {
            // All that follows would be wrong in the same way.
            let _ = io::copy(&mut self.reader, &mut io::sink());
            return wrong(UTF16.to_owned());
        }
        let text = if line == 1 { bytes.strip_prefix(BOM).unwrap_or(&bytes) } else { &bytes };
        match std::str::from_utf8(text) {
            Ok(text) => Some((line, Ok(text.trim_end_matches(['\n', '\r']).to_owned()))),
            Err(_) => wrong(NOT_UTF8.to_owned()),
        }
    }
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
    fn text_in_another_encoding_is_told_what_to_do() {
        let lines = read(b"a\nM\xfcnchen\nb\n");
        assert_eq!((&lines[0].1, &lines[2].1), (&Ok("a".into()), &Ok("b".into())));
        assert!(lines[1].1.as_ref().unwrap_err().starts_with("line 2: this is not UTF-8"), "{lines:?}");
        let lines = read(b"\xff\xfea\0\n\0b\0\n\0");
        assert!(lines.len() == 1 && lines[0].1.as_ref().unwrap_err().contains("iconv -f utf-16"), "{lines:?}");
    }
}
