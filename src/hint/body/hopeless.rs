//! Finds sentences of a refusal that make waiting useless. Their subjects are a cap on spending or on the use of a day
//! or a month, a request that is larger than the limit, and a plan that does not include the request.
//!
//! Words alone make no refusal, except the sentence of a provider's cap that comes with status 400 (Anthropic).

use std::time::Duration;

use crate::{
    Hopeless, Strength, count,
    evidence::Evidence,
    time::{self, Now},
};

/// OpenAI, Groq, GitHub Models: the prompt must be shorter.
const TOO_LARGE: [&str; 6] = [
    "request too large",
    "tokens must be reduced",
    "reduce your message size",
    "reduce the length of",
    "prompt is too long",
    "long context requests",
];
/// Caps on money, which outlast any `Retry-After` of the answer. SerpApi: "Your account has run out of searches."
const SPENDING: [&str; 6] =
    ["spend limit", "spending limit", "spend cap", "spending cap", "monthly budget", "run out of searches"];
/// Windows that are too long to wait for.
const LONG_SPANS: [&str; 12] = [
    "daily",
    "per day",
    "/day",
    "/ day",
    "day/limit",
    // LinkedIn: "Resource level throttle APPLICATION DAY limit for calls to this resource is reached."
    "day limit",
    "for the day",
    "monthly",
    "per month",
    "/month",
    // Cohere: "You are using a Trial key, which is limited to 1000 API calls / month."
    "/ month",
    "for the month",
];
/// Words that turn a mention of such a window into a used-up limit.
const USED_UP: [&str; 5] = ["limit", "quota", "too many", "exceed", "volume has been reached"];
/// Shorter windows. If the sentence also has one, that limit may be the one that refused.
const SHORT_SPANS: [&str; 10] =
    ["per second", "per hour", "/min", "/ min", "/sec", "/ sec", "/hour", "/ hour", "per min", "calls per sec"];
/// Salesforce's limit of 24 hours, named after its counter.
const TOTALS: &str = "totalrequests limit";
/// Words before the date at which a cap is renewed.
const RENEWALS: [&str; 10] = [
    "regain access on",
    "regain access at",
    "access will be restored on",
    "available again on",
    "will be reset on",
    "resets on",
    "reset on",
    "resets at",
    "renews on",
    "renewed on",
];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAY: Duration = Duration::from_secs(86_400);

/// Reads a sentence in lower case. `strength` says how sure its place is.
pub(super) fn read(lower: &str, strength: Strength, now: Now, evidence: &mut Evidence) {
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    // "You have reached your specified API usage limits. You will regain access on 2027-01-01 at 00:00 UTC." (400)
    let capped = lower.starts_with("you have reached your specified") && lower.contains("api usage limits");
    // ElevenLabs: "This request exceeds your quota of 10000. You have 5 credits remaining, while 20 credits are required."
    let lacks_credits = lower.contains("exceeds your quota of") && lower.contains("credits remaining");
    let spends = capped || lacks_credits || has(&SPENDING);
    let long = LONG_SPANS.iter().any(|span| names_span(lower, span)) && has(&USED_UP) && !has(&SHORT_SPANS)
        || lower.contains(TOTALS);
    let why = if has(&TOO_LARGE) || asks_for_more(lower) {
        Hopeless::TooLarge
    } else if allows_nothing(lower) {
        Hopeless::NotOnPlan
    } else if spends || long {
        Hopeless::Cap
    } else {
        return;
    };
    evidence.in_words.get_or_insert(why);
    if why == Hopeless::Cap {
        evidence.spends |= spends;
        evidence.renewed = evidence.renewed.or_else(|| renewal(lower, now));
    }
    if capped && strength == Strength::Code {
        evidence.fatal.get_or_insert(why);
        evidence.refuse(strength);
    }
}

/// Returns whether the sentence names this window as that of a limit. "(300 per day)" is a rate among others (Hugging
/// Face).
fn names_span(lower: &str, span: &str) -> bool {
    let counted = |at: usize| lower[..at].trim_end().ends_with(|c: char| c.is_ascii_digit());
    lower.match_indices(span).any(|(at, _)| !counted(at))
}

/// Returns whether the request exceeds the whole limit: "Limit 30000, Requested 36278".
fn asks_for_more(lower: &str) -> bool {
    lower.match_indices("limit").filter(|(at, _)| begins(lower, *at)).any(|(at, word)| {
        let Some((limit, rest)) = number_at(&lower[at + word.len()..]) else { return false };
        let rest = rest.trim_start_matches([',', ' ']);
        // "Limit 30000, Used 0, Requested 36278"
        let used = rest.strip_prefix("used").and_then(number_at);
        let rest = used.map_or(rest, |(_, rest)| rest.trim_start_matches([',', ' ']));
        let asked = rest.strip_prefix("requested").and_then(number_at);
        asked.is_some_and(|(asked, _)| asked > limit)
    })
}

/// Returns whether the word `limit` at this place stands for the limit itself: "Remaining Limit: 0" (Finnhub) reports
/// the remainder.
fn begins(lower: &str, at: usize) -> bool {
    !lower[..at].trim_end().ends_with(|c: char| c.is_alphanumeric())
}

/// Returns whether the limit is 0: "Quota exceeded for metric: …, limit: 0, model: …" (Gemini), "Limit 0, Used 0,
/// Requested 1" (OpenAI).
fn allows_nothing(lower: &str) -> bool {
    let mut limits = lower.match_indices("limit").filter(|(at, _)| begins(lower, *at));
    limits.any(|(at, word)| number_at(&lower[at + word.len()..]).is_some_and(|(limit, _)| limit == 0.0))
}

