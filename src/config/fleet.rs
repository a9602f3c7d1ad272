//! How several andantes share budgets: where they meet, and on what terms.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

use url::Url;

use crate::fleet::{Lease, StoreDown};

/// How this andante shares budgets with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Where they meet; `None` shares nothing.
    pub store: Option<StoreUrl>,
    /// For how long each may spend what it holds without having heard from the store.
    pub lease: Duration,
    /// For how long after that its part of in-flight limits is withheld from the others.
    pub in_flight_hold: Duration,
    /// Among how many those limits are divided that are not shared.
    pub size: Option<NonZeroU32>,
    /// What happens when the store has not answered for that long.
    pub down: StoreDown,
}

/// Where a store is. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

/// The names of the schemes that lead to a store.
const SCHEMES: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];

// === impl FleetConfig ===

impl Default for FleetConfig {
    fn default() -> Self {
        let (lease, in_flight_hold) = (Duration::from_secs(10), Lease::HOLD);
        Self { store: None, lease, in_flight_hold, size: None, down: StoreDown::Wait }
    }
}

// === impl StoreUrl ===

impl StoreUrl {
    /// With its password: for nothing but the connection itself.
    pub fn revealed(&self) -> &str {
        &self.0
    }
}

impl FromStr for StoreUrl {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let url = Url::parse(text).map_err(|_| ())?;
        let database = url.path().trim_matches('/');
        let numbered = database.is_empty() || database.bytes().all(|byte| byte.is_ascii_digit());
        let leads = SCHEMES.contains(&url.scheme()) && url.host().is_some() && numbered;
        if leads { Ok(Self(text.to_owned())) } else { Err(()) }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(mut url) = Url::parse(&self.0) else { return f.write_str("…") };
        // Whatever may be secret: the user, the password, and options.
        let named = !url.username().is_empty() || url.password().is_some();
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        let shown = url.to_string();
        if named { f.write_str(&shown.replacen("://", "://…@", 1)) } else { f.write_str(&shown) }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_shown_without_what_is_secret() {
        for (written, shown) in [
            ("redis://:hunter2@store.example:6380/1", "redis://…@store.example:6380/1"),
            ("rediss://app:hunter2@store.example", "rediss://…@store.example"),
            ("redis://127.0.0.1:6379?token=hunter2", "redis://127.0.0.1:6379"),
        ] {
            let url: StoreUrl = written.parse().unwrap();
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), shown.to_owned()));
            assert_eq!(url.revealed(), written);
        }
        for wrong in ["store.example:6379", "http://store.example", "redis://", "redis://a/secret"] {
            assert_eq!(wrong.parse::<StoreUrl>(), Err(()), "{wrong}");
        }
    }
}
