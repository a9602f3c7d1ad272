//! How many requests may be unanswered at once, for the time being.

/// A bound on unanswered requests that grows as requests are served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parallel {
    most: f64,
    /// It was too many, and grows by one at a time. Otherwise a pause is over, and it doubles.
    careful: bool,
}

/// What remains of a number that was too many.
const DECREASE: f64 = 0.7;
/// More unanswered requests than this are no stampede any more.
const CROWD: f64 = 512.0;

// === impl Parallel ===

impl Parallel {
    /// As many as `unanswered` were too many.
    pub(super) fn too_many(unanswered: u32) -> Self {
        Self { most: (f64::from(unanswered) * DECREASE).floor().max(1.0), careful: true }
    }

    /// One more than the `unanswered` at first, because a pause is over.
    pub(super) fn after_a_pause(unanswered: u32) -> Self {
        Self { most: f64::from(unanswered) + 1.0, careful: false }
    }

    /// Whether more than this was too many.
    pub(super) fn is_careful(self) -> bool {
        self.careful
    }

    /// How many there may be.
    pub(super) fn most(self) -> f64 {
        self.most
    }

    /// A request was served: what holds from now on, if anything does.
    pub(super) fn served(self) -> Option<Self> {
        let most = self.most + if self.careful { 1.0 / self.most } else { 1.0 };
        (most <= CROWD).then_some(Self { most, ..self })
    }
}
