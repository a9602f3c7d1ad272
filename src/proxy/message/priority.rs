//! `Priority` (RFC 9218), a structured dictionary (RFC 9651 §3.2): how urgent a request is.

use http::HeaderMap;

/// The urgency that the field says, 0 to 7; `None` if it says none, or is malformed: then it is to be ignored, as is an
/// urgency of another type or range (RFC 9218 §4).
pub(crate) fn urgency(fields: &HeaderMap) -> Option<u8> {
    let mut lines = fields.get_all("priority").iter().peekable();
    lines.peek()?;
    let line = lines.map(http::HeaderValue::as_bytes).collect::<Vec<_>>().join(&b","[..]);
    let mut reader = Reader { rest: line.trim_ascii() };
    let mut found = None;
    if reader.rest.is_empty() {
        return None;
    }
    loop {
        let key = reader.key()?;
        let value = if reader.take(b'=') { reader.member()? } else { Value::Other };
        reader.parameters()?;
        if key == b"u" {
            // Of several the last counts.
            found = match value {
                Value::Integer(number @ 0..=7) => Some(number as u8),
                _ => None,
            };
        }
        reader.blanks();
        if reader.rest.is_empty() {
            return found;
        }
        if !reader.take(b',') {
            return None;
        }
        reader.blanks();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Integer(i64),
    Other,
}

/// Reads from the front; each method says `None` if what is there is malformed.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        self.rest = &self.rest[usize::from(found)..];
        found
    }

    /// Takes bytes as long as `fits` holds.
    fn while_(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !fits(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn blanks(&mut self) {
        self.while_(|byte| matches!(byte, b' ' | b'\t'));
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let first = *self.rest.first()?;
        (first.is_ascii_lowercase() || first == b'*')
            .then(|| self.while_(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)))
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.while_(|byte| byte == b' ');
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    /// An item, or a list of items in parentheses.
    fn member(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.item();
        }
        loop {
            self.while_(|byte| byte == b' ');
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.rest.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Value> {
        match *self.rest.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.take(b'?');
                (self.take(b'0') || self.take(b'1')).then_some(Value::Other)
            }
            b':' => {
                self.take(b':');
                self.while_(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.take(b':').then_some(Value::Other)
            }
            first if first.is_ascii_alphabetic() || first == b'*' => {
                self.while_(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
                Some(Value::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value> {
        let negative = self.take(b'-');
        let digits = self.while_(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let fraction = self.while_(|byte| byte.is_ascii_digit());
            let fits = (1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len());
            return fits.then_some(Value::Other);
        }
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        let number = digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Value> {
        self.take(b'"');
        loop {
            self.while_(|byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte));
            if self.take(b'"') {
                return Some(Value::Other);
            }
            if !(self.take(b'\\') && (self.take(b'"') || self.take(b'\\'))) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(lines: &[&'static str]) -> Option<u8> {
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append("priority", HeaderValue::from_static(line));
        }
        urgency(&fields)
    }

    #[test]
    fn urgencies_are_read_as_rfc_9218_writes_them() {
        // RFC 9218 §4.1, §4.2.
        for (line, urgency) in
            [("u=0", 0), ("u=5, i", 5), ("i, u=1", 1), ("i=?0,u=7", 7), ("u=2;x=1", 2), ("u=1, u=6", 6)]
        {
            assert_eq!(of(&[line]), Some(urgency), "{line}");
        }
        assert_eq!(of(&["i", "u=4"]), Some(4));
        assert_eq!(of(&["a=(1 \"x\\\"\" tok);b, c=:aGk=:, d=-1.5, u=1"]), Some(1));
    }

    #[test]
    fn what_is_malformed_out_of_range_or_of_another_type_is_ignored() {
        for line in [
            "",
            "i",
            "u",
            "u=8",
            "u=-1",
            "u=1.0",
            "u=?1",
            "u=high",
            "u=\"1\"",
            "u=(1)",
            "U=1",
            "u=",
            "u=1,",
            "u=1;;",
            "u=1 i",
            "=1",
            "u=1, a=\"open",
            "u=0x1",
            "u=1234567890123456",
            "u=1, a=?2",
        ] {
            assert_eq!(of(&[line]), None, "{line}");
        }
        assert_eq!(of(&["u=1", "=", "i"]), None);
        assert_eq!(of(&[]), None);
    }
}
