//! The window that others had begun before we came.

use crate::{clock::Instant, learn::window_estimator::APART};

/// When all of a window comes back that others have begun: what was sent in it from here counts until then, as the API says, and
/// not for as long as the window is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OthersWindow {
    end: Option<Instant>,
    /// Another window has begun, and it is over.
    over: bool,
    /// How often it was over, as was said, and no other one had begun.
    failed: u8,
}

/// So often, and it is not believed any more.
const FAILED: u8 = 3;

// === impl OthersWindow ===

impl OthersWindow {
    /// It is over at `end`, as an answer says that came at `now`. Returns when to try; [`Instant::FAR`] if it is not known, or was
    /// not true before.
    pub(super) fn ends(&mut self, now: Instant, end: Option<Instant>) -> Instant {
        // Answers of the next window may come before the first one that shows that it has begun.
        let is_next = |ends: &Instant| *ends <= now + APART && end.is_none_or(|end| end > *ends + APART);
        self.end = self.end.filter(is_next).or(end).filter(|_| self.failed < FAILED);
        self.end.unwrap_or(Instant::FAR)
    }

    /// A request that left at `sent` was answered at `now`: `begun` says that another window had begun.
    pub(super) fn answered(&mut self, sent: Instant, now: Instant, begun: bool) {
        self.over = begun && self.end.is_some_and(|end| end <= now + APART);
        if self.over {
            (self.end, self.failed) = (None, 0);
        } else if self.end.take_if(|end| *end <= sent).is_some() {
            self.failed += 1;
        }
    }

    /// Whether an answer was the first of another window since this was asked last.
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
            // What left before tells nothing of it.
            window.answered(s(end - 1), s(end), false);
            window.answered(s(end), s(end), false);
        }
        assert_eq!(window.ends(s(31), Some(s(40))), Instant::FAR);
    }

    /// Of two accounts by turns the one may have used much less: its window is another one, and that of the first goes on.
    #[test]
    fn a_window_is_over_when_another_begins_about_at_its_end() {
        let mut window = OthersWindow::default();
        for end in [10, 20, 30, 40] {
            assert_eq!(window.ends(s(end - 9), Some(s(end))), s(end));
            window.answered(s(end - 5), s(end - 4), true);
            assert!(!window.has_ended(), "four seconds before");
            window.answered(s(end - 2), s(end - 1), true);
            assert!(window.has_ended());
            // What says nothing of what is left is not compared.
            assert!(!window.has_ended(), "it was told once");
            window.answered(s(end), s(end), false);
            assert!(!window.has_ended());
        }
        assert_eq!(window.ends(s(40), None), Instant::FAR);
    }

    /// Ten seconds, and then an hour. Two requests are under way at the end of the first: the one that is answered first left before
    /// the answer with which it could be compared.
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
        // Long before, it is not the next one that an answer tells of.
        let mut window = OthersWindow::default();
        assert_eq!(window.ends(s(1), Some(s(10))), s(10));
        assert_eq!(window.ends(s(2), Some(s(60))), s(60));
    }
}
