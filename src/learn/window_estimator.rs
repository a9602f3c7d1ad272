//! Estimates the length of a quota's window from our own send times, if answers do not report it.

mod bucket;
mod fleet;
mod lengths;
#[cfg(test)]
mod tests;

use std::time::Duration;

use andante_clock::Instant;
use andante_hint::Bucket;

use self::lengths::{LATE, SECOND, at_most, is_all, round, tolerance, usual_within, whole_within};
use super::ledger::SentLog;

/// Estimate of the length of one quota's window.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowEstimator {
    known: Option<Duration>,
    shape: Shape,
    /// Lowest recent use, and the reported time until the reset with it.
    first: Option<(f64, Duration)>,
    /// True if it was seen how the quota is replenished.
    seen: bool,
    /// Present window, if its start was seen.
    present: Option<Start>,
    /// Last reported end of the present window, and end of the window before.
    ends: Option<Instant>,
    before_ended: Option<Instant>,
    /// Longest reported time until a reset, and when the first one was reported.
    longest: Option<(Duration, Instant)>,
    /// True if the reported length is wrong: no observed window began with that much time left.
    doubted: bool,
    documented: bool,
    /// Share of a bucket that must be used for another measurement: nearly the share at the last one.
    share: f64,
    /// True if a window was seen from its first request on, so that the longest time is its length.
    fresh: bool,
    /// True if a refusal was explained by a longer window.
    refuted: bool,
    /// Length that was reported in whole seconds and taken as it is, though it may be a second less; and whether the
    /// API reports fractions.
    as_told: Option<Duration>,
    fractions: bool,
    /// Shorter length that was seen once, and whether a longer one was.
    shorter: Option<Duration>,
    longer: bool,
    /// Consecutive windows that ended when expected.
    kept: u8,
    /// Number of partial replenishments, reduced by evidence against them: see [`slides`](Self::slides).
    rises: u8,
    /// Send time of the latest answered request.
    latest: Instant,
    /// Last report of another member of the fleet.
    of_fleet: Option<(Duration, Return)>,
}

/// Start of a window, and its length as its answers reported it.
#[derive(Clone, Copy, Debug)]
struct Start {
    at: Instant,
    length: Duration,
    /// Send and answer times of the first request that was seen to be in the window.
    seen: Instant,
    answered: Instant,
    /// Usage at that time.
    used: f64,
}

/// How a quota is replenished.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Shape {
    /// Unknown yet, or each part one window after its use, or everything at once. The reset does not move away with
    /// more use.
    #[default]
    Window,
    /// The reset moves away with more use: perhaps a bucket that refills in `least` to `most` seconds. Further resets
    /// have to confirm it.
    Growing { used: f64, least: f64, most: f64 },
    /// Continuous refill: the reset is when the bucket is full, so it moves away with more use. `odd` counts
    /// consecutive observations against it.
    Bucket { odd: u8 },
}

/// When the used amount is replenished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// All of it at the reset.
    AtReset,
    /// In parts, each one window after its use, when another sender may use it.
    InParts,
    /// Continuously, the same amount each second.
    Refill,
}

/// Maximum usage of a window that counts as just begun.
const FEW: f64 = 2.0;
/// Number of partial replenishments that show that the quota is not replenished all at once.
const SLIDES: u8 = 4;
/// Number of windows ending in time that outweigh a single answer.
const KEPT: u8 = 3;
/// Distance above which two ends, reported in whole seconds and by two clocks, belong to different windows.
pub(super) const APART: Duration = Duration::from_secs(2);

// === impl WindowEstimator ===

impl WindowEstimator {
    /// Estimate for a quota of the same name with another limit: it is replenished in the same way.
    pub(super) fn like(other: &Self) -> Self {
        Self { shape: other.shape, seen: other.seen, rises: other.rises, ..Self::default() }
    }

