//! Part of recent time in which something was lacking.

use std::time::Duration;

use andante_clock::Instant;

/// Time in which requests waited for tokens, in the current stretch of time and in the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strain {
    stretch: Duration,
    since: Instant,
    /// Start of the current lack, if any.
    lacks: Option<Instant>,
    current: Duration,
    before: Duration,
}

// === impl Strain ===

impl Strain {
    /// No lack so far. A lack is remembered for one to two `stretch`es.
    pub(super) fn new(stretch: Duration) -> Self {
        Self { stretch, since: Instant::START, lacks: None, current: Duration::ZERO, before: Duration::ZERO }
    }

    /// Sets whether something is lacking from `now` on.
    pub(super) fn set(&mut self, now: Instant, lacks: bool) {
        if lacks != self.lacks.is_some() {
            self.add_up(now);
            self.lacks = lacks.then_some(now);
        }
    }

    /// Part of the last stretch of time in which something was lacking.
    pub(super) fn part(&mut self, now: Instant) -> f64 {
        self.add_up(now);
        let stretch = self.stretch.as_secs_f64();
        let older = 1.0 - now.since(self.since).as_secs_f64() / stretch;
        ((self.current.as_secs_f64() + self.before.as_secs_f64() * older) / stretch).clamp(0.0, 1.0)
    }

    fn add_up(&mut self, now: Instant) {
        if let Some(since) = &mut self.lacks {
            self.current += now.since(*since);
            *since = now;
        }
        let passed = now.since(self.since);
        if passed >= self.stretch {
            let all = passed >= self.stretch * 2 && self.lacks.is_none();
            self.before = if all { Duration::ZERO } else { self.current.min(self.stretch) };
            (self.since, self.current) = (now, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    fn near(part: f64, of: f64) -> bool {
        (part - of).abs() < 1e-9
    }

    #[test]
    fn it_is_the_part_of_the_last_stretch() {
        let mut strain = Strain::new(Duration::from_secs(1));
        assert!(near(strain.part(ms(5000)), 0.0));
        strain.set(ms(5000), true);
        strain.set(ms(5300), false);
        assert!(near(strain.part(ms(5400)), 0.3));
        // A current lack counts while it lasts.
        strain.set(ms(5500), true);
        assert!(near(strain.part(ms(5900)), 0.3 + 0.4));
        strain.set(ms(5900), true);
        strain.set(ms(6000), false);
        assert!(near(strain.part(ms(6000)), 0.8));
        // The last stretch no longer covers a quarter of the one before.
        assert!(near(strain.part(ms(6250)), 0.6));
    }

    #[test]
    fn what_has_lasted_for_long_is_all_of_it_and_what_is_long_over_none() {
        let mut strain = Strain::new(Duration::from_secs(1));
        strain.set(ms(5000), true);
        assert!(near(strain.part(ms(9000)), 1.0));
        strain.set(ms(9000), false);
        assert!(near(strain.part(ms(9500)), 0.5));
        assert!(near(strain.part(ms(11_500)), 0.0));
    }
}
