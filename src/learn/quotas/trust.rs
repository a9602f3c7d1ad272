//! Consistency of a quota's numbers with what was sent, and the resulting trust.

use std::{cmp::Ordering, time::Duration};

use andante_clock::Instant;

use crate::{grounds::Agreement, ledger::SentLog};

/// Trust in the numbers of one quota: they are believed while there is more evidence for them than against.
#[derive(Clone, Debug)]
pub(super) struct Credibility {
    score: i32,
    /// Previous report.
    last: Option<LastQuota>,
    /// Consecutive requests that were served although nothing was left.
    served_empty: u32,
    /// When a request was last refused because nothing was left, which shows that the quota is enforced.
    refused_empty: Option<Instant>,
}

/// Report of an answer that arrived at `at`, to a request that had left at `sent`.
#[derive(Clone, Copy, Debug)]
struct LastQuota {
    remaining: f64,
    sent: Instant,
    at: Instant,
    /// When the quota is reset, if the API reports that.
    end: Option<Instant>,
    /// Requests in flight at that time: the API may have counted them later, whenever they left.
    unanswered: u32,
}

/// Report of an answer about a quota, with what is known of the quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaClaim<'a> {
    pub(super) limit: f64,
    pub(super) remaining: f64,
    pub(super) reset: Option<Duration>,
    /// True if the request was served, and true if it was refused because of a quota.
    pub(super) served: bool,
    pub(super) refused: bool,
    /// When the request left.
    pub(super) sent: Instant,
    pub(super) now: Instant,
    /// Send times of our own requests that draw on the quota, and the number of those in flight.
    pub(super) ledger: &'a SentLog,
    pub(super) unanswered: u32,
    /// Window and its start, as far as they are known.
    pub(super) window: Option<Duration>,
    pub(super) began: Option<Instant>,
    /// When the first request left that was seen to be in the window.
    pub(super) seen: Option<Instant>,
    /// True if the quota refills continuously.
    pub(super) refills: bool,
    /// True if the quota counts requests, each as one.
    pub(super) requests: bool,
}

/// Change of a quota between two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountChange {
    /// Change as expected, or unknown.
    Same,
    /// A part of the quota was replenished.
    Risen,
    /// Start of another window.
    Restarted,
}

/// Initial, highest and lowest score.
const AT_FIRST: i32 = 4;
const MOST: i32 = 20;
const LEAST: i32 = -20;
/// Score of a disproved quota, far from being believed again.
const DISPROVED: i32 = -200;
/// Costs of a rise without a new window, of a fall that our requests do not explain, and of a number that does not
/// move. One such fall keeps the trust, because other senders may have used the quota up.
const RISEN: i32 = 5;
const FALLEN: i32 = 3;
const FROZEN: i32 = 2;
/// Requests served although nothing is left, while we have used less than half, that show that a quota is not enforced.
const SERVED_EMPTY: u32 = 4;
/// Tolerance for a reset that comes nearer faster than time passes: both reports may be rounded, and late.
const ENDS: Duration = Duration::from_millis(2300);
/// Window that is assumed if it is unknown, and longest time for which a refusal shows that a quota is enforced.
const LONG: Duration = Duration::from_secs(60);
/// Maximum usage of a window that counts as just begun.
const FEW: f64 = 2.0;
/// Share of the limit that marks a rise as a new window. A fall is impossible if it exceeds what was sent by more than
/// the share `FALL`.
const JUMP: f64 = 0.25;
const FALL: f64 = 0.3;

// === impl Credibility ===

impl Default for Credibility {
    fn default() -> Self {
        Self { score: AT_FIRST, last: None, served_empty: 0, refused_empty: None }
    }
}

impl Credibility {
    /// Returns true if the quota is believed.
    pub(super) fn holds(&self) -> bool {
        self.score > 0
    }

    /// Agreement of the reports with what was sent, as far as they could be compared.
    pub(super) fn agreement(&self) -> Agreement {
        match self.score.cmp(&AT_FIRST) {
            Ordering::Greater => Agreement::Agrees,
            Ordering::Equal => Agreement::Open,
            Ordering::Less => Agreement::Doubtful,
        }
    }

