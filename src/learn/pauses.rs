//! Pauses that the API asks for, as the members of a fleet tell each other. Pauses that one member concludes from
//! failures, or from refusals that name no time, are not shared.

use andante_clock::Instant;
use andante_fleet::{AskedPause, PauseCause};
use andante_limit::Scope;

use super::{Changes, Learned, LearnedChange, Reason};

impl Reason {
    /// Cause of the pause for other members, if the API has asked for it.
    fn cause(self) -> Option<PauseCause> {
        match self {
            Self::RetryAfter => Some(PauseCause::RetryAfter),
            Self::Exhausted => Some(PauseCause::Exhausted),
            Self::Banned => Some(PauseCause::Banned),
            // Only this member's path to the API may fail, and its guesses grow with each of its own refusals.
            Self::Refused | Self::Breaker | Self::Operator => None,
        }
    }
}

impl From<PauseCause> for Reason {
    fn from(cause: PauseCause) -> Self {
        match cause {
            PauseCause::RetryAfter => Self::RetryAfter,
            PauseCause::Exhausted => Self::Exhausted,
            PauseCause::Banned => Self::Banned,
        }
    }
}

impl Learned {
    /// Pauses that the API asks for at `now`.
    pub fn pauses(&self, now: Instant) -> Vec<AskedPause> {
        let gate = self.gate.until().map(|(until, reason)| ("", until, reason));
        let pauses = gate.into_iter().chain(self.told.pauses(now)).filter(|(_, until, _)| *until > now);
        let asked = pauses.filter_map(|(budget, until, reason)| {
            Some(AskedPause { budget: budget.into(), until, cause: reason.cause()? })
        });
        asked.fold(Vec::new(), |mut longest: Vec<AskedPause>, pause| {
            match longest.iter_mut().find(|known| known.budget == pause.budget) {
                Some(known) if known.until < pause.until => *known = pause,
                Some(_) => {}
                None => longest.push(pause),
            }
            longest
        })
    }

    /// Expected instant at which requests of `scope` may leave again: not before a reset in whole seconds is certainly
    /// over.
    pub fn opens(&self, now: Instant, scope: Scope) -> Instant {
        let gate = self.gate.until().map_or(now, |(until, _)| until);
        gate.max(self.told.opens(now, scope))
    }

    /// Returns true if the API's reports may soon turn out to allow more than they seem to.
    pub fn may_allow_more(&self, now: Instant) -> bool {
        self.told.is_new(now)
    }

    /// Returns true if the rate was learned from refusals, or is a lower bound that is still being raised.
    pub fn guesses(&self) -> bool {
        self.estimator.guesses()
    }

    /// Applies a pause that the API has asked another member of the fleet for.
    pub fn told_of_pause(&mut self, now: Instant, pause: &AskedPause) -> Changes {
        let AskedPause { budget, until, cause } = pause;
        let (reason, before) = (Reason::from(*cause), self.last_pause());
        let changes = match &**budget {
            "" => self.gate.close(now, *until, reason),
            budget => self.told.close(budget, now, *until, reason),
        };
        // A pause that does not outlast the known ones is not reported.
        let news = changes && before.is_none_or(|before| before < *until);
        news.then(|| LearnedChange::PausedByFleet(reason, until.since(now))).into_iter().collect()
    }

    /// Ends a pause of `budget` up to `until`, because an operator has ended it. A longer pause stays.
    pub fn told_of_end(&mut self, now: Instant, budget: &str, until: Instant) -> Changes {
        let mut changes = Changes::new();
        self.told.open(budget, now, until);
        if budget.is_empty() && self.gate.until().is_some_and(|(own, reason)| own <= until && reason.cause().is_some())
        {
            self.gate.open();
            self.open(&mut changes);
        }
        changes
    }
}
