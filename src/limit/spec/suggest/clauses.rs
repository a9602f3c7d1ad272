//! Limits in other words than ours. A text is understood as a whole or not at all, because a skipped word may change
//! the meaning (`10/s per key`, `10/s or 500/min`).

use std::{num::NonZeroU32, time::Duration};

use super::tokens::{Token, tokens};
use crate::{
    Unit,
    spec::{Rate, UNITS, read_rate},
};

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
const LEADS: [&str; 5] = ["at most", "up to", "max", "maximum", "limit"];
/// Words between limits.
const BETWEEN: [&str; 4] = ["and", "plus", "with", "a"];
/// Words behind a number that begin another clause and so name no unit.
const NO_UNITS: [&str; 6] = ["and", "plus", "with", "burst", "bursts", "strict"];
/// Words for concurrent requests.
const AT_ONCE: [&str; 10] = [
    "in-flight",
    "in flight",
    "inflight",
    "concurrent requests",
    "concurrent",
    "concurrency",
    "at once",
    "at a time",
    "in parallel",
    "parallel",
];
/// Windows without a notation of ours. A year is as long as the longest one, to be safe however the API counts.
const OTHER_UNITS: [(&[&str], Duration); 3] = [
    (&["mo"], Duration::from_secs(31 * 86_400)),
    (&["y", "yr", "year", "years"], Duration::from_secs(366 * 86_400)),
    (&["fortnight", "fortnights"], Duration::from_secs(14 * 86_400)),
];
/// Tokens count in thousandths.
const ONE: u64 = 1000;

/// The rest of a text. Readers advance it over what they understand.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a [Token]);

/// Parses the limits in `text` and writes them in our notation, if all of it is understood.
pub(super) fn clauses(text: &str) -> Option<Vec<String>> {
    let tokens = tokens(text)?;
    let (mut rest, mut clauses) = (Rest(&tokens), Vec::<String>::new());
    // The rate of the last clause, if a burst may follow.
    let mut rate: Option<Rate> = None;
    loop {
        while rest.sign(&Token::Break) || rest.any(&BETWEEN) {}
        if rest.0.is_empty() {
            return Some(clauses).filter(|clauses| !clauses.is_empty());
        }
        if let Some(most) = rest.read(Rest::in_flight) {
            clauses.push(format!("in-flight {most}"));
            rate = None;
        } else if let Some(burst) = rest.read(Rest::burst) {
            rate.take()?.with_room_for(burst)?;
            clauses.last_mut()?.push_str(&format!(" burst {burst}"));
        } else if rest.any(&["strict"]) {
            let limit = clauses.last_mut().filter(|limit| !limit.starts_with("in-flight"))?;
            limit.push_str(" strict");
        } else {
            let (limit, of) = rest.read(Rest::rate)?;
            clauses.push(limit);
            rate = Some(of);
        }
    }
}

/// Parses `text` if it is a number without its window.
pub(super) fn windowless(text: &str) -> Option<Windowless> {
    let tokens = tokens(text)?;
    let mut rest = Rest(&tokens);
    rest.any(&LEADS);
    let (count, unit) = rest.count()?;
    let windows = if rest.sign(&Token::Slash) { rest.whole()? } else { 1 };
    let count = whole(count).filter(|count| *count <= u32::MAX.into())?;
    let understood = rest.0.is_empty() && !NO_UNITS.contains(&unit);
    understood.then(|| Windowless { count, unit: unit.to_owned(), windows })
}

/// Length of the window called `name`, in milliseconds.
fn length(name: &str) -> Option<u64> {
    let (_, length) = UNITS.iter().chain(&OTHER_UNITS).find(|(names, _)| names.contains(&name))?;
    length.as_millis().try_into().ok()
}

/// A window of this length in our notation. Uses the longest unit that fits, except weeks and months, which are unusual.
fn window(millis: u64) -> Option<String> {
    let units = || UNITS.iter().map(|(names, length)| (names[0], length.as_millis() as u64));
    if let Some((name, _)) = units().find(|(_, length)| *length == millis) {
        return Some(name.to_owned());
    }
    let fits = units().take(5).rfind(|(_, length)| millis.is_multiple_of(*length));
    fits.map(|(name, length)| format!("{}{name}", millis / length))
}

/// The value of a number of thousandths, if it is whole.
fn whole(thousandths: u64) -> Option<u64> {
    thousandths.is_multiple_of(ONE).then_some(thousandths / ONE)
}

// === impl Rest ===

impl<'a> Rest<'a> {
    /// Advances over what `of` understands, or not at all.
    fn read<T>(&mut self, of: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut rest = *self;
        let read = of(&mut rest)?;
        *self = rest;
        Some(read)
    }

