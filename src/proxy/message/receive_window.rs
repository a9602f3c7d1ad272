//! Flow-control windows of the streams of a connection to an API.
//!
//! A stream moves at most its window in each round trip, and a window may fill with bytes that no worker reads. So a
//! connection begins with small windows. Windows grow while an answer is read as fast as it comes, within a budget of
//! the whole process. Windows shrink when that is over, or when many streams share the connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

use parking_lot::Mutex;

use crate::clock::{Clock, Instant};

/// Initial window of a stream: a round trip of 20 ms at 25 MB/s.
pub(crate) const FIRST_WINDOW_BYTES: u32 = 512 * 1024;
/// A stream's largest window: a round trip of 100 ms at 80 MB/s. Twice as much would cost twice the memory for each slow reader.
const MAX_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// The greatest rate that windows are made for: a network of 1 Gbit/s, and some room for other work of the readers.
const MAX_BYTES_PER_MILLISECOND: u128 = 160_000;
/// A window grows by this factor: from the first to the largest in three round trips.
const GROWTH: u32 = 4;
/// Maximum sum of a connection's windows while several streams share it: four of the largest.
const SHARE_BYTES: u32 = 4 * MAX_WINDOW_BYTES;
/// Maximum sum of the windows' growth beyond the first size, over all connections of the process.
const BUDGET_BYTES: usize = 256 * 1024 * 1024;
/// Maximum time in which half of a window is read for the window to count as a bottleneck. The window does not slow
/// down a slower answer, unless the round trip is longer than twice this time.
const FAST: Duration = Duration::from_secs(1);
/// Time without a full window after which a connection returns to small windows.
const UNUSED: Duration = Duration::from_secs(30);

/// Bytes that windows may grow by, over all connections.
pub(crate) struct WindowBudget(AtomicUsize);

/// The window of each stream of one connection.
pub(crate) struct ReceiveWindow {
    clock: Clock,
    budget: Arc<WindowBudget>,
    /// Size that the answers can use. With many streams the size in force is smaller.
    wanted: AtomicU32,
    /// Size in force: the one last announced to the API.
    current: AtomicU32,
    /// Size beyond which a window is not a bottleneck. The first size until the round trip is known.
    useful: AtomicU32,
    /// When an answer last filled its window, in nanoseconds of the clock.
    last_full: AtomicU64,
    /// The task that announces sizes to the API.
    driver: Mutex<Option<Waker>>,
}

/// Speed at which one answer is read, to find out whether its window is the bottleneck.
pub(crate) struct ReadSpeed {
    /// Begin of the measurement.
    since: Instant,
    /// Bytes that the reader has taken.
    taken: u32,
    /// True if the reader has found nothing to read.
    starved: bool,
}

// === impl WindowBudget ===

impl Default for WindowBudget {
    fn default() -> Self {
        Self(AtomicUsize::new(BUDGET_BYTES))
    }
}

impl WindowBudget {
    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn put_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

// === impl ReceiveWindow ===

impl ReceiveWindow {
    /// Windows of the first size, which may grow within `budget`.
    pub(crate) fn new(clock: Clock, budget: Arc<WindowBudget>) -> Self {
        let first = || AtomicU32::new(FIRST_WINDOW_BYTES);
        let (wanted, current, useful) = (first(), first(), first());
        Self { clock, budget, wanted, current, useful, last_full: AtomicU64::new(0), driver: Mutex::default() }
    }

    /// Bytes that each stream may send ahead.
    pub(crate) fn bytes(&self) -> u32 {
        self.current.load(Ordering::Relaxed)
    }

    /// Records the round-trip time of the API's network: if it is short, windows need not grow.
    pub(crate) fn on_round_trip(&self, time: Duration) {
        let useful = u32::try_from(time.as_millis() * MAX_BYTES_PER_MILLISECOND).unwrap_or(u32::MAX);
        self.useful.store(useful.clamp(FIRST_WINDOW_BYTES, MAX_WINDOW_BYTES), Ordering::Relaxed);
    }

    /// Lets windows grow, because one of them was the bottleneck of its answer.
    fn on_full(&self, now: Instant) {
        self.last_full.store(now.as_nanos(), Ordering::Relaxed);
        let wanted = self.wanted.load(Ordering::Relaxed);
        // No growth before the API knows of the last one.
        let larger = wanted.saturating_mul(GROWTH).min(self.useful.load(Ordering::Relaxed));
        if self.bytes() < wanted || larger <= wanted {
            return;
        }
        if self.budget.take(reserved(larger) - reserved(wanted)) {
            self.wanted.store(larger, Ordering::Relaxed);
            self.driver.lock().iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Makes `driver` the only task that is woken when [`change`](Self::change) has a new size.
    pub(crate) fn set_driver(&self, driver: &Waker) {
        let mut set = self.driver.lock();
        if !set.as_ref().is_some_and(|set| set.will_wake(driver)) {
            *set = Some(driver.clone());
        }
    }

    /// The clock's time for the growth of windows.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the size to announce to the API with `streams` in flight, if it differs from the size in force.
    pub(crate) fn change(&self, streams: usize) -> Option<u32> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted > FIRST_WINDOW_BYTES && self.is_unused() {
            self.wanted.store(FIRST_WINDOW_BYTES, Ordering::Relaxed);
            self.budget.put_back(reserved(wanted));
        }
        // In powers of two, so that one stream more or less changes nothing.
        let share = SHARE_BYTES / u32::try_from(streams.next_power_of_two()).unwrap_or(u32::MAX);
        let due = self.wanted.load(Ordering::Relaxed).min(share);
        (due != self.bytes()).then_some(due)
    }

    /// Records that `bytes` are announced to the API.
    pub(crate) fn changes_to(&self, bytes: u32) {
        self.current.store(bytes, Ordering::Relaxed);
    }

    fn is_unused(&self) -> bool {
        let last_full = Instant::from_nanos(self.last_full.load(Ordering::Relaxed));
        self.clock.now().since(last_full) > UNUSED
    }
}

impl Drop for ReceiveWindow {
    fn drop(&mut self) {
        self.budget.put_back(reserved(*self.wanted.get_mut()));
    }
}

/// Bytes of the budget that a connection with windows of `wanted` bytes takes.
fn reserved(wanted: u32) -> usize {
    if wanted <= FIRST_WINDOW_BYTES { 0 } else { wanted as usize * (SHARE_BYTES / MAX_WINDOW_BYTES) as usize }
}

// === impl ReadSpeed ===

impl ReadSpeed {
    /// Creates the measurement of an answer that is unread at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, taken: 0, starved: false }
    }

