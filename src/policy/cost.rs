//! Costs of requests as a rule states them: amounts, or places in the request that show an amount.

use std::{fmt, str::FromStr};

use andante_limit::{Amount, Cost, Unit};

/// Costs of a request under a rule: `input-tokens=length, output-tokens=body:max_tokens, points=3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCost {
    /// Cost of every request.
    pub known: Cost,
    /// Units whose amount each request may show.
    pub seen: Vec<(Unit, CostSource)>,
}

/// Largest amounts that a request may state itself: `500`, which are requests, or `input-tokens=9000, points=5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxCost(Vec<(Unit, Amount)>);

/// Place where a request shows its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// Length of the body times the amount per byte; `None` uses the amount that recent answers reported.
    Length(Option<PerByte>),
    /// First of these members in the JSON body; its value is a whole number.
    Body(Vec<MemberPath>),
}

/// Amount of a unit per byte, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerByte(u64);

/// The names that lead to a member of a JSON object: `max_tokens`, `generationConfig.maxOutputTokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPath(Box<[Box<str>]>);

const MILLION: u64 = 1_000_000;

// === impl RuleCost ===

impl RuleCost {
    /// Returns whether the cost names `unit`, even if only some requests show an amount.
    pub fn names(&self, unit: Unit) -> bool {
        self.known.of(unit).is_some() || self.seen.iter().any(|(seen, _)| *seen == unit)
    }

    /// Units that requests cost, other than requests.
    pub fn units(&self) -> impl Iterator<Item = Unit> {
        self.known.others().map(|(unit, _)| unit).chain(self.seen.iter().map(|(unit, _)| *unit))
    }

    /// Returns whether the cost depends on the body.
    pub fn is_in_body(&self) -> bool {
        self.seen.iter().any(|(_, source)| matches!(source, CostSource::Body(_)))
    }
}

impl From<Cost> for RuleCost {
    fn from(known: Cost) -> Self {
        Self { known, seen: Vec::new() }
    }
}

impl FromStr for RuleCost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut amounts, mut seen, mut all) = (Vec::new(), Vec::new(), Cost::MIN);
        for part in text.split(',') {
            let source = part.split_once('=').map(|(name, source)| (name, source.trim()));
            let Some((name, source)) = source.filter(|(_, source)| !source.starts_with(|c: char| !c.is_alphabetic()))
            else {
                amounts.push(part);
                continue;
            };
            let unit = Unit::named(name.trim())?;
            if unit == Unit::REQUESTS {
                return Err("a request counts as a number of them, as in \"requests=2\"".to_owned());
            }
            if all.says(unit) {
                return Err(format!("say once how many {unit} a request takes"));
            }
            all = all.with(unit, 1);
            seen.push((unit, source.parse()?));
        }
        let known = match amounts[..] {
            [] => Cost::MIN,
            _ => amounts.join(",").parse::<Cost>().map_err(|wrong| wrong.hint().to_owned())?,
        };
        if let Some((unit, _)) = seen.iter().find(|(unit, _)| known.says(*unit)) {
            return Err(format!("say once how many {unit} a request takes"));
        }
        let most = seen.iter().fold(known, |cost, (unit, _)| cost.with(*unit, 1));
        if seen.iter().any(|(unit, _)| !most.says(*unit)) {
            return Err("a request takes of three units at most, beside requests".to_owned());
        }
        Ok(Self { known, seen })
    }
}

impl fmt::Display for RuleCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = (self.seen.is_empty() || self.known != Cost::MIN).then(|| self.known.to_string());
        let seen = self.seen.iter().map(|(unit, source)| format!("{unit}={source}"));
        f.write_str(&known.into_iter().chain(seen).collect::<Vec<_>>().join(", "))
    }
}

// === impl MaxCost ===

impl MaxCost {
    /// The largest part of the smallest limit of a unit that a request may state by default: one in this many.
    pub const PART_OF_LIMIT: u32 = 10;

    /// Largest stated amount of `unit`, if the rule names one.
    pub fn of(&self, unit: Unit) -> Option<Amount> {
        self.0.iter().find(|(other, _)| *other == unit).map(|(_, most)| *most)
    }

    /// Largest stated amount by default of a unit whose smallest limit is `limit`: a tenth of it, and 1 at least.
    pub fn by_default(limit: Amount) -> Amount {
        Amount::new(limit.get() / Self::PART_OF_LIMIT).unwrap_or(Amount::MIN)
    }

    /// The units that it bounds.
    pub fn units(&self) -> impl Iterator<Item = Unit> {
        self.0.iter().map(|(unit, _)| *unit)
    }
}

impl FromStr for MaxCost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "write the most requests that one may count as, from 1, or the most of each unit, as in \
                        \"tokens=9000, points=5\""
                .to_owned()
        };
        let mut bounds: Vec<(Unit, Amount)> = Vec::new();
        for part in text.split(',') {
            let (unit, most) = match part.split_once('=') {
                Some((name, most)) => (Unit::named(name.trim())?, most),
                None => (Unit::REQUESTS, part),
            };
            let most = most.trim().parse().map_err(|_| wrong())?;
            if bounds.iter().any(|(other, _)| *other == unit) {
                return Err(format!("say once how many {unit} a request may state"));
            }
            bounds.push((unit, most));
        }
        Ok(Self(bounds))
    }
}

impl fmt::Display for MaxCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|(unit, most)| format!("{unit}={most}")).collect::<Vec<_>>().join(", "))
    }
}

// === impl CostSource ===

