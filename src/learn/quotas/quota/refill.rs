//! Refill rate of a quota whose answers report its size, and the time until it is full again in whole seconds.
//!
//! Many token buckets (GCRA) report their depth as the limit, and the time until they are full as the reset. Rounded
//! up, such a report looks like a window: five in a second, where ten a second are served. The remaining amount
//! distinguishes them. In a window it falls with each request; a bucket that is used slowly is always nearly full. For
//! a bucket the rate is doubled until the bucket drains. The refill during that time is then the rate.

#[cfg(test)]
mod tests;

use std::time::Duration;

use andante_clock::Instant;

use crate::ledger::SentLog;

/// Test whether a quota is a token bucket, and the refill rate of the bucket.
#[derive(Clone, Debug, Default)]
pub(in crate::quotas) struct Refill {
    phase: Phase,
    /// End of the time in which the quota is taken to be a window, without another test.
    calm_until: Option<Instant>,
    /// True once a rate above the window's has held.
    proved: bool,
    /// When the test began.
    begun: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Window, as far as is known.
    #[default]
    Unknown,
    /// Nearly full since `since`. `used`: highest usage; `sent`: fewest requests that a fleet sent in a window;
    /// `answers`: number of answers.
    Full { since: Instant, used: f64, sent: f64, answers: u32 },
    /// Token bucket.
    Found(Pace),
}

/// Rate at which a bucket is used.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Requests per second.
    rate: f64,
    /// Highest rate that has held, and lowest rate that was too much.
    low: f64,
    high: Option<f64>,
    /// Configured rate, which the search does not exceed. With it, later tries are rarer.
    most: Option<f64>,
    /// Rate that the fields seem to report.
    told: f64,
    /// Start of the present rate, and number of a fleet's requests served with it, estimated from our share.
    since: Instant,
    served: f64,
    /// Mark since which the bucket was not full, as far as is known.
    from: Mark,
    /// When a higher rate is tried again, and number of failed tries.
    next_try: Instant,
    in_vain: u32,
}

/// State of a bucket at one time: its usage, and the number of requests that had left.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    used: f64,
    sent: u64,
}

/// Report of an answer, with what was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report<'a> {
    pub(super) limit: f64,
    pub(super) used: f64,
    pub(super) served: bool,
    pub(super) sent: Instant,
    pub(super) now: Instant,
    /// Window length that the answers seem to report.
    pub(super) window: Duration,
    pub(super) ledger: &'a SentLog,
    /// The configured rate.
    pub(super) configured: Option<f64>,
}

/// Longest window that whole seconds may hide. Such a quota is used evenly, because only then a bucket shows.
pub(super) const ROUNDED: Duration = Duration::from_secs(3);
/// Number of windows and answers for which a bucket must have looked full.
const WINDOWS: f64 = 2.2;
const ANSWERS: u32 = 8;
/// Maximum usage of a bucket that counts as full.
const FULL: f64 = 1.5;
/// Increase of the usage that shows draining; deep buckets need a larger one, which is more precise.
const DRAINED: f64 = 2.0;
const DRAINED_SHARE: f64 = 0.25;
/// Fewest requests served before a rate counts as holding; deep buckets need up to twice their depth.
const HOLDS: f64 = 8.0;
/// Precision of the search, and margin below the measured refill.
const CLOSE: f64 = 1.05;
const BELOW: f64 = 0.98;
/// Factor for a rate that had held and is too much.
const LOWER: f64 = 0.97;
/// Share of the reported window that must pass before the refill can be measured.
const LONG: f64 = 0.25;
/// Number of requests that give a reliable refill rate.
const MANY: f64 = 16.0;
/// Lowest factor for a rate that had held, if fewer requests show a lower one.
const FEW_TELL: f64 = 0.8;
/// Factor on the rate while a bucket fills again.
const FILLING: f64 = 0.75;
/// Usage below which a rate does not grow.
const IN_USE: f64 = 0.8;
/// First and longest time before a higher rate is tried again.
const KEPT: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(600);

// === impl Refill ===

impl Refill {
    /// Returns true if the quota is known to be a token bucket.
    pub(in crate::quotas) fn is_found(&self) -> bool {
        matches!(self.phase, Phase::Found(_))
    }

    /// Returns true if the test began just now: a quota that looks like a window may still be a bucket.
    pub(in crate::quotas) fn is_new(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now.since(begun) < KEPT)
    }

    /// Returns true if the quota is known to be a window, so that no test is due.
    pub(in crate::quotas) fn is_calm(&self, now: Instant) -> bool {
        self.calm_until.is_some_and(|until| now < until)
    }

    /// Time in which a bucket refills from empty to full.
    pub(super) fn window(&self, limit: f64) -> Option<Duration> {
        let Phase::Found(Pace { rate, .. }) = self.phase else { return None };
        Duration::try_from_secs_f64(limit / rate).ok()
    }

    /// Applies an answer's report.
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

    /// Tests whether the quota is a bucket: its use stays below what a window would show.
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
        // With one request per window, only an earlier request can show that.
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

    /// Records that a request was refused.
    pub(super) fn refused(&mut self, limit: f64, sent: Instant, now: Instant) {
        let Phase::Found(pace) = &mut self.phase else { return };
        if !pace.refused(limit, sent, now) {
            self.is_window(now);
        }
    }

    /// Treats the quota as a window. A bucket that was proved is tested again sooner, since other senders may have
    /// drained it.
    fn is_window(&mut self, now: Instant) {
        (self.phase, self.calm_until) = (Phase::Unknown, Some(now + if self.proved { KEPT } else { LONGEST }));
    }
}

// === impl Pace ===

impl Pace {
    /// Applies the reported use. Returns true if the quota may still be a bucket.
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
            // The bucket was not full in between, so its refill can be measured.
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
            // Demand was low for a while, which must not count as usage of the rate.
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

    /// Handles a draining bucket: `back` units per second were replenished while `count` requests left, if the time was
    /// long enough to tell. Returns true if the quota may still be a bucket.
    fn drained(&mut self, back: Option<f64>, count: f64, now: Instant) -> bool {
        if back.is_some_and(|back| back < self.told * 0.5) {
            // A quota with nearly no refill is a window.
            return false;
        }
        // A few bunched requests do not overturn a rate that has held.
        let least = match back {
            _ if self.rate > self.low => self.low,
            Some(_) if count >= MANY => self.told,
            Some(_) => self.told.max(self.low * FEW_TELL),
            None => self.told.max(self.low * LOWER),
        };
        let low = back.map_or(least, |back| least.max(back * BELOW));
        let high = back.filter(|_| count >= MANY).map_or(self.rate, |back| back * CLOSE);
        self.keep(low, high, now);
        // Lower rate until the bucket is full again.
        self.rate = self.low * FILLING;
        true
    }

    /// Handles a refusal. Returns true if the quota may still be a bucket.
    fn refused(&mut self, limit: f64, sent: Instant, now: Instant) -> bool {
        if sent < self.since {
            // The request had left before the rate was changed.
            return true;
        }
        if self.low <= self.told && self.served < f64::max(HOLDS, 2.0 * limit) {
            // The first try has failed, so the reported window was right.
            return false;
        }
        let low = if self.rate > self.low { self.low } else { self.low * LOWER };
        self.keep(low, self.rate, now);
        true
    }

    /// Records that `low` holds and `high` is too much.
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
