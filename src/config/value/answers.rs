//! Grammars for the use of an API's answers: trust in them, and reactions to failures.

use std::num::NonZeroU32;

use super::grammar::{Grammar, ParseHint};
use crate::policy::{Reserve, Spend, Trust};

pub(in crate::config) const SPEND: Grammar<Spend> = Grammar {
    expected: "a way to spend a quota",
    example: "\"mostly\", \"even\" or \"greedy\"",
    read: |text| {
        [Spend::Mostly, Spend::Even, Spend::Greedy]
            .into_iter()
            .find(|spend| spend.as_str() == text)
            .ok_or_else(ParseHint::default)
    },
};
pub(in crate::config) const TRUST: Grammar<Trust> = Grammar {
    expected: "a level of trust",
    example: "\"waits\", \"stricter\" or \"api\"",
    read: |text| {
        [Trust::Waits, Trust::Stricter, Trust::Api]
            .into_iter()
            .find(|trust| trust.as_str() == text)
            .ok_or_else(ParseHint::default)
    },
};
/// `true` learns clients' patience.
pub(in crate::config) const PATIENCE: Grammar<bool> = Grammar {
    expected: "a source of patience",
    example: "\"stated\" or \"learn\"",
    read: |text| match text {
        "stated" => Ok(false),
        "learn" => Ok(true),
        _ => Err(ParseHint::default()),
    },
};
/// `retry` as a word; the size of bodies has a key of its own.
pub(in crate::config) const RETRY: Grammar<bool> = Grammar { read: retry, ..SWITCH };
pub(in crate::config) const BREAKER: Grammar<bool> = SWITCH;
/// Longest body that is kept for retries, in bytes.
pub(in crate::config) const BODY: Grammar<u64> =
    Grammar { expected: "a size", example: "\"1MiB\", \"64KiB\" or \"0\"", read: body };

/// Attempts per request at most.
pub(in crate::config) const TRIES: Grammar<NonZeroU32> = Grammar {
    expected: "a number from 1 to 100",
    example: "3",
    read: |text| {
        let tries = text.parse().map_err(|_| ParseHint::default())?;
        NonZeroU32::new(tries).filter(|tries| tries.get() <= MOST_TRIES).ok_or_else(ParseHint::default)
    },
};

/// Share of each limit that is reserved for urgent requests.
pub(in crate::config) const RESERVE: Grammar<Option<Reserve>> =
    Grammar { expected: "a percentage from 0% to 90%", example: "\"10%\" or \"off\"", read: reserve };

/// Bytes of answers that are stored for reuse.
pub(in crate::config) const CACHE: Grammar<Option<usize>> =
    Grammar { expected: "a size or \"off\"", example: "\"64MiB\" or \"off\"", read: cache };
/// Bound on andante's memory, in bytes.
pub(in crate::config) const MAX_MEMORY: Grammar<Option<u64>> =
    Grammar { expected: "a size or \"auto\"", example: "\"512MiB\" or \"auto\"", read: max_memory };
/// Bytes of a request's body that are read before its turn.
pub(in crate::config) const READ_BODY: Grammar<Option<usize>> =
    Grammar { expected: "a size or \"off\"", example: "\"8KiB\" or \"off\"", read: read_body };
/// `true` validates every use.
pub(in crate::config) const REVALIDATE: Grammar<bool> = Grammar {
    expected: "a mode of validation",
    example: "\"stale\" or \"always\"",
    read: |text| match text {
        "stale" => Ok(false),
        "always" => Ok(true),
        _ => Err(ParseHint::default()),
    },
};
/// `true` makes a 304 free.
pub(in crate::config) const NOT_MODIFIED: Grammar<bool> = Grammar {
    expected: "a cost of 304 answers",
    example: "\"charged\" or \"free\"",
    read: |text| match text {
        "charged" => Ok(false),
        "free" => Ok(true),
        _ => Err(ParseHint::default()),
    },
};

const SWITCH: Grammar<bool> = Grammar { expected: "\"on\" or \"off\"", example: "\"on\" or \"off\"", read: switch };

/// The largest number of attempts: more would be a mistake, and 100 with back-off take the better part of an
/// hour.
const MOST_TRIES: u32 = 100;

/// The largest body that is kept. Every request in flight may hold this much memory: a hundred of them 6.4 GB.
const MOST: u64 = 64 << 20;

/// The most that is read of a body before its turn: each waiting request holds this much.
const MOST_READ: u64 = 1 << 20;

/// The smallest bound on memory: andante itself takes 15 MiB.
const LEAST_MEMORY: u64 = 64 << 20;

