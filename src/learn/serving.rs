//! Learning from requests that are served, and from upstream failures.

use andante_clock::Instant;
use andante_limit::Seq;

use super::{Changes, Learned, LearnedChange, Observation, Reason, answered};

impl Learned {
    /// Ends a pause, and limits how many queued requests leave at once.
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
            // The upstream's name may be wrong, and the log should show that soon.
            return;
        }
        let probe = self.gate.is_probe(seq) && self.is_broken();
        let pause = self.breaker.as_mut().and_then(|breaker| breaker.failed(now, probe));
        match pause {
            Some(pause) => self.close(now, pause, Reason::Breaker, changes),
            // The probe has its result: the upstream fails, but the API no longer asks for a pause.
            None if self.gate.served(seq) => self.open(changes),
            None => {}
        }
    }
}