    /// Records that the reader has found nothing.
    pub(crate) fn starves(&mut self) {
        self.starved = true;
    }

    /// Records that the reader has taken `bytes`, and lets `window` grow if it is the bottleneck.
    pub(crate) fn takes(&mut self, bytes: usize, window: &ReceiveWindow) {
        self.taken = self.taken.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.taken < window.bytes() / 2 {
            return;
        }
        let now = window.now();
        let is_full = self.starved && now.since(self.since) <= FAST;
        *self = Self::new(now);
        if is_full {
            window.on_full(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1024 * 1024;

    /// The window of a connection with a round trip of 200 ms.
    fn window(budget: &Arc<WindowBudget>) -> ReceiveWindow {
        let window = ReceiveWindow::new(Clock::start(), budget.clone());
        window.on_round_trip(Duration::from_millis(200));
        window
    }

    /// Reads half a window; `starved` means as soon as it comes.
    fn read(window: &ReceiveWindow, streams: usize, starved: bool) {
        let mut speed = ReadSpeed::new(window.clock.now());
        if starved {
            speed.starves();
        }
        speed.takes(window.bytes() as usize / 2, window);
        window.change(streams).into_iter().for_each(|bytes| window.changes_to(bytes));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_as_it_comes_has_the_largest_window_after_three_round_trips() {
        let window = window(&Arc::default());
        let sizes = [2 * MIB, 8 * MIB, 8 * MIB, 8 * MIB];
        for size in sizes {
            read(&window, 1, true);
            assert_eq!(window.bytes(), size);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_grows_no_further_than_its_round_trip_can_use() {
        for (milliseconds, bytes) in
            [(0, FIRST_WINDOW_BYTES), (1, FIRST_WINDOW_BYTES), (20, 3_200_000), (40, 6_400_000)]
        {
            let window = window(&Arc::default());
            window.on_round_trip(Duration::from_millis(milliseconds));
            (0..4).for_each(|_| read(&window, 1, true));
            assert_eq!(window.bytes(), bytes, "{milliseconds} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_finds_more_than_it_takes_gets_no_larger_window() {
        let window = window(&Arc::default());
        read(&window, 1, false);
        assert_eq!(window.bytes(), FIRST_WINDOW_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_slow_by_itself_gets_no_larger_window() {
        let window = window(&Arc::default());
        let mut speed = ReadSpeed::new(window.clock.now());
        speed.starves();
        tokio::time::advance(2 * FAST).await;
        speed.takes(FIRST_WINDOW_BYTES as usize / 2, &window);
        assert_eq!(window.change(1), None);
    }

    /// At most as much as 256 streams with the first window had.
    #[tokio::test(start_paused = true)]
    async fn streams_that_share_a_connection_share_its_windows() {
        let window = window(&Arc::default());
        (0..3).for_each(|_| read(&window, 1, true));
        for streams in [1, 2, 4, 5, 30, 100, 128, 200, 256] {
            let bytes = window.change(streams).unwrap_or_else(|| window.bytes());
            assert!(u64::from(bytes) * streams as u64 <= u64::from(SHARE_BYTES), "{streams}: {bytes}");
            assert!(
                u64::from(bytes) * 2 * streams as u64 >= u64::from(SHARE_BYTES.min(bytes * 2)),
                "{streams}: {bytes}"
            );
        }
        assert_eq!(window.change(4), None);
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_together_stay_within_the_budget_and_give_back_what_they_had() {
        let budget = Arc::<WindowBudget>::default();
        let windows: Vec<_> = (0..10).map(|_| window(&budget)).collect();
        for window in &windows {
            (0..3).for_each(|_| read(window, 1, true));
        }
        let grown = windows.iter().filter(|window| window.bytes() == MAX_WINDOW_BYTES).count();
        assert_eq!(grown, BUDGET_BYTES / SHARE_BYTES as usize);
        drop(windows);
        assert_eq!(budget.0.load(Ordering::Relaxed), BUDGET_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_that_nothing_fills_shrinks_again() {
        let budget = Arc::<WindowBudget>::default();
        let window = window(&budget);
        read(&window, 1, true);
        assert_eq!(window.change(1), None);
        tokio::time::advance(UNUSED + FAST).await;
        assert_eq!(window.change(1), Some(FIRST_WINDOW_BYTES));
        assert_eq!(budget.0.load(Ordering::Relaxed), BUDGET_BYTES);
    }
}
