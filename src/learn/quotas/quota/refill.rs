//! How fast a budget refills whose answers report how much fits into it, and when it is full again, in whole seconds.
//!
//! Many buckets (GCRA) report their depth as the limit, and as the reset when they are full. Rounded up, that reads like a
//! window: five in a second, where ten a second are served. What is left tells them apart. It falls with each request of a
//! window; a bucket is as good as full again whenever it is asked slowly enough. Then the rate is doubled until the bucket
//! is drained, and is what has come back in that time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{clock::Instant, learn::ledger::SentLog};

/// Whether a budget is a bucket, and how fast that refills, as far as is known.
#[derive(Clone, Debug, Default)]
pub(in crate::learn::quotas) struct Refill {
    phase: Phase,
    /// It is not asked again before, because it is a window.
    calm_until: Option<Instant>,
    /// More than a window's has held once.
    proved: bool,
    /// When it was first asked.
    begun: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// A window, as far as is known.
    #[default]
    Unknown,
    /// It looks as full as it was since `since`: `used` is the most that was used, and `sent` the fewest that a fleet sent in
    /// a window, in `answers` answers.
    Full { since: Instant, used: f64, sent: f64, answers: u32 },
    /// A bucket.
    Found(Pace),
}

/// How fast a bucket is used.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Requests a second.
    rate: f64,
    /// What has held, and what was too much.
    low: f64,
    high: Option<f64>,
    /// What is configured now: faster it is not tried, nor soon again.
    most: Option<f64>,
    /// What the fields read like.
    told: f64,
    /// Since when the rate is what it is, and how many of a fleet's were served with it, by the part that is ours.
    since: Instant,
    served: f64,
    /// From when on it was not full, as far as is known.
    from: Mark,
    /// When more is tried again, and how often that was in vain.
    next_try: Instant,
    in_vain: u32,
}

/// A bucket at one time: how much was used, and how many had left.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    used: f64,
    sent: u64,
}

/// What an answer says, and what was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report<'a> {
    pub(super) limit: f64,
    pub(super) used: f64,
    pub(super) served: bool,
    pub(super) sent: Instant,
    pub(super) now: Instant,
    /// How long the window is, as the answers read.
    pub(super) window: Duration,
    pub(super) ledger: &'a SentLog,
    /// The configured rate.
    pub(super) configured: Option<f64>,
}

/// Whole seconds hide most of a window that is not longer. So it is used evenly: only then does a bucket show.
pub(super) const ROUNDED: Duration = Duration::from_secs(3);
/// For so many windows, and answers, a bucket must have looked full.
const WINDOWS: f64 = 2.2;
const ANSWERS: u32 = 8;
/// As good as full.
const FULL: f64 = 1.5;
/// With so much more used it becomes emptier; deep ones later, which measures better.
const DRAINED: f64 = 2.0;
const DRAINED_SHARE: f64 = 0.25;
/// So many are served at least before a rate is known to hold, or as many as fit twice.
const HOLDS: f64 = 8.0;
/// No closer is the rate looked for, and so much below what has come back it stays.
const CLOSE: f64 = 1.05;
const BELOW: f64 = 0.98;
/// To this share a rate falls that has held and is too much.
const LOWER: f64 = 0.97;
/// So much of the time that the fields read like must have passed before what comes back can be told.
const LONG: f64 = 0.25;
/// So many measure what comes back.
const MANY: f64 = 16.0;
/// Fewer lower a rate that has held to this share at most.
const FEW_TELL: f64 = 0.8;
/// Slower by so much a bucket fills again.
const FILLING: f64 = 0.75;
/// A rate that is used so little does not grow.
const IN_USE: f64 = 0.8;
/// For how long a rate is kept before more is tried, and for how long at most.
const KEPT: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(600);

// === impl Refill ===

impl Refill {
    /// Whether it is a bucket.
    pub(in crate::learn::quotas) fn is_found(&self) -> bool {
        matches!(self.phase, Phase::Found(_))
    }

