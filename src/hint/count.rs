//! Parses counts and the names of windows.

/// Largest plausible count; larger values are cut to it.
pub(super) const MOST: f64 = 1e15;

/// Parses digits with an optional fraction. Signs, exponents and `NaN` are rejected.
pub(super) fn decimal(value: &str) -> Option<f64> {
    let plain = value.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let number: f64 =
        if plain && value.starts_with(|c: char| c.is_ascii_digit()) { value.parse().ok()? } else { return None };
    number.is_finite().then_some(number)
}

/// Parses a count: a number, which `;` or `,` may end. `-1`, `unlimited` and the like are unknown.
pub(super) fn count(value: &str) -> Option<f64> {
    if let Some(count) = grouped(value) {
        return Some(count);
    }
    let end = value.find([';', ',']).unwrap_or(value.len());
    decimal(value[..end].trim().trim_matches('"')).map(|count| count.min(MOST))
}

/// Parses `1,199.96` (Dynamics 365). With a fraction, a comma groups thousands; without one, it may separate two
/// numbers.
pub(super) fn grouped(value: &str) -> Option<f64> {
    let (whole, fraction) = value.trim().split_once('.')?;
    let (first, others) = whole.split_once(',')?;
    let thousands = (1..=3).contains(&first.len()) && others.split(',').all(|group| group.len() == 3);
    decimal(&format!("{}.{fraction}", whole.replace(',', ""))).filter(|_| thousands).map(|count| count.min(MOST))
}

/// Returns whether `value` is negative: there is no limit, and the other numbers mean nothing.
pub(super) fn is_negative(value: &str) -> bool {
    value.trim().strip_prefix('-').is_some_and(|rest| count(rest).is_some())
}

/// Length in seconds of the window that `word` names: `minute`, `daily`, `10s`, `15min`, `24hour`.
pub(super) fn window(word: &str) -> Option<f64> {
    let digits = word.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = word.split_at(digits);
    let each = match unit {
        "s" | "sec" | "secs" | "second" | "seconds" | "secondly" | "rps" | "qps" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" | "minutely" | "rpm" | "tpm" => 60.0,
        "h" | "hr" | "hour" | "hours" | "hourly" => 3600.0,
        "d" | "day" | "days" | "daily" | "today" | "rpd" | "tpd" => 86_400.0,
        "week" | "weekly" => 7.0 * 86_400.0,
        "month" | "monthly" => 30.0 * 86_400.0,
        "year" | "yearly" => 365.0 * 86_400.0,
        _ => return None,
    };
    // A unit of one or two letters needs a count.
    match count {
        "" if unit.len() < 3 => None,
        "" => Some(each),
        count => decimal(count).map(|count| count * each).filter(|window| *window > 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_up_to_what_else_is_said() {
        for (value, expected) in [
            ("57.0", Some(57.0)),
            ("0.0", Some(0.0)),
            ("100;w=21600", Some(100.0)),
            ("10, 10;w=1", Some(10.0)),
            ("1,199.96", Some(1199.96)),
            ("1,1999.6", Some(1.0)),
            ("600,30000", Some(600.0)),
            ("0.04512", Some(0.04512)),
            (" 5 ", Some(5.0)),
            ("99999999999999999999999", Some(MOST)),
            ("-1", None),
            ("unlimited", None),
            ("", None),
            ("NaN", None),
            ("1e999", None),
            (".5", None),
            ("40/40", None),
            ("12 per minute", None),
        ] {
            assert_eq!(count(value), expected, "{value}");
        }
        assert!(is_negative("-1") && is_negative(" -5.0") && !is_negative("-") && !is_negative("5"));
    }

    #[test]
    fn windows_are_named_in_words_and_in_units() {
        for (word, seconds) in [
            ("minute", 60.0),
            ("daily", 86_400.0),
            ("10s", 10.0),
            ("1m", 60.0),
            ("24hour", 86_400.0),
            ("15min", 900.0),
            ("5h", 18_000.0),
        ] {
            assert_eq!(window(word), Some(seconds), "{word}");
        }
        for word in ["", "s", "m", "5", "token", "0s", "requests"] {
            assert_eq!(window(word), None, "{word}");
        }
    }
}
