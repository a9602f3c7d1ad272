//! Detection of quotas that refill continuously, and the time of a complete refill.

use std::time::Duration;

use super::{Shape, WindowEstimator, lengths::usual};

/// Share of the last use with which another measurement is as good.
const NEARLY: f64 = 0.95;
/// Factor on that share with each answer that is not measured: the API may have changed.
const FADING: f64 = 0.998;
/// Number of contradictions that refute a bucket.
const ODD: u8 = 4;

impl WindowEstimator {
    /// Determines how the quota is replenished, by whether the reset moves away with more use. `said`: the answer
    /// itself reports a refill.
    pub(super) fn look_closer(&mut self, limit: f64, used: f64, left: Duration, blur: Duration, said: bool) {
        let Some((before, least)) = self.first.filter(|(before, _)| used >= *before) else {
            // A part of the quota was replenished.
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
            // Time of a complete refill.
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

    /// Measures the time of a complete refill. With more use, the rounding to seconds matters less.
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