/// The smallest cache: an answer may take an eighth of it.
const SMALLEST: u64 = 64 << 10;

/// Names of units, in small letters, and their bytes.
const UNITS: [(&str, u64); 9] = [
    ("b", 1),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tb", 1_000_000_000_000),
    ("tib", 1 << 40),
];

fn switch(text: &str) -> Result<bool, ParseHint> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        "true" | "yes" | "1" => Err(ParseHint::hint("write \"on\"")),
        "false" | "no" | "0" => Err(ParseHint::hint("write \"off\"")),
        _ => Err(ParseHint::default()),
    }
}

fn retry(text: &str) -> Result<bool, ParseHint> {
    switch(text).map_err(|instead| match body(text) {
        _ if instead.hint.is_none() && TRIES.read(text).is_ok() => {
            ParseHint::hint(format!("write retry = {{ tries = {text} }} in a file, for how often a request is sent"))
        }
        Ok(_) if instead.hint.is_none() => {
            ParseHint::hint(format!("write retry = {{ body = '{text}' }} in a file, for the bodies that are kept"))
        }
        _ => instead,
    })
}

fn body(text: &str) -> Result<u64, ParseHint> {
    size(text)?.filter(|bytes| *bytes <= MOST).ok_or_else(|| {
        let hint = "write at most \"64MiB\"; larger bodies are passed on as they come, and not sent again";
        ParseHint::said(format!("{text:?} is too much to keep in memory for each request on its way"), hint)
    })
}

fn reserve(text: &str) -> Result<Option<Reserve>, ParseHint> {
    if text == "off" {
        return Ok(None);
    }
    let percent = text.strip_suffix('%').ok_or_else(|| match text.parse::<u8>() {
        Ok(percent) => ParseHint::hint(format!("write \"{percent}%\"")),
        Err(_) => ParseHint::default(),
    })?;
    match percent.trim_end().parse() {
        Ok(0) => Ok(None),
        Ok(percent) => Reserve::new(percent).map(Some).ok_or_else(ParseHint::default),
        Err(_) => Err(ParseHint::default()),
    }
}

fn cache(text: &str) -> Result<Option<usize>, ParseHint> {
    if text == "off" {
        return Ok(None);
    }
    let bytes = size(text)?.and_then(|bytes| usize::try_from(bytes).ok());
    match bytes {
        Some(0) => Ok(None),
        Some(bytes) if bytes as u64 >= SMALLEST => Ok(Some(bytes)),
        Some(_) => Err(ParseHint::said(format!("{text:?} is too small for a cache"), "write \"64KiB\" or more")),
        None => Err(ParseHint::said(format!("{text:?} is more than there is"), "write \"64MiB\"")),
    }
}

fn max_memory(text: &str) -> Result<Option<u64>, ParseHint> {
    if text == "auto" {
        return Ok(None);
    }
    match size(text)? {
        Some(bytes) if bytes >= LEAST_MEMORY => Ok(Some(bytes)),
        Some(_) => Err(ParseHint::said(format!("{text:?} leaves no room for requests"), "write \"64MiB\" or more")),
        None => Err(ParseHint::said(format!("{text:?} is more than there is"), "write \"512MiB\"")),
    }
}

fn read_body(text: &str) -> Result<Option<usize>, ParseHint> {
    if text == "off" {
        return Ok(None);
    }
    match size(text)?.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes as u64 <= MOST_READ) {
        Some(0) => Ok(None),
        Some(bytes) => Ok(Some(bytes)),
        None => Err(ParseHint::said(
            format!("{text:?} is too much to keep in memory for each request that waits"),
            "write at most \"1MiB\"",
        )),
    }
}

/// Number of bytes; `None` if the number is too large.
fn size(text: &str) -> Result<Option<u64>, ParseHint> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    Ok(match UNITS.iter().find(|(name, _)| *name == unit) {
        _ if number.is_empty() => return Err(ParseHint::default()),
        // Zero needs no unit.
        None if unit.is_empty() && number.bytes().all(|digit| digit == b'0') => Some(0),
        None if unit.is_empty() => return Err(unitless(number)),
        None => return Err(meant(number, &unit)),
        Some((_, bytes)) => number.parse().ok().and_then(|number: u64| number.checked_mul(*bytes)),
    })
}

/// Hint for a size without a unit: a large number is probably in bytes.
fn unitless(number: &str) -> ParseHint {
    let bytes: Option<u64> = number.parse().ok();
    ParseHint::hint(match bytes {
        Some(bytes) if bytes > 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("write \"{}MiB\"", bytes >> 20),
        Some(bytes) if bytes > 1 << 20 => format!("write \"{bytes}B\""),
        _ => format!("write \"{number}B\" for bytes, \"{number}KiB\" or \"{number}MiB\""),
    })
}