impl FromStr for CostSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(names) = text.strip_prefix("body:") {
            return Ok(Self::Body(names.split('|').map(|name| name.trim().parse()).collect::<Result<_, _>>()?));
        }
        match text.strip_prefix("length").map(str::trim) {
            Some("") => Ok(Self::Length(None)),
            Some(times) if times.starts_with('*') => Ok(Self::Length(Some(times[1..].trim().parse()?))),
            _ => Err(
                "write a number, \"length\" for what its bytes come to, or \"body:max_tokens\" for a member of its \
                      JSON body"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(None) => f.write_str("length"),
            Self::Length(Some(per_byte)) => write!(f, "length*{per_byte}"),
            Self::Body(names) => {
                let names: Vec<_> = names.iter().map(ToString::to_string).collect();
                write!(f, "body:{}", names.join("|"))
            }
        }
    }
}

// === impl PerByte ===

impl PerByte {
    /// Amount for `bytes`, rounded up, and at least 1.
    pub fn of(self, bytes: u64) -> u32 {
        let amount = (u128::from(self.0) * u128::from(bytes)).div_ceil(MILLION.into());
        u32::try_from(amount).unwrap_or(u32::MAX).max(1)
    }
}

impl FromStr for PerByte {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = || "write what a byte is as a number from 0.000001 to 1000, as in \"length*0.25\"".to_owned();
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 || whole.len() > 4 {
            return Err(example());
        }
        let number = |text: &str| text.parse::<u64>().map_err(|_| example());
        let millionths = number(whole)? * MILLION + number(&format!("{part:0<6}"))?;
        if millionths == 0 || millionths > 1000 * MILLION { Err(example()) } else { Ok(Self(millionths)) }
    }
}

impl fmt::Display for PerByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / MILLION, self.0 % MILLION);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

// === impl MemberPath ===

impl MemberPath {
    /// The names, from the outermost.
    pub fn names(&self) -> &[Box<str>] {
        &self.0
    }
}

impl FromStr for MemberPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let names: Box<[Box<str>]> = text.split('.').map(Into::into).collect();
        let good = names.iter().all(|name| !name.is_empty() && name.bytes().all(plain));
        let example = "write \"body:max_tokens\", \"body:max_completion_tokens|max_tokens\" for the first that is there, or \
                       \"body:generationConfig.maxOutputTokens\" for a member of a member";
        good.then_some(Self(names)).ok_or_else(|| example.to_owned())
    }
}

impl fmt::Display for MemberPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_told_as_it_is_written() {
        for text in [
            "tokens=1200",
            "requests=2, tokens=3",
            "tokens=length",
            "tokens=length*0.25",
            "points=3, in=length, out=body:max_tokens",
            "out=body:max_completion_tokens|max_tokens",
            "out=body:generationConfig.maxOutputTokens",
        ] {
            assert_eq!(text.parse::<RuleCost>().unwrap().to_string(), text);
        }
        let spaced: RuleCost = " out = body: a | b ,in=length * 1.50".parse().unwrap();
        assert_eq!(spaced.to_string(), "out=body:a|b, in=length*1.5");
        assert_eq!("5".parse(), Ok(RuleCost::from(Cost::new(5).unwrap())));
    }

    #[test]
    fn what_is_wrong_with_a_cost_is_told() {
        for (text, hint) in [
            ("requests=length", "\"requests=2\""),
            ("tokens=lenght", "\"length\" for what"),
            ("tokens=length, tokens=5", "say once how many tokens"),
            ("tokens=length, tokens=body:n", "say once how many tokens"),
            ("a=1, b=2, c=length, d=body:n", "three units at most"),
            ("a=length, b=length, c=length, d=length", "three units at most"),
            ("tokens=length*0", "length*0.25"),
            ("tokens=length*-1", "length*0.25"),
            ("tokens=length*1e3", "length*0.25"),
            ("tokens=length*0.0000001", "length*0.25"),
            ("tokens=length*1001", "length*0.25"),
            ("tokens=length/4", "\"length\" for what"),
            ("tokens=body:", "\"body:max_tokens\""),
            ("tokens=body:a||b", "\"body:max_tokens\""),
            ("tokens=body:a..b", "\"body:max_tokens\""),
            ("tokens=body:a b", "\"body:max_tokens\""),
            ("Tokens=length", "small letters"),
            ("", "how many requests"),
        ] {
            let found = text.parse::<RuleCost>().unwrap_err();
            assert!(found.contains(hint), "{text}: {found}");
        }
    }

    #[test]
    fn largest_stated_cost_is_a_number_of_requests_or_one_for_each_unit() {
        let told = |text: &str| text.parse::<MaxCost>().unwrap().to_string();
        assert_eq!(
            (told("500"), told(" tokens = 9000,requests=5")),
            ("requests=500".into(), "tokens=9000, requests=5".into())
        );
        for (text, hint) in [
            ("0", "from 1"),
            ("tokens=0", "from 1"),
            ("many", "from 1"),
            ("", "from 1"),
            ("tokens=length", "from 1"),
            ("5, requests=6", "say once how many requests"),
            ("Tokens=1", "small letters"),
        ] {
            let found = text.parse::<MaxCost>().unwrap_err();
            assert!(found.contains(hint), "{text}: {found}");
        }
        let default = |limit| MaxCost::by_default(Amount::new(limit).unwrap()).get();
        assert_eq!([1, 9, 10, 19, 20, 90_000].map(default), [1, 1, 1, 1, 2, 9_000]);
    }

    #[test]
    fn bytes_are_rounded_up_and_never_nothing() {
        let of = |factor: &str, bytes| factor.parse::<PerByte>().unwrap().of(bytes);
        assert_eq!((of("0.25", 4000), of("0.25", 4001), of("1", 7), of("1000", 3)), (1000, 1001, 7, 3000));
        assert_eq!((of("0.000001", 1), of("0.25", 0), of("1000", u64::MAX)), (1, 1, u32::MAX));
    }
}