    /// Compares an answer's report with the previous one.
    pub(super) fn hear(&mut self, claim: &QuotaClaim<'_>) -> CountChange {
        self.hear_empty(claim);
        let &QuotaClaim { limit, remaining, sent, now, .. } = claim;
        if !claim.requests {
            return CountChange::Same;
        }
        let this = LastQuota {
            remaining,
            sent,
            at: now,
            end: claim.reset.map(|reset| now + reset),
            unanswered: claim.unanswered,
        };
        let Some(LastQuota { remaining: before, sent: before_sent, at, end, unanswered }) = self.last else {
            self.last = Some(this);
            return CountChange::Same;
        };
        // Within one window, answers that overtake each other report nearly the same number.
        let same = claim.seen.is_none_or(|seen| seen <= sent);
        let blur = claim.reset.unwrap_or_default().mul_f64(0.05).max(ENDS);
        let nearer = same && end.zip(this.end).is_some_and(|(before, end)| end + blur < before);
        if nearer {
            self.change(-FALLEN);
        }
        if sent <= at {
            // The API may have counted either of the two requests first.
            let most = claim.ledger.of_all(claim.ledger.since(before_sent) + u64::from(unanswered));
            if same && !nearer && before - remaining > most + 3.0 + limit * FALL {
                self.change(-FALLEN);
            }
            return CountChange::Same;
        }
        self.last = Some(this);
        let sent_before = claim.ledger.up_to(at);
        let most = claim.ledger.up_to(sent).saturating_sub(sent_before);
        // Requests that left at the same instant may be counted later.
        let least = (claim.ledger.count() - claim.ledger.since(sent)).saturating_sub(sent_before) as f64 + 1.0;
        let (recent, fall, used) =
            (claim.ledger.of_all(most + u64::from(claim.unanswered)), before - remaining, limit - remaining);
        let jump = -fall >= (limit * JUMP).max(2.0) || used <= FEW && before < limit - 2.0 && limit > 3.0;
        if -fall > limit * JUMP + 2.0 && used > limit * FALL + recent {
            self.change(-RISEN);
        }
        if !nearer && fall > recent + 3.0 + limit * FALL {
            self.change(-FALLEN);
        }
        let early = match (claim.window, claim.began) {
            (Some(window), Some(began)) => now.since(began) < window.mul_f64(0.9),
            _ => true,
        };
        if jump {
            return if claim.refills { CountChange::Same } else { CountChange::Restarted };
        }
        if claim.served && !claim.refills && early && fall.abs() <= 0.5 && least >= 2.0 {
            self.change(-FROZEN);
        } else if fall > 0.5 || least <= 1.0 && self.holds() {
            self.change(1);
        }
        // The amount has not fallen, and the reset is later: so little was used of the last window that only its end
        // shows.
        let later = end.zip(this.end).is_some_and(|(before, end)| end > before + blur);
        match fall {
            ..=0.0 if later && used <= FEW && !claim.refills => CountChange::Restarted,
            ..=-0.5 => CountChange::Risen,
            _ => CountChange::Same,
        }
    }

    fn hear_empty(&mut self, claim: &QuotaClaim<'_>) {
        if !claim.served || claim.remaining > 0.0 {
            self.served_empty = 0;
            if claim.refused && claim.remaining <= 0.0 {
                self.refused_empty = Some(claim.now);
            }
            return;
        }
        let window = claim.window.unwrap_or(LONG);
        // If other senders are as quick, each replenished unit is used at once, so the quota looks empty when we are
        // served.
        if self.refused_empty.is_some_and(|refused| claim.now.since(refused) <= window.min(LONG)) {
            return;
        }
        let ours = claim.ledger.since(claim.now - window).saturating_sub(u64::from(claim.unanswered));
        if claim.requests && claim.ledger.of_all(ours) >= claim.limit / 2.0 {
            return;
        }
        self.served_empty += 1;
        if self.served_empty >= SERVED_EMPTY {
            self.score = DISPROVED;
        }
    }

    fn change(&mut self, by: i32) {
        let least = self.score.min(LEAST);
        self.score = (self.score + by).clamp(least, MOST);
    }
}
