//! Usage of a budget's limits, for display.

use std::time::Duration;

use andante_clock::Instant;

use super::{Budget, Limit, ShareUsage, part::part_in};
use crate::{LimitSpec, Source, Unit};

/// A window as long as a sample of the page's charts, or shorter: its limit bounds each sample.
const SHORT_WINDOW: Duration = Duration::from_secs(5);

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

impl Budget {
    /// Usage of each limit.
    pub fn usage(&mut self, now: Instant) -> Vec<LimitUsage> {
        let (margin, part) = (&self.margin, self.part);
        let usage = |limit: &mut Limit| {
            let margin = limit.margin(margin);
            let freed_in = limit.window.freed_at(now, margin).map(|at| at.map(|at| at.since(now)));
            let (used, share) = (limit.window.used(now, margin), limit.share_usage(now, margin));
            let (source, spec, own) =
                (limit.source, limit.reported().unwrap_or(limit.spec), limit.spec.rate.count.get());
            let part = limit.reported().map(|reported| part_in(&reported, part));
            LimitUsage { source, spec, own, used, freed_in, margin, share, part: part.filter(|part| *part < 1.0) }
        };
        self.meters.windows_mut().map(usage).collect()
    }

    /// Requests per second that may leave at most, over a few seconds: the least pace of the limits that hold at that scale,
    /// which are evenly spaced or have short windows. Without such a limit, the least pace in the long run.
    pub fn pace(&self) -> Option<f64> {
        let specs = || self.meters.windows().map(|limit| &limit.spec).filter(|spec| spec.unit == Unit::REQUESTS);
        let holds = |spec: &&LimitSpec| spec.burst().get() == 1 || spec.rate.per <= SHORT_WINDOW;
        let least = |pace: f64, spec: &LimitSpec| pace.min(spec.rate.per_second());
        let [short, all] = [specs().filter(holds).fold(f64::INFINITY, least), specs().fold(f64::INFINITY, least)];
        [short, all].into_iter().find(|pace| pace.is_finite())
    }
}
