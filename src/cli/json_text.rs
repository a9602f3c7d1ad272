//! JSON for terminals. Escapes the control characters that JSON allows unescaped: an API's text may contain U+009B,
//! which terminals take for the beginning of a command.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use serde::Serialize;
use tracing_subscriber::fmt::MakeWriter;

/// Makes writers that escape JSON.
pub(super) struct MakeEscaping<M>(pub(super) M);

/// Escapes the JSON written to it, in whole characters.
pub(super) struct Escaping<W>(W);

/// `value` in one line.
pub(super) fn line(value: &impl Serialize) -> String {
    escaped(&serde_json::to_string(value).unwrap_or_default()).into_owned()
}

/// `value` in indented lines.
pub(super) fn pretty(value: &impl Serialize) -> String {
    escaped(&serde_json::to_string_pretty(value).unwrap_or_default()).into_owned()
}

/// `json` with DEL and the C1 controls as escapes. Outside of strings JSON contains none of them.
fn escaped(json: &str) -> Cow<'_, str> {
    let is_raw = |c: &char| ('\u{7f}'..='\u{9f}').contains(c);
    if !json.chars().any(|c| is_raw(&c)) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            raw if is_raw(&raw) => text.push_str(&format!("\\u{:04x}", u32::from(raw))),
            other => text.push(other),
        }
    }
    text.into()
}

// === impl MakeEscaping ===

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for MakeEscaping<M> {
    type Writer = Escaping<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Escaping(self.0.make_writer())
    }
}

// === impl Escaping ===

impl<W: Write> Write for Escaping<W> {
    /// Accepts all of `buf`: the subscriber writes a line at once.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write_all(escaped(&String::from_utf8_lossy(buf)).as_bytes())?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_the_value_stays_the_same() {
        let value = "a\u{9b}31m\u{7f}\u{80}\u{9f}\u{a0}ü\n";
        let text = line(&value);
        assert_eq!(text, "\"a\\u009b31m\\u007f\\u0080\\u009f\u{a0}ü\\n\"");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
        assert!(!pretty(&[value]).chars().any(|c| c.is_control() && c != '\n'));
    }

    #[test]
    fn what_is_written_is_escaped() {
        let mut lines = Vec::new();
        Escaping(&mut lines).write_all("{\"a\":\"\u{9b}\"}\n".as_bytes()).unwrap();
        assert_eq!(lines, b"{\"a\":\"\\u009b\"}\n");
    }
}
