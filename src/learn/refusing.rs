//! Reaction to a refusal: the lane pauses, or a kind of request does.

use std::time::Duration;

use andante_clock::Instant;
use andante_hint::{Cause, Hint, Signal, Strength};
use andante_limit::{Budget, Charge, Seq};
use andante_policy::Trust;

use super::{
    AnswerReport, BAN, CROWDED, Changes, FIRST_PAUSE, LONGEST_PAUSE, Learned, LearnedChange, Observation, Reason,
    RouteKey, SHORTEST_PAUSE, answered, quotas::Claims, rate_estimator::ApiRefusal, wait,
};

impl Learned {
    /// When the API renews the cap that makes requests of `kind` pause, if a cap is the reason.
    pub fn cap(&self, kind: &RouteKey) -> Option<Instant> {
        self.routes.cap(kind)
    }

    /// Handles a refusal that no reported quota explains.
    pub(super) fn refuse(
        &mut self,
        seen: &Observation<'_>,
        claims: &Claims,
        budget: &mut Budget,
        changes: &mut Changes,
    ) {
        let &Observation { heard: AnswerReport { hint, .. }, charge: Charge { seq, .. }, kind, at: now, .. } = seen;
        let asked = if claims.believed { wait(hint) } else { hint.asked() };
        let (wait, reason) = match (hint.signal, asked.filter(|wait| !wait.is_zero())) {
            (Signal::Banned, wait) => return self.close(now, wait.unwrap_or(BAN), Reason::Banned, changes),
            (_, Some(wait)) if hint.retry_after.is_some() => (Some(wait), Reason::RetryAfter),
            (_, Some(wait)) => (Some(wait), Reason::Exhausted),
            (_, None) => (None, Reason::Refused),
        };
        if claims.explains || claims.spent && wait.is_some() {
            if let Some(wait) = wait.filter(|_| hint.retry_after.is_some()) {
                let floor = self.count_refusal(seq);
                self.close(now, wait.max(floor), reason, changes);
            }
            return;
        }
        let refusal = self.refusal(seen, wait, budget);
        if self.kinds.is_own(&kind) {
            self.kinds.refused(&kind, answered(seen), refusal);
        } else if let Some(until) = self.estimator.refused(answered(seen), refusal) {
            self.close(now, until.since(now), reason, changes);
            if refusal.catches_up {
                budget.keep_distance(now);
            }
            if let Some((until, _)) = self.gate.until() {
                self.kinds.let_others_try(&kind, now, until);
            }
        }
    }

    /// Handles the refusal of a request that waiting does not help. The refusal says nothing about the rate of other
    /// requests. If a cap is renewed at a known time, requests of its kind wait until then. If too many kinds are
    /// refused, the lane waits.
    pub(super) fn hear_hopeless(&mut self, seen: &Observation<'_>) -> Changes {
        let &Observation { heard: AnswerReport { hint, .. }, charge, kind, sent, at: now, .. } = seen;
        let mut changes = self.end_untaught(seen);
        match hint.wait.filter(|wait| !wait.is_zero()) {
            Some(wait) if self.routes.has_room(&kind, now) => {
                let pause = self.routes.refused(&kind, Some(wait), sent, now);
                self.routes.capped(&kind, now + wait);
                changes.extend(pause.map(LearnedChange::Route));
            }
            Some(wait) => self.close(now, wait, Reason::Exhausted, &mut changes),
            None => self.routes.return_unused(&kind, charge.seq, now),
        }
        changes
    }

    /// Handles a refusal by words alone: the request's kind pauses for a moment, and no rate is learned.
    pub(super) fn hear_words(&mut self, seen: &Observation<'_>) -> Changes {
        let &Observation { heard: AnswerReport { hint, .. }, charge, kind, sent, at: now, .. } = seen;
        let mut changes = self.end_untaught(seen);
        if self.routes.has_room(&kind, now) {
            changes.extend(self.routes.refused(&kind, hint.wait, sent, now).map(LearnedChange::Route));
        } else {
            self.routes.return_unused(&kind, charge.seq, now);
        }
        changes
    }

    /// Handles an answer that says nothing about the request's lane.
    fn end_untaught(&mut self, seen: &Observation<'_>) -> Changes {
        let &Observation { charge, kind, at: now, .. } = seen;
        let mut changes = Changes::new();
        if self.gate.served(charge.seq) {
            self.open(&mut changes);
        }
        self.ended(now, charge, &kind, true);
        self.answered = true;
        changes
    }