/// Number at the beginning of `text`, and the text after it.
fn number_at(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_start_matches([' ', ':', '=']);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.').unwrap_or(text.len());
    let digits = text[..end].trim_end_matches([',', '.']).replace(',', "");
    Some((count::decimal(&digits)?, &text[end..]))
}

/// Time from now until the date after one of the [`RENEWALS`].
fn renewal(lower: &str, now: Now) -> Option<Duration> {
    let rest = RENEWALS.iter().find_map(|lead| lower.split_once(lead).map(|(_, rest)| rest.trim_start()))?;
    if ["midnight utc", "00:00 utc"].iter().any(|midnight| rest.starts_with(midnight)) {
        let past = now.of_day().as_secs() % DAY.as_secs();
        return Some(DAY - Duration::from_secs(past));
    }
    let at =
        rest.split_whitespace().next().and_then(|word| time::iso(&word.trim_end_matches(['.', ',']).to_uppercase()));
    now.until(at.or_else(|| date_in_words(rest))?)
}

/// Parses `2027-01-01 at 00:00 utc`, `2027-01-01`, `january 1, 2027`, `1 jan 2027`, in UTC.
fn date_in_words(text: &str) -> Option<Duration> {
    let (mut year, mut month, mut day, mut clock) = (None, None, None, "00:00");
    for word in text.split([' ', ',', '(', ')']).filter(|word| !word.is_empty()).take(8) {
        let ends = word.ends_with('.');
        let word = word.trim_end_matches(['.', ';', '!']);
        let number: Option<u64> = word.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok();
        if let [y, m, d] = word.split('-').collect::<Vec<_>>()[..] {
            (year, month, day) = (y.parse().ok(), m.parse().ok(), d.parse().ok());
        } else if word.contains(':') {
            clock = word;
        } else if let Some(at) = MONTHS.iter().position(|month| word.starts_with(month)) {
            month = Some(at as u64 + 1);
        } else if number.is_some_and(|number| number > 31) {
            year = number;
        } else if number.is_some() {
            day = number;
        } else if !matches!(word, "at" | "utc" | "gmt" | "of" | "the") {
            break;
        }
        if ends {
            break;
        }
    }
    let seconds = if clock.len() == 5 { ":00" } else { "" };
    time::iso(&format!("{:04}-{:02}-{:02}T{clock}{seconds}Z", year?, month?, day?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-12-31 00:00 UTC.
    const NOW: Now = Now { arrived: Duration::from_secs(1_798_675_200), date: None };

    fn read_of(said: &str) -> Evidence {
        let mut evidence = Evidence::default();
        read(&said.to_ascii_lowercase(), Strength::Code, NOW, &mut evidence);
        evidence
    }

    #[test]
    fn sentences_say_why_waiting_does_not_help() {
        for (said, why) in [
            ("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 36278.", Hopeless::TooLarge),
            ("Limit 6,000, Requested 7,456. Please reduce it.", Hopeless::TooLarge),
            ("(TPM): Limit 30000, Used 12, Requested 36278.", Hopeless::TooLarge),
            ("Quota exceeded for metric: x/free_tier_requests, limit: 0, model: gemini-3-pro", Hopeless::NotOnPlan),
            ("This request would exceed your account's monthly spend limit.", Hopeless::Cap),
            ("Too many tokens per day, please wait before trying again.", Hopeless::Cap),
            ("You have exceeded the MONTHLY quota for Requests on your current plan, BASIC.", Hopeless::Cap),
            ("TotalRequests Limit exceeded.", Hopeless::Cap),
            ("Resource level throttle MEMBER DAY limit for calls to this resource is reached.", Hopeless::Cap),
            ("You are using a Trial key, which is limited to 1000 API calls / month.", Hopeless::Cap),
            ("Your account has run out of searches.", Hopeless::Cap),
            ("This request exceeds your quota of 10000. You have 5 credits remaining.", Hopeless::Cap),
        ] {
            assert_eq!(read_of(said).in_words, Some(why), "{said}");
        }
        for said in [
            "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Try again in 2s.",
            "Our standard API call frequency is 5 calls per minute and 500 calls per day.",
            "limit: 0.5 per second",
            "You have exceeded the rate limit for repository creation (300 per day).",
            "API limit reached. Please try again later. Remaining Limit: 0",
            "Too many requests: limit exceeded, remaining limit: 0",
            "Your request rate must be reduced.",
            "Rate limit: 100 requests per minute, you have requested 101",
            "Too many requests",
            "The daily report could not be made",
            "You are using a Trial key, which is limited to 40 API calls / minute.",
            "The 30 day limit of the free trial has passed",
            "This request exceeds your quota of 60 requests per minute.",
            "Rate limit: 10 requests / min, 1000 requests / day",
        ] {
            assert_eq!(read_of(said).in_words, None, "{said}");
        }
    }

    #[test]
    fn a_cap_is_renewed_at_the_date_that_the_sentence_names() {
        let day = |said: &str| {
            let said = format!("You have reached your specified API usage limits. {said}");
            read_of(&said).renewed.map(|wait| wait.as_secs_f64() / 3600.0)
        };
        for said in [
            "You will regain access on 2027-01-01 at 00:00 UTC.",
            "You will regain access on 2027-01-01.",
            "You will regain access at 2027-01-01T00:00:00Z.",
            "It resets on January 1, 2027.",
            "It renews on 1 Jan 2027, see the console.",
            "It resets at midnight UTC.",
        ] {
            assert_eq!(day(said), Some(24.0), "{said}");
        }
        assert_eq!(day("You will regain access on 2027-01-01 at 06:30 UTC."), Some(30.5));
        for said in ["", "You will regain access on Monday.", "You will regain access on 2026-01-01."] {
            assert_eq!(day(said), None, "{said}");
        }
    }
}
