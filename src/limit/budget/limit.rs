//! State of one limit of a budget.

use std::time::Duration;

use andante_clock::Instant;
use andante_fleet::Share;

use super::super::{
    Amount, Gcra, LONGEST_PACE, LimitSpec, Margin, Ready, Window,
    charge::{Seq, Source},
};

/// A single limit: even spacing, and the promise about every window.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) source: Source,
    /// Charges with a lower number were taken without this limit.
    pub(super) since: Seq,
    pub(super) spec: LimitSpec,
    /// The quota that the API reports; `spec` is the part of it that is used here. Boxed: most limits are configured,
    /// and each keyed budget has one.
    pub(super) reported: Option<Box<LimitSpec>>,
    pub(super) gcra: Gcra,
    pub(super) window: Window,
    /// When a request last took units of the limit, and its number.
    pub(super) taken: Instant,
    pub(super) newest: Seq,
    /// Until then the window may lack units from before the limit existed: only as many as fill it were counted.
    pub(super) lacks_until: Instant,
    /// When the whole quota is renewed, even if a window has not passed, if such an instant was reported.
    pub(super) ends: Option<Instant>,
    /// Share of this process, if the limit is shared with other processes.
    pub(super) share: Option<Box<Share>>,
    /// Units that in-flight requests will probably take beyond their charges.
    pub(super) outstanding: u32,
}

/// Interval between looks at a limit that only `outstanding` units block: a request that hangs stops adding to them.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

// === impl Limit ===

impl Limit {
    pub(super) fn new(source: Source, spec: LimitSpec, since: Seq) -> Self {
        Self {
            source,
            since,
            spec,
            reported: None,
            gcra: Gcra::new(&spec),
            window: Window::new(&spec),
            taken: Instant::START,
            newest: 0,
            lacks_until: Instant::START,
            ends: None,
            share: None,
            outstanding: 0,
        }
    }

    /// The quota that the API reports, if the limit is a part of one.
    pub(super) fn reported(&self) -> Option<LimitSpec> {
        self.reported.as_deref().copied()
    }

    /// When the limit has room for `amount`.
    pub(super) fn ready(&mut self, now: Instant, amount: Amount, margin: &Margin) -> Ready {
        if self.ends.is_some_and(|ends| ends <= now) {
            self.begin_anew(now);
        }
        let ends = self.ends.map_or(Ready::OnEvent, Ready::At);
        let (spaced, reserve) = (Ready::from(self.gcra.earliest(now), now), self.reserve());
        let with_outstanding = amount.saturating_add(self.outstanding);
        if self.window.has_plenty(with_outstanding, reserve) {
            return spaced.min(ends);
        }
        let margin = self.margin(margin);
        // The order matters: the window forgets units that have left it.
        let mut window = self.window.ready(now, amount, margin);
        if self.outstanding > 0 {
            window = self.window.ready(now, with_outstanding, margin).min(window.max(Ready::At(now + LOOK_AGAIN)));
        }
        let spread = Ready::from(self.window.spread(now, 0, reserve, margin, self.taken), now);
        spaced.max(window).max(spread).min(ends)
    }

    /// Forgets all answered units. A shared limit is left as it is: its tokens are the store's.
    fn begin_anew(&mut self, now: Instant) {
        self.ends = None;
        if self.share.is_none() {
            self.window.forget_answered(now);
            self.gcra = Gcra::new(&self.spec);
        }
    }

    /// Units of the limit that a request of `amount` takes: a request that costs more than the limit takes a whole
    /// window.
    pub(super) fn whole(&self, amount: Amount) -> Amount {
        let count = self.share.as_ref().and_then(|share| Amount::new(share.limit())).unwrap_or(Amount::MAX);
        amount.min(self.spec.rate.count).min(count)
    }

    /// Units that leave in one window, as far as is known.
    pub(super) fn round(&self) -> u64 {
        let shared = self.share.as_ref().map(|share| share.pace().max(1));
        shared.unwrap_or(self.spec.rate.count.get()).into()
    }

    /// Margin of the limit's window. An estimated limit promises nothing about windows and has none.
    pub(super) fn margin(&self, margin: &Margin) -> Duration {
        if self.source == Source::Estimated { Duration::ZERO } else { margin.of(self.spec.rate.per) }
    }

    /// Units that may leave back to back at `now`, as far as the spacing counts.
    pub(super) fn saved(&self, now: Instant) -> u64 {
        let (mut may, mut may_not) = (0, u64::from(self.spec.burst().get()));
        while may < may_not {
            let middle = may + (may_not - may) / 2;
            if self.gcra.project(now, middle) <= now { may = middle + 1 } else { may_not = middle }
        }
        may
    }

    /// When `amount` may leave back to back. No instant is known for an amount that never may.
    pub(super) fn ready_at_once(&mut self, now: Instant, amount: Amount, margin: &Margin) -> Ready {
        if amount > self.spec.burst() || amount > self.whole(amount) {
            return Ready::OnEvent;
        }
        let spaced = self.gcra.project(now, u64::from(amount.get()) - 1);
        self.ready(now, amount, margin).max(Ready::from(spaced, now))
    }

    /// Time after the sending in which the API may still count a request without a response.
    pub(super) fn late(&self, margin: &Margin) -> Duration {
        let per = self.spec.rate.per;
        let usual = self.margin(margin);
        if self.spec.strict { margin.longest().unwrap_or(per).max(usual) } else { usual }
    }

    /// Number of last units of a window that are spread until the next unit is free: all beyond the burst, if the API
    /// reports the quota. Longer windows are quotas, which requests may use up as they come.
    pub(super) fn reserve(&self) -> u32 {
        match (self.source, self.spec.burst().get()) {
            (Source::Advertised(_), burst @ 2..) if self.spec.rate.per <= LONGEST_PACE => {
                self.spec.rate.count.get() - burst
            }
            _ => 0,
        }
    }
}
