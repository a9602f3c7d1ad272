//! Clients that left before an answer: their number, their waiting times, and whether a time-out of their own is the
//! cause.

use std::{collections::VecDeque, time::Duration};

use andante_clock::Instant;
use parking_lot::Mutex;

/// The departures of one lane.
#[derive(Debug, Default)]
pub struct Departures(Mutex<Record>);

/// Counters and waiting times of departed clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepartureStats {
    /// All departures.
    pub total: u64,
    /// Departures while waiting for a slot.
    pub queued: u64,
    /// Sum of the times from arrival to departure.
    pub waited: Duration,
    /// The longest of these times.
    pub longest: Duration,
    /// The time after which most of the last ones left, if there is such a time.
    pub usual: Option<Duration>,
}

#[derive(Debug, Default)]
struct Record {
    stats: DepartureStats,
    last: VecDeque<Departure>,
    /// Requests whose patience was bounded, since the clients' time-out is known.
    bounded: u32,
}

#[derive(Clone, Copy, Debug)]
struct Departure {
    at: Instant,
    waited: Duration,
}

/// Number of recent departures that are examined.
const LAST: usize = 16;
/// With fewer than these nothing is concluded.
const LEAST: usize = 8;
/// Times are the same if they differ from their median by no more than a tenth of it.
const TOLERANCE: u32 = 10;
/// Of this many clients, one is not refused on the evidence of others, so that a change becomes visible.
const TRIAL: u32 = 16;
/// Departures within this time belong to one moment: a program that was ended leaves with all its requests. Such
/// departures count as a time-out only if the requests had waited for a whole number of seconds, give or take `WHOLE`.
const MOMENT: Duration = Duration::from_millis(100);
const WHOLE: Duration = Duration::from_millis(50);

// === impl Departures ===

impl Departures {
    /// Records a client that left at `now`, `waited` after its request had arrived; `queued` means that the request was
    /// waiting for a slot.
    ///
    /// Returns the time after which most of the last ones left, if there is such a time.
    pub fn record(&self, now: Instant, waited: Duration, queued: bool) -> Option<Duration> {
        let mut record = self.0.lock();
        if record.last.len() == LAST {
            record.last.pop_front();
        }
        record.last.push_back(Departure { at: now, waited });
        let usual = usual(&record.last);
        let stats = &mut record.stats;
        stats.total += 1;
        stats.queued += u64::from(queued);
        stats.waited += waited;
        stats.longest = stats.longest.max(waited);
        stats.usual = usual;
        usual
    }

    /// Estimates how long a new client will stay, judging by others. Out of `TRIAL` clients, one may stay without a
    /// bound: if it does, [`stayed`](Self::stayed) discards the evidence.
    pub fn patience(&self) -> Option<Duration> {
        let mut record = self.0.lock();
        let usual = record.stats.usual?;
        record.bounded = record.bounded.wrapping_add(1);
        (!record.bounded.is_multiple_of(TRIAL)).then_some(usual)
    }

    /// Records a client that waited for `time` and got its slot. If it stayed clearly longer than the others did, its
    /// time-out differs: the evidence from the others is discarded.
    pub fn stayed(&self, time: Duration) {
        let mut record = self.0.lock();
        if record.stats.usual.is_some_and(|usual| time > usual + usual / TOLERANCE) {
            (record.stats.usual, record.bounded) = (None, 0);
            record.last.clear();
        }
    }

    /// The counters.
    pub fn stats(&self) -> DepartureStats {
        self.0.lock().stats
    }
}

/// The median of the times after which they left, if three quarters of them are about that long.
fn usual(last: &VecDeque<Departure>) -> Option<Duration> {
    if last.len() < LEAST {
        return None;
    }
    let mut times: Vec<_> = last.iter().map(|one| one.waited).collect();
    times.sort_unstable();
    let median = times[times.len() / 2];
    let alike = times.iter().filter(|time| time.abs_diff(median) <= median / TOLERANCE).count();
    let ended_at_once = last.back()?.at.since(last.front()?.at) < MOMENT && !is_whole(median);
    (alike * 4 >= times.len() * 3 && !ended_at_once).then_some(median)
}