    /// Whether it was asked for the first time just now: a window as slow as the fields say may still be a bucket.
    pub(in crate::learn::quotas) fn is_new(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now.since(begun) < KEPT)
    }

    /// Whether it is known to be a window, which is not to be asked again soon.
    pub(in crate::learn::quotas) fn is_calm(&self, now: Instant) -> bool {
        self.calm_until.is_some_and(|until| now < until)
    }

    /// In what time as many come back as fit into it, if it is a bucket.
    pub(super) fn window(&self, limit: f64) -> Option<Duration> {
        let Phase::Found(Pace { rate, .. }) = self.phase else { return None };
        Duration::try_from_secs_f64(limit / rate).ok()
    }

    /// An answer reports it.
    pub(super) fn hear(&mut self, report: &Report<'_>) {
        self.begun.get_or_insert(report.now);
        let calm = self.is_calm(report.now);
        match &mut self.phase {
            Phase::Found(pace) => {
                let is_bucket = pace.hear(report);
                self.proved |= pace.low > pace.told * CLOSE;
                if !is_bucket {
                    self.is_window(report.now);
                }
            }
            _ if calm => {}
            _ => self.look(report),
        }
    }

    /// Whether it is a bucket, since it is never as much used as a window would be.
    fn look(&mut self, report: &Report<'_>) {
        let &Report { limit, used, served, sent, window, ledger, .. } = report;
        let told = limit / window.as_secs_f64();
        if !served || used < 1.0 || window > ROUNDED {
            self.phase = Phase::Unknown;
            return;
        }
        let in_window = ledger.of_all(ledger.up_to(sent).saturating_sub(ledger.up_to(sent - window)));
        let (since, most, fewest, answers) = match self.phase {
            Phase::Full { since, used, sent, answers } => (since, used, sent, answers),
            _ => (sent, 0.0, f64::INFINITY, 0),
        };
        let (most, fewest, answers) = (most.max(used), fewest.min(in_window), answers + 1);
        // One a window: only an earlier one can show that.
        let one = limit < 2.0 && fewest >= 1.0;
        if !one && (most > FULL || most * 2.0 > fewest) {
            self.phase = Phase::Full { since: sent, used: 0.0, sent: f64::INFINITY, answers: 0 };
        } else if sent.since(since) >= window.mul_f64(WINDOWS) && (answers >= ANSWERS || one) {
            self.find(told, report);
        } else {
            self.phase = Phase::Full { since, used: most, sent: fewest, answers };
        }
    }

    fn find(&mut self, told: f64, report: &Report<'_>) {
        self.phase = Phase::Found(Pace {
            rate: (told * 2.0).min(report.configured.unwrap_or(f64::INFINITY)),
            low: told,
            high: None,
            most: report.configured,
            told,
            since: report.now,
            served: 0.0,
            from: Mark { at: report.sent, used: report.used, sent: report.ledger.up_to(report.sent) },
            next_try: report.now,
            in_vain: 0,
        });
    }

    /// A request was refused.
    pub(super) fn refused(&mut self, limit: f64, sent: Instant, now: Instant) {
        let Phase::Found(pace) = &mut self.phase else { return };
        if !pace.refused(limit, sent, now) {
            self.is_window(now);
        }
    }

    /// It is a window, as far as is known. Where a bucket was proved, others may have drained it.
    fn is_window(&mut self, now: Instant) {
        (self.phase, self.calm_until) = (Phase::Unknown, Some(now + if self.proved { KEPT } else { LONGEST }));
    }
}

// === impl Pace ===

