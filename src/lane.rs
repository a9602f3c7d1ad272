//! Lanes: the queue, the limits and the gate of one budget behind one door. Knows of HTTP only what a hint says.

mod departures;
mod driver;
mod key;
mod lanes;
pub mod order;
mod request;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod unexplained;

pub use departures::{DepartureStats, Departures};
pub use driver::{Admission, Lane, Permit, UpstreamFailure, Waiting};
pub use lanes::Lanes;
pub use request::{AdmitRequest, Refusal};
pub use snapshot::{LaneStats, QueueStatus, Snapshot};
