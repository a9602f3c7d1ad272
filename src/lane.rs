//! Lanes: the queue, the limits and the gate of one budget behind one door. Knows of HTTP only what a hint says.

mod departures;
mod driver;
mod key;
mod lanes;
pub mod order;
#[cfg(test)]
mod promises;
mod request;
mod snapshot;
mod state;
mod unexplained;

pub use departures::{DepartureStats, Departures};
pub use driver::{Admission, Failure, Lane, Permit, Waiting};
pub use lanes::Lanes;
pub use request::{AdmitRequest, Refusal};
pub use snapshot::{LaneStats, Snapshot};
