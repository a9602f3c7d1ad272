//! What a lane does when it is served, or the upstream fails.

use super::{Changes, Learned, LearnedChange, Observation, Reason, answered};
use crate::{clock::Instant, limit::Seq};

impl Learned {
    /// A pause is over: not all that wait leave at once.
    pub(super) fn open(&mut self, changes: &mut Changes) {
        self.waits = 0;
        self.kinds.opened();
        self.estimator.opened(self.unanswered);
        changes.push(LearnedChange::Opened);
    }

    pub(super) fn serve(&mut self, seen: &Observation<'_>, changes: &mut Changes) {
        let &Observation { charge, at: now, .. } = seen;
        let seq = charge.seq;
        if let Some(breaker) = &mut self.breaker {
            breaker.served(now, self.gate.is_probe(seq));
        }
        if self.gate.served(seq) {
            self.open(changes);
        }
        if self.told.passed(charge) {
            self.estimator.opened(self.unanswered);
        }
        let beside = self.kinds.says_nothing_of_refused(&seen.kind);
        self.estimator.served(answered(seen), beside);
        self.kinds.served(&seen.kind, answered(seen), &self.estimator);
    }

    pub(super) fn fail(&mut self, now: Instant, seq: Seq, changes: &mut Changes) {
        if !self.answered {
            // Its name may be wrong, and the log should tell so soon.
            return;
        }
        let probe = self.gate.is_probe(seq) && self.is_broken();
        let pause = self.breaker.as_mut().and_then(|breaker| breaker.failed(now, probe));
        match pause {
            Some(pause) => self.close(now, pause, Reason::Breaker, changes),
            // What it was to find out, it has: the API answers, or is not reached, but it does not ask for a pause.
            None if self.gate.served(seq) => self.open(changes),
            None => {}
        }
    }
}
