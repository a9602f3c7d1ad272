//! Result of a run.

use std::fmt;

use andante_fleet::Micros;

/// Result of a run.
pub(in super::super) struct Outcome {
    /// Used part of all limits.
    pub(in super::super) used: f64,
    /// Used part of the lane with the least usage.
    pub(in super::super) least: f64,
    /// Each member's part of the usage.
    pub(in super::super) shares: Vec<f64>,
    /// Calls per second of each member, and pools per call.
    pub(in super::super) calls: f64,
    pub(in super::super) entries: f64,
    /// Slots per call.
    pub(in super::super) slots: f64,
    /// Part of its time that the store works, and the longest time that a call waited for it.
    pub(in super::super) busy: f64,
    pub(in super::super) line: Micros,
    /// Messages that the store sends per second.
    pub(in super::super) messages: f64,
    /// Units by which a window was exceeded, where only responses report the usage.
    pub(in super::super) beyond: u32,
    /// Bytes per second to and from the store.
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
