//! Facts that a dialect can report about one decision, and the templates that they fill in. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use andante_limit::Rate;

use super::super::counter::CounterDecision;

/// Facts that a dialect can report about one request.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Decision about the request.
    pub decision: CounterDecision,
    /// Limit that made the decision.
    pub limit: Rate,
    /// Time of day at the request's arrival.
    pub wall: SystemTime,
}

/// Time units that some APIs put into the names of their fields: name, short form, and length in seconds.
const UNITS: [(&str, &str, u64); 5] = [
    ("second", "1s", 1),
    ("minute", "1m", 60),
    ("hour", "1h", 3600),
    ("day", "1d", 86_400),
    ("month", "30d", 2_592_000),
];

/// Time that slowapi adds to every reset.
const LATE: Duration = Duration::from_secs(1);

// === impl Facts ===

impl Facts {
    /// Returns true if the request was refused.
    pub fn refused(&self) -> bool {
        matches!(self.decision, CounterDecision::Refuse { .. })
    }

    /// Replaces each `$word` of a template by a fact; returns `None` if a fact cannot be expressed.
    ///
    /// | word | fact |
    /// |---|---|
    /// | `$limit`, `$remaining`, `$used` | counts of requests |
    /// | `$window`, `$w`, `$interval`, `$unit`, `$window_ms` | window as `60`, `;w=60`, `1m`, `minute`, `60000` |
    /// | `$rate` | requests per second |
    /// | `$burst` | requests that one second may hold, as announced by an API that does not enforce it |
    /// | `$near` | `true` if less than a fifth of the limit is left |
    /// | `$hour` | next full hour in epoch seconds |
    /// | `$reset.FORM` | time of the reset ([`CounterDecision::reset`]) in a form of [`Facts::time`] |
    /// | `$wait.FORM` | time at which the next request would be accepted ([`CounterDecision::retry_after`]) |
    pub(super) fn fill(&self, template: &str) -> Option<String> {
        let mut pieces = template.split('$');
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let mut end = piece.find(|c| !word(c)).unwrap_or(piece.len());
            // Only `reset` and `wait` have a form after a dot: `$limit.0` is a number with a decimal.
            let form = match &piece[..end] {
                "reset" | "wait" => piece[end..].strip_prefix('.'),
                _ => None,
            };
            if let Some(form) = form {
                end += 1 + form.find(|c| !word(c)).unwrap_or(form.len());
            }
            filled.push_str(&self.say(&piece[..end])?);
            filled.push_str(&piece[end..]);
        }
        Some(filled)
    }

    fn say(&self, word: &str) -> Option<String> {
        let Rate { count, per } = self.limit;
        let (limit, remaining) = (count.get(), self.decision.remaining());
        let seconds = (per.subsec_nanos() == 0).then_some(per.as_secs());
        let unit = UNITS.iter().find(|(.., length)| Some(*length) == seconds);
        Some(match word {
            "limit" => limit.to_string(),
            "remaining" => remaining.to_string(),
            "used" => limit.saturating_sub(remaining).to_string(),
            "window" => seconds?.to_string(),
            // A window that is no whole number of seconds omits only the parameter, not the field.
            "w" => seconds.map(|seconds| format!(";w={seconds}")).unwrap_or_default(),
            "window_ms" => per.as_millis().to_string(),
            "unit" => unit?.0.to_owned(),
            "interval" => unit.map_or_else(|| seconds.map(|s| format!("{s}s")), |unit| Some(unit.1.to_owned()))?,
            "rate" => decimal(self.limit.per_second()),
            "burst" => ((4.0 * self.limit.per_second()).ceil() as u32).clamp(1, limit.max(1)).to_string(),
            "near" => (u64::from(remaining) * 5 < u64::from(limit)).to_string(),
            "hour" => (self.wall.duration_since(UNIX_EPOCH).ok()?.as_secs() / 3600 * 3600 + 3600).to_string(),
            _ => match word.split_once('.')? {
                ("reset", form) => self.time(self.decision.reset(), form)?,
                ("wait", form) => self.time(self.decision.retry_after(), form)?,
                _ => return None,
            },
        })
    }

    /// Formats `wait`, or the time of day after it, in one of the forms that APIs use. `s_late` and the `_down` forms
    /// round down, all others up. A client that obeys any form but a `_down` form waits long enough.
    fn time(&self, wait: Duration, form: &str) -> Option<String> {
        let at = self.wall + wait;
        let since_1970 = at.duration_since(UNIX_EPOCH).ok()?;
        // HTTP dates, and most other dates, are written in whole seconds.
        let second = UNIX_EPOCH + Duration::from_secs(up(since_1970, Duration::from_secs(1)));
        let millis = up(wait, Duration::from_millis(1));
        let epoch_millis = up(since_1970, Duration::from_millis(1));
        Some(match form {
            "s" => up(wait, Duration::from_secs(1)).to_string(),
            "s_down" => wait.as_secs().to_string(),
            "s_late" => (wait + LATE).as_secs().to_string(),
            "tenths" => format!("{:.1}", up(wait, Duration::from_millis(100)) as f64 / 10.0),
            "millis" => format!("{}.{:03}", millis / 1000, millis % 1000),
            "proto" => format!("{}.{:09}s", wait.as_secs(), wait.subsec_nanos()),
            "ms" => millis.to_string(),
            "go" => go(millis),
            "epoch" => up(since_1970, Duration::from_secs(1)).to_string(),
            "epoch_down" => since_1970.as_secs().to_string(),
            "epoch_late" => {
                let late = up(since_1970 + LATE, Duration::from_micros(1));
                format!("{}.{:06}", late / 1_000_000, late % 1_000_000)
            }
            "epoch_millis" => format!("{}.{:03}", epoch_millis / 1000, epoch_millis % 1000),
            "epoch_ms" => epoch_millis.to_string(),
            "rfc3339" => humantime::format_rfc3339_seconds(second).to_string(),
            "rfc3339_6" => {
                let micros = up(since_1970, Duration::from_micros(1));
                humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(micros)).to_string()
            }
            // .NET has ticks of 100 ns.
            "rfc3339_7" => {
                let ticks = up(since_1970, Duration::from_nanos(100));
                let nanos = humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(ticks * 100)).to_string();
                format!("{}Z", nanos.strip_suffix("00Z")?)
            }
            "date" => httpdate::fmt_http_date(second),
            "date_utc" => httpdate::fmt_http_date(second).replace("GMT", "UTC"),
            _ => return None,
        })
    }
}

