//! Recognizes complaints about limits by their words.

/// Phrases of complaints about limits, in lower case.
const COMPLAINTS: [&str; 14] = [
    "out of call volume quota",
    "rate limit exceeded",
    "rate limit reached",
    "ratelimit exceeded",
    "rate limit has been exceeded",
    "exceeded the rate limit",
    "exceeded your rate limit",
    "exceeded your rate-limit",
    "quota limit exceeded",
    "rate limited",
    "frequency limit",
    "too many requests",
    "request limit reached",
    "too many calls",
];
/// Largest number of letters between two words that belong together.
const NEAR_CHARS: usize = 24;

/// Returns whether a sentence complains about a limit.
pub(super) fn complains(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    COMPLAINTS.iter().any(|complaint| said.contains(complaint)) || is_exceeded(&said)
}

/// Returns whether the number stands between "rate limit" and "exceeded": "Max rate limit '100' exceeded with in '20'
/// secs" (Marketo).
fn is_exceeded(lower: &str) -> bool {
    lower.match_indices("rate limit").map(|(at, words)| &lower[at + words.len()..]).any(|rest| {
        let rest = beginning(rest, NEAR_CHARS);
        !rest.contains('.') && ["exceeded", "reached"].iter().any(|word| rest.contains(word))
    })
}

fn beginning(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

/// Returns whether a sentence is about concurrency: "Concurrent request limit exceeded" (NetSuite), "ConcurrentRequests
/// (Concurrent API Requests) Limit exceeded" (Salesforce), "Concurrent access limit reached" (Marketo).
pub(super) fn is_too_many_at_once(lower: &str) -> bool {
    lower.split_once("concurren").is_some_and(|(_, rest)| {
        let rest = beginning(rest, 3 * NEAR_CHARS);
        ["limit exceeded", "limit reached", "limit has been"].iter().any(|words| rest.contains(words))
    })
}
