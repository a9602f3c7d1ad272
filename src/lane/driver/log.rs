//! Reports a lane's learned changes, once each, in the log and in the journal; also refusals that it cannot explain.

use andante_learn::{Changes, LearnedChange, Reason};
use tracing::{info, warn};

use super::Lane;
use crate::{journal, unexplained::Episodes};
use andante_clock::log_seconds;

/// A pause longer than this is worth a warning.
const LONG: std::time::Duration = std::time::Duration::from_secs(900);

/// Logs `changes` of `lane`, whose lock is not held.
pub(super) fn log_changes(lane: &Lane, changes: &Changes) {
    let (host, rule) = (lane.host(), &lane.policy().name);
    for change in changes {
        match change {
            LearnedChange::Limit(limit, evidence) => {
                info!(%host, %rule, %limit, evidence = evidence.to_string(), "learned a limit");
            }
            LearnedChange::Closed(reason, wait) => {
                if matches!(reason, Reason::Banned | Reason::Breaker) || *wait > LONG {
                    warn!(%host, %rule, reason = reason.as_str(), wait_s = log_seconds(*wait), "pausing");
                } else {
                    info!(%host, %rule, reason = reason.as_str(), wait_s = log_seconds(*wait), "pausing");
                }
            }
            LearnedChange::PausedByFleet(reason, wait) => {
                let wait_s = log_seconds(*wait);
                info!(%host, %rule, reason = reason.as_str(), wait_s, "pausing, as the API asked another andante to");
            }
            LearnedChange::ForgottenByFleet => {
                info!(%host, %rule, "forgot what was learned, as an operator told another andante to");
            }
            LearnedChange::Opened => info!(%host, %rule, "resumed after a pause"),
            LearnedChange::Route(wait) => {
                let wait_s = log_seconds(*wait);
                info!(%host, %rule, wait_s, "refused although there is room: pausing requests of this kind");
            }
            LearnedChange::Apart(group) => {
                info!(
                    %host, %rule, requests = group.to_string(), evidence = group.evidence(),
                    "an API that limits this kind of request, or this key, by itself: pacing it separately from all others"
                );
            }
            LearnedChange::OwnLimit(own) => {
                let evidence = own.evidence();
                info!(
                    %host, %rule, requests = own.group.to_string(), per_second = own.per_second, at_once = own.at_once, evidence,
                    "learned a limit of some requests"
                );
            }
            LearnedChange::ConcurrencyLimit(most, evidence) => {
                info!(%host, %rule, most, evidence = evidence.to_string(), "learned how many may be in flight at once");
            }
            LearnedChange::Unexplained { sent, at } => {
                let Some(refusals) = lane.refused_without_reason(*sent, *at) else { continue };
                log_refusals(lane, refusals);
            }
        }
        if let Some(journal) = &lane.journal {
            journal.write(lane.now(), rule, host, journal::sentence(change));
        }
    }
}

/// Logs recurring refusals.
fn log_refusals(lane: &Lane, refusals: Episodes) {
    let (host, rule) = (lane.host(), &lane.policy().name);
    let limits = lane.policy().written_limits();
    warn!(
        %host, %rule, limits = limits.join(", "), times = refusals.count, within_s = log_seconds(refusals.within()),
        "refused again and again although this andante keeps its limits: something else uses the same quota (another \
         andante, another program with the same key), or the quota is smaller than these limits; send everything through \
         one andante, give each sender a part of the limit, or write a lower limit (docs/troubleshooting.md)"
    );
}
