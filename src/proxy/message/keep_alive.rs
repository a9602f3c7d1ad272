//! `Keep-Alive` of answers: how long an upstream keeps the connection, and for how many requests.
//!
//! The field is not standardised; RFC 9112 Appendix C.2.2 mentions it. Apache, Node, gunicorn and uvicorn send it, with
//! the parameters `timeout`, in seconds, and `max`.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Limits that an answer announces for its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeepAlive {
    /// Maximum time that the connection may be idle.
    pub(crate) timeout: Option<Duration>,
    /// Number of requests that the connection may carry. Apache and MDN count those that are left, Node counts all.
    pub(crate) max: Option<u32>,
}

// === impl KeepAlive ===

impl KeepAlive {
    /// Reads all lines of the field. The smallest of several values counts; values that are not numbers are ignored.
    pub(crate) fn read(fields: &HeaderMap) -> Self {
        let mut read = Self::default();
        let parameters = fields.get_all(KEEP_ALIVE).iter().flat_map(parameters);
        for (name, value) in parameters {
            if name.eq_ignore_ascii_case(b"timeout") {
                let timeout = Duration::from_secs(value.into());
                read.timeout = Some(read.timeout.map_or(timeout, |other| other.min(timeout)));
            } else if name.eq_ignore_ascii_case(b"max") {
                read.max = Some(read.max.map_or(value, |other| other.min(value)));
            }
        }
        read
    }
}

/// The numeric parameters of a line. Some servers separate parameters with semicolons.
fn parameters(line: &HeaderValue) -> impl Iterator<Item = (&[u8], u32)> {
    line.as_bytes().split(|byte| matches!(byte, b',' | b';')).filter_map(|parameter| {
        let equals = memchr::memchr(b'=', parameter)?;
        let value = parameter[equals + 1..].trim_ascii();
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        Some((parameter[..equals].trim_ascii(), leading_number(value)?))
    })
}

/// The number at the beginning of `text`; a number that is too large counts as the largest.
fn leading_number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number, digit| {
        Some(number.unwrap_or(0_u32).saturating_mul(10).saturating_add(u32::from(digit - b'0')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> (Option<u64>, Option<u32>) {
        let fields = lines.iter().map(|line| (KEEP_ALIVE, HeaderValue::from_str(line).unwrap())).collect();
        let KeepAlive { timeout, max } = KeepAlive::read(&fields);
        (timeout.map(|timeout| timeout.as_secs()), max)
    }

    #[test]
    fn timeout_and_max_are_read_in_any_case_and_order() {
        assert_eq!(read(&["timeout=5, max=100"]), (Some(5), Some(100)));
        assert_eq!(read(&["Max=99,TIMEOUT=15"]), (Some(15), Some(99)));
        assert_eq!(read(&["timeout = \"20\" ; max=3"]), (Some(20), Some(3)));
        assert_eq!(read(&["max=7", "timeout=4"]), (Some(4), Some(7)));
    }

    #[test]
    fn smallest_of_several_values_holds() {
        assert_eq!(read(&["timeout=5, timeout=2", "timeout=9"]), (Some(2), None));
        assert_eq!(read(&["max=0, max=2"]), (None, Some(0)));
    }

    #[test]
    fn what_is_no_number_is_passed_over() {
        for junk in ["timeout=abc", "timeout=-5", "timeout=", "timeout", "", "=5", "close", "timeout=\"\"", ",,;"] {
            assert_eq!(read(&[junk]), (None, None), "{junk:?}");
        }
        assert_eq!(read(&["timeout=99999999999999999999"]), (Some(u32::MAX.into()), None));
        assert_eq!(read(&["timeout=5s, max=-1"]), (Some(5), None));
    }
}
