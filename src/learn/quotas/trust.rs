//! How far the numbers of a budget agree with what was sent, and whether they are believed.

use std::{cmp::Ordering, time::Duration};

use crate::{
    clock::Instant,
    learn::{grounds::Agreement, ledger::SentLog},
};

/// Whether the numbers of one budget are believed: as long as there is more evidence for them than against.
#[derive(Clone, Debug)]
pub(super) struct Credibility {
    score: i32,
    /// What was said last.
    last: Option<LastQuota>,
    /// How many were served one after the other although nothing was left.
    served_empty: u32,
    /// When the last one was refused because nothing was left: it is enforced.
    refused_empty: Option<Instant>,
}

/// What was left, as an answer said that came at `at` to a request that had left at `sent`.
#[derive(Clone, Copy, Debug)]
struct LastQuota {
    remaining: f64,
    sent: Instant,
    at: Instant,
    /// When it is reset, if that was said.
    end: Option<Instant>,
    /// Requests that were under way then: the API may have counted them later, whenever they left.
    unanswered: u32,
}

/// What an answer reports of a budget, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaClaim<'a> {
    pub(super) limit: f64,
    pub(super) remaining: f64,
    pub(super) reset: Option<Duration>,
    /// Whether the request was served, and whether it was refused for its number.
    pub(super) served: bool,
    pub(super) refused: bool,
    /// When it left.
    pub(super) sent: Instant,
    pub(super) now: Instant,
    /// Our own requests that draw on the budget, and how many of them are under way.
    pub(super) ledger: &'a SentLog,
    pub(super) unanswered: u32,
    /// The window, and when it began, as far as they are known.
    pub(super) window: Option<Duration>,
    pub(super) began: Option<Instant>,
    /// When the first request left that was seen to be in it.
    pub(super) seen: Option<Instant>,
    /// Whether it comes back little by little.
    pub(super) refills: bool,
    /// Whether requests are counted, each once.
    pub(super) requests: bool,
}

/// What has become of a budget between two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountChange {
    /// As expected, or not to be told.
    Same,
    /// A part of it has come back.
    Risen,
    /// Another window has begun.
    Restarted,
}

/// What a budget begins with, and what it reaches at most and at least.
const AT_FIRST: i32 = 4;
const MOST: i32 = 20;
const LEAST: i32 = -20;
/// Far from being believed again.
const DISPROVED: i32 = -200;
/// What a rise costs that is no new window, a fall that our requests do not explain (once, others may have used it up),
/// and a number that does not move.
const RISEN: i32 = 5;
const FALLEN: i32 = 3;
const FROZEN: i32 = 2;
/// Served so often although nothing is left, while we have used less than half: it is not enforced.
const SERVED_EMPTY: u32 = 4;
/// A reset that comes nearer by more than this, beside the time that passes, is impossible: both may be rounded, and late.
const ENDS: Duration = Duration::from_millis(2300);
/// What is looked at if the window is not known, and for how long a refusal tells that it is enforced.
const LONG: Duration = Duration::from_secs(60);
/// As good as nothing is used of a window that has just begun.
const FEW: f64 = 2.0;
/// A rise by this share of the limit is another window, and a fall by more than was sent and this is impossible.
const JUMP: f64 = 0.25;
const FALL: f64 = 0.3;

// === impl Credibility ===

impl Default for Credibility {
    fn default() -> Self {
        Self { score: AT_FIRST, last: None, served_empty: 0, refused_empty: None }
    }
}

impl Credibility {
    /// Whether the budget is believed.
    pub(super) fn holds(&self) -> bool {
        self.score > 0
    }

    /// How far what was said agrees with what was sent, as far as that could be compared.
    pub(super) fn agreement(&self) -> Agreement {
        match self.score.cmp(&AT_FIRST) {
            Ordering::Greater => Agreement::Agrees,
            Ordering::Equal => Agreement::Open,
            Ordering::Less => Agreement::Doubtful,
        }
    }

    /// Compares what an answer says with what the last one said.
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
        // In one window answers that overtake each other say nearly the same.
        let same = claim.seen.is_none_or(|seen| seen <= sent);
        let blur = claim.reset.unwrap_or_default().mul_f64(0.05).max(ENDS);
        let nearer = same && end.zip(this.end).is_some_and(|(before, end)| end + blur < before);
        if nearer {
            self.change(-FALLEN);
        }
        if sent <= at {
            // Which of the two the API counted first is not known.
            let most = claim.ledger.of_all(claim.ledger.since(before_sent) + u64::from(unanswered));
            if same && !nearer && before - remaining > most + 3.0 + limit * FALL {
                self.change(-FALLEN);
            }
            return CountChange::Same;
        }
        self.last = Some(this);
        let sent_before = claim.ledger.up_to(at);
        let most = claim.ledger.up_to(sent).saturating_sub(sent_before);
        // Those that left at the same instant may be counted later.
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
        // Nothing less is left, and for longer: so few were used of the window before that its end alone shows.
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
        // Where others are as quick, each that comes back is the last one.
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