    /// Applies a report and returns the window length. The answer arrived at `answered`, for a request that left at
    /// `sent`. `ledger` has the requests that draw on the quota.
    pub(super) fn hear(
        &mut self,
        bucket: &Bucket,
        sent: Instant,
        answered: Instant,
        ledger: &SentLog,
    ) -> Option<Duration> {
        let told = bucket.window.filter(|told| !told.is_zero());
        let reset = bucket.reset.filter(|left| !left.is_zero());
        let (Some(limit @ 1.0..), Some(remaining), Some(left)) = (bucket.limit, bucket.remaining, reset) else {
            self.known = self.known.or(told.filter(|_| !self.doubted));
            return self.known;
        };
        let used = limit - remaining;
        self.latest = self.latest.max(sent);
        // Answers of the next window may arrive before the first one that shows its start.
        let is_next = |ends: &Instant| *ends <= answered + APART && sent + left > *ends + APART;
        self.ends = self.ends.filter(is_next).or(Some(sent + left));
        let whole = bucket.coarse || left.subsec_nanos() == 0;
        self.fractions |= !whole;
        let blur = tolerance(left, whole);
        // While only other members have seen a start, their report decides how the quota is replenished.
        if self.fresh || self.of_fleet.is_none_or(|(_, returns)| returns == Return::Refill) {
            self.look_closer(limit, used, left, blur, bucket.refills);
        }
        let fresh = used <= 1.0;
        self.fresh |= fresh;
        let began = ledger.began(used, sent);
        let mut length = began.map(|began| (sent + left).since(began));
        if self.present.is_none() {
            self.present = began.zip(length).map(|(at, length)| Start { at, length, seen: sent, answered, used });
        }
        if let Some(told) = told.filter(|_| !bucket.refills) {
            // A window that begins with so little time left is shorter than documented.
            let short = length.is_some_and(|length| length + blur < told / 2);
            // The window began after the end of the window before.
            let most = self.before_ended.filter(|ended| *ended <= sent + blur).map(|ended| (sent + left).since(ended));
            let most = most.filter(|most| *most + blur < told / 2);
            let refuted = self.is_of_others() && (fresh && short || most.is_some());
            if refuted && !self.doubted {
                (self.known, self.shorter) = (None, None);
                // The use of other members of the fleet may belong to the window before.
                length = length.map(|length| most.map_or(length, |most| length.min(most)));
            }
            self.doubted = left < told / 2 && (self.doubted || refuted || self.known.is_none() && short);
            if !self.doubted {
                let begins = fresh && left + blur >= told.mul_f64(0.9);
                self.documented = !begins && (self.documented || self.known != Some(told));
                self.known = Some(told);
                return self.known;
            }
            self.documented = false;
        }
        match self.shape {
            Shape::Bucket { .. } => self.measure_bucket(limit, used, left, blur),
            _ if bucket.refills && !self.seen => {}
            _ => self.measure(left, length, sent, whole && !bucket.coarse),
        }
        self.known
    }

    /// Window length, as far as is known.
    pub(super) fn known(&self) -> Option<Duration> {
        self.known
    }

    /// When the used amount is replenished.
    pub(super) fn returns(&self) -> Return {
        if self.refills() {
            Return::Refill
        } else if self.slides() {
            Return::InParts
        } else {
            Return::AtReset
        }
    }

    /// Returns true if the quota refills continuously.
    pub(super) fn refills(&self) -> bool {
        matches!(self.shape, Shape::Bucket { .. })
    }

    /// Send time of the first request that was seen to be in the present window.
    pub(super) fn seen(&self) -> Option<Instant> {
        self.present.map(|present| present.seen)
    }

    /// Start of the present window, if it is known.
    pub(super) fn began(&self) -> Option<Instant> {
        self.present.map(|present| present.at)
    }

    /// Latest end of the present window. Others may have begun it before us, and the API counts a request when it
    /// arrives.
    pub(super) fn ends_by(&self, window: Duration) -> Instant {
        self.present.filter(|_| !self.refills()).map_or(Instant::FAR, |present| present.answered + window)
    }

    /// Returns true if the length is only documented, because no window was seen to begin. Others may have begun the
    /// present window long before us.
    pub(super) fn is_of_others(&self) -> bool {
        self.documented && !self.refills() && !self.slides()
    }

    /// Returns true if the quota is replenished in parts, not all at once.
    pub(super) fn slides(&self) -> bool {
        self.rises >= SLIDES
    }

    /// Records that a part of the quota was replenished.
    pub(super) fn risen(&mut self) {
        self.rises = (self.rises + 1).min(SLIDES * 2);
    }