/// Returns whether `time` is a number of seconds as people write it.
fn is_whole(time: Duration) -> bool {
    let rest = Duration::from_nanos(u64::from((time + WHOLE).subsec_nanos()));
    time + WHOLE >= Duration::from_secs(1) && rest <= WHOLE * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(of: u64) -> Duration {
        Duration::from_millis(of)
    }

    /// The usual time once clients have left after `times`, `apart` from each other.
    fn estimate_of(times: impl IntoIterator<Item = u64>, apart: u64) -> Option<Duration> {
        let departures = Departures::default();
        let mut now = Instant::START;
        let mut leave = |time| {
            now = now + ms(apart);
            departures.record(now, ms(time), true)
        };
        times.into_iter().map(&mut leave).last().flatten()
    }

    fn after(times: impl IntoIterator<Item = u64>) -> Option<Duration> {
        estimate_of(times, 50)
    }

    #[test]
    fn clients_that_leave_after_the_same_time_have_a_usual_time() {
        assert_eq!(after([5000; 8]), Some(ms(5000)));
        assert_eq!(after([4990, 5000, 5003, 5010, 5020, 5100, 5450, 4600]), Some(ms(5010)));
        assert_eq!(after([5000; 7]), None, "too few to tell");
    }

    #[test]
    fn clients_that_leave_at_any_time_have_none() {
        assert_eq!(after((1..=40).map(|n| n * 100)), None);
        // Half of them is not most of them.
        assert_eq!(after([5000, 100, 5000, 300, 5000, 900, 5000, 2700]), None);
    }

    #[test]
    fn only_the_last_ones_say_what_is_usual() {
        assert_eq!(after(std::iter::repeat_n(5000, 50).chain(std::iter::repeat_n(30_000, 12))), Some(ms(30_000)));
    }

    #[test]
    fn a_program_that_was_ended_had_no_time_out() {
        assert_eq!(estimate_of([7300; 16], 1), None);
        // Requests that were sent together leave together, too, but after a time that somebody has chosen.
        for (time, whole) in [(5012, true), (4960, true), (30_000, true), (1000, true), (5100, false), (20, false)] {
            assert_eq!(estimate_of([time; 16], 1).is_some(), whole, "{time}");
        }
    }

    #[test]
    fn all_of_them_are_counted() {
        let departures = Departures::default();
        for n in 1..=100 {
            departures.record(Instant::START + ms(n), ms(n), n % 4 == 0);
        }
        let stats = departures.stats();
        assert_eq!((stats.total, stats.queued, stats.waited, stats.longest), (100, 25, ms(5050), ms(100)));
    }

    /// Departures from which 5 s are learned.
    fn impatient() -> Departures {
        let departures = Departures::default();
        for n in 1..=8 {
            departures.record(Instant::START + ms(n * 400), ms(5000), true);
        }
        departures
    }

    #[test]
    fn patience_is_what_others_had_and_one_in_sixteen_is_asked_again() {
        assert_eq!(Departures::default().patience(), None);
        let departures = impatient();
        let free = (0..160).filter(|_| departures.patience().is_none()).count();
        assert_eq!(free, 10);
        assert_eq!(departures.patience(), Some(ms(5000)));
    }

    #[test]
    fn a_client_that_stays_longer_ends_what_others_have_taught() {
        let departures = impatient();
        departures.stayed(ms(5400));
        assert_eq!(departures.patience(), Some(ms(5000)), "as long as the others, within a tenth");
        departures.stayed(ms(5600));
        assert_eq!((departures.patience(), departures.stats().usual), (None, None));
        assert_eq!(departures.stats().total, 8, "what has happened is still counted");
    }
}