/// A letter alone means a thousand to some users and 1024 to others.
fn meant(number: &str, unit: &str) -> ParseHint {
    match unit {
        "k" => ParseHint::hint(format!("write \"{number}KiB\" or \"{number}kB\"")),
        "m" | "g" => {
            let unit = unit.to_ascii_uppercase();
            ParseHint::hint(format!("write \"{number}{unit}iB\" or \"{number}{unit}B\""))
        }
        _ => ParseHint::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_unless_they_are_nothing() {
        for (text, bytes) in [
            ("0", 0),
            ("0MiB", 0),
            ("512B", 512),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("1MiB", 1_048_576),
            ("10MB", 10_000_000),
            ("64MiB", 67_108_864),
        ] {
            assert_eq!(BODY.read(text), Ok(bytes), "{text}");
        }
        let hint = |text: &str| BODY.read(text).unwrap_err().hint;
        assert_eq!(hint("4"), "write \"4B\" for bytes, \"4KiB\" or \"4MiB\"");
        assert_eq!(hint("268435456"), "write \"256MiB\"");
        assert_eq!(hint("10000000"), "write \"10000000B\"");
        assert_eq!(MAX_MEMORY.read("1TB"), Ok(Some(1_000_000_000_000)));
        assert_eq!(hint("4M"), "write \"4MiB\" or \"4MB\"");
        for text in ["", "MiB", "-1MiB", "1.5MiB", "1 fortnight", "all", "+1B", "٣B", "1MiBé"] {
            assert_eq!(hint(text), "write \"1MiB\", \"64KiB\" or \"0\"", "{text}");
        }
    }

    #[test]
    fn a_body_that_is_kept_has_a_bound() {
        for text in ["65MiB", "1GiB", "67108865B", "99999999999999999999B", "18446744073709551615GiB"] {
            let wrong = BODY.read(text).unwrap_err();
            assert!(
                wrong.what.contains(text) && wrong.hint.starts_with("write at most \"64MiB\""),
                "{text}: {wrong:?}"
            );
        }
    }

    #[test]
    fn a_cache_has_a_size_or_is_off() {
        for (text, bytes) in [("off", None), ("0", None), ("64KiB", Some(65_536)), ("4GiB", Some(4_294_967_296))] {
            assert_eq!(CACHE.read(text), Ok(bytes), "{text}");
        }
        assert_eq!(CACHE.read("1KiB").unwrap_err().hint, "write \"64KiB\" or more");
        assert_eq!(CACHE.read("64").unwrap_err().hint, "write \"64B\" for bytes, \"64KiB\" or \"64MiB\"");
        assert_eq!(CACHE.read("99999999999999999999GiB").unwrap_err().hint, "write \"64MiB\"");
        assert_eq!(CACHE.read("on").unwrap_err().hint, "write \"64MiB\" or \"off\"");
        assert_eq!((REVALIDATE.read("always"), REVALIDATE.read("stale")), (Ok(true), Ok(false)));
        assert_eq!((NOT_MODIFIED.read("free"), NOT_MODIFIED.read("charged")), (Ok(true), Ok(false)));
    }

    #[test]
    fn what_is_read_of_a_body_has_a_bound() {
        for (text, bytes) in [("off", None), ("0", None), ("8KiB", Some(8192)), ("1MiB", Some(1_048_576))] {
            assert_eq!(READ_BODY.read(text), Ok(bytes), "{text}");
        }
        assert_eq!(READ_BODY.read("2MiB").unwrap_err().hint, "write at most \"1MiB\"");
        assert_eq!(READ_BODY.read("on").unwrap_err().hint, "write \"8KiB\" or \"off\"");
    }

    #[test]
    fn switches_have_one_spelling_and_know_the_others() {
        assert_eq!((BREAKER.read("on"), RETRY.read("off")), (Ok(true), Ok(false)));
        for (text, hint) in [("true", "write \"on\""), ("0", "write \"off\""), ("maybe", "write \"on\" or \"off\"")] {
            assert_eq!(BREAKER.read(text).unwrap_err().hint, hint, "{text}");
            assert_eq!(RETRY.read(text).unwrap_err().hint, hint, "{text}");
        }
        assert!(RETRY.read("3").unwrap_err().hint.starts_with("write retry = { tries = 3 }"));
        assert!(RETRY.read("4MiB").unwrap_err().hint.starts_with("write retry = { body = '4MiB' }"));
    }
}
