//! Numbers as people read them. Pure.

use std::time::Duration;

/// `30,000`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1,234 requests`, `1 request`.
pub(super) fn several(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `12 ms`, `3.2 s`, `2m 25s`, `1h 12m`, `3d 4h`: two figures say enough.
pub(super) fn time(of: Duration) -> String {
    let seconds = of.as_secs_f64().round() as u64;
    match (of.as_millis(), seconds) {
        (..1000, _) => format!("{} ms", of.as_millis()),
        (..9950, _) => format!("{:.1} s", of.as_secs_f64()),
        (_, ..60) => format!("{seconds} s"),
        (_, ..3600) => format!("{}m {}s", seconds / 60, seconds % 60),
        (_, ..86_400) => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// The same for seconds from elsewhere, which may be no time at all.
pub(super) fn seconds(of: f64) -> String {
    Duration::try_from_secs_f64(of).map_or_else(|_| "ever".to_owned(), time)
}

/// `8.3/s`, `120/s`, `30/min`, `2/h`: the unit in which it is at least one.
pub(super) fn pace(per_second: f64) -> String {
    let (number, unit) = match per_second {
        1.0.. => (per_second, "s"),
        pace if pace * 60.0 >= 1.0 => (pace * 60.0, "min"),
        pace => (pace * 3600.0, "h"),
    };
    if number < 9.95 { format!("{number:.1}/{unit}") } else { format!("{}/{unit}", count(number.round() as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        let read: Vec<String> = [0, 7, 999, 1000, 30_000, 1_234_567].into_iter().map(count).collect();
        assert_eq!(read, ["0", "7", "999", "1,000", "30,000", "1,234,567"]);
        assert_eq!((several(1, "request"), several(0, "request")), ("1 request".into(), "0 requests".into()));
    }

    #[test]
    fn times_have_two_figures() {
        let read = [0.0, 0.0123, 0.9999, 3.21, 9.96, 59.4, 59.6, 145.0, 4320.0, 86_399.9, 273_600.0].map(seconds);
        let expected =
            ["0 ms", "12 ms", "999 ms", "3.2 s", "10 s", "59 s", "1m 0s", "2m 25s", "1h 12m", "1d 0h", "3d 4h"];
        assert_eq!(read, expected);
        assert_eq!(seconds(f64::INFINITY), "ever");
    }

    #[test]
    fn a_pace_is_told_in_a_unit_that_fits() {
        let read = [1500.2, 8.33, 0.5, 0.0005, 0.0].map(pace);
        assert_eq!(read, ["1,500/s", "8.3/s", "30/min", "1.8/h", "0.0/h"]);
    }
}
