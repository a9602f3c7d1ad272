//! How the commands say numbers and durations to people.

use std::time::Duration;

/// `30,000`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The two largest units that matter: `0 s`, `120 ms`, `14.02 s`, `59 min 59.9 s`, `3 h 12 min`, `9 d 4 h`.
pub(super) fn duration(duration: Duration) -> String {
    let secs = duration.as_secs();
    match secs {
        0 if duration.is_zero() => "0 s".to_owned(),
        0 if duration.as_nanos() < 999_500_000 => match duration.as_millis() {
            0 => "under 1 ms".to_owned(),
            _ => format!("{:.0} ms", duration.as_secs_f64() * 1e3),
        },
        0..60 => format!("{} s", trimmed(duration.as_secs_f64(), 2)),
        60..3600 => {
            let tenths = duration.as_millis() / 100;
            format!("{} min {} s", tenths / 600, trimmed((tenths % 600) as f64 / 10.0, 1))
        }
        3600..86_400 => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// `8.33/s`, `0.5/s`, `120/h`: in the smallest unit of time in which there is at least one to count.
pub(super) fn pace(per_second: f64) -> String {
    let units = [(1.0, "s"), (60.0, "min"), (3600.0, "h"), (86_400.0, "d")];
    let (seconds, unit) =
        units.into_iter().find(|(seconds, _)| per_second * seconds >= 1.0 - 1e-9).unwrap_or((86_400.0, "d"));
    format!("{}/{unit}", trimmed(per_second * seconds, 2))
}

/// `decimals` at most, without trailing zeros.
fn trimmed(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (30_000, "30,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn durations_keep_the_two_units_that_matter() {
        for (micros, text) in [
            (0, "0 s"),
            (900, "under 1 ms"),
            (120_000, "120 ms"),
            (1_000_000, "1 s"),
            (14_018_000, "14.02 s"),
            (60_000_000, "1 min 0 s"),
            (3_599_880_000, "59 min 59.8 s"),
            (11_550_000_000, "3 h 12 min"),
            (803_520_000_000, "9 d 7 h"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn a_pace_is_said_in_a_unit_in_which_it_is_at_least_one() {
        for (per_second, text) in [(50.0, "50/s"), (500.0 / 60.0, "8.33/s"), (0.5, "30/min"), (1.0 / 120.0, "30/h")] {
            assert_eq!(pace(per_second), text);
        }
    }
}
