//! Lanes: the queue, the limits and the gate of one budget behind one interface. Knows of HTTP only what a hint
//! says.

mod capacity;
mod departures;
mod driver;
mod journal;
mod kept;
mod lanes;
mod request;
pub mod send_rate;
mod simulation;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod unexplained;

pub use andante_order as order;

pub use departures::{DepartureStats, Departures};
pub use driver::{Admission, KeepRequest, Lane, Obstacle, Permit, Sharing, UpstreamFailure, Waiting};
pub use journal::{Journal, JournalEntry};
pub use kept::{KeptLanes, UnreadLane, WrittenLane, write_down};
pub use lanes::{GivenLane, Lanes, LookedUp};
pub use request::{AddedRule, AdmitRequest, Draw, Draws, Preview, PreviewDecision, Refusal};
pub use simulation::{SimulatedRequest, simulate};
pub use snapshot::{
    InFlightUsage, LaneActivity, LaneStats, LearnedSnapshot, OperatorPause, QueueSnapshot, QueueStatus, Snapshot,
    SubLimitUsage,
};
pub use state::{Bottleneck, Past, Usage};
