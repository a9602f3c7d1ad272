//! When a limit has room.

use andante_clock::Instant;

/// When a limit has room for a request. Ordered by how late that is: of several limits the greatest answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ready {
    /// There is room.
    Now,
    /// There is room from this later instant on, as far as is known.
    At(Instant),
    /// An event without a known time must come first: a departure, a response, a persisted block or a reply of the
    /// fleet's store. Also the answer for an amount that never fits.
    OnEvent,
}

// === impl Ready ===

impl Ready {
    /// Room from `at` on, as seen at `now`.
    pub fn from(at: Instant, now: Instant) -> Self {
        if at <= now { Self::Now } else { Self::At(at) }
    }

    /// The first instant, not before `now`, at which there is room; [`Instant::FAR`] if an event must come first.
    pub fn instant(self, now: Instant) -> Instant {
        match self {
            Self::Now => now,
            Self::At(at) => at,
            Self::OnEvent => Instant::FAR,
        }
    }
}
