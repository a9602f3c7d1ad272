//! Numbers and durations in the commands' output for people.

use std::time::Duration;

/// Groups digits: `30,000`.
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

/// A duration in its two largest units: `0 s`, `120 ms`, `14.02 s`, `59 min 59.9 s`, `3 h 12 min`,
/// `9 d 4 h`.
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

/// A pace: `8.33/s`, `0.5/s`, `120/h`, in the smallest unit of time with at least one request.
pub(super) fn pace(per_second: f64) -> String {
    let units = [(1.0, "s"), (60.0, "min"), (3600.0, "h"), (86_400.0, "d")];
    let (seconds, unit) =
        units.into_iter().find(|(seconds, _)| per_second * seconds >= 1.0 - 1e-9).unwrap_or((86_400.0, "d"));
    format!("{}/{unit}", trimmed(per_second * seconds, 2))
}

/// A number with its noun: `1,234 requests`, `1 request`.
pub(super) fn several(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A duration in two figures: `12 ms`, `3.2 s`, `2m 25s`, `1h 12m`, `3d 4h`.
pub(super) fn short(of: Duration) -> String {
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

/// Like [`short`], for seconds from elsewhere, which may be no valid duration.
pub(super) fn seconds(of: f64) -> String {
    Duration::try_from_secs_f64(of).map_or_else(|_| "ever".to_owned(), short)
}

/// A size: `1 MiB`, `64 KiB`, `10,000,000 bytes`, in the largest unit without a rest.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        1.. if bytes.is_multiple_of(1 << 20) => format!("{} MiB", count(bytes >> 20)),
        1.. if bytes.is_multiple_of(1 << 10) => format!("{} KiB", count(bytes >> 10)),
        _ => several(bytes, "byte"),
    }
}

/// A measured pace: `8.3/s`, `120/s`, `30/min`, `2/h`, in the unit in which it is at least one.
pub(super) fn measured_pace(per_second: f64) -> String {
    let (number, unit) = match per_second {
        1.0.. => (per_second, "s"),
        pace if pace * 60.0 >= 1.0 => (pace * 60.0, "min"),
        pace => (pace * 3600.0, "h"),
    };
    if number < 9.95 { format!("{number:.1}/{unit}") } else { format!("{}/{unit}", count(number.round() as u64)) }
}

/// A number with at most `decimals`, without trailing zeros.
fn trimmed(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Rows below each other, each cell as wide as the widest of its column.
pub(super) fn columns<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let lines = rows.iter().map(|row| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}", cells.join("  ").trim_end())
    });
    lines.collect::<Vec<_>>().join("\n")
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

    #[test]
    fn one_request_is_no_requests() {
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
    fn a_measured_pace_is_rounded() {
        let read = [1500.2, 8.33, 0.5, 0.0005, 0.0].map(measured_pace);
        assert_eq!(read, ["1,500/s", "8.3/s", "30/min", "1.8/h", "0.0/h"]);
    }
}
