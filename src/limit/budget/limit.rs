//! One limit of a budget.

use std::time::Duration;

use super::super::{
    Amount, Gcra, LONGEST_PACE, LimitSpec, Margin, Window,
    charge::{Seq, Source},
};
use crate::{clock::Instant, fleet::Share};

/// One limit: even spacing, and the promise about every window.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) source: Source,
    /// What was charged before this seq was charged without it.
    pub(super) since: Seq,
    pub(super) spec: LimitSpec,
    /// What the API reports, of which `spec` is the part that is used here.
    /// Boxed: most limits are configured, and each keyed budget has one.
    pub(super) reported: Option<Box<LimitSpec>>,
    pub(super) gcra: Gcra,
    pub(super) window: Window,
    /// When something was last taken of it, and its number.
    pub(super) taken: Instant,
    pub(super) newest: Seq,
    /// Until then its window may lack units that left before the limit was there: it counts no more than fill it.
    pub(super) lacks_until: Instant,
    /// When all of it comes back, though it was taken less than a window ago; [`Instant::FAR`] if nobody has said so.
    pub(super) ends: Instant,
    /// What we hold of it, if it is shared with other processes.
    pub(super) share: Option<Box<Share>>,
    /// So much more than counts for those under way they will take.
    pub(super) outstanding: u32,
}

/// While nothing but what those under way will take is in the way it is looked at again after so long: one that hangs lacks nothing
/// any more.
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
            ends: Instant::FAR,
            share: None,
            outstanding: 0,
        }
    }

    /// What the API reports, of which its limit is a part.
    pub(super) fn reported(&self) -> Option<LimitSpec> {
        self.reported.as_deref().copied()
    }

    /// The first instant, not before `now`, at which it has room for `amount`; [`Instant::FAR`] if something that has no
    /// time yet must happen first.
    pub(super) fn earliest(&mut self, now: Instant, amount: Amount, margin: &Margin) -> Instant {
        if self.ends <= now {
            self.begin_anew(now);
        }
        let (spaced, reserve) = (self.gcra.earliest(now), self.reserve());
        let with_outstanding = amount.saturating_add(self.outstanding);
        if self.window.has_plenty(with_outstanding, reserve) {
            return spaced.min(self.ends);
        }
        let margin = self.margin(margin);
        // In this order: the window forgets what has left it.
        let mut window = self.window.earliest(now, amount, margin);
        if self.outstanding > 0 {
            window = self.window.earliest(now, with_outstanding, margin).min(window.max(now + LOOK_AGAIN));
        }
        spaced.max(window).max(self.window.spread(now, 0, reserve, margin, self.taken)).min(self.ends)
    }

    /// Nothing that was answered counts any more. What others share is theirs to give.
    fn begin_anew(&mut self, now: Instant) {
        self.ends = Instant::FAR;
        if self.share.is_none() {
            self.window.forget_answered(now);
            self.gcra.begin_anew();
        }
    }

    /// What a request that costs `amount` takes of it: one that costs more than there is takes a whole window of it.
    pub(super) fn whole(&self, amount: Amount) -> Amount {
        let count = self.share.as_ref().and_then(|share| Amount::new(share.limit())).unwrap_or(Amount::MAX);
        amount.min(self.spec.rate.count).min(count)
    }

    /// How many units leave in one window, as far as is known.
    pub(super) fn round(&self) -> u64 {
        let shared = self.share.as_ref().map(|share| share.pace().max(1));
        shared.unwrap_or(self.spec.rate.count.get()).into()
    }

    /// By how much its window is kept longer. What was found by trying promises nothing of windows.
    pub(super) fn margin(&self, margin: &Margin) -> Duration {
        if self.source == Source::Estimated { Duration::ZERO } else { margin.of(self.spec.rate.per) }
    }

    /// How many units may leave back to back at `now`, as far as the spacing counts.
    pub(super) fn saved(&self, now: Instant) -> u64 {
        let (mut may, mut may_not) = (0, u64::from(self.spec.burst().get()));
        while may < may_not {
            let middle = may + (may_not - may) / 2;
            if self.gcra.project(now, middle) <= now { may = middle + 1 } else { may_not = middle }
        }
        may
    }

    /// The first instant at which so much may leave back to back; [`Instant::FAR`] if so much never may.
    pub(super) fn earliest_at_once(&mut self, now: Instant, amount: Amount, margin: &Margin) -> Instant {
        if amount > self.spec.burst() || amount > self.whole(amount) {
            return Instant::FAR;
        }
        self.earliest(now, amount, margin).max(self.gcra.project(now, u64::from(amount.get()) - 1))
    }

    /// How long after it was sent the API may still count a request whose answer never comes.
    pub(super) fn late(&self, margin: &Margin) -> Duration {
        let per = self.spec.rate.per;
        let usual = self.margin(margin);
        if self.spec.strict { margin.longest().unwrap_or(per).max(usual) } else { usual }
    }

    /// How many of the last units of a window are spread until something comes back: what does not leave in a burst, if
    /// the API knows how much is left. Longer windows are allowances, and used up as they are asked for.
    pub(super) fn reserve(&self) -> u32 {
        match (self.source, self.spec.burst().get()) {
            (Source::Advertised(_), burst @ 2..) if self.spec.rate.per <= LONGEST_PACE => {
                self.spec.rate.count.get() - burst
            }
            _ => 0,
        }
    }
}
