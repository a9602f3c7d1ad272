//! What the machine does to the demo: on a busy one timers come late, and the figures are those of the machine.

use std::{convert::Infallible, fmt::Write as _, time::Duration};

use super::table::Outcome;
use crate::{cli::wording, clock::Clock};

/// How late timers came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stalls {
    /// All that came noticeably late, together.
    pub(super) total: Duration,
    pub(super) longest: Duration,
}

/// How often the time is looked at.
const TICK: Duration = Duration::from_millis(5);
/// Timers that are less late than this change nothing that the table shows.
const USUAL: Duration = Duration::from_millis(10);
/// From here on it shows in the figures: one late timer, or all of them as a share of the time.
const LONG: Duration = Duration::from_millis(100);
const SHARE: f64 = 0.02;

// === impl Stalls ===

impl Stalls {
    /// Looks at the time until it is dropped.
    pub(super) async fn watch(&mut self, clock: Clock) -> Infallible {
        loop {
            let due = clock.now() + TICK;
            clock.sleep_until(due).await;
            self.late(clock.now().since(due));
        }
    }

    fn late(&mut self, by: Duration) {
        if by > USUAL {
            self.total += by;
            self.longest = self.longest.max(by);
        }
    }

    fn show_in(&self, took: Duration) -> bool {
        self.longest >= LONG || self.total.as_secs_f64() > took.as_secs_f64() * SHARE
    }
}

/// What the machine did to the figures, if it did something. Pure.
pub(super) fn remark(without: &Outcome, with: &Outcome) -> Option<String> {
    if ![without, with].iter().any(|outcome| outcome.stalls.show_in(outcome.took)) {
        return None;
    }
    let mut text = "This machine was busy with other things, and timers came late:\n".to_owned();
    for (name, Outcome { stalls, took, .. }) in [("without andante", without), ("with andante", with)] {
        let (total, took) = (wording::duration(stalls.total), wording::duration(*took));
        let longest = wording::duration(stalls.longest);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name}: by {longest} at most, {total} of the {took} in all");
    }
    text.push_str("A slot that passes meanwhile is lost, and what leaves late arrives closer to what comes next:\n");
    text.push_str("that costs time, and may draw a refusal. Without such load the figures are better.");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Stats;

    fn outcome(late: &[u64], took: u64) -> Outcome {
        let mut stalls = Stalls::default();
        late.iter().for_each(|millis| stalls.late(Duration::from_millis(*millis)));
        Outcome { stats: Stats::default(), took: Duration::from_secs(took), stalls }
    }

    #[test]
    fn a_quiet_machine_needs_no_remark() {
        assert_eq!(remark(&outcome(&[], 15), &outcome(&[9; 2000], 15)), None);
        assert_eq!(remark(&outcome(&[10; 9], 15), &outcome(&[99], 15)), None);
    }

    #[test]
    fn a_busy_machine_is_told_of_with_what_it_did_to_both() {
        let text = remark(&outcome(&[], 15), &outcome(&[40, 180], 14)).unwrap();
        assert!(text.contains("  without andante: by 0 s at most, 0 s of the 15 s in all\n"), "{text}");
        assert!(text.contains("  with andante: by 180 ms at most, 220 ms of the 14 s in all\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        // Many small ones come to the same.
        assert!(remark(&outcome(&[20; 16], 15), &outcome(&[], 15)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn where_time_stands_still_nothing_is_late() {
        let (clock, mut stalls) = (Clock::start(), Stalls::default());
        let second = clock.sleep_until(clock.now() + Duration::from_secs(1));
        tokio::select! {
            () = second => {}
            never = stalls.watch(clock) => match never {},
        }
        assert!(stalls.total.is_zero(), "{stalls:?}");
    }
}
