//! How far the limits of a budget are used, for people.

use std::time::Duration;

use super::{Budget, Limit, ShareUsage, part::part_in};
use crate::{
    clock::Instant,
    limit::{LimitSpec, Source},
};

/// How far one limit is used, for people to look at.
#[derive(Clone, Debug)]
pub struct LimitUsage {
    /// Who asks for it.
    pub source: Source,
    /// The limit.
    pub spec: LimitSpec,
    /// How many units of it may be used here in its window.
    pub own: u32,
    /// Units that count in the current window.
    pub used: u32,
    /// The margin for jitter in force.
    pub margin: Duration,
    /// This process' share of it, if a fleet shares it.
    pub share: Option<ShareUsage>,
    /// Which part of it is this process', if it is one that an API reports to a fleet.
    pub part: Option<f64>,
}

impl Budget {
    /// How far each limit is used.
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