impl Pace {
    /// An answer reports what is used. Says whether it may still be a bucket.
    fn hear(&mut self, report: &Report<'_>) -> bool {
        let &Report { limit, used, served, sent, now, ledger, .. } = report;
        self.most = report.configured;
        if !served || sent < self.from.at {
            return true;
        }
        if sent >= self.since {
            self.since = if self.served == 0.0 { sent } else { self.since };
            self.served += ledger.of_all(1);
        }
        let mark = Mark { at: sent, used, sent: ledger.up_to(sent) };
        let from = self.from;
        if used <= FULL {
            self.from = mark;
        } else if used >= f64::max(from.used + DRAINED, limit * DRAINED_SHARE) {
            // It was not full in between: so much has come back as it refills.
            let took = sent.since(from.at).as_secs_f64().max(1e-3);
            let count = ledger.of_all(mark.sent.saturating_sub(from.sent));
            let back = (count - (used - from.used)).max(0.0) / took;
            let long = took >= limit / self.told * LONG;
            if long || used >= limit {
                self.from = mark;
                return self.drained(long.then_some(back), count, now);
            }
            return true;
        }
        let holds = self.served >= f64::max(HOLDS, if self.high.is_none() { 1.0 } else { 2.0 } * limit);
        let in_use = self.served >= IN_USE * self.rate * sent.since(self.since).as_secs_f64();
        if holds && !in_use {
            // Nobody wanted more for a while: that is no part of how much is wanted now.
            (self.since, self.served) = (sent, 0.0);
        }
        if used > FULL || self.rate >= self.low && !(holds && in_use) {
            return true;
        }
        if self.rate < self.low {
            self.try_rate(self.low, now);
            return true;
        }
        self.low = self.rate;
        if self.most.is_some_and(|most| self.low >= most) {
            return true;
        }
        match self.high {
            None => self.try_rate(self.low * 2.0, now),
            Some(high) if high > self.low * CLOSE => self.try_rate((self.low * high).sqrt(), now),
            Some(_) if now >= self.next_try => {
                self.high = Some(self.low * CLOSE * CLOSE);
                self.try_rate(self.low * CLOSE, now);
            }
            Some(_) => {}
        }
        true
    }

    /// It becomes emptier: `back` a second came back while `count` left, if that took long enough to tell. Says whether it
    /// may still be a bucket.
    fn drained(&mut self, back: Option<f64>, count: f64, now: Instant) -> bool {
        if back.is_some_and(|back| back < self.told * 0.5) {
            // Next to nothing comes back: that is a window.
            return false;
        }
        // What has held before is not overturned by a few that came bunched.
        let least = match back {
            _ if self.rate > self.low => self.low,
            Some(_) if count >= MANY => self.told,
            Some(_) => self.told.max(self.low * FEW_TELL),
            None => self.told.max(self.low * LOWER),
        };
        let low = back.map_or(least, |back| least.max(back * BELOW));
        let high = back.filter(|_| count >= MANY).map_or(self.rate, |back| back * CLOSE);
        self.keep(low, high, now);
        // Until it is full again.
        self.rate = self.low * FILLING;
        true
    }

    /// A request was refused. Says whether it may still be a bucket.
    fn refused(&mut self, limit: f64, sent: Instant, now: Instant) -> bool {
        if sent < self.since {
            // It had left before the rate was changed.
            return true;
        }
        if self.low <= self.told && self.served < f64::max(HOLDS, 2.0 * limit) {
            // The very first try: what the fields read like was right.
            return false;
        }
        let low = if self.rate > self.low { self.low } else { self.low * LOWER };
        self.keep(low, self.rate, now);
        true
    }

    /// `low` holds, and `high` is too much.
    fn keep(&mut self, low: f64, high: f64, now: Instant) {
        self.in_vain += 1;
        let kept = if self.most.is_some() { LONGEST } else { KEPT.saturating_mul(1 << self.in_vain.min(5)) };
        self.next_try = now + kept.min(LONGEST);
        (self.low, self.high) = (low, Some(high.max(low)));
        self.try_rate(low, now);
    }

    fn try_rate(&mut self, rate: f64, now: Instant) {
        let rate = rate.min(self.most.unwrap_or(f64::INFINITY));
        (self.rate, self.since, self.served) = (rate, now, 0.0);
    }
}
