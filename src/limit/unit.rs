//! Units that limits count: requests, or anything else that an API sells by name, such as tokens or points.

use std::fmt;

use parking_lot::RwLock;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A unit that a limit counts. Units with equal names are equal, in whichever rule they occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit(u8);

/// Names from configurations, numbered from 1 on. Names are few and never removed: requests waiting under an old
/// configuration keep their units under a new one.
static NAMES: RwLock<Vec<&'static str>> = RwLock::new(Vec::new());

/// Names for requests. nginx writes `10r/s`.
const REQUESTS: [&str; 7] = ["requests", "request", "reqs", "req", "r", "calls", "call"];
/// Maximum length of a name, in bytes.
const LONGEST: usize = 32;

// === impl Unit ===

impl Unit {
    /// The unit that counts each request as 1.
    pub const REQUESTS: Self = Self(0);

    /// Returns the unit that a configuration calls `name`, or the reason why the name is invalid.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some(known) = Self::known(name) {
            return Ok(known);
        }
        if !Self::is_name(name) {
            return Err(format!(
                "a unit is a name of up to {LONGEST} small letters, digits, \"-\" and \"_\", as in \"90000 input-tokens/min\""
            ));
        }
        let mut names = NAMES.write();
        if let Some(index) = names.iter().position(|known| *known == name) {
            return Ok(Self::numbered(index));
        }
        if names.len() >= usize::from(u8::MAX) {
            return Err(format!("no more than {} units are told apart", u8::MAX));
        }
        names.push(Box::leak(name.into()));
        Ok(Self::numbered(names.len() - 1))
    }

    /// Returns the unit called `name`, if any configuration has named it.
    pub fn known(name: &str) -> Option<Self> {
        if Self::is_of_requests(name) {
            return Some(Self::REQUESTS);
        }
        NAMES.read().iter().position(|known| *known == name).map(Self::numbered)
    }

    /// Returns true if `name` means requests.
    pub(super) fn is_of_requests(name: &str) -> bool {
        REQUESTS.contains(&name)
    }

    /// Returns true if `name` may name a unit: as RFC 9651 §3.1.2 writes keys, since `Andante-Cost` names units.
    pub(super) fn is_name(name: &str) -> bool {
        let plain = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        plain && name.len() <= LONGEST && name.starts_with(|first: char| first.is_ascii_lowercase())
    }

    /// Name of the unit.
    pub fn name(self) -> &'static str {
        match self.0.checked_sub(1) {
            None => "requests",
            Some(index) => NAMES.read()[usize::from(index)],
        }
    }

    fn numbered(index: usize) -> Self {
        Self(u8::try_from(index + 1).expect("no more are named"))
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::named(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
