//! Parses the names of fields about limits.

use smallvec::SmallVec;

use super::count;

/// Words of a name, or some of them.
pub(super) type Words<'a> = SmallVec<[&'a str; 6]>;

/// Parts of a name.
#[derive(Debug, PartialEq)]
pub(super) struct Name<'a> {
    /// Text before `ratelimit`, if it is more than `x-`.
    pub(super) vendor: &'a str,
    /// Name of the budget; empty for "the" limit.
    pub(super) dimension: Words<'a>,
    pub(super) what: What,
    /// True if the name gives milliseconds as the unit.
    pub(super) milliseconds: bool,
    /// Units per second, if the unit is finer than a millisecond.
    pub(super) fine: Option<f64>,
    pub(super) prefixed: bool,
    /// `limit-requests` rather than `requests-limit`.
    pub(super) field_first: bool,
}

/// Quantity that a field reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    Limit,
    Remaining,
    Used,
    Reset {
        after: bool,
    },
    Window,
    /// Amount that is added in each interval.
    Fill,
    Label(Label),
}

/// Kind of text that a field reports, as its name says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Label {
    Resource,
    Bucket,
    Scope,
    Name,
    Zone,
    Who,
    Category,
    Type,
    Reason,
    Problem,
    Global,
    Near,
}

// === impl Name ===

impl<'a> Name<'a> {
    /// Parses `name`; `None` if it belongs to no such family.
    pub(super) fn read(name: &'a str) -> Option<Self> {
        let (vendor, rest) = split(name)?;
        let prefixed = vendor.starts_with("x-");
        let vendor = vendor.strip_prefix("x-").unwrap_or(vendor).trim_end_matches(['-', '_']);
        let mut words: Words<'_> = rest.split(['-', '_']).flat_map(unglued).filter(|word| !word.is_empty()).collect();
        // Structured fields and waits are read elsewhere.
        let waits = words.iter().any(|word| word.starts_with("retry"));
        if words.is_empty() && !prefixed || words[..] == ["policy"] || waits {
            return None;
        }
        let told = words.iter().enumerate().filter_map(|(at, word)| Some((at, field(word)?)));
        // A word in the middle belongs to the dimension: `limit-tokens-usage-based`.
        let told_first = words.first().is_some_and(|word| field(word).is_some());
        let is_aside = |at: usize, what| told_first && what == What::Used && at > 0 && at + 1 < words.len();
        let told = told.filter(|(at, what)| !is_aside(*at, *what));
        let Some((at, mut what)) = told.max_by_key(|(_, what)| precedence(*what)) else {
            // `x-rate-limit: 400`, `x-hubspot-ratelimit-daily: 250000`.
            let limit = words.iter().all(|word| count::window(word).is_some());
            let (what, milliseconds, field_first) = (What::Limit, false, false);
            let fine = None;
            return limit.then_some(Self { vendor, dimension: words, what, milliseconds, fine, prefixed, field_first });
        };
        let timed = matches!(what, What::Reset { .. } | What::Window);
        let milliseconds = timed && words.iter().any(|word| matches!(*word, "ms" | "milliseconds" | "millis"));
        let fine = words.iter().filter(|_| timed).find_map(|word| fine_unit(word));
        if let What::Reset { after } = &mut what {
            *after = words.contains(&"after");
        }
        words.remove(at);
        words.retain(|word| !is_noise(word, what));
        Some(Self {
            vendor,
            what,
            milliseconds,
            fine,
            prefixed,
            field_first: at == 0 && !words.is_empty(),
            dimension: words,
        })
    }
}

/// Returns whether the words are about a quota, although none of them is "rate": `-api-quota-left`, `-throttle-limit`.
/// Quotas of other things than requests do not count.
fn is_quota(rest: &str) -> bool {
    const OF: [&str; 8] = ["quota", "requests", "calls", "call", "credits", "throttle", "throttling", "tokenlimit"];
    const OTHERS: [&str; 14] = [
        "disk",
        "download",
        "downloads",
        "files",
        "license",
        "licenses",
        "mailbox",
        "seat",
        "seats",
        "space",
        "storage",
        "subscription",
        "upload",
        "uploads",
    ];
    const FIELDS: [&str; 9] =
        ["limit", "remaining", "left", "used", "reset", "resets", "tokenlimit", "period", "window"];
    let has = |words: &[&str]| rest.split('-').any(|word| words.contains(&word));
    has(&OF) && has(&FIELDS) && !has(&OTHERS)
}

