//! Lanes: the queue, the limits and the gate of one budget behind one door. Knows of HTTP only what a hint says.

mod admission;
mod departures;
mod driver;
mod lanes;
mod log;
pub mod order;
mod permit;
#[cfg(test)]
mod promises;
mod snapshot;
mod state;
mod symptoms;
mod unexplained;

pub use admission::{Admission, AdmitRequest, Refusal, Waiting};
pub use departures::{DepartureStats, Departures};
pub use driver::Lane;
pub use lanes::Lanes;
pub use permit::Permit;
pub use snapshot::{LaneStats, Snapshot};
pub use symptoms::Failure;
