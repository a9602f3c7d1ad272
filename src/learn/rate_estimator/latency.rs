//! Round-trip time of requests.

/// Usual and shortest round-trip time, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) usual: f64,
    pub(super) least: f64,
}

// === impl Latency ===

impl Default for Latency {
    fn default() -> Self {
        Self { usual: 0.1, least: f64::INFINITY }
    }
}

impl Latency {
    pub(super) fn took(&mut self, took: f64) {
        self.usual += (took - self.usual) * 0.1;
        self.usual = self.usual.max(took * 0.9);
        self.least = self.least.min(took);
    }

    /// Amount by which two requests may arrive closer together than they left.
    pub(super) fn margin(&self) -> f64 {
        (self.usual - self.least).clamp(0.002, 0.1)
    }
}
