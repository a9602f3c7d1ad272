//! Codes by which APIs name their refusals.

use crate::{Cause, Hopeless, Strength, evidence::Evidence};

/// Judges `code`, if it is known: `ThrottlingException`, `com.amazonaws#Throttling`, `RATE_LIMITED`,
/// `https://iana.org/assignments/http-problem-types#quota-exceeded`. `strength` says how sure the place of the code is.
pub(super) fn judge(code: &str, strength: Strength, evidence: &mut Evidence) {
    match Code::of(code) {
        Some(Code::Throttle) => _ = evidence.cause.get_or_insert(Cause::Quota),
        Some(Code::Concurrency) => evidence.cause = Some(Cause::Concurrency),
        Some(Code::Overload) => _ = evidence.cause.get_or_insert(Cause::Overload),
        Some(Code::Billing) => _ = evidence.fatal.get_or_insert(Hopeless::Unpaid),
        Some(Code::Cap) => _ = evidence.fatal.get_or_insert(Hopeless::Cap),
        Some(Code::Resources) => _ = evidence.fatal.get_or_insert(Hopeless::Resources),
        None => return,
    }
    evidence.refuse(strength);
}

/// Codes of a limit that is reached, as lower-case letters and digits alone.
const THROTTLES: [&str; 22] = [
    "abnormalusagedetected",
    "bandwidthlimitexceeded",
    "complexitybudgetexhausted",
    "dailylimitexceeded",
    "priorrequestnotcomplete",
    "provisionedthroughputexceeded",
    "provisionedthroughputexceededexception",
    "quotaexceeded",
    "requestlimitexceeded",
    "requestratetoolarge",
    "resourceexhausted",
    "slowdown",
    "toomanyrequests",
    "toomanyrequestsexception",
    "toomanycalls",
    "usagelimitreached",
    "userratelimitexceeded",
    "limitexceededperminute",
    "overquerylimit",
    "floodwait",
    // MediaWiki: the replicas lag, and nothing was done.
    "maxlag",
    "querylimitexceeded",
];
/// Codes of an API that lacks capacity.
const OVERLOADS: [&str; 4] = ["modelnotready", "overcapacity", "serverbusy", "temporaryreducedcapacity"];
/// The namespace of Bedrock's errors.
const BEDROCK: &str = "com.amazon.bedrock";
/// Codes of a payment that is due.
const BILLING: [&str; 6] = [
    "insufficientquota",
    "billinghardlimitreached",
    "billingnotactive",
    "insufficientbalance",
    "insufficientcredits",
    "insufficientuserquota",
];

/// Meaning of a code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Code {
    Throttle,
    Concurrency,
    Overload,
    /// A payment is due first.
    Billing,
    /// A cap on spending is reached.
    Cap,
    /// A quota on the number of resources is used up.
    Resources,
}

// === impl Code ===

impl Code {
    pub(super) fn of(code: &str) -> Option<Self> {
        // Bedrock's inference uses this code for throughput ("You can resubmit your request later"), other AWS services
        // for resources.
        let is_bedrocks = code.contains(BEDROCK);
        // AWS puts a namespace before the code, or an address after it. Problem types are addresses.
        let code = match code.rsplit_once('#') {
            Some((_, code)) => code,
            None if code.starts_with("http") && code.contains("://") => {
                code.trim_end_matches('/').rsplit('/').next()?
            }
            None => code,
        };
        let code = code.split(':').next()?;
        // A sentence that contains a code is no code.
        if code.len() > 80 || code.trim().contains(' ') {
            return None;
        }
        let word: String = code.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        let word = word.as_str();
        match word {
            // NetSuite: too many concurrent requests of an account or of a session.
            "locktimeout" | "wsconcursessiondisallwd" | "wsrequestblocked" | "exceededrequestlimit" => {
                Some(Self::Concurrency)
            }
            _ if BILLING.contains(&word) => Some(Self::Billing),
            "servicequotaexceededexception" => Some(if is_bedrocks { Self::Overload } else { Self::Resources }),
            _ if word.contains("concurren")
                && (word.contains("limit") || word.contains("toomany") || word.contains("exceed")) =>
            {
                Some(Self::Concurrency)
            }
            // `enforced_spend_limit_reached`; Airtable's `PUBLIC_API_BILLING_LIMIT_EXCEEDED`
            _ if ["spendlimit", "spendinglimit", "spendcap", "billinglimit"].iter().any(|cap| word.contains(cap)) => {
                Some(Self::Cap)
            }
            // `server_is_overloaded`, `engine_overloaded_error`; Groq's `capacity_exceeded`
            _ if OVERLOADS.contains(&word) || word.contains("overloaded") || word.contains("capacityexceeded") => {
                Some(Self::Overload)
            }
            _ if THROTTLES.contains(&word)
                || word.contains("ratelimit")
                || word.contains("throttl")
                || word.contains("requestlimitexceeded")
                || word.contains("toofrequent")
                // Amap: `USER_DAILY_QUERY_OVER_LIMIT`, `CUQPS_HAS_EXCEEDED_THE_LIMIT`.
                || word.contains("queryoverlimit")
                || word.contains("qps") && word.contains("exceeded") =>
            {
                Some(Self::Throttle)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_known_in_any_spelling() {
        for code in [
            "ThrottlingException",
            "com.amazon.coral.availability#ThrottlingException",
            "ThrottlingException:http://internal.amazon.com/coral/",
            "Throttling",
            "RATE_LIMITED",
            "RATELIMITED",
            "userRateLimitExceeded",
            "RESOURCE_EXHAUSTED",
            "REQUEST_LIMIT_EXCEEDED",
            "rate_limit_error",
            "too_many_requests",
            "https://azconfig.io/errors/too-many-requests",
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
        ] {
            assert_eq!(Code::of(code), Some(Code::Throttle), "{code}");
        }
        assert_eq!(Code::of("insufficient_quota"), Some(Code::Billing));
        assert_eq!(Code::of("PUBLIC_API_BILLING_LIMIT_EXCEEDED"), Some(Code::Cap));
        assert_eq!(Code::of("lock_timeout"), Some(Code::Concurrency));
        assert_eq!(Code::of("TooManyConcurrentRequests"), Some(Code::Concurrency));
        assert_eq!(Code::of("overloaded_error"), Some(Code::Overload));
        let quota = "ServiceQuotaExceededException:http://internal.amazon.com/coral/com.amazon.";
        assert_eq!(Code::of(&format!("{quota}bedrock/")), Some(Code::Overload));
        assert_eq!(Code::of(&format!("{quota}scheduler/")), Some(Code::Resources));
        assert_eq!(Code::of("ServiceQuotaExceededException"), Some(Code::Resources));
        for code in [
            "",
            "#",
            "://",
            "ValidationException",
            "invalid_request_error",
            "forbidden",
            "429",
            "requests",
            "AccessDenied",
            "order 17 was created; the mail server is overloaded",
            "Rate limit exceeded",
        ] {
            assert_eq!(Code::of(code), None, "{code}");
        }
    }
}
