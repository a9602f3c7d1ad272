//! What limits count: requests, or something else that an API sells, such as tokens or points, by its name.

use std::fmt;

use parking_lot::RwLock;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What a limit counts. Units of the same name are the same, in whichever rule they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit(u8);

/// The names that configurations have given, by their numbers from 1 on. They are few, and none is ever forgotten: what
/// waits under an old configuration keeps its units under a new one.
static NAMES: RwLock<Vec<&'static str>> = RwLock::new(Vec::new());

/// What people call requests. nginx writes `10r/s`.
const REQUESTS: [&str; 7] = ["requests", "request", "reqs", "req", "r", "calls", "call"];
/// As long as a name may be.
const LONGEST: usize = 32;

// === impl Unit ===

impl Unit {
    /// Each request is one of these.
    pub const REQUESTS: Self = Self(0);

    /// The unit that a configuration calls `name`, or what is wrong with the name.
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

    /// The unit called `name`, if any configuration has named it.
    pub fn known(name: &str) -> Option<Self> {
        if Self::is_of_requests(name) {
            return Some(Self::REQUESTS);
        }
        NAMES.read().iter().position(|known| *known == name).map(Self::numbered)
    }

    /// Whether requests are called so.
    pub(super) fn is_of_requests(name: &str) -> bool {
        REQUESTS.contains(&name)
    }

    /// Whether a unit may be called so: as RFC 9651 §3.1.2 writes keys, since `Andante-Cost` names them.
    pub(super) fn is_name(name: &str) -> bool {
        let plain = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        plain && name.len() <= LONGEST && name.starts_with(|first: char| first.is_ascii_lowercase())
    }

    /// What it is called.
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
