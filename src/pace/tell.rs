//! Tells people what a lane has learned: once per change, in the log.

use tracing::{info, warn};

use super::Lane;
use crate::learn::{Change, Changes, Reason};

/// A pause longer than this is worth a warning.
const LONG: std::time::Duration = std::time::Duration::from_secs(900);

/// Tells of `changes` of `lane`, whose lock is not held.
pub(super) fn tell(lane: &Lane, changes: &Changes) {
    let (host, rule) = (lane.host(), &lane.policy().name);
    for change in changes {
        match change {
            Change::Limit(limit) => info!(%host, %rule, %limit, "learned a limit"),
            Change::Closed(reason, wait) => {
                if matches!(reason, Reason::Banned | Reason::Breaker) || *wait > LONG {
                    warn!(%host, %rule, reason = reason.as_str(), ?wait, "pausing");
                } else {
                    info!(%host, %rule, reason = reason.as_str(), ?wait, "pausing");
                }
            }
            Change::Opened => info!(%host, %rule, "going on after a pause"),
            Change::Route(wait) => {
                info!(%host, %rule, ?wait, "refused although there is room: pausing requests of this kind");
            }
            Change::Parallel(most) => info!(%host, %rule, most, "too many at once: sending fewer in parallel"),
        }
    }
}
