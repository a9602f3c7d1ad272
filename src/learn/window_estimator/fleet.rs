//! What the members of a fleet tell each other of a window. Who comes later sees no beginning, and not how it comes back.

use std::time::Duration;

use super::{Return, SLIDES, Shape, WindowEstimator};
use crate::hint::Bucket;

impl WindowEstimator {
    /// How long the window is and when it comes back, if that was seen here: by a beginning, or by how a bucket refills.
    pub(in crate::learn) fn seen_here(&self) -> Option<(Duration, Return)> {
        let seen = self.fresh || self.of_fleet.is_none() && self.refills();
        self.known.filter(|_| seen && !self.documented).map(|known| (known, self.returns()))
    }

    /// Whether another member of the fleet has seen something else than what is taken for it here and was not seen.
    pub(in crate::learn) fn is_contradicted_by(&self, window: Duration, returns: Return) -> bool {
        let news = self.of_fleet != Some((window, returns)) && self.seen_here().is_none();
        news && self.known.is_some_and(|known| known.abs_diff(window) > known / 10)
    }

    /// Another member of the fleet has seen it: that is believed unless it was seen here, too. The next `bucket` will say more.
    pub(in crate::learn) fn told_by_fleet(&mut self, window: Duration, returns: Return, bucket: &Bucket) {
        if self.seen_here().is_some() {
            return;
        }
        let repeated = self.of_fleet.replace((window, returns)) == Some((window, returns));
        // What was concluded here since is about beginnings that others made. How a bucket refills shows to all alike.
        if repeated && (self.known == Some(window) || returns == Return::Refill) {
            return;
        }
        (self.known, self.doubted) = (Some(window), bucket.window.is_some_and(|said| said != window));
        self.documented = false;
        (self.as_told, self.shorter, self.longer, self.kept) = (None, None, false, 0);
        self.rises = if returns == Return::InParts { SLIDES } else { 0 };
        if returns == Return::Refill {
            (self.shape, self.seen) = (Shape::Bucket { odd: 0 }, true);
        } else {
            (self.shape, self.seen) = (Shape::Window, true);
        }
    }

    /// The fleet says nothing of it, or no more.
    pub(in crate::learn) fn told_by_nobody(&mut self) {
        self.of_fleet = None;
    }
}
