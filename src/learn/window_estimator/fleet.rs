//! Window reports among the members of a fleet. A member that joins later sees no start, and not how the quota is
//! replenished.

use std::time::Duration;

use andante_hint::Bucket;

use super::{Return, SLIDES, Shape, WindowEstimator};

impl WindowEstimator {
    /// Window length and way of replenishment, if they were seen here: by a start, or by the refill of a bucket.
    pub(crate) fn seen_here(&self) -> Option<(Duration, Return)> {
        let seen = self.fresh || self.of_fleet.is_none() && self.refills();
        self.known.filter(|_| seen && !self.documented).map(|known| (known, self.returns()))
    }

    /// Returns true if another member of the fleet has seen another length than the one assumed here without evidence.
    pub(crate) fn is_contradicted_by(&self, window: Duration, returns: Return) -> bool {
        let news = self.of_fleet != Some((window, returns)) && self.seen_here().is_none();
        news && self.known.is_some_and(|known| known.abs_diff(window) > known / 10)
    }

    /// Applies a report of another member, unless the window was seen here, too. The next `bucket` will say more.
    pub(crate) fn told_by_fleet(&mut self, window: Duration, returns: Return, bucket: &Bucket) {
        if self.seen_here().is_some() {
            return;
        }
        let repeated = self.of_fleet.replace((window, returns)) == Some((window, returns));
        // Conclusions since then are about windows that others began. The refill of a bucket is visible to all members.
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

    /// Records that the fleet reports nothing about the window, or no longer does.
    pub(crate) fn told_by_nobody(&mut self) {
        self.of_fleet = None;
    }
}
