//! The window that other senders had begun before our first request.

use andante_clock::Instant;

use crate::window_estimator::APART;

/// End of a window that other senders have begun. Requests sent in it from here count until that end, as the API says,
/// and not for a whole window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OthersWindow {
    end: Option<Instant>,
    /// The window has ended, because another one has begun.
    over: bool,
    /// Number of reported ends without the start of another window.
    failed: u8,
}

/// Number of such ends after which they are not believed.
const FAILED: u8 = 3;

// === impl OthersWindow ===

impl OthersWindow {
    /// Updates the end that an answer at `now` reports. Returns when to try; [`Instant::FAR`] if the end is unknown, or
    /// was wrong before.
    pub(super) fn ends(&mut self, now: Instant, end: Option<Instant>) -> Instant {
        // Answers of the next window may overtake the answer that shows its start.
        let is_next = |ends: &Instant| *ends <= now + APART && end.is_none_or(|end| end > *ends + APART);
        self.end = self.end.filter(is_next).or(end).filter(|_| self.failed < FAILED);
        self.end.unwrap_or(Instant::FAR)
    }

    /// Records that a request that left at `sent` was answered at `now`. `begun`: the answer shows the start of another
    /// window.
    pub(super) fn answered(&mut self, sent: Instant, now: Instant, begun: bool) {
        self.over = begun && self.end.is_some_and(|end| end <= now + APART);
        if self.over {
            (self.end, self.failed) = (None, 0);
        } else if self.end.take_if(|end| *end <= sent).is_some() {
            self.failed += 1;
        }
    }

    /// Returns true once per end: an answer was the first of another window since the last call.
    pub(super) fn has_ended(&mut self) -> bool {
        std::mem::take(&mut self.over)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn s(of: u64) -> Instant {
        Instant::START + Duration::from_secs(of)
    }

    #[test]
    fn an_end_at_which_nothing_begins_is_believed_three_times() {
        let mut window = OthersWindow::default();
        for end in [10, 20, 30] {
            assert_eq!(window.ends(s(end - 5), Some(s(end))), s(end));
            // A request that left before the end says nothing about it.
            window.answered(s(end - 1), s(end), false);
            window.answered(s(end), s(end), false);
        }
        assert_eq!(window.ends(s(31), Some(s(40))), Instant::FAR);
    }

    /// With two accounts that alternate, one may have used much less: the other account's window still runs.
    #[test]
    fn a_window_is_over_when_another_begins_about_at_its_end() {
        let mut window = OthersWindow::default();
        for end in [10, 20, 30, 40] {
            assert_eq!(window.ends(s(end - 9), Some(s(end))), s(end));
            window.answered(s(end - 5), s(end - 4), true);
            assert!(!window.has_ended(), "four seconds before");
            window.answered(s(end - 2), s(end - 1), true);
            assert!(window.has_ended());
            // An answer that reports no remaining amount is not compared.
            assert!(!window.has_ended(), "it was told once");
            window.answered(s(end), s(end), false);
            assert!(!window.has_ended());
        }
        assert_eq!(window.ends(s(40), None), Instant::FAR);
    }

    /// Ten seconds, and then an hour. Two requests are in flight at the end of the first window. The request that is
    /// answered first left before the answer that it would be compared with.
    #[test]
    fn what_overtakes_the_first_answer_of_the_next_window_does_not_hide_it() {
        for next in [Some(s(3610)), None] {
            let mut window = OthersWindow::default();
            assert_eq!(window.ends(s(1), Some(s(10))), s(10));
            window.answered(s(8), s(9), false);
            assert_eq!(window.ends(s(9), next), s(10), "it belongs to the next one");
            window.answered(s(8), s(9), true);
            assert!(window.has_ended());
            assert_eq!(window.ends(s(9), Some(s(3610))), s(3610));
        }
        // Long before the end, an answer does not report the next window.
        let mut window = OthersWindow::default();
        assert_eq!(window.ends(s(1), Some(s(10))), s(10));
        assert_eq!(window.ends(s(2), Some(s(60))), s(60));
    }
}
