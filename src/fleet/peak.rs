//! The most there was of something lately.

use std::time::Duration;

use crate::clock::Instant;

/// The most there was of something in the current stretch of time, and in the one before.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    stretch: Duration,
    since: Instant,
    level: u32,
    current: u32,
    before: u32,
}

// === impl Peak ===

impl Peak {
    /// Nothing so far; what there was is remembered for a `stretch`, or two.
    pub fn new(stretch: Duration) -> Self {
        Self { stretch, since: Instant::START, level: 0, current: 0, before: 0 }
    }

    /// There is so much from `now` on.
    pub fn set(&mut self, now: Instant, level: u32) {
        self.read(now);
        (self.level, self.current) = (level, self.current.max(level));
    }

    /// The most there was lately.
    pub fn read(&mut self, now: Instant) -> u32 {
        let passed = now.since(self.since);
        if passed >= self.stretch {
            self.before = if passed < self.stretch * 2 { self.current } else { self.level };
            (self.since, self.current) = (now, self.level);
        }
        self.current.max(self.before)
    }

    /// It may be lower from then on.
    pub fn falls_at(&self) -> Instant {
        self.since + self.stretch
    }
}
