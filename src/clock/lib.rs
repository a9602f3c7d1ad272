//! The only module that reads time. All others receive it, so that every test can run in virtual time.

use std::{
    fmt,
    ops::{Add, Sub},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

/// A point on andante's monotonic clock, in nanoseconds since the process' [`Clock`] was made. A clock that
/// [continues](Clock::resume) others counts from the making of the first of them.
///
/// Eight bytes, unlike the standard library's sixteen: a lane keeps hundreds of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(u64);

/// Reads the time. Follows tokio's clock, and therefore stands still under `tokio::time::pause`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: tokio::time::Instant,
    /// Reading at the time it was made.
    began: Instant,
}

// === impl Instant ===

impl Instant {
    /// The instant at which the clock was made.
    pub const START: Self = Self(0);
    /// Later than any event: "not before something else changes".
    pub const FAR: Self = Self(u64::MAX);

    /// `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FAR { f.write_str("far") } else { write!(f, "{:?}", Duration::from_nanos(self.0)) }
    }
}

// === impl Clock ===

impl Clock {
    /// A clock whose [`Instant::START`] is now.
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the clock")]
    pub fn start() -> Self {
        Self { start: tokio::time::Instant::now(), began: Instant::START }
    }

    /// A clock that shows `past` since [`Instant::START`] now: it continues where a previous process' clock ended.
    pub fn resume(past: Duration) -> Self {
        Self { began: Instant(nanos(past)), ..Self::start() }
    }

    /// Reading at the time the clock was made.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The present.
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the clock")]
    pub fn now(&self) -> Instant {
        self.began + self.start.elapsed()
    }

    /// The time of day, since 1970, UTC.
    pub fn time_of_day(&self) -> Duration {
        wall()
    }

    /// The time since 1970 at [`Instant::START`], according to the system's clock now: changes when that clock is set.
    pub fn epoch(&self) -> Duration {
        self.time_of_day().saturating_sub(self.now().since(Instant::START))
    }

    /// `at` for tokio's timers; thirty years ahead at most.
    pub fn to_tokio(&self, at: Instant) -> tokio::time::Instant {
        self.start + at.since(self.began()).min(Duration::from_secs(1_000_000_000))
    }

    /// Sleeps until `at`; without end if that is [`Instant::FAR`].
    pub async fn sleep_until(&self, at: Instant) {
        match self.start.checked_add(at.since(self.began())) {
            Some(deadline) if at != Instant::FAR => tokio::time::sleep_until(deadline).await,
            _ => std::future::pending().await,
        }
    }
}

/// The time of day, since 1970, UTC.
pub fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The system's monotonic clock, as other programs on this machine read it.
pub fn monotonic() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic)).unwrap_or_default()
}

/// Time since this machine was started, and the id of that start, if the system knows it. The time also passes while
/// the machine sleeps, and does not jump when its clock is set.
pub fn since_boot() -> (Duration, Option<String>) {
    let since = Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Boottime)).unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    (since, boot.map(|boot| boot.trim().to_owned()))
}

/// The processor time that this process has used, in all its threads.
pub fn cpu_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// Processor time of `work` in this thread, without other tests and other processes.
pub fn cpu_time_of(work: impl FnOnce()) -> Duration {
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let before = Duration::try_from(used()).unwrap();
    work();
    Duration::try_from(used()).unwrap() - before
}

/// Asserts that `work` takes time linear in its input: an eight times larger input takes at most 32 times as long. A
/// pass over all pairs would take 64 times as long. An input beyond the cache took 25 times as long beside a process that
/// filled the memory's bandwidth. `most` is the size of the larger input. The least of several runs counts.
pub fn assert_linear<I>(case: &str, most: usize, input: impl Fn(usize) -> I, mut work: impl FnMut(&I)) {
    const FACTOR: usize = 8;
    const MOST_TIMES: u32 = 32;
    const RUNS: usize = 12;
    // The clock is exact to some tens of nanoseconds, so shorter work is not compared.
    const RESOLUTION: Duration = Duration::from_micros(20);
    let inputs = [input(most / FACTOR), input(most)];
    let mut least = [Duration::MAX; 2];
    for _ in 0..RUNS {
        for (input, least) in inputs.iter().zip(&mut least) {
            *least = cpu_time_of(|| work(input)).min(*least);
        }
    }
    let [small, large] = least;
    assert!(large <= MOST_TIMES * small.max(RESOLUTION), "{case}: {small:?} for an eighth, {large:?} for {most}");
}

/// Seconds of a duration for a line of a log, to the millisecond.
pub fn log_seconds(of: Duration) -> f64 {
    (of.as_secs_f64() * 1e3).round() / 1e3
}

/// Whole nanoseconds of a duration; 584 years at most.
pub fn nanos(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Instant::FAR + Duration::from_secs(1), Instant::FAR);
        assert_eq!(Instant::START - Duration::from_secs(1), Instant::START);
        assert_eq!(Instant::START.since(Instant::FAR), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_goes_on_where_another_ended() {
        let clock = Clock::resume(Duration::from_secs(1000));
        assert_eq!(clock.now(), clock.began());
        let other = Clock::start();
        clock.sleep_until(Instant::START + Duration::from_secs(1007)).await;
        assert_eq!(other.now().since(Instant::START).as_secs(), 7);
        assert_eq!(clock.now().since(Instant::START).as_secs(), 1007);
        clock.sleep_until(Instant::START).await;
        assert_eq!(other.now().since(Instant::START).as_secs(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_virtual_time() {
        let clock = Clock::start();
        clock.sleep_until(Instant::START + Duration::from_secs(3600)).await;
        assert_eq!(clock.now().since(Instant::START).as_secs(), 3600);
    }
}
