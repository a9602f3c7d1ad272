//! How long the window of a budget is: measured by our own departures, where answers do not say so.

mod bucket;
mod fleet;
mod lengths;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::lengths::{LATE, SECOND, at_most, is_all, round, tolerance, usual_within, whole_within};
use super::ledger::SentLog;
use crate::{clock::Instant, hint::Bucket};

/// What is known about the length of one budget's window.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowEstimator {
    known: Option<Duration>,
    shape: Shape,
    /// The least that was used of late, and the time until the reset that was said with it.
    first: Option<(f64, Duration)>,
    /// Whether it was seen how the allowance comes back.
    seen: bool,
    /// The present window, as far as its beginning was seen.
    present: Option<Start>,
    /// When the present window is over, as was said last before that, and when the one before it was.
    ends: Option<Instant>,
    before_ended: Option<Instant>,
    /// The longest time until a reset that was said, and when the first was.
    longest: Option<(Duration, Instant)>,
    /// What was said of its length is not true; and it is all that is known, as no window was seen to begin with as much left.
    doubted: bool,
    documented: bool,
    /// The share of a bucket that must be used for its length to be measured again: what it was last, nearly.
    share: f64,
    /// One was seen of which nothing was used before, so that the longest time is all of it.
    fresh: bool,
    /// There was a refusal that a longer one explains.
    refuted: bool,
    /// What was told in whole seconds and is known for that, though it may be a second less; and whether fractions are told.
    as_told: Option<Duration>,
    fractions: bool,
    /// A shorter length that was seen once, and whether a longer one was.
    shorter: Option<Duration>,
    longer: bool,
    /// How many windows, one after the other, have been over when they were expected to be.
    kept: u8,
    /// How often a part of it has come back, more or less: see [`slides`](Self::slides).
    rises: u8,
    /// When the last request left that was answered.
    latest: Instant,
    /// What another member of the fleet has told of it last.
    of_fleet: Option<(Duration, Return)>,
}

/// When a window began, and how long it was to last, as its answers said.
#[derive(Clone, Copy, Debug)]
struct Start {
    at: Instant,
    length: Duration,
    /// When the first request left that was seen to be in it, and when it was answered.
    seen: Instant,
    answered: Instant,
    /// How much was used of it then.
    used: f64,
}

/// How an allowance comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Shape {
    /// Not known yet, or each part of it a window after it was spent, or all at once: the reset is no later the more is
    /// used.
    #[default]
    Window,
    /// The more was used, the later the reset was: perhaps a bucket, of between `least` and `most` seconds. The next
    /// resets have to confirm it.
    Growing { used: f64, least: f64, most: f64 },
    /// Little by little: the reset is when all of it is back, and the later the more is used. `odd` counts how often it was
    /// not, in a row.
    Bucket { odd: u8 },
}

/// When what was used comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// All of it at the reset.
    AtReset,
    /// In parts, each a window after it was used, and another sender may use it then.
    InParts,
    /// All the time, as much in each second.
    Refill,
}

/// As good as nothing is used of a window that has just begun.
const FEW: f64 = 2.0;
/// How many parts that came back show that not all of it does at once.
const SLIDES: u8 = 4;
/// How many windows that ended in time tell more of their length than a single answer does.
const KEPT: u8 = 3;
/// Ends that are told in whole seconds, and by two clocks, are those of two windows if they are further apart.
pub(super) const APART: Duration = Duration::from_secs(2);

// === impl WindowEstimator ===

impl WindowEstimator {
    /// The estimate for a budget of the same name with another limit: its allowance comes back in the same way.
    pub(super) fn like(other: &Self) -> Self {
        Self { shape: other.shape, seen: other.seen, rises: other.rises, ..Self::default() }
    }

