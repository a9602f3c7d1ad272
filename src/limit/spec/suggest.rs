//! Suggests how to write a limit that was put into other words. A suggestion is valid and means what was written. For
//! an ambiguous text the hint shows the forms of a limit instead.

mod clauses;
mod odd;
mod tokens;

use self::clauses::{Windowless, clauses, windowless};
pub(crate) use self::odd::hint;
use super::{parse_count, read_rate};

/// Words for the absence of a limit.
const NO_LIMIT: [&str; 6] = ["unlimited", "none", "off", "no", "0", "infinite"];
/// Words that follow a limit, with examples.
const BEHIND: [(&str, &str); 2] = [("burst", "10/s burst 20"), ("strict", "10/s strict")];

/// Suggests what to write instead of `text`.
pub(crate) fn suggest(text: &str) -> String {
    let lower = text.trim().to_ascii_lowercase();
    if NO_LIMIT.contains(&&*lower) {
        return "leave the limit out: then only what the API says and refuses counts".to_owned();
    }
    if let Some((_, example)) = BEHIND.iter().find(|(word, _)| lower.starts_with(word)) {
        return format!("write it behind its limit, as in \"{example}\"");
    }
    if let Some(hint) = suggest_same(text) {
        return hint;
    }
    if let Some(Windowless { count, unit, windows }) = windowless(text) {
        let unit = if unit.is_empty() { unit } else { format!(" {unit}") };
        let windows = if windows == 1 { String::new() } else { windows.to_string() };
        let forms = ["s", "min", "h", "d", "month"].map(|window| format!("\"{count}{unit}/{windows}{window}\""));
        return format!("write {} or {}", forms[..4].join(", "), forms[4]);
    }
    "write \"500/min\", \"10/s\", \"1/120s\", \"10/s burst 20\" or \"10/s strict\"".to_owned()
}

/// Suggests the notation of `text`, if all of it is understood.
pub(crate) fn suggest_same(text: &str) -> Option<String> {
    let limits = clauses(text)?;
    let several = if limits.len() > 1 { ": commas stand between limits" } else { "" };
    Some(format!("write \"{}\"{several}", limits.join(",")))
}

/// Suggests what to write instead of `text`, where only a rate of requests is valid.
pub(super) fn suggest_rate(text: &str) -> String {
    match clauses(text).as_deref() {
        Some([rate]) if read_rate(rate).is_ok() => format!("write \"{rate}\""),
        _ => "write \"500/min\", \"10/s\" or \"1/120s\"".to_owned(),
    }
}

/// Suggests the notation if `text` is a number of concurrent requests in other words; `None` otherwise.
pub(crate) fn suggest_in_flight(text: &str) -> Option<String> {
    let clauses = clauses(text)?;
    let [at_once] = &clauses[..] else { return None };
    let is_ours = text.trim().strip_prefix("in-flight ").is_some_and(|count| parse_count(count).is_ok());
    (at_once.starts_with("in-flight ") && !is_ours).then(|| format!("write \"{at_once}\""))
}

#[cfg(test)]
mod tests;