    /// Handles trouble of the API, or a reported lack of capacity, which says nothing about the API's rate limit.
    pub(super) fn hear_overload(&mut self, seen: &Observation<'_>, budget: &Budget, changes: &mut Changes) {
        let &Observation { heard: AnswerReport { hint, .. }, charge, at: now, .. } = seen;
        match wait(hint).filter(|wait| !wait.is_zero()) {
            Some(wait) => {
                if hint.strength != Strength::Code {
                    self.estimator.unproven(answered(seen), self.refusal(seen, Some(wait), budget));
                }
                self.close(now, wait, Reason::RetryAfter, changes);
            }
            None => {
                if hint.strength != Strength::Code {
                    self.estimator.failed(self.unanswered);
                }
                self.fail(now, charge.seq, changes);
            }
        }
    }

    /// Facts about a refusal for the rate estimator.
    pub(super) fn refusal(&self, seen: &Observation<'_>, wait: Option<Duration>, budget: &Budget) -> ApiRefusal {
        let &Observation { heard: AnswerReport { hint, .. }, waiting, .. } = seen;
        ApiRefusal {
            newest: self.gate.newest(),
            wait,
            later: hint.later,
            overload: hint.cause == Cause::Overload,
            pressed: waiting || self.unanswered >= CROWDED,
            catches_up: budget.catches_up(),
        }
    }

    /// Returns true if this refusal shows that a kind of request has a limit of its own. `alone`: the kind was refused
    /// a few times while other kinds were served.
    pub(super) fn splits(&mut self, seen: &Observation<'_>, alone: bool) -> bool {
        let newest = self.gate.newest();
        self.trust != Trust::Waits
            && self.kinds.suspect(&seen.kind, seen.heard.route, answered(seen), newest, alone, &mut self.estimator)
    }

    /// Returns true if this refusal belongs to the sub-limit that the request draws on.
    pub(super) fn is_short(&mut self, seen: &Observation<'_>) -> bool {
        let newest = self.gate.newest();
        self.trust != Trust::Waits
            && self.kinds.is_short(&seen.kind, seen.rule, answered(seen), newest, &self.estimator)
    }

    /// Attributes a limit to a kind of request instead of the lane, and restores the lane to its state before.
    pub(super) fn blame_kind(&mut self, kind: &RouteKey, changes: &mut Changes) {
        self.routes.forget(kind);
        changes.extend(self.kinds.group_of(kind).map(|group| LearnedChange::Apart(Box::new(group))));
        if self.gate.until().is_some_and(|(_, reason)| matches!(reason, Reason::RetryAfter | Reason::Refused)) {
            self.gate.open();
            self.open(changes);
        }
        self.waits = 0;
    }

    /// Returns true if `hint` is about a limit that is not the lane's: a limit of the kind, or an unreported limit. The
    /// limit is unreported if the request was refused although all reported quotas have room.
    pub(super) fn is_elsewhere(&self, hint: &Hint, kind: &RouteKey) -> bool {
        let mut seen = hint.buckets.iter().filter_map(|bucket| bucket.remaining).peekable();
        let unseen = hint.cause == Cause::Quota
            && hint.wait.is_none_or(|wait| wait.is_zero())
            && seen.peek().is_some()
            && seen.all(|left| left >= 1.0);
        unseen || hint.buckets.first().is_some_and(|binding| self.told.is_of_some_kinds(binding, kind))
    }

    /// Counts a refusal, and returns the minimum pause. An API that refuses again after each pause asks for pauses that
    /// are too short, so the minimum doubles.
    fn count_refusal(&mut self, seq: Seq) -> Duration {
        if !self.gate.knows(seq) {
            self.waits += 1;
        }
        SHORTEST_PAUSE.mul_f64(2f64.powi(self.waits.saturating_sub(2).min(20) as i32)).min(LONGEST_PAUSE)
    }

    /// Closes the gate for `wait`.
    pub(super) fn close(&mut self, now: Instant, wait: Duration, reason: Reason, changes: &mut Changes) {
        let was = self.gate.until();
        if self.gate.close(now, now + wait, reason)
            && let Some((until, _)) = self.gate.until()
        {
            // A moment more or less of the same pause is not reported.
            let news = was.is_none_or(|(before, was)| was != reason || until.since(before) > FIRST_PAUSE);
            if news {
                changes.push(LearnedChange::Closed(reason, until.since(now)));
            }
        }
    }
}
