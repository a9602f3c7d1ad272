//! What `/status` says of the fleet.

use serde::{Deserialize, Serialize};

/// How budgets are shared with other andantes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// Where the store is, without its password.
    pub store: String,
    /// How this andante stands with it: `joining`, `learning`, `shared`, `silent` (the store does not answer, and the lease
    /// goes on), or when the lease is over `cut-off` (nothing leaves), `floor` (this andante's floor does) or `open` (the
    /// limits may be exceeded).
    pub standing: String,
    /// What the store knows this andante by, until it ends.
    pub member: Option<String>,
    /// How many andantes have a lease.
    pub members: u32,
    /// How often the store has begun anew.
    pub epoch: u64,
    /// Time until the lease is over; 0 if it is.
    pub lease_left_s: f64,
    /// Calls of the store that were answered, and that were not.
    pub calls_total: u64,
    /// See there.
    pub failed_calls_total: u64,
    /// How long the last of them took.
    pub last_call_ms: f64,
    /// What is wrong with the store, if anything is.
    pub problem: Option<String>,
}

/// How many units of a limit are held here, of those that all andantes share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// How many are here, in use or not.
    pub held: u32,
    /// Of these: what may be used now.
    pub free: u32,
    /// How many are this andante's beside them, which the store never lends.
    #[serde(default)]
    pub own: u32,
    /// How many are due to this andante.
    pub target: f64,
    /// Whether the fleet wants more than there is.
    pub wanted: bool,
    /// For how many seconds the store, which is new or has forgotten, gives out nothing of it yet.
    #[serde(default)]
    pub opens_in_s: Option<f64>,
}
