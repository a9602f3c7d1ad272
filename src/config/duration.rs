//! Grammar of durations: `20ms`, `2s`, `1m30s`. The command line and the configuration share it.

use std::time::Duration;

/// Parses a duration; an error includes advice on the right form.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("expected a duration, found nothing; write \"20ms\", \"2s\" or \"1m30s\"".to_owned());
    }
    humantime::parse_duration(text).map_err(|_| {
        let unitless = text.bytes().all(|byte| byte.is_ascii_digit());
        let endless = ["infinite", "infinity", "inf", "forever", "never", "none", "unlimited", "-1"];
        let instead = if endless.contains(&&*text.to_ascii_lowercase()) {
            "write a long one, as in \"24h\" or \"30d\"".to_owned()
        } else if let Some(number) = without_unit(text) {
            format!("write \"{text}min\" or \"{text}s\": {number} has no unit")
        } else if unitless {
            format!("write \"{text}s\" or \"{text}ms\"")
        } else {
            "write \"20ms\", \"2s\" or \"1m30s\"".to_owned()
        };
        format!("expected a duration, found {text:?}; {instead}")
    })
}

/// The number at the end of `text` that has no unit, as in `1 hour 30`.
fn without_unit(text: &str) -> Option<&str> {
    let number = text.split_whitespace().next_back().filter(|last| last.bytes().all(|byte| byte.is_ascii_digit()))?;
    humantime::parse_duration(&format!("{text}s")).ok().filter(|_| number != text).map(|_| number)
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
