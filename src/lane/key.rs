//! Keys of lanes: two requests share a lane if they have the same rule and the same key. Today the key is the host.

use std::{borrow::Borrow, sync::Arc};

use andante_policy::{Origin, Rules};

/// The key of a request. Borrowed from it, so that finding a lane allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestKey<'a> {
    /// The number of its rule; `None` if no rule is for it.
    pub(super) rule: Option<usize>,
    pub(super) host: &'a Arc<str>,
}

/// The key of a lane among the lanes of its rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneKey {
    host: Arc<str>,
}

// === impl RequestKey ===

impl<'a> RequestKey<'a> {
    pub(super) fn new(rules: &Rules, origin: &'a Origin) -> Self {
        Self { rule: rules.position(origin), host: &origin.host }
    }

    /// The form in which a map of one rule's lanes looks it up.
    pub(super) fn borrowed(self) -> &'a str {
        self.host
    }

    /// The form in which a map of one rule's lanes stores it.
    pub(super) fn to_lane_key(self) -> LaneKey {
        LaneKey { host: self.host.clone() }
    }
}

// === impl LaneKey ===

// Hashes and compares like its only field, as `Borrow` requires.
impl Borrow<str> for LaneKey {
    fn borrow(&self) -> &str {
        &self.host
    }
}