    fn sign(&mut self, sign: &Token) -> bool {
        let found = self.0.first() == Some(sign);
        self.0 = &self.0[usize::from(found)..];
        found
    }

    fn word(&mut self) -> Option<&'a str> {
        let [Token::Word(word) | Token::Suffix(word), rest @ ..] = self.0 else { return None };
        self.0 = rest;
        Some(word)
    }

    /// Reads one of these phrases.
    fn any(&mut self, phrases: &[&str]) -> bool {
        let phrase =
            |rest: &mut Self, phrase: &str| phrase.split(' ').all(|word| rest.word() == Some(word)).then_some(());
        phrases.iter().any(|words| self.read(|rest| phrase(rest, words)).is_some())
    }

    fn number(&mut self) -> Option<u64> {
        let [Token::Number(number), rest @ ..] = self.0 else { return None };
        self.0 = rest;
        Some(*number)
    }

    fn whole(&mut self) -> Option<u64> {
        whole(self.number()?)
    }

    fn amount(&mut self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.whole()?.try_into().ok()?)
    }

    /// Reads `burst 20`, `bursts of 20` or `burst=20`.
    fn burst(&mut self) -> Option<NonZeroU32> {
        self.any(&["burst", "bursts"]).then(|| self.set_to())?;
        self.amount()
    }

    fn set_to(&mut self) {
        _ = self.sign(&Token::Equals) || self.any(&["of"]);
    }

    /// Reads `5 in flight`, `5 requests at once` or `concurrency: 5`.
    fn in_flight(&mut self) -> Option<NonZeroU32> {
        if self.any(&AT_ONCE) {
            self.set_to();
            self.any(&LEADS);
            return self.amount();
        }
        self.any(&LEADS);
        let most = self.amount()?;
        self.read(|rest| rest.word().filter(|word| Unit::is_of_requests(word)));
        self.any(&AT_ONCE).then_some(most)
    }

    /// Reads `500 requests per minute`, `90k tokens/min`, `10rps` or `every 2s`.
    fn rate(&mut self) -> Option<(String, Rate)> {
        if self.any(&["every"]) {
            return limit(ONE, "", self.window()?);
        }
        self.any(&LEADS);
        let (count, unit) = self.count()?;
        // `rpm` and `qps` count requests; `tpm` counts tokens, as LLM APIs do.
        if let Some((unit @ ("r" | "q" | "t"), window)) = unit.split_once('p')
            && let Some(window) = length(window)
        {
            return limit(count, if unit == "t" { "tokens" } else { "" }, window);
        }
        if !self.sign(&Token::Slash) {
            self.any(&PER).then_some(())?;
            // "20 in a second" has two such words.
            self.any(&PER);
        }
        limit(count, unit, self.window()?)
    }

    /// Reads a count, in thousandths, and its unit; the unit of requests is empty.
    fn count(&mut self) -> Option<(u64, &'a str)> {
        let mut count = self.number()?;
        if let [Token::Suffix(suffix), rest @ ..] = self.0
            && let Some((_, times)) = [("k", 1000), ("m", 1_000_000)].iter().find(|(short, _)| short == suffix)
        {
            (count, self.0) = (count.checked_mul(*times)?, rest);
        }
        let unit = self.read(|rest| rest.word().filter(|word| !PER.contains(word))).unwrap_or_default();
        let unit = if Unit::is_of_requests(unit) { "" } else { unit };
        (length(unit).is_none() && (unit.is_empty() || Unit::is_name(unit))).then_some((count, unit))
    }

    /// Reads `min`, `30 seconds`, `1.5 min` or `1h30m`, in milliseconds.
    fn window(&mut self) -> Option<u64> {
        if let Some(name) = self.word() {
            return length(name);
        }
        let mut sum = 0_u64;
        while let Some((windows, unit)) = self.read(|rest| Some((rest.number()?, length(rest.word()?)?))) {
            sum = sum.checked_add(whole(windows.checked_mul(unit)?)?)?;
        }
        (sum > 0).then_some(sum)
    }
}

/// A limit of `count` thousandths in a window of `millis`, in our notation. A fraction becomes a whole number over more
/// windows: 1.5/s is 3/2s.
fn limit(count: u64, unit: &str, millis: u64) -> Option<(String, Rate)> {
    let (mut divisor, mut rest) = (ONE, count % ONE);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let (count, window) = (count / divisor, window(millis.checked_mul(ONE / divisor)?)?);
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    Some((format!("{count}{unit}/{window}"), read_rate(&format!("{count}/{window}")).ok()?))
}
