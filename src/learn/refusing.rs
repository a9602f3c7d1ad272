//! What a lane does when it is refused: it pauses, or a kind of request does.

use std::time::Duration;

use super::{
    AnswerReport, BAN, CROWDED, Changes, FIRST_PAUSE, LONGEST_PAUSE, Learned, LearnedChange, Observation, Reason,
    RouteKey, SHORTEST_PAUSE, answered, quotas::Claims, rate_estimator::ApiRefusal, wait,
};
use crate::{
    clock::Instant,
    hint::{Cause, Hint, Signal, Strength},
    limit::{Budget, Charge, Seq},
    policy::Trust,
};

impl Learned {
    /// When the API renews the cap for which requests of `kind` pause, if that is the reason.
    pub fn cap(&self, kind: &RouteKey) -> Option<Instant> {
        self.routes.cap(kind)
    }

    /// A request was refused, and no budget that is told says why.
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

    /// A request was refused that waiting does not help. It teaches nothing of how fast others may go. If a cap is renewed at a
    /// known time, requests of its kind wait until then, or all if too many kinds are refused.
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

    /// Words alone refuse a request: its kind pauses for a moment, and nothing is learned of how fast others may go.
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

    /// A request has an answer that says nothing of its lane.
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

    /// The API is in trouble, or says that it lacks capacity; the latter says nothing of how fast it may be asked.
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

    /// What the estimator is told of a refusal.
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

    /// Whether this refusal shows that a kind of request is limited by itself; `alone` says that it was refused a few times
    /// while others were served.
    pub(super) fn splits(&mut self, seen: &Observation<'_>, alone: bool) -> bool {
        let newest = self.gate.newest();
        self.trust != Trust::Waits
            && self.kinds.suspect(&seen.kind, seen.heard.route, answered(seen), newest, alone, &mut self.estimator)
    }

    /// Whether this refusal is a matter of the narrower rule's budget that the request draws on.
    pub(super) fn is_short(&mut self, seen: &Observation<'_>) -> bool {
        let newest = self.gate.newest();
        self.trust != Trust::Waits
            && self.kinds.is_short(&seen.kind, seen.rule, answered(seen), newest, &self.estimator)
    }

    /// What was taken for a limit of the lane is one of a kind of request: the lane is what it was without it.
    pub(super) fn blame_kind(&mut self, kind: &RouteKey, changes: &mut Changes) {
        self.routes.forget(kind);
        changes.extend(self.kinds.group_of(kind).map(|group| LearnedChange::Apart(Box::new(group))));
        if self.gate.until().is_some_and(|(_, reason)| matches!(reason, Reason::RetryAfter | Reason::Refused)) {
            self.gate.open();
            self.open(changes);
        }
        self.waits = 0;
    }

    /// Whether `hint` is about a limit that is not the lane's: one that answers do not report, since all that they
    /// report has room and the request was refused, or that of its kind.
    pub(super) fn is_elsewhere(&self, hint: &Hint, kind: &RouteKey) -> bool {
        let mut seen = hint.buckets.iter().filter_map(|bucket| bucket.remaining).peekable();
        let unseen = hint.cause == Cause::Quota
            && hint.wait.is_none_or(|wait| wait.is_zero())
            && seen.peek().is_some()
            && seen.all(|left| left >= 1.0);
        unseen || hint.buckets.first().is_some_and(|binding| self.told.is_of_some_kinds(binding, kind))
    }

    /// What refuses again after each pause asks for too short ones: they double, whatever it asks for.
    fn count_refusal(&mut self, seq: Seq) -> Duration {
        if !self.gate.knows(seq) {
            self.waits += 1;
        }
        SHORTEST_PAUSE.mul_f64(2f64.powi(self.waits.saturating_sub(2).min(20) as i32)).min(LONGEST_PAUSE)
    }

    /// Nothing leaves for `wait`.
    pub(super) fn close(&mut self, now: Instant, wait: Duration, reason: Reason, changes: &mut Changes) {
        let was = self.gate.until();
        if self.gate.close(now, now + wait, reason)
            && let Some((until, _)) = self.gate.until()
        {
            // What a moment more or less makes of the same pause is no news.
            let news = was.is_none_or(|(before, was)| was != reason || until.since(before) > FIRST_PAUSE);
            if news {
                changes.push(LearnedChange::Closed(reason, until.since(now)));
            }
        }
    }
}
