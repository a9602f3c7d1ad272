//! The right to send a request.

use andante_clock::Instant;
use andante_learn::RouteKey;
use andante_limit::{Charge, Cost, Scope};
use andante_order::Claim;

use super::sub_limits::Drawn;
use crate::request::Draws;

/// The right to send one request now. Boxed, because it passes through many hands.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) charge: Charge,
    pub(crate) kind: RouteKey,
    /// Identity of the request that got the slot.
    pub(crate) claim: Claim,
    /// Number of requests in flight when the slot was given, including this one.
    pub(super) crowd: u32,
    /// The port that its request goes to.
    pub(crate) port: u16,
    /// True if the lease of the shared limits was valid at that time: the request may be sent under no other lease.
    pub(crate) leased: bool,
    /// True if the request holds one of the places in flight that clients share.
    pub(super) placed: bool,
    /// The sub-limits that the request draws on, and its charges.
    pub(super) drawn: Option<Box<Drawn>>,
}

/// A request that leaves now.
pub(super) struct Leaving<'a> {
    pub(super) cost: &'a Cost,
    pub(super) kind: &'a RouteKey,
    pub(super) claim: &'a Claim,
    pub(super) scope: Scope,
    /// Start of its wait.
    pub(super) since: Instant,
    /// The instant at which it could have left.
    pub(super) due: Instant,
    pub(super) drawn: Option<Box<Drawn>>,
    pub(super) port: u16,
}

// === impl Slot ===

impl Slot {
    /// The sub-limits that the request draws on.
    pub(crate) fn draws(&self) -> Draws {
        self.drawn.as_ref().map(|drawn| drawn.draws.clone())
    }

    /// Moves the slot out, for its next owner.
    pub(crate) fn take(&mut self) -> Self {
        Self { drawn: self.drawn.take(), ..*self }
    }
}