    /// How long the window is, after an answer that came at `answered` has said this to a request that left at `sent`.
    /// `ledger` has the requests that draw on the budget.
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
        // Answers of the next one may come before the first that shows that it has begun.
        let is_next = |ends: &Instant| *ends <= answered + APART && sent + left > *ends + APART;
        self.ends = self.ends.filter(is_next).or(Some(sent + left));
        let whole = bucket.coarse || left.subsec_nanos() == 0;
        self.fractions |= !whole;
        let blur = tolerance(left, whole);
        // How it comes back is the others' to say as long as only they have seen a beginning.
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
            // A window that begins with so little left of it is not as long as the provider's documentation says.
            let short = length.is_some_and(|length| length + blur < told / 2);
            // It has begun since the one before was over.
            let most = self.before_ended.filter(|ended| *ended <= sent + blur).map(|ended| (sent + left).since(ended));
            let most = most.filter(|most| *most + blur < told / 2);
            let refuted = self.is_of_others() && (fresh && short || most.is_some());
            if refuted && !self.doubted {
                (self.known, self.shorter) = (None, None);
                // What others of a fleet have used may be of the one before.
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

    /// How long the window is, as far as is known.
    pub(super) fn known(&self) -> Option<Duration> {
        self.known
    }

    /// When what was used comes back.
    pub(super) fn returns(&self) -> Return {
        if self.refills() {
            Return::Refill
        } else if self.slides() {
            Return::InParts
        } else {
            Return::AtReset
        }
    }

    /// Whether the allowance comes back little by little.
    pub(super) fn refills(&self) -> bool {
        matches!(self.shape, Shape::Bucket { .. })
    }

    /// When the first request left that was seen to be in the present window.
    pub(super) fn seen(&self) -> Option<Instant> {
        self.present.map(|present| present.seen)
    }

    /// When the present window began, if that is known.
    pub(super) fn began(&self) -> Option<Instant> {
        self.present.map(|present| present.at)
    }

    /// When the present one of these windows is over, at the latest: others may have begun it before us, and the API counts
    /// a request when it has come.
    pub(super) fn ends_by(&self, window: Duration) -> Instant {
        self.present.filter(|_| !self.refills()).map_or(Instant::FAR, |present| present.answered + window)
    }

    /// Whether the length is what is documented, while no window was seen to begin: others may have begun the present one long
    /// before us.
    pub(super) fn is_of_others(&self) -> bool {
        self.documented && !self.refills() && !self.slides()
    }

    /// Whether the allowance comes back in parts, and not all at once.
    pub(super) fn slides(&self) -> bool {
        self.rises >= SLIDES
    }

    /// A part of the allowance has come back.
    pub(super) fn risen(&mut self) {
        self.rises = (self.rises + 1).min(SLIDES * 2);
    }

    /// A request that left at `sent` and was answered at `answered` is the first that is seen of another window: `used` are
    /// used of it, and so much time is `left`. A window that is over before its time, twice, is shorter than was thought.
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
        // How much of it others of a fleet have used already is not known: it began after what was answered before it.
        let at = if ledger.is_shared() { at.max(self.latest.min(sent)) } else { at };
        let length = left.map_or(Duration::MAX, |left| (sent + left).since(at));
        let Some(before) = self.present.replace(Start { at, length, seen: sent, answered, used }) else { return };
        let (lasted, Some(known)) = (at.since(before.at), self.known) else { return };
        self.kept = if lasted <= known.mul_f64(1.5) { self.kept.saturating_add(1) } else { 0 };
        // A log of that length would still have what was sent from here before. Of a fleet's others nothing is known.
        let forgets = used + 2.0 + limit / 10.0 / ledger.of_all(1) < ledger.since(sent - known) as f64;
        if forgets {
            self.rises = self.rises.saturating_sub(2);
        } else if !ledger.is_shared() {
            self.risen();
        }
        if lasted >= known.mul_f64(0.93) || !forgets {
            self.shorter = None;
            // Its last request left so long after the answer to its first one: that is how long it was at least.
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
        // Alike, or the same usual window fits into both: it begins with the first request.
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
                // Of what is documented no beginning was seen, or it would say so.
                self.doubted |= self.documented;
            }
            None => self.shorter = Some(lasted),
        }
    }

    /// Learns the length of a window: `left` of it is still to come, in `whole` seconds from now on perhaps, and it is as long
    /// as `length` if all of it is ours.
    fn measure(&mut self, left: Duration, length: Option<Duration>, sent: Instant, whole: bool) {
        // Unless something else has been learned of it since.
        if self.fractions && self.as_told.take().is_some_and(|told| self.known == Some(told)) {
            self.known = self.known.map(round);
        }
        let first = self.longest.is_none();
        let (longest, since) = self.longest.get_or_insert((left, sent));
        *longest = left.max(*longest);
        let (longest, heard) = (*longest, sent.since(*since));
        match self.known {
            None => {
                // What was told of for a whole window has shown nearly all of it.
                let length = length.map(|length| if first { length } else { length.min(longest) });
                let length = length.filter(|_| first || heard >= longest || length == Some(longest));
                let as_told = length.filter(|length| whole && is_all(left, *length) && round(*length) != left);
                self.as_told = as_told.map(|_| left);
                self.known = self.as_told.or(length.map(round));
            }
            // No more can be left of a window than all of it.
            Some(known) if left > at_most(known) && !self.is_in_time(known, sent) => {
                (self.known, self.shorter, self.kept) = (Some(round(left)), None, 0);
            }
            // A usual one that is longer was concluded, but no answer tells of so much: the whole seconds may be cut off.
            Some(known) if self.fresh && !self.refuted && heard >= known * 3 && longest + SECOND < known => {
                self.known = Some(longest + SECOND);
            }
            Some(_) => {}
        }
    }

    /// Whether windows have been as long as is `known`, and the one that a request left in at `sent` is not longer: its
    /// answer may have taken its time from a clock that was late (uvicorn's `Date` is, under load), or its reset is wrong.
    fn is_in_time(&self, known: Duration, sent: Instant) -> bool {
        self.kept >= KEPT && self.present.is_some_and(|present| sent.since(present.seen) <= at_most(known))
    }

    /// A request was refused though there was room in a window of that length: perhaps it is as long as was said.
    pub(super) fn contradicted(&mut self) {
        let longer = self.longest.map(|(longest, _)| longest).filter(|_| !self.refills());
        if let (Some(known), Some(longer)) = (self.known, longer)
            && longer > known.mul_f64(1.1)
        {
            // A usual one, unless that is what was contradicted. What tells fractions may be a second late.
            let usual = round(longer);
            let longer = if usual > known || self.fractions { usual.max(known) } else { longer };
            (self.known, self.refuted) = (Some(longer), true);
        }
    }
}
