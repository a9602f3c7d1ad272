//! Whether an allowance comes back little by little, and how long all of it takes then.

use std::time::Duration;

use super::{Shape, WindowEstimator, lengths::usual};

/// A measurement with so much less used is as good as the last.
const NEARLY: f64 = 0.95;
/// And with each answer that is not measured so much less is enough: the API may have changed.
const FADING: f64 = 0.998;
/// Contradicted so often, a bucket is none.
const ODD: u8 = 4;

impl WindowEstimator {
    /// Finds out how the allowance comes back, from whether the reset moves away as more is used. `said` says that this is
    /// what the answer says.
    pub(super) fn look_closer(&mut self, limit: f64, used: f64, left: Duration, blur: Duration, said: bool) {
        let Some((before, least)) = self.first.filter(|(before, _)| used >= *before) else {
            // Some of it has come back.
            self.first = (used >= 1.0).then_some((used, left));
            if matches!(self.shape, Shape::Growing { .. }) {
                self.shape = Shape::Window;
            }
            return;
        };
        if let Shape::Bucket { odd } = &mut self.shape {
            *odd = if used >= before + 2.0 && left + blur < least { *odd + 1 } else { 0 };
            if *odd >= ODD {
                *self = Self::default();
            }
            return;
        }
        if used < before * 2.0 || used < before + 4.0 {
            return;
        }
        if left <= least + blur {
            (self.shape, self.seen) = (Shape::Window, true);
        } else if left > least.mul_f64(1.5) + blur {
            // As long as this would all of it take to come back.
            let all = |left: Duration| left.as_secs_f64() * limit / used;
            let (fastest, slowest) = (all(left.saturating_sub(blur)), all(left));
            self.shape = match self.shape {
                _ if said && !self.seen => Shape::Bucket { odd: 0 },
                Shape::Growing { used: before, .. } if used < before * 1.3 + 2.0 => return,
                Shape::Growing { least, most, .. } if slowest >= least && fastest <= most => Shape::Bucket { odd: 0 },
                Shape::Growing { .. } => {
                    // The next window had begun.
                    self.first = Some((used, left));
                    Shape::Window
                }
                _ => Shape::Growing { used, least: fastest, most: slowest },
            };
        }
    }

    /// Learns how long a bucket takes to come back as a whole. The more is used, the less the seconds are rounded.
    pub(super) fn measure_bucket(&mut self, limit: f64, used: f64, left: Duration, blur: Duration) {
        if used * 10.0 < limit || used / limit < self.share {
            self.share *= FADING;
            return;
        }
        self.share = used / limit * NEARLY;
        let all = |left: Duration| Duration::try_from_secs_f64(left.as_secs_f64() * limit / used).ok();
        let (least, length, most) = (all(left.saturating_sub(blur)), all(left), all(left + blur / 2));
        self.known = usual().rfind(|usual| least <= Some(*usual) && Some(*usual) <= most).or(length);
    }
}
