//! Usage of a budget's limits, for display.

use std::time::Duration;

use andante_clock::Instant;

use super::{Limit, Part, ShareUsage};
use crate::{LimitSpec, Margin, Source};

/// How far one limit is used, for people to look at.
#[derive(Clone, Debug)]
pub struct LimitUsage {
    /// Source that imposes the limit.
    pub source: Source,
    /// The limit.
    pub spec: LimitSpec,
    /// Units of the limit that may be used here in its window.
    pub own: u32,
    /// Units that count in the current window.
    pub used: u32,
    /// Time until the first of these units counts no more, and until none does; `None` if none counts, or if that depends on
    /// an answer.
    pub freed_in: [Option<Duration>; 2],
    /// The margin for jitter in force.
    pub margin: Duration,
    /// This process's share of the limit, if a fleet shares it.
    pub share: Option<ShareUsage>,
    /// This process's part of the limit, if an API reports it to a fleet.
    pub part: Option<f64>,
}

// === impl LimitUsage ===

impl LimitUsage {
    /// Usage of `limit` at `now`, by a process with this `part` of the API's quotas.
    pub(super) fn of(limit: &mut Limit, now: Instant, margin: &Margin, part: Part) -> Self {
        let margin = limit.margin(margin);
        let freed_in = limit.window.freed_at(now, margin).map(|at| at.map(|at| at.since(now)));
        let (used, share) = (limit.window.used(now, margin), limit.share_usage(now, margin));
        let (source, spec, own) = (limit.source, limit.reported().unwrap_or(limit.spec), limit.spec.rate.count.get());
        let part = limit.reported().map(|reported| part.of(&reported)).filter(|part| *part < 1.0);
        Self { source, spec, own, used, freed_in, margin, share, part }
    }
}