    /// Records the start of another window. The first request seen in it left at `sent`, with `used` in use and `left`
    /// until the reset. A window that ends early twice is shorter than estimated.
    pub(super) fn restarted(
        &mut self,
        limit: f64,
        used: f64,
        left: Option<Duration>,
        sent: Instant,
        answered: Instant,
        ledger: &SentLog,
    ) {
        self.before_ended = self.ends.take();
        let at = ledger.began(used, sent).unwrap_or(sent);
        // The share that other members of the fleet have used is unknown, but the window began after the last answer
        // before it.
        let at = if ledger.is_shared() { at.max(self.latest.min(sent)) } else { at };
        let length = left.map_or(Duration::MAX, |left| (sent + left).since(at));
        let Some(before) = self.present.replace(Start { at, length, seen: sent, answered, used }) else { return };
        let (lasted, Some(known)) = (at.since(before.at), self.known) else { return };
        self.kept = if lasted <= known.mul_f64(1.5) { self.kept.saturating_add(1) } else { 0 };
        // A log of that length would still contain our earlier requests. Requests of other members are unknown.
        let forgets = used + 2.0 + limit / 10.0 / ledger.of_all(1) < ledger.since(sent - known) as f64;
        if forgets {
            self.rises = self.rises.saturating_sub(2);
        } else if !ledger.is_shared() {
            self.risen();
        }
        if lasted >= known.mul_f64(0.93) || !forgets {
            self.shorter = None;
            // The last request of the window left this long after the answer to its first one: that is its minimum
            // length.
            let proven = self.latest.min(sent).since(before.answered);
            let longest = self.longest.map_or(Duration::ZERO, |(longest, _)| longest);
            let fresh = used.max(before.used) <= FEW;
            let longer = forgets && fresh && proven > known.mul_f64(1.02) && proven <= longest;
            let again = longer && std::mem::take(&mut self.longer);
            if again {
                let most = lasted.min(longest).mul_f64(1.02);
                self.known = Some(usual_within(proven, most).or(whole_within(proven, most)).unwrap_or(longest));
            }
            self.longer = longer && !again;
            return;
        }
        self.longer = false;
        // Similar lengths, or the same common window fits both: the window begins with the first request.
        let fits = |length: Duration| usual_within(Duration::ZERO, length.mul_f64(1.02));
        let alike = |other: &Duration| {
            lasted.abs_diff(*other) <= lasted / 10 + Duration::from_millis(50) || fits(lasted) == fits(*other)
        };
        match self.shorter.take().filter(alike) {
            Some(other) => {
                let most = lasted.min(other);
                let least = before.length.saturating_sub(LATE);
                let least = if least < most { least } else { most.mul_f64(0.7) };
                (self.known, self.kept) = (Some(usual_within(least, most.mul_f64(1.02)).unwrap_or(most)), KEPT);
                // For the documented length no start was seen, or an answer would have reported the length.
                self.doubted |= self.documented;
            }
            None => self.shorter = Some(lasted),
        }
    }

    /// Learns the window length. `left`: time until the reset, perhaps in `whole` seconds; `length`: length if all of
    /// the use is ours.
    fn measure(&mut self, left: Duration, length: Option<Duration>, sent: Instant, whole: bool) {
        // Skipped if another length was learned since.
        if self.fractions && self.as_told.take().is_some_and(|told| self.known == Some(told)) {
            self.known = self.known.map(round);
        }
        let first = self.longest.is_none();
        let (longest, since) = self.longest.get_or_insert((left, sent));
        *longest = left.max(*longest);
        let (longest, heard) = (*longest, sent.since(*since));
        match self.known {
            None => {
                // Reports for a whole window have shown nearly all of it.
                let length = length.map(|length| if first { length } else { length.min(longest) });
                let length = length.filter(|_| first || heard >= longest || length == Some(longest));
                let as_told = length.filter(|length| whole && is_all(left, *length) && round(*length) != left);
                self.as_told = as_told.map(|_| left);
                self.known = self.as_told.or(length.map(round));
            }
            // The remaining time cannot exceed the window.
            Some(known) if left > at_most(known) && !self.is_in_time(known, sent) => {
                (self.known, self.shorter, self.kept) = (Some(round(left)), None, 0);
            }
            // A longer common window was concluded, but no answer reports that much: the seconds may be truncated.
            Some(known) if self.fresh && !self.refuted && heard >= known * 3 && longest + SECOND < known => {
                self.known = Some(longest + SECOND);
            }
            Some(_) => {}
        }
    }

    /// Returns true if windows have lasted as long as `known`, and the window of the request at `sent` does not last
    /// longer. A longer report may come from a slow clock (uvicorn's `Date` under load) or a wrong reset.
    fn is_in_time(&self, known: Duration, sent: Instant) -> bool {
        self.kept >= KEPT && self.present.is_some_and(|present| sent.since(present.seen) <= at_most(known))
    }

    /// Records a refusal although a window of that length had room: the window may be as long as reported.
    pub(super) fn contradicted(&mut self) {
        let longer = self.longest.map(|(longest, _)| longest).filter(|_| !self.refills());
        if let (Some(known), Some(longer)) = (self.known, longer)
            && longer > known.mul_f64(1.1)
        {
            // Takes a common window, unless the refusal contradicts it. Reports with fractions may be a second late.
            let usual = round(longer);
            let longer = if usual > known || self.fractions { usual.max(known) } else { longer };
            (self.known, self.refuted) = (Some(longer), true);
        }
    }
}
