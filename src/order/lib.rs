//! The order in which waiting requests get their slots.
//!
//! The most urgent requests come first, with a small share for each lower urgency. At equal urgency each client, and
//! each flow of a client, gets its share. Within a flow the order is that of arrival. Other [`Levels`] share among flows
//! first, or at one level only: a `Client` in this package is a member of the upper level, and a `Flow` of the lower one.

mod backlog;
mod bands;
mod claim;
mod fair;
mod inflow;
mod queue;
mod ranking;
mod slab;
mod sorted_set;
#[cfg(test)]
mod tests;

pub use backlog::{Backlog, Part, Passing, WaitingFlow, Waits};
pub use bands::Bands;
pub use claim::{Claim, ClientId, FlowId, FlowRank, Levels, Sharer, Turn, Urgency, Weight};
pub use queue::{Hold, Next, Queue, QueuePlace, Taken, TicketRules, WaitingFlowQueue};
pub use slab::{Map, Mix, Slab};
