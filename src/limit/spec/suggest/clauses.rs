//! Limits in other words than ours. A text is understood as a whole or not at all, because a skipped word may change
//! the meaning (`10/s per key`, `10/s or 500/min`).

use std::{fmt, num::NonZeroU32, time::Duration};

use super::tokens::{Number, Token, tokens};
use crate::{
    Unit,
    spec::{Rate, UNITS},
};

/// A limit that was understood. `Display` writes it in our notation.
#[derive(Clone, Debug)]
pub(super) enum Clause {
    Rate {
        rate: Rate,
        /// Unit; empty for requests.
        unit: String,
        burst: Option<NonZeroU32>,
        strict: bool,
    },
    InFlight(NonZeroU32),
}

/// A number without its window, such as `500 points`; `1/2` supplies `windows`, too.
#[derive(Debug)]
pub(super) struct Windowless {
    pub(super) count: u64,
    /// Unit; empty for requests.
    pub(super) unit: String,
    pub(super) windows: u64,
}

/// Words between a number and its window.
const PER: [&str; 6] = ["per", "a", "an", "every", "each", "in"];
/// Words before a number that change nothing.
const LEADS: [&[&str]; 5] = [&["at", "most"], &["up", "to"], &["max"], &["maximum"], &["limit"]];
/// Words between limits.
const BETWEEN: [&str; 4] = ["and", "plus", "with", "a"];
/// Words behind a number that begin another clause and so name no unit.
const NO_UNITS: [&str; 6] = ["and", "plus", "with", "burst", "bursts", "strict"];
/// Abbreviations of requests per second, per minute, per hour and per day.
const RATES: [(&str, &str); 5] = [("rps", "s"), ("qps", "s"), ("rpm", "min"), ("rph", "h"), ("rpd", "d")];
/// Abbreviations of tokens per second, minute, hour and day, as LLM APIs count them.
const TOKEN_RATES: [(&str, &str); 4] = [("tps", "s"), ("tpm", "min"), ("tph", "h"), ("tpd", "d")];
/// Words for concurrent requests.
const AT_ONCE: [&[&str]; 10] = [
    &["in-flight"],
    &["in", "flight"],
    &["inflight"],
    &["concurrent", "requests"],
    &["concurrent"],
    &["concurrency"],
    &["at", "once"],
    &["at", "a", "time"],
    &["in", "parallel"],
    &["parallel"],
];
/// Windows without a notation of ours. A year is as long as the longest one, to be safe however the API counts.
const OTHER_UNITS: [(&[&str], Duration); 3] = [
    (&["mo"], Duration::from_secs(31 * 86_400)),
    (&["y", "yr", "year", "years"], Duration::from_secs(366 * 86_400)),
    (&["fortnight", "fortnights"], Duration::from_secs(14 * 86_400)),
];

/// Parses the limits in `text`, if all of it is understood.
pub(super) fn clauses(text: &str) -> Option<Vec<Clause>> {
    let tokens = tokens(text)?;
    let (mut rest, mut clauses) = (&tokens[..], Vec::<Clause>::new());
    loop {
        rest = between(rest);
        if rest.is_empty() {
            return Some(clauses).filter(|clauses| !clauses.is_empty());
        }
        if let Some((most, after)) = in_flight(rest) {
            clauses.push(Clause::InFlight(most));
            rest = after;
        } else if let Some((count, after)) = burst(rest) {
            let Some(Clause::Rate { rate, burst: burst @ None, .. }) = clauses.last_mut() else { return None };
            *burst = Some(count).filter(|count| rate.with_room_for(*count).is_some());
            burst.as_ref()?;
            rest = after;
        } else if let Some((true, after)) = word(rest).map(|(word, after)| (word == "strict", after)) {
            let Some(Clause::Rate { strict, .. }) = clauses.last_mut() else { return None };
            *strict = true;
            rest = after;
        } else {
            let (rate, after) = rate(rest)?;
            clauses.push(rate);
            rest = after;
        }
    }
}

/// Parses `text` if it is a number without its window.
pub(super) fn windowless(text: &str) -> Option<Windowless> {
    let tokens = tokens(text)?;
    let (count, unit, rest) = count(lead(&tokens))?;
    if NO_UNITS.contains(&&*unit) {
        return None;
    }
    let windows = match rest {
        [] => 1,
        [Token::Slash, Token::Number(windows)] => windows.whole()?,
        _ => return None,
    };
    Some(Windowless { count: count.whole().filter(|count| *count <= u32::MAX.into())?, unit, windows })
}

fn between(mut rest: &[Token]) -> &[Token] {
    loop {
        match rest {
            [Token::Break, after @ ..] => rest = after,
            [Token::Word(word), after @ ..] if BETWEEN.contains(&&**word) => rest = after,
            _ => return rest,
        }
    }
}

fn lead(rest: &[Token]) -> &[Token] {
    LEADS.iter().find_map(|words| words_first(rest, words)).unwrap_or(rest)
}

/// Returns the rest after these words, if `rest` begins with them.
fn words_first<'a>(rest: &'a [Token], words: &[&str]) -> Option<&'a [Token]> {
    words
        .iter()
        .try_fold(rest, |rest, expected| word(rest).filter(|(word, _)| word == expected).map(|(_, after)| after))
}

fn word(rest: &[Token]) -> Option<(&str, &[Token])> {
    match rest {
        [Token::Word(word) | Token::Suffix(word), after @ ..] => Some((word, after)),
        _ => None,
    }
}

fn whole(rest: &[Token]) -> Option<(NonZeroU32, &[Token])> {
    let [Token::Number(number), after @ ..] = rest else { return None };
    Some((NonZeroU32::new(number.whole()?.try_into().ok()?)?, after))
}

