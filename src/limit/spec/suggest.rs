//! Suggests how to write a limit that was put into other words.

use super::{Rate, UNITS};

/// Words that stand between a number and its window and name no unit.
const FILLERS: [&str; 14] =
    ["per", "a", "an", "every", "each", "in", "requests", "request", "reqs", "req", "calls", "call", "burst", "strict"];

/// Requests per second, per minute, per hour and per day.
const RATES: [(&str, &str); 5] = [("rps", "s"), ("qps", "s"), ("rpm", "min"), ("rph", "h"), ("rpd", "d")];

/// How people say that something is on its way at once.
const AT_ONCE: [&str; 10] = [
    "in-flight",
    "in flight",
    "inflight",
    "concurrent",
    "concurrent requests",
    "concurrency",
    "at once",
    "at a time",
    "in parallel",
    "parallel",
];

/// What people write where nothing is limited.
const NO_LIMIT: [&str; 6] = ["unlimited", "none", "off", "no", "0", "infinite"];

/// What to write in the place of `text`: a number and a window are all that a limit needs.
pub(in crate::limit) fn suggest(text: &str) -> String {
    if NO_LIMIT.contains(&text.trim().to_ascii_lowercase().as_str()) {
        return "leave the limit out: then only what the API says and refuses counts".to_owned();
    }
    if let Some(hint) = with_burst(text).or_else(|| with_in_flight(text)) {
        return hint;
    }
    if let Some(several) = several(text) {
        return format!("write \"{several}\": commas stand between limits");
    }
    let Some((count, rest)) = number(text).filter(|(count, _)| *count >= 0.001 && *count < 1e9) else {
        return generic();
    };
    let rate = RATES.iter().find(|(short, _)| rest.trim().eq_ignore_ascii_case(short));
    if let Some((_, window)) = rate {
        return format!("write \"{}\"", whole(count, "", 1, window));
    }
    let is_part = |c: char| c.is_ascii_alphabetic() || c == '-' || c == '_';
    let words = || rest.split(|c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase);
    let window = words().find_map(|word| {
        UNITS.iter().map(|(names, _)| names).find(|names| names.contains(&word.as_str())).map(|names| names[0])
    });
    let is_window = |word: &str| UNITS.iter().any(|(names, _)| names.contains(&word));
    let unit = Some(rest.trim_start()).filter(|rest| rest.starts_with(is_part)).and_then(|_| words().next());
    let unit = unit.filter(|word| !FILLERS.contains(&word.as_str()) && !is_window(word));
    let unit = unit.map_or_else(String::new, |unit| format!(" {unit}"));
    match window {
        // As in "1 per 2s".
        Some(window) => {
            let windows = number(rest).filter(|(_, after)| follows(after, window)).map_or(1.0, |(windows, _)| windows);
            if windows.fract() != 0.0 || !(1.0..1e6).contains(&windows) {
                return generic();
            }
            let windows = windows as u64;
            format!("write \"{}\"", whole(count, &unit, windows, window))
        }
        None if count < 1.0 => generic(),
        None => {
            let forms = ["s", "min", "h", "d", "month"].map(|window| format!("\"{}{unit}/{window}\"", count as u64));
            format!("write {} or {}", forms[..4].join(", "), forms[4])
        }
    }
}

fn generic() -> String {
    "write \"500/min\", \"10/s\", \"1/120s\", each optionally followed by \" burst 20\" or \" strict\"".to_owned()
}

/// What was meant by a limit with a burst: `10/s with burst=20`.
fn with_burst(text: &str) -> Option<String> {
    let at = text.to_ascii_lowercase().find("burst")?;
    let limit = text[..at].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let limit = limit.strip_suffix("with").unwrap_or(limit).trim_end();
    let Some((burst, _)) = number(&text[at..]).filter(|(burst, _)| *burst >= 1.0) else { return Some(generic()) };
    if limit.is_empty() {
        return Some("write it behind its limit, as in \"10/s burst 20\"".to_owned());
    }
    let limit = match limit.parse::<Rate>() {
        Ok(_) => limit.to_owned(),
        Err(_) => suggest(limit).split('"').nth(1)?.to_owned(),
    };
    Some(format!("write \"{limit} burst {}\"", burst as u64))
}

/// What was meant by a limit with another on requests in flight: `20/s in-flight 5`.
fn with_in_flight(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (limit, most) = ["in-flight", "inflight"].into_iter().find_map(|word| lower.split_once(word))?;
    let limit = limit.trim();
    limit.parse::<Rate>().ok()?;
    let (most, _) = number(most).filter(|(most, _)| *most >= 1.0)?;
    Some(format!("write \"{limit},in-flight {}\": commas stand between limits", most as u64))
}

/// Limits that something else stands between than commas: `10/s;500/min`, `10/s and 500/min`, `10/s 500/min`.
fn several(text: &str) -> Option<String> {
    let words = text.split([' ', ';', '&', '+']).filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("and"));
    let limits: Vec<&str> = words.collect();
    // What is no limit by itself asks here again, for one word.
    (limits.len() > 1 && limits.iter().all(|word| word.parse::<Rate>().is_ok())).then(|| limits.join(","))
}

