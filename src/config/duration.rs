//! How durations are written: `20ms`, `2s`, `1m30s`. One grammar for the command line and the configuration.

use std::time::Duration;

/// Reads a duration; what is wrong comes with what to write instead.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("expected a duration, found nothing; write \"20ms\", \"2s\" or \"1m30s\"".to_owned());
    }
    humantime::parse_duration(text).map_err(|_| {
        let unitless = text.bytes().all(|byte| byte.is_ascii_digit());
        let instead = if unitless {
            format!("write \"{text}s\" or \"{text}ms\"")
        } else {
            "write \"20ms\", \"2s\" or \"1m30s\"".to_owned()
        };
        format!("expected a duration, found {text:?}; {instead}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_forms_are_read() {
        for (text, millis) in [("20ms", 20), (" 2s", 2000), ("1m30s", 90_000), ("2h", 7_200_000), ("0s", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_comes_with_what_to_write() {
        assert!(parse("20").unwrap_err().contains("write \"20s\" or \"20ms\""));
        for text in ["", "-1s", "fast", "1 fortnight", "99999999999999999999s", "s", "1.s"] {
            assert!(parse(text).unwrap_err().contains("\"1m30s\""), "{text}");
        }
    }
}
