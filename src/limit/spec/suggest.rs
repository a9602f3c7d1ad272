//! Suggests how to write a limit that was put into other words. What is suggested can be read, and means what was written;
//! of what may mean something else the forms of a limit are shown.

mod clauses;
mod odd;
mod tokens;

use self::clauses::{Clause, Windowless, clauses, windowless};
pub(in crate::limit) use self::odd::hint;
use super::parse_count;

/// What people write where nothing is limited.
const NO_LIMIT: [&str; 6] = ["unlimited", "none", "off", "no", "0", "infinite"];
/// What stands behind a limit.
const BEHIND: [(&str, &str); 2] = [("burst", "10/s burst 20"), ("strict", "10/s strict")];

/// What to write in the place of `text`.
pub(in crate::limit) fn suggest(text: &str) -> String {
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

/// What to write to say the same as `text`, if all of it is understood.
pub(in crate::limit) fn suggest_same(text: &str) -> Option<String> {
    let limits: Vec<String> = clauses(text)?.iter().map(Clause::to_string).collect();
    let several = if limits.len() > 1 { ": commas stand between limits" } else { "" };
    Some(format!("write \"{}\"{several}", limits.join(",")))
}

/// What to write in the place of `text`, where a rate of requests is needed and nothing else.
pub(super) fn suggest_rate(text: &str) -> String {
    match clauses(text).as_deref() {
        Some([rate @ Clause::Rate { unit, burst: None, strict: false, .. }]) if unit.is_empty() => {
            format!("write \"{rate}\"")
        }
        _ => "write \"500/min\", \"10/s\" or \"1/120s\"".to_owned(),
    }
}

/// What to write in the place of `text` if that is a number of requests at once, in other words; `None` otherwise.
pub(in crate::limit) fn suggest_in_flight(text: &str) -> Option<String> {
    let [at_once @ Clause::InFlight(_)] = &clauses(text)?[..] else { return None };
    let is_ours = text.trim().strip_prefix("in-flight ").is_some_and(|count| parse_count(count).is_ok());
    (!is_ours).then(|| format!("write \"{at_once}\""))
}

#[cfg(test)]
mod tests;