/// Parses `burst 20`, `bursts of 20` or `burst=20`.
fn burst(rest: &[Token]) -> Option<(NonZeroU32, &[Token])> {
    let (_, rest) = word(rest).filter(|(word, _)| ["burst", "bursts"].contains(word))?;
    whole(set_to(rest))
}

fn set_to(rest: &[Token]) -> &[Token] {
    match rest {
        [Token::Equals, after @ ..] => after,
        _ => words_first(rest, &["of"]).unwrap_or(rest),
    }
}

/// Parses `5 in flight`, `5 requests at once` or `concurrency: 5`.
fn in_flight(rest: &[Token]) -> Option<(NonZeroU32, &[Token])> {
    let at_once = |rest| AT_ONCE.iter().find_map(|words| words_first(rest, words));
    if let Some(rest) = at_once(rest) {
        return whole(lead(set_to(rest)));
    }
    let (most, rest) = whole(lead(rest))?;
    let rest = word(rest).filter(|(word, _)| Unit::is_of_requests(word)).map_or(rest, |(_, after)| after);
    Some((most, at_once(rest)?))
}

/// Parses `500 requests per minute`, `90k tokens/min`, `10rps` or `every 2s`.
fn rate(rest: &[Token]) -> Option<(Clause, &[Token])> {
    if let Some((length, after)) = words_first(rest, &["every"]).and_then(window) {
        return Some((clause(Number::ONE, String::new(), length)?, after));
    }
    let rest = lead(rest);
    let (count, unit, rest) = count(rest)?;
    if let Some((_, window)) = RATES.iter().find(|(short, _)| *short == unit) {
        return Some((clause(count, String::new(), length(window)?)?, rest));
    }
    if let Some((_, window)) = TOKEN_RATES.iter().find(|(short, _)| *short == unit) {
        return Some((clause(count, "tokens".to_owned(), length(window)?)?, rest));
    }
    let per = |rest| word(rest).filter(|(word, _)| PER.contains(word)).map(|(_, after)| after);
    let rest = match rest {
        [Token::Slash, after @ ..] => after,
        // "20 in a second" has two such words.
        _ => per(rest).map(|rest| per(rest).unwrap_or(rest))?,
    };
    let (length, rest) = window(rest)?;
    Some((clause(count, unit, length)?, rest))
}

/// Parses a count and its unit; the unit of requests is empty.
fn count(rest: &[Token]) -> Option<(Number, String, &[Token])> {
    let [Token::Number(count), rest @ ..] = rest else { return None };
    let (count, rest) = match rest {
        [Token::Suffix(suffix), after @ ..] if suffix == "k" => (count.times(1000)?, after),
        [Token::Suffix(suffix), after @ ..] if suffix == "m" => (count.times(1_000_000)?, after),
        _ => (*count, rest),
    };
    match word(rest) {
        Some((unit, _)) if length(unit).is_some() => None,
        Some((unit, after)) if !PER.contains(&unit) => {
            let unit = if Unit::is_of_requests(unit) { "" } else { unit };
            (unit.is_empty() || Unit::is_name(unit)).then(|| (count, unit.to_owned(), after))
        }
        _ => Some((count, String::new(), rest)),
    }
}

/// Parses `min`, `30 seconds`, `1.5 min` or `1h30m`, in milliseconds.
fn window(rest: &[Token]) -> Option<(u64, &[Token])> {
    if let Some((name, after)) = word(rest) {
        return Some((length(name)?, after));
    }
    let (mut sum, mut rest) = (0_u64, rest);
    while let [Token::Number(windows), after @ ..] = rest
        && let Some((unit, after)) = word(after)
        && let Some(unit) = length(unit)
    {
        let windows = windows.times(unit)?;
        sum = sum.checked_add(windows.whole()?)?;
        rest = after;
    }
    (sum > 0).then_some((sum, rest))
}

/// Length of the window called `name`, in milliseconds.
fn length(name: &str) -> Option<u64> {
    let all = UNITS.iter().chain(&OTHER_UNITS);
    let (_, length) = all.into_iter().find(|(names, _)| names.contains(&name))?;
    length.as_millis().try_into().ok()
}

/// A fraction becomes a whole number over more windows: 1.5/s is 3/2s.
fn clause(count: Number, unit: String, length: u64) -> Option<Clause> {
    let per = Duration::from_millis(length.checked_mul(count.under)?);
    let rate = Rate { count: NonZeroU32::new(count.over.try_into().ok()?)?, per };
    rate.is_possible().then_some(Clause::Rate { rate, unit, burst: None, strict: false })
}

// === impl Clause ===

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, unit, burst, strict) = match self {
            Self::InFlight(most) => return write!(f, "in-flight {most}"),
            Self::Rate { rate, unit, burst, strict } => (rate, unit, burst, strict),
        };
        write!(f, "{}", rate.count)?;
        if !unit.is_empty() {
            write!(f, " {unit}")?;
        }
        let millis = rate.per.as_millis();
        // Use the longest unit that fits, except weeks and months, which are unusual.
        let fits = |length: &Duration| millis % length.as_millis() == 0;
        let once = UNITS.iter().find(|(_, length)| *length == rate.per);
        match once.or_else(|| UNITS.iter().take(5).rev().find(|(_, length)| fits(length))) {
            Some((names, length)) if *length == rate.per => write!(f, "/{}", names[0])?,
            Some((names, length)) => write!(f, "/{}{}", millis / length.as_millis(), names[0])?,
            None => write!(f, "/{millis}ms")?,
        }
        if let Some(burst) = burst {
            write!(f, " burst {burst}")?;
        }
        if *strict { f.write_str(" strict") } else { Ok(()) }
    }
}
