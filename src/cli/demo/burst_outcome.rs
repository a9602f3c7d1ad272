//! Outcome of one burst.

use std::time::Duration;

use super::stalls::Stalls;
use crate::mock::Stats;

/// Outcome of one burst.
#[derive(Clone, Debug)]
pub(super) struct BurstOutcome {
    /// Statistics of the API.
    pub(super) stats: Stats,
    /// Time until the last answer.
    pub(super) took: Duration,
    /// Lateness of the machine's timers during the burst.
    pub(super) stalls: Stalls,
}
