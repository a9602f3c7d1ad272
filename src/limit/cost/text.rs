//! Text form of costs.

use std::{fmt, str::FromStr};

use super::Cost;
use crate::{SpecError, Unit};

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.requests.get() > 1 || self.others().next().is_none() {
            parts.push(format!("requests={}", self.requests));
        }
        parts.extend(self.others().map(|(unit, amount)| format!("{unit}={amount}")));
        f.write_str(&parts.join(", "))
    }
}

impl FromStr for Cost {
    type Err = SpecError;

    /// Parses `5`, or `input-tokens=1200, output-tokens=500`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = |hint: &str| SpecError::of_cost(text, hint.to_owned());
        let example =
            "write how many requests it counts as, from 1, or units with theirs, as in \"tokens=1200, points=3\"";
        if let Ok(requests) = text.trim().parse() {
            return Self::new(requests).ok_or_else(|| wrong(example));
        }
        let mut cost = Self::MIN;
        for part in text.split(',') {
            let (name, amount) = part.split_once('=').ok_or_else(|| wrong(example))?;
            let amount: u32 = amount.trim().parse().map_err(|_| wrong(example))?;
            let unit = Unit::named(name.trim()).map_err(|hint| wrong(&hint))?;
            if unit == Unit::REQUESTS && amount == 0 {
                return Err(wrong("a request counts as one at least"));
            }
            cost = cost.with(unit, amount);
            if !cost.says(unit) {
                return Err(wrong("a request takes of three units at most, beside requests"));
            }
        }
        Ok(cost)
    }
}
