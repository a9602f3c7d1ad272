//! `/status` fields about the fleet.

use serde::{Deserialize, Serialize};

/// Sharing of budgets with other andantes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// Address of the store, without its password.
    pub store: String,
    /// Relation of this andante to the store: `joining`, `learning`, `shared`, or `silent` (the store does not answer,
    /// and the lease still holds). After the lease: `cut-off` (no request leaves), `floor` (requests leave within this
    /// andante's floor) or `open` (the limits may be exceeded).
    pub standing: String,
    /// Id of this andante in the store, until it ends.
    pub member: Option<String>,
    /// Number of andantes with a lease.
    pub members: u32,
    /// Number of times that the store has started over.
    pub epoch: u64,
    /// Time until the lease ends; 0 after its end.
    pub lease_left_s: f64,
    /// Calls of the store that were answered.
    pub calls_total: u64,
    /// Calls of the store that were not answered.
    pub failed_calls_total: u64,
    /// Duration of the last call.
    pub last_call_ms: f64,
    /// Seconds for which the store, which is new or has forgotten its data, still asks andantes what they hold. A limit
    /// opens its window's length later.
    #[serde(default)]
    pub learns_for_s: Option<f64>,
    /// Problem of the store, if there is one.
    pub problem: Option<String>,
    /// Remedy for the problem, if it is known.
    #[serde(default)]
    pub hint: Option<String>,
}

/// Units of a fleet-wide limit that this andante holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// Units here, in use or not.
    pub held: u32,
    /// Units that may be used now.
    pub free: u32,
    /// Units of this andante's own besides these, which the store never lends.
    #[serde(default)]
    pub own: u32,
    /// Units that are due to this andante.
    pub target: f64,
    /// The fleet wants more units than there are.
    pub wanted: bool,
    /// Seconds for which the store, which is new or has forgotten its data, still withholds the limit.
    #[serde(default)]
    pub opens_in_s: Option<f64>,
}
