//! Limits that are almost understood: the hint says what is uncertain, and what to write.

use super::{suggest, suggest_same};
use crate::{
    LimitSpec,
    spec::{UNITS, read_rate},
};

/// Subjects that limits are often written for. The key of a rule separates their budgets.
const EACH: [&str; 14] = [
    "key", "api-key", "apikey", "user", "ip", "client", "tenant", "token", "account", "customer", "host", "org",
    "project", "worker",
];
/// Numbers as words.
const NUMBERS: [&str; 10] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/// Suggests what to write instead of `text`, which is no limit.
pub(crate) fn hint(text: &str) -> String {
    two_readings(text)
        .or_else(|| negative(text))
        .or_else(|| of_each(text))
        .or_else(|| suggest_same(text))
        .or_else(|| repaired(text))
        .unwrap_or_else(|| suggest(text))
}

/// Handles `500/M`: a minute or a month.
fn two_readings(text: &str) -> Option<String> {
    let (count, window) = text.rsplit_once(['/', ' '])?;
    let count = count.trim_end().trim_end_matches('/').trim_end_matches(" per").trim_end();
    (window.trim_start_matches(|digit: char| digit.is_ascii_digit()) == "M")
        .then(|| format!("M may be a minute or a month: write \"{count}/min\" or \"{count}/month\""))
}

fn negative(text: &str) -> Option<String> {
    let rest = text.strip_prefix('-')?.trim_start();
    rest.parse::<LimitSpec>().ok().map(|limit| format!("a limit is at least 1: write \"{limit}\""))
}

/// Handles `500/min/key` and `60/h per user`.
fn of_each(text: &str) -> Option<String> {
    let (limit, each) = text.rsplit_once(['/', ' '])?;
    let each = each.to_ascii_lowercase();
    EACH.contains(&&*each).then_some(())?;
    let limit = limit.trim_end_matches(" per").trim_end_matches(" each").trim_end_matches(" a").trim();
    let written = match limit.parse::<LimitSpec>() {
        Ok(limit) => format!("write \"{limit}\""),
        Err(_) => suggest_same(limit)?,
    };
    Some(format!(
        "{written}; for a limit of each {each} say in the rule how they are told apart: key = \"client\", \
         \"header:authorization\" or \"query:api_key\""
    ))
}

/// Handles a text with one slip in it: a window, a number or a slash.
fn repaired(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase().replace('\\', "/");
    let (count, window) = lower.split_once('/')?;
    if let Some((first, second)) = window.split_once('/')
        && [first, second].iter().all(|window| is_window(window))
    {
        return Some(format!("a limit has one window: write \"{count}/{first}\" or \"{count}/{second}\""));
    }
    let number = NUMBERS.iter().position(|word| *word == count.trim()).map(|place| (place + 1).to_string());
    let count = number.as_deref().unwrap_or(count.trim());
    let (digits, word) = window.trim().split_at(window.trim().bytes().take_while(u8::is_ascii_digit).count());
    let window = if is_window(window) { window.trim().to_owned() } else { format!("{digits}{}", window_like(word)?) };
    let limit = format!("{count}/{window}");
    read_rate(&limit).is_ok().then(|| format!("write \"{limit}\""))
}

fn is_window(text: &str) -> bool {
    read_rate(&format!("1/{}", text.trim())).is_ok()
}

/// The window, in our notation, whose spelling is like `word`.
fn window_like(word: &str) -> Option<&'static str> {
    if word.len() < 2 || !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    let names = UNITS.iter().flat_map(|(names, _)| names.iter().map(|name| (*name, names[0])));
    let best =
        names.map(|(name, written)| (strsim::jaro_winkler(word, name), written)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > LIKELY_SLIP).then_some(best.1)
}

/// Similarity (Jaro-Winkler) above which one word is probably a slip of another.
const LIKELY_SLIP: f64 = 0.8;

#[cfg(test)]
mod tests {
    use crate::Limits;

    #[test]
    fn a_limit_with_one_slip_is_told_what_to_write() {
        for (text, expected) in [
            ("500/M", "M may be a minute or a month: write \"500/min\" or \"500/month\""),
            ("5000 tokens/M", "write \"5000 tokens/min\" or \"5000 tokens/month\""),
            ("500 per M", "write \"500/min\" or \"500/month\""),
            ("500/minuet", "write \"500/min\""),
            ("500/mn", "write \"500/min\""),
            ("10/secnd", "write \"10/s\""),
            ("500/15mins.", "write \"500/min\", \"10/s\""),
            ("500\\min", "write \"500/min\""),
            ("five/min", "write \"5/min\""),
            ("-5/s", "a limit is at least 1: write \"5/s\""),
            ("500/s/min", "a limit has one window: write \"500/s\" or \"500/min\""),
            ("500/min/key", "write \"500/min\"; for a limit of each key say in the rule"),
            ("60/h per user", "write \"60/h\"; for a limit of each user say"),
            ("10/s or 500/min", "write \"500/min\", \"10/s\""),
        ] {
            let hint = text.parse::<Limits>().expect_err(text).hint().to_owned();
            assert!(hint.contains(expected), "{text}: {hint}");
        }
        assert!("500/m".parse::<Limits>().is_ok() && "500/Min".parse::<Limits>().is_ok());
    }
}
