//! The window that others had begun before we came.

use crate::clock::Instant;

/// When all of a window comes back that others have begun: what was sent in it from here counts until then, as the API says, and
/// not for as long as the window is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OthersWindow {
    end: Option<Instant>,
    /// How often it was over, as was said, and no other one had begun.
    failed: u8,
}

/// So often, and it is not believed any more.
const FAILED: u8 = 3;

// === impl OthersWindow ===

impl OthersWindow {
    /// It is over at `end`, as an answer says. Returns when to try; [`Instant::FAR`] if it is not known, or was not true before.
    pub(super) fn ends(&mut self, end: Option<Instant>) -> Instant {
        self.end = end.filter(|_| self.failed < FAILED);
        self.end.unwrap_or(Instant::FAR)
    }

    /// A request that left at `sent` was answered: `begun` says that another window had begun.
    pub(super) fn answered(&mut self, sent: Instant, begun: bool) {
        if self.end.take_if(|end| *end <= sent).is_some() && !begun {
            self.failed += 1;
        }
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
            assert_eq!(window.ends(Some(s(end))), s(end));
            // What left before tells nothing of it.
            window.answered(s(end - 1), false);
            window.answered(s(end), false);
        }
        assert_eq!(window.ends(Some(s(40))), Instant::FAR);
        let mut window = OthersWindow::default();
        for end in [10, 20, 30, 40] {
            assert_eq!(window.ends(Some(s(end))), s(end));
            window.answered(s(end), true);
        }
        assert_eq!(window.ends(None), Instant::FAR);
    }
}
