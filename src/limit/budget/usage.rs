//! Usage of a budget's limits, for display.

use std::time::Duration;

use super::{Budget, Limit, ShareUsage, part::part_in};
use crate::{
    clock::Instant,
    limit::{LimitSpec, Source},
};

/// Usage of one limit, for display.
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
    /// The margin for jitter in force.
    pub margin: Duration,
    /// This process's share of the limit, if a fleet shares it.
    pub share: Option<ShareUsage>,
    /// This process's part of the limit, if an API reports it to a fleet.
    pub part: Option<f64>,
}

impl Budget {
    /// Usage of each limit.
    pub fn usage(&mut self, now: Instant) -> Vec<LimitUsage> {
        let (margin, part) = (&self.margin, self.part);
        let usage = |limit: &mut Limit| {
            let margin = limit.margin(margin);
            let (used, share) = (limit.window.used(now, margin), limit.share_usage(now, margin));
            let (source, spec, own) =
                (limit.source, limit.reported().unwrap_or(limit.spec), limit.spec.rate.count.get());
            let part = limit.reported().map(|reported| part_in(&reported, part));
            LimitUsage { source, spec, own, used, margin, share, part: part.filter(|part| *part < 1.0) }
        };
        self.limits.iter_mut().map(usage).collect()
    }
}
