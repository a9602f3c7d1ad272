//! Repeatable randomness: the same seed gives the same run.

/// A random generator that repeats for the same seed.
pub(super) struct Dice(fastrand::Rng);

// === impl Dice ===

impl Dice {
    pub(super) fn with_seed(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// From 0 up to 1.
    pub(super) fn fraction(&mut self) -> f64 {
        self.0.f64()
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.fraction()).ln()
    }
}