/// Number of `unit`s in `duration`, rounded up.
fn up(duration: Duration, unit: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(unit.as_nanos())).unwrap_or(u64::MAX)
}

/// Formats a number with one to four decimals: `50.0`, `0.0167`.
fn decimal(number: f64) -> String {
    let text = format!("{number:.4}");
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

/// Formats a duration as Go's `Duration.String` does: `0s`, `20ms`, `7.66s`, `6m0s`, `1h0m2.5s`.
fn go(millis: u64) -> String {
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) if (1..1000).contains(&rest) => format!("{rest}ms"),
        (0, 0) => format!("{}s", rest as f64 / 1e3),
        (0, minutes) => format!("{minutes}m{}s", rest as f64 / 1e3),
        (hours, minutes) => format!("{hours}h{minutes}m{}s", rest as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSE: CounterDecision =
        CounterDecision::Refuse { retry_after: Duration::from_micros(1_400_100), reset: Duration::from_millis(61_500) };

    fn facts(limit: &str, decision: CounterDecision) -> Facts {
        let wall = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        Facts { decision, limit: limit.parse().unwrap(), wall }
    }

    #[test]
    fn every_form_of_a_time_is_written_as_its_users_write_it() {
        let facts = facts("10/min", REFUSE);
        for (form, wait) in [
            ("s", "2"),
            ("s_down", "1"),
            ("s_late", "2"),
            ("tenths", "1.5"),
            ("millis", "1.401"),
            ("proto", "1.400100000s"),
            ("ms", "1401"),
            ("go", "1.401s"),
            ("epoch", "1700000002"),
            ("epoch_down", "1700000001"),
            ("epoch_late", "1700000002.650100"),
            ("epoch_millis", "1700000001.651"),
            ("epoch_ms", "1700000001651"),
            ("rfc3339", "2023-11-14T22:13:22Z"),
            ("rfc3339_6", "2023-11-14T22:13:21.650100Z"),
            ("rfc3339_7", "2023-11-14T22:13:21.6501000Z"),
            ("date", "Tue, 14 Nov 2023 22:13:22 GMT"),
            ("date_utc", "Tue, 14 Nov 2023 22:13:22 UTC"),
        ] {
            assert_eq!(facts.fill(&format!("$wait.{form}")).as_deref(), Some(wait), "{form}");
        }
        assert_eq!(facts.fill("$reset.go, $reset.s;").as_deref(), Some("1m1.5s, 62;"));
    }

    #[test]
    fn counts_and_windows_are_filled_in() {
        let accept = CounterDecision::Accept { remaining: 4, reset: Duration::from_millis(1500) };
        let said = |limit, template| facts(limit, accept).fill(template);
        let all = "$limit.0 $remaining $used [$window] [$w] $interval $unit $window_ms $rate $burst $near $hour";
        let told = "10.0 4 6 [60] [;w=60] 1m minute 60000 0.1667 1 false 1700002800";
        assert_eq!(said("10/min", all).as_deref(), Some(told));
        assert_eq!(said("100/10s", "$interval $rate $burst $near").as_deref(), Some("10s 10.0 40 true"));
        assert_eq!(facts("10/s", REFUSE).fill("$remaining/$used").as_deref(), Some("0/10"));
    }

    #[test]
    fn what_cannot_be_said_is_left_out() {
        let said = |limit, template| facts(limit, REFUSE).fill(template);
        assert_eq!(said("10/250ms", "$limit$w").as_deref(), Some("10"));
        assert_eq!(said("10/250ms", "$limit $window"), None);
        assert_eq!(said("10/10s", "$unit"), None);
        for unknown in ["$nonsense", "$wait.nonsense", "$wait", "a$"] {
            assert_eq!(said("10/s", unknown), None, "{unknown}");
        }
    }

    #[test]
    fn go_durations_look_like_gos() {
        for (millis, text) in [
            (0, "0s"),
            (20, "20ms"),
            (1000, "1s"),
            (7660, "7.66s"),
            (60_000, "1m0s"),
            (360_000, "6m0s"),
            (3_602_500, "1h0m2.5s"),
        ] {
            assert_eq!(go(millis), text);
        }
    }
}
