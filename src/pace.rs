//! Lanes: the queue, the limits and the gate of one budget behind one door. Knows of HTTP only what a hint says.

mod admission;
mod departures;
mod lane;
mod lanes;
mod permit;
#[cfg(test)]
mod promises;
mod snapshot;
mod state;
mod symptoms;
mod tell;
mod unexplained;

pub use admission::{Admission, Ask, Refusal, Waiting};
pub use departures::{DepartureStats, Departures};
pub use lane::Lane;
pub use lanes::Lanes;
pub use permit::Permit;
pub use snapshot::{Snapshot, Tally};
pub use symptoms::Failure;
