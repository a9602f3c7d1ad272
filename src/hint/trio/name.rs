//! What the name of a field tells.

use super::count;

/// The parts of a name.
#[derive(Debug, PartialEq)]
pub(super) struct Name<'a> {
    /// What stands before `ratelimit`, if that is more than `x-`.
    pub(super) vendor: &'a str,
    /// What budget it is about; empty for "the" limit.
    pub(super) dimension: String,
    pub(super) what: What,
    /// Its unit is told at its end.
    pub(super) milliseconds: bool,
    pub(super) hyphen: bool,
    pub(super) prefixed: bool,
    /// `limit-requests` rather than `requests-limit`.
    pub(super) field_first: bool,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    Limit,
    Remaining,
    Used,
    Reset {
        after: bool,
    },
    Window,
    /// How much comes back in each window.
    Fill,
    Label(Label),
}

/// What is told in words.
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
    /// `None` if it is of no such family.
    pub(super) fn read(name: &'a str) -> Option<Self> {
        const STEMS: [&str; 3] = ["ratelimit", "rate-limit", "rate_limit"];
        let found = STEMS.iter().find_map(|stem| name.find(stem).map(|at| (at, stem.len())));
        let (vendor, rest, hyphen) = match found {
            Some((at, length)) => (&name[..at], &name[at + length..], length > 9),
            // `x-quota-reset`, `x-requests-remaining`: what is before the field is the dimension.
            None => ("x-", name.strip_prefix('x').filter(|rest| is_quota(rest))?, false),
        };
        let prefixed = vendor.starts_with("x-");
        let vendor = vendor.strip_prefix("x-").unwrap_or(vendor).trim_end_matches(['-', '_']);
        let words = rest.split(['-', '_']).flat_map(unglued).filter(|word| !word.is_empty()).collect::<Vec<_>>();
        let Told { what, milliseconds, dimension, field_first } = told(&words)?;
        // The structured fields, which are read elsewhere.
        if words.is_empty() && !prefixed || words == ["policy"] || words.iter().any(|word| word.starts_with("retry")) {
            return None;
        }
        Some(Self { vendor, dimension, what, milliseconds, hyphen, prefixed, field_first })
    }
}

/// Whether these are words about a quota, although none of them is "rate": `-api-quota-left`, `-throttle-limit`.
fn is_quota(rest: &str) -> bool {
    const OF: [&str; 8] = ["quota", "requests", "calls", "call", "credits", "throttle", "throttling", "tokenlimit"];
    const FIELDS: [&str; 9] =
        ["limit", "remaining", "left", "used", "reset", "resets", "tokenlimit", "period", "window"];
    let has = |words: &[&str]| rest.split('-').any(|word| words.contains(&word));
    has(&OF) && has(&FIELDS)
}

/// `userremaining`, `dailylimit`: some leave the hyphen out.
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

struct Told {
    what: What,
    milliseconds: bool,
    dimension: String,
    field_first: bool,
}

fn told(words: &[&str]) -> Option<Told> {
    let fields = words.iter().enumerate().filter_map(|(at, word)| Some((at, field(word)?)));
    // In the middle it is of the dimension: `limit-tokens-usage-based`.
    let told_first = words.first().is_some_and(|word| field(word).is_some());
    let is_aside = |at: usize, what| told_first && what == What::Used && at > 0 && at + 1 < words.len();
    let fields = fields.filter(|(at, what)| !is_aside(*at, *what));
    let Some((at, what)) = fields.max_by_key(|(_, what)| precedence(*what)) else {
        // `x-rate-limit: 400`, `x-hubspot-ratelimit-daily: 250000`.
        let limit = words.iter().all(|word| count::window(word).is_some());
        let dimension = words.join("-");
        return limit.then_some(Told { what: What::Limit, milliseconds: false, dimension, field_first: false });
    };
    let timed = matches!(what, What::Reset { .. } | What::Window);
    let is_unit = |word: &str| matches!(word, "ms" | "milliseconds" | "millis" | "seconds" | "secs" | "s");
    let milliseconds = timed && words.iter().any(|word| matches!(*word, "ms" | "milliseconds" | "millis"));
    let is_noise = |word: &str| {
        let of_time = timed
            && (is_unit(word)
                || matches!(word, "after" | "at" | "in" | "time" | "timestamp" | "utc" | "date" | "epoch"));
        // `rate-limit-limit-remaining`, `requests-quota`.
        of_time || what == What::Fill && word == "rate" || word == "limit" || what != What::Limit && word == "max"
    };
    let rest =
        || words.iter().enumerate().filter(|(other, word)| *other != at && !is_noise(word)).map(|(_, word)| *word);
    let what = match what {
        What::Reset { .. } => What::Reset { after: words.contains(&"after") },
        other => other,
    };
    let dimension = rest().collect::<Vec<_>>().join("-");
    Some(Told { what, milliseconds, field_first: at == 0 && !dimension.is_empty(), dimension })
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

/// Which of two words is the field: `quota-reset` is a reset, `reset-window`… a window of nothing.
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
