//! A lane's stored form, and how a lane starts from it.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_learn::LearnedRecord;
use andante_limit::{Budget, BudgetRecord, Gap, MarginSpec};
use andante_policy::{Origin, Policy, Scheme, Trust};
use serde::{Deserialize, Serialize};

use super::{State, sub_limits::SubLimitRecord};

/// A lane as it is stored. The queue is not stored: waiting requests ended with their connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LaneRecord {
    pub(crate) budget: BudgetRecord,
    pub(crate) learned: LearnedRecord,
    /// Until this instant, the lane may have sent anything: its record could not be read, and no request has asked for
    /// the lane since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<Instant>,
    /// Sub-limits.
    #[serde(rename = "narrow", skip_serializing_if = "Vec::is_empty")]
    pub(crate) sub_limits: Vec<SubLimitRecord>,
    /// Where the lane's first request went: finds the rule that applies to it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<OriginRecord>,
}

/// Where a request went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OriginRecord {
    tls: bool,
    /// With the port.
    authority: String,
}

/// Knowledge about earlier processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// The time without a record of what was sent.
    pub gap: Option<Gap>,
    /// Before this instant, lanes without a record may have sent anything: the record could not be read.
    pub lost: Option<Instant>,
    /// When the earlier processes ended; `None` if there were none.
    pub until: Option<Instant>,
}

impl LaneRecord {
    /// The replacement of a record that could not be read `until` then.
    pub(crate) fn lost(until: Instant) -> Self {
        Self { lost: Some(until), ..Self::default() }
    }

    /// Returns whether a lane that begins with this record at `now` would do the same as one that begins empty.
    pub(crate) fn is_over(&self, past: Past, now: Instant, epoch: Duration) -> bool {
        if self.lost.is_some() {
            return false;
        }
        let restored_at = past.until.unwrap_or(now).min(now);
        let mut budget = Budget::restored(&self.budget, MarginSpec::Auto, past.gap, restored_at, epoch);
        let sub_limits = self.sub_limits.iter().all(|record| record.is_over(restored_at, now, epoch));
        self.learned.is_over(now) && budget.is_idle(now) && sub_limits
    }
}

impl From<&Origin> for OriginRecord {
    fn from(origin: &Origin) -> Self {
        Self { tls: origin.scheme == Scheme::Https, authority: origin.to_string() }
    }
}

impl OriginRecord {
    /// Parses the origin; `None` if andante did not write it.
    pub(crate) fn to_origin(&self) -> Option<Origin> {
        Origin::parse(if self.tls { Scheme::Https } else { Scheme::Http }, &self.authority, None).ok()
    }
}

impl<T> State<T> {
    /// Restores a lane from the `record` of an earlier process; `None` if there is none, or it is `lost`. A `gap` in
    /// its memory counts as fully used.
    pub(crate) fn restored(
        policy: Arc<Policy>,
        now: Instant,
        epoch: Duration,
        record: Option<&LaneRecord>,
        Past { gap, lost, until }: Past,
    ) -> Self {
        let mut state = Self::new(policy, now, epoch);
        let policy = &state.policy;
        if let Some(record) = record {
            let mut budget = Budget::restored(&record.budget, policy.margin, gap, now, epoch);
            budget.reconfigure(&policy.limits, policy.margin, now);
            budget.reconfigure_calendar(&policy.calendar, epoch);
            budget.set_yielding(policy.trust == Trust::Api);
            state.budget = budget;
            state.learned.restore(&record.learned, now);
            // A process that ended in order leaves no gap that reaches to this one's start.
            let killed = gap.is_some_and(|gap| Some(gap.until) == until);
            state.sub_limits.restore(&record.sub_limits, now, epoch, killed);
        } else {
            if let Some(lost) = lost {
                state.budget.presume(Gap::lost(lost));
                // Once: from here on the lane's use is known again.
                state.unwritten = true;
            }
            // Blocks are written down before they are spent: a lane that has them has spent nothing if it has no record.
            if let Some(gap) = gap.filter(|_| !state.budget.has_long_limits()) {
                state.budget.presume(gap);
            }
        }
        state.sub_limits.unknown_until = until;
        state.kept = true;
        state.budget.set_kept(true);
        state
    }

    /// The lane's record. With `last`, nothing will leave any more.
    pub(crate) fn record(&mut self, now: Instant, last: bool) -> LaneRecord {
        self.unwritten = false;
        let (budget, learned) = (self.budget.record(now, last), self.learned.record(now));
        LaneRecord { budget, learned, sub_limits: self.sub_limits.record(now, last), ..LaneRecord::default() }
    }

    /// Records that the last record is written. If not `fully`, it cannot be, and requests leave nevertheless.
    pub(crate) fn written(&mut self, fully: bool) {
        self.unwritten |= !fully;
        self.budget.written();
        self.rechecks = true;
    }

    /// From now on, units of long quotas are spent without being stored first.
    pub(crate) fn unkept(&mut self) {
        self.kept = false;
        self.budget.set_kept(false);
        self.rechecks = true;
    }

    /// Returns whether a new lane would behave differently from this one once it has been idle for a while.
    pub(crate) fn is_worth_keeping(&self) -> bool {
        !self.policy.limits.is_empty()
            || !self.policy.calendar.is_empty()
            || !self.learned.is_blank()
            || self.sub_limits.is_lasting()
    }

    /// Returns whether an event has happened that the store does not have yet.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Takes the request to store the next block of a long quota. True once for each block.
    pub(crate) fn asks_for_block(&mut self) -> bool {
        self.budget.asks_for_block()
    }
}
