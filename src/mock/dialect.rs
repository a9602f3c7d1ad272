//! How real APIs tell about their limits: the same verdict in the words of several providers. Pure.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::RETRY_AFTER};

use super::counter::Verdict;
use crate::limit::Rate;

/// In whose words an API tells about its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// 429 with `Retry-After` in seconds, and nothing on what is accepted.
    #[default]
    RetryAfter,
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft (08 and later); `Retry-After` on 429.
    Ietf,
    /// `x-ratelimit-*` with the reset in epoch seconds; refuses with 403 and no `Retry-After`.
    Github,
    /// `x-ratelimit-*-requests` with the reset as a Go duration; `retry-after` and `retry-after-ms` on 429.
    Openai,
    /// A bare 429.
    None,
}

// === impl Dialect ===

impl Dialect {
    /// The status that says "too many".
    pub fn refusal(self) -> StatusCode {
        match self {
            // GitHub documents "403 or 429" for its primary limit; 403 is what trips the clients that only know 429.
            Self::Github => StatusCode::FORBIDDEN,
            _ => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// The body of a refusal.
    pub fn complaint(self) -> &'static str {
        match self {
            Self::Github => r#"{"message":"API rate limit exceeded"}"#,
            Self::Openai => {
                r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#
            }
            _ => r#"{"error":"too many requests"}"#,
        }
    }

    /// Adds what this dialect says about `verdict` under `limit`; `wall` is the time of day.
    pub fn describe(self, verdict: &Verdict, limit: Rate, wall: SystemTime, headers: &mut HeaderMap) {
        match self {
            Self::RetryAfter => retry_after(verdict, headers),
            Self::Ietf => {
                ietf(verdict, limit, headers);
                retry_after(verdict, headers);
            }
            Self::Github => github(verdict, limit, wall, headers),
            Self::Openai => {
                openai(verdict, limit, headers);
                retry_after(verdict, headers);
            }
            Self::None => {}
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RetryAfter => "retry-after",
            Self::Ietf => "ietf",
            Self::Github => "github",
            Self::Openai => "openai",
            Self::None => "none",
        })
    }
}

/// RFC 9110 §10.2.3: whole seconds, rounded up so that obeying is enough.
fn retry_after(verdict: &Verdict, headers: &mut HeaderMap) {
    if let Verdict::Refuse { retry_after, .. } = verdict {
        headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(*retry_after)));
    }
}

/// draft-ietf-httpapi-ratelimit-headers-08: `"name";q=…;w=…` and `"name";r=…;t=…`, in whole seconds.
fn ietf(verdict: &Verdict, limit: Rate, headers: &mut HeaderMap) {
    let mut policy = format!("\"default\";q={}", limit.count);
    // A window that is no whole number of seconds cannot be said, and `w` is optional.
    if limit.per.subsec_nanos() == 0 {
        policy.push_str(&format!(";w={}", limit.per.as_secs()));
    }
    put(headers, "ratelimit-policy", &policy);
    let (remaining, reset) = (verdict.remaining(), whole_seconds(verdict.reset()));
    put(headers, "ratelimit", &format!("\"default\";r={remaining};t={reset}"));
}

/// GitHub REST: the reset as seconds since 1970, UTC.
fn github(verdict: &Verdict, limit: Rate, wall: SystemTime, headers: &mut HeaderMap) {
    let since_1970 = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    put(headers, "x-ratelimit-limit", &limit.count.to_string());
    put(headers, "x-ratelimit-remaining", &verdict.remaining().to_string());
    put(headers, "x-ratelimit-used", &(limit.count.get() - verdict.remaining()).to_string());
    put(headers, "x-ratelimit-reset", &whole_seconds(since_1970 + verdict.reset()).to_string());
    put(headers, "x-ratelimit-resource", "core");
}

