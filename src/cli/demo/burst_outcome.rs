//! What became of one burst.

use std::time::Duration;

use super::stalls::Stalls;
use crate::mock::Stats;

/// What became of one burst.
#[derive(Clone, Debug)]
pub(super) struct BurstOutcome {
    /// What the API saw.
    pub(super) stats: Stats,
    /// Until the last request was answered.
    pub(super) took: Duration,
    /// How late the machine's timers came meanwhile.
    pub(super) stalls: Stalls,
}
