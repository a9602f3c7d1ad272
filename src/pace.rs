//! Lanes: the queue, the limits and the gate of one budget behind one door. Knows of HTTP only what a hint says.

mod lane;
mod lanes;
mod permit;
#[cfg(test)]
mod promises;

pub use lane::{Admission, Ask, Lane, Refusal, Snapshot, Tally, Waiting};
pub use lanes::Lanes;
pub use permit::{Permit, Verdict};