/// OpenAI: the reset as a Go duration, e.g. `6m0s`, `20ms`.
fn openai(verdict: &Verdict, limit: Rate, headers: &mut HeaderMap) {
    put(headers, "x-ratelimit-limit-requests", &limit.count.to_string());
    put(headers, "x-ratelimit-remaining-requests", &verdict.remaining().to_string());
    put(headers, "x-ratelimit-reset-requests", &go_duration(verdict.reset()));
    if let Verdict::Refuse { retry_after, .. } = verdict {
        put(headers, "retry-after-ms", &retry_after.as_nanos().div_ceil(1_000_000).to_string());
    }
}

fn put(headers: &mut HeaderMap, name: &'static str, value: &str) {
    let value = HeaderValue::from_str(value).expect("digits, letters and quotes make a header value");
    headers.insert(HeaderName::from_static(name), value);
}

fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// As Go's `Duration.String` writes it, rounded up to milliseconds: `0s`, `20ms`, `7.66s`, `6m0s`, `1h0m2.5s`.
fn go_duration(duration: Duration) -> String {
    let millis = duration.as_nanos().div_ceil(1_000_000);
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

    const ACCEPT: Verdict = Verdict::Accept { remaining: 4, reset: Duration::from_millis(1500) };
    const REFUSE: Verdict =
        Verdict::Refuse { retry_after: Duration::from_micros(1_400_100), reset: Duration::from_millis(61_500) };

    fn said(dialect: Dialect, verdict: &Verdict) -> Vec<String> {
        let mut headers = HeaderMap::new();
        let wall = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        dialect.describe(verdict, "10/min".parse().unwrap(), wall, &mut headers);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn retry_after_says_nothing_until_it_refuses() {
        assert!(said(Dialect::RetryAfter, &ACCEPT).is_empty());
        assert_eq!(said(Dialect::RetryAfter, &REFUSE), ["retry-after: 2"]);
    }

    #[test]
    fn none_never_says_anything() {
        assert!(said(Dialect::None, &ACCEPT).is_empty() && said(Dialect::None, &REFUSE).is_empty());
    }

    #[test]
    fn ietf_is_draft_8() {
        let policy = "ratelimit-policy: \"default\";q=10;w=60";
        assert_eq!(said(Dialect::Ietf, &ACCEPT), [policy, "ratelimit: \"default\";r=4;t=2"]);
        assert_eq!(said(Dialect::Ietf, &REFUSE), [policy, "ratelimit: \"default\";r=0;t=62", "retry-after: 2"]);
    }

    #[test]
    fn ietf_leaves_out_a_window_it_cannot_say() {
        let mut headers = HeaderMap::new();
        Dialect::Ietf.describe(&ACCEPT, "10/250ms".parse().unwrap(), UNIX_EPOCH, &mut headers);
        assert_eq!(headers["ratelimit-policy"], "\"default\";q=10");
    }

    #[test]
    fn github_resets_in_epoch_seconds_and_refuses_with_403() {
        let told = |remaining, used, reset| {
            [
                "x-ratelimit-limit: 10".to_owned(),
                format!("x-ratelimit-remaining: {remaining}"),
                format!("x-ratelimit-used: {used}"),
                format!("x-ratelimit-reset: {reset}"),
                "x-ratelimit-resource: core".to_owned(),
            ]
        };
        assert_eq!(said(Dialect::Github, &ACCEPT), told(4, 6, 1_700_000_002));
        assert_eq!(said(Dialect::Github, &REFUSE), told(0, 10, 1_700_000_062));
        assert_eq!(Dialect::Github.refusal(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn openai_resets_in_go_durations() {
        let limit = "x-ratelimit-limit-requests: 10";
        assert_eq!(
            said(Dialect::Openai, &ACCEPT),
            [limit, "x-ratelimit-remaining-requests: 4", "x-ratelimit-reset-requests: 1.5s"]
        );
        assert_eq!(
            said(Dialect::Openai, &REFUSE),
            [
                limit,
                "x-ratelimit-remaining-requests: 0",
                "x-ratelimit-reset-requests: 1m1.5s",
                "retry-after-ms: 1401",
                "retry-after: 2"
            ]
        );
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
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }
}
