//! The right to send a request.

use super::narrow::Drawn;
use crate::{
    clock::Instant,
    lane::{order::Claim, request::Draws},
    learn::RouteKey,
    limit::{Charge, Cost, Scope},
};

/// The right to send one request now. It is given in a box, as it goes through many hands.
#[derive(Debug)]
pub(in crate::lane) struct Slot {
    pub(in crate::lane) charge: Charge,
    pub(in crate::lane) kind: RouteKey,
    /// By what its request claimed its turn.
    pub(in crate::lane) claim: Claim,
    /// How many were under way when it was given, itself included.
    pub(super) crowd: u32,
    /// The port that its request goes to.
    pub(in crate::lane) port: u16,
    /// Whether the lease of what several processes share held by then: it may be sent under no other.
    pub(in crate::lane) leased: bool,
    /// What it has taken of narrower budgets.
    pub(super) drawn: Option<Box<Drawn>>,
}

/// A request that leaves now.
pub(super) struct Leaving<'a> {
    pub(super) cost: &'a Cost,
    pub(super) kind: &'a RouteKey,
    pub(super) claim: &'a Claim,
    pub(super) scope: Scope,
    /// Since when it has waited.
    pub(super) since: Instant,
    /// When it could have left.
    pub(super) due: Instant,
    pub(super) drawn: Option<Box<Drawn>>,
    pub(super) port: u16,
}

// === impl Slot ===

impl Slot {
    /// The narrower budgets that its request draws on.
    pub(in crate::lane) fn draws(&self) -> Draws {
        self.drawn.as_ref().map(|drawn| drawn.draws.clone())
    }

    /// Moves it out, for its next owner.
    pub(in crate::lane) fn take(&mut self) -> Self {
        Self { drawn: self.drawn.take(), ..*self }
    }
}