/// `count` in so many windows; a number that is not whole in more of them: 1.5/s are 3/2s.
fn whole(count: f64, unit: &str, windows: u64, window: &str) -> String {
    let times = [1_u64, 2, 3, 4, 5, 6, 8, 10, 20, 50, 60, 100, 1000];
    let times = times.into_iter().find(|times| (count * *times as f64).fract() < 1e-9).unwrap_or(1000);
    match times * windows {
        1 => format!("{}{unit}/{window}", count as u64),
        windows => format!("{}{unit}/{windows}{window}", (count * times as f64) as u64),
    }
}

/// Whether `text` begins with this window, by one of its names.
fn follows(text: &str, window: &str) -> bool {
    let text = text.trim_start();
    let word = &text[..text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len())];
    UNITS.iter().any(|(names, _)| names[0] == window && names.contains(&word.to_ascii_lowercase().as_str()))
}

/// What to write in the place of `text` if that is a number of requests at once, in other words; `None` otherwise.
pub(in crate::limit) fn suggest_in_flight(text: &str) -> Option<String> {
    let (count, rest) = number(text).filter(|(count, _)| *count >= 1.0)?;
    let before = text[..text.find(|c: char| c.is_ascii_digit())?].trim().to_ascii_lowercase();
    let after = rest.trim().to_ascii_lowercase();
    let says = |words: &str| AT_ONCE.contains(&words.trim_start_matches("requests ").trim());
    let most = ["", "max", "at most", "up to"].contains(&before.as_str());
    let meant = most && says(&after) || before != "in-flight" && after.is_empty() && says(&before);
    meant.then(|| format!("write \"in-flight {}\"", count as u64))
}

/// The first number in `text`, as people write them (`90000`, `90,000`, `90k`, `1.5M`, `1e6`), and what follows it.
fn number(text: &str) -> Option<(f64, &str)> {
    let digit = text.find(|c: char| c.is_ascii_digit())?;
    let from = &text[if text[..digit].ends_with('.') { digit - 1 } else { digit }..];
    let mut end = from.find(|c: char| !matches!(c, '0'..='9' | ',' | '_' | '.')).unwrap_or(from.len());
    // A power of ten belongs to it.
    let power = from[end..].strip_prefix(['e', 'E']).map(|power| power.bytes().take_while(u8::is_ascii_digit).count());
    if let Some(digits @ 1..) = power {
        end += 1 + digits;
    }
    let value: f64 = from[..end].replace([',', '_'], "").parse().ok()?;
    let rest = &from[end..];
    let times = [(['k', 'K'], 1e3), (['m', 'M'], 1e6)].into_iter().find_map(|(letters, times)| {
        let rest = rest.strip_prefix(letters)?;
        (!rest.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some((times, rest))
    });
    let (times, rest) = times.unwrap_or((1.0, rest));
    Some((value * times, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_units_and_windows_are_understood_as_people_write_them() {
        for (text, meant) in [
            ("500 a min", "\"500/min\""),
            ("500 requests per minute", "\"500/min\""),
            ("90000 tokens per minute", "\"90000 tokens/min\""),
            ("90k tokens/min", "\"90000 tokens/min\""),
            ("1e6 tokens/min", "\"1000000 tokens/min\""),
            ("1.5M tokens a day", "\"1500000 tokens/d\""),
            ("90,000 input-tokens/min", "\"90000 input-tokens/min\""),
            ("90000tokens/min", "\"90000 tokens/min\""),
            ("at most 20 in a second", "\"20/s\""),
            ("10rps", "\"10/s\""),
            ("600 RPM", "\"600/min\""),
            ("1.5/s", "\"3/2s\""),
            ("0.5/s", "\"1/2s\""),
            (".5/s", "\"1/2s\""),
            ("10/s with burst=20", "\"10/s burst 20\""),
            ("10/s burst20", "\"10/s burst 20\""),
            ("2 per minute burst 4", "\"2/min burst 4\""),
            ("20/s in-flight 5", "\"20/s,in-flight 5\": commas stand between limits"),
            ("2.5 rps", "\"5/2s\""),
            ("1 per 2s", "\"1/2s\""),
            ("100 every 30 seconds", "\"100/30s\""),
            ("10 requests in 1 second", "\"10/s\""),
            ("10/s;500/min", "\"10/s,500/min\": commas stand between limits"),
            ("10/s and 500/min", "\"10/s,500/min\": commas stand between limits"),
            ("10/s 500/min", "\"10/s,500/min\": commas stand between limits"),
        ] {
            assert_eq!(suggest(text), format!("write {meant}"), "{text}");
        }
        assert!(suggest("500").ends_with("\"500/d\" or \"500/month\""));
        assert!(suggest("500 points").contains("\"500 points/s\", \"500 points/min\""));
        for text in [
            "5 in-flight",
            "5 in flight",
            "5 requests at once",
            "5 concurrent requests",
            "5 Concurrent",
            "inflight 5",
            "concurrency 5",
            "max 5 in-flight",
            "at most 5 at once",
        ] {
            assert_eq!(suggest_in_flight(text).as_deref(), Some("write \"in-flight 5\""), "{text}");
        }
        for text in ["5 in-flight-tokens/min", "5/s", "in-flight 5", "5000/day in UTC"] {
            assert_eq!(suggest_in_flight(text), None, "{text}");
        }
        for text in ["unlimited", "None", "0"] {
            assert!(suggest(text).starts_with("leave the limit out"), "{text}");
        }
        for text in ["", "many", "0 a minute", "0.5", "0.0001/s", "1e12/s", "1/2.5s", "1 per 0s"] {
            assert!(suggest(text).starts_with("write \"500/min\", "), "{text}");
        }
    }
}