/// Splits words that lack a hyphen: `userremaining`, `dailylimit`.
fn unglued(word: &str) -> [&str; 2] {
    const ENDS: [&str; 3] = ["remaining", "limit", "reset"];
    if word == "tokenlimit" {
        return ["tokens", "limit"];
    }
    if field(word).is_some() {
        return ["", word];
    }
    let end = ENDS.iter().find(|end| word.ends_with(**end)).map_or(word.len(), |end| end.len());
    word.split_at(word.len() - end).into()
}

/// Text before and after `ratelimit`, `rate-limit` or `rate_limit`.
fn split(name: &str) -> Option<(&str, &str)> {
    let stem = |at: usize| {
        let before = name[..at].strip_suffix(['-', '_']).unwrap_or(&name[..at]);
        Some((before.strip_suffix("rate")?, &name[at + "limit".len()..]))
    };
    // `x-quota-reset`, `x-requests-remaining`: the dimension precedes the field.
    let quota = || Some(("x-", name.strip_prefix("x-").filter(|rest| is_quota(rest))?));
    let mut limits = (0..name.len()).filter(|at| name.as_bytes()[*at..].starts_with(b"limit"));
    limits.find_map(stem).or_else(quota)
}

/// Units per second, from `reset-us`, `reset-nanoseconds`.
fn fine_unit(word: &str) -> Option<f64> {
    match word {
        "us" | "micros" | "microseconds" | "usec" => Some(1e6),
        "ns" | "nanos" | "nanoseconds" | "nsec" => Some(1e9),
        _ => None,
    }
}

/// Returns whether `word` adds nothing to the field that reports `what`.
fn is_noise(word: &str, what: What) -> bool {
    match word {
        "time" => true,
        // `rate-limit-limit-remaining`, `requests-quota`.
        "limit" => true,
        "max" => what != What::Limit,
        "rate" => what == What::Fill,
        "ms" | "milliseconds" | "millis" | "seconds" | "secs" | "s" | "after" | "at" | "in" | "timestamp" | "utc"
        | "date" | "epoch" => matches!(what, What::Reset { .. } | What::Window),
        word => fine_unit(word).is_some() && matches!(what, What::Reset { .. } | What::Window),
    }
}

fn field(word: &str) -> Option<What> {
    Some(match word {
        "limit" | "max" | "maximum" | "quota" | "total" | "capacity" => What::Limit,
        "remaining" | "left" | "available" | "remain" => What::Remaining,
        "used" | "observed" | "usage" | "consumed" | "current" | "count" => What::Used,
        "reset" | "resets" | "resettime" | "resetat" | "next" | "expires" | "timeremaining" => {
            What::Reset { after: false }
        }
        "interval" | "period" | "window" | "duration" => What::Window,
        "fillrate" | "replenish" => What::Fill,
        "resource" => What::Label(Label::Resource),
        "bucket" => What::Label(Label::Bucket),
        "scope" => What::Label(Label::Scope),
        "name" | "policy" | "rule" => What::Label(Label::Name),
        "zone" => What::Label(Label::Zone),
        "who" => What::Label(Label::Who),
        "category" => What::Label(Label::Category),
        "type" => What::Label(Label::Type),
        "reason" => What::Label(Label::Reason),
        "problem" => What::Label(Label::Problem),
        "global" => What::Label(Label::Global),
        "nearlimit" => What::Label(Label::Near),
        _ => return None,
    })
}

/// Rank that decides which of two words is the field: `quota-reset` is a reset, `limit-window` a window.
fn precedence(what: What) -> u8 {
    match what {
        What::Limit => 0,
        What::Window => 1,
        What::Label(_) => 2,
        What::Used | What::Fill => 3,
        What::Remaining => 4,
        What::Reset { .. } => 5,
    }
}
