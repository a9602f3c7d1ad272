//! What comes of a run.

use std::fmt;

use crate::fleet::Micros;

/// What came of it.
pub(in super::super) struct Outcome {
    /// The part of all limits that was used.
    pub(in super::super) used: f64,
    /// The same of the lane that used the least.
    pub(in super::super) least: f64,
    /// The part of each member in what was used.
    pub(in super::super) shares: Vec<f64>,
    /// Calls of each member in a second, and pools in each of them.
    pub(in super::super) calls: f64,
    pub(in super::super) entries: f64,
    /// Slots for each call.
    pub(in super::super) slots: f64,
    /// How much of its time the store works, and the longest that a call had to wait for it.
    pub(in super::super) busy: f64,
    pub(in super::super) line: Micros,
    /// How many messages the store sends in a second.
    pub(in super::super) messages: f64,
    /// By how much a window was exceeded, where only answers say what is taken.
    pub(in super::super) beyond: u32,
    /// Bytes to and from the store in a second.
    pub(in super::super) bytes: f64,
}

// === impl Outcome ===

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "used {:.3}, {:.3} of the lane with the least; {:.2} calls of {:.1} pools a second and member, {:.1} slots each; store \
             busy {:.3}, longest line {:.1} ms, {:.0} messages and {:.0} KB a second",
            self.used,
            self.least,
            self.calls,
            self.entries,
            self.slots,
            self.busy,
            self.line as f64 / 1e3,
            self.messages,
            self.bytes / 1e3
        )?;
        if self.shares.len() > 20 {
            return Ok(());
        }
        write!(f, "; {} beyond; shares", self.beyond)?;
        self.shares.iter().try_for_each(|share| write!(f, " {share:.3}"))
    }
}
