//! Evidence for the learned rate and the learned concurrency limit.

use andante_clock::Instant;
use serde::{Deserialize, Serialize};

use super::{RateEstimator, UNLIMITED, seconds};
use crate::grounds::{Basis, Grounds, Lowered, RateEvidence};

/// Origin of the estimate, and the refusals that have lowered it since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) basis: Basis,
    pub(super) lowered: Lowered,
}

// === impl Held ===

impl Held {
    /// Evidence of a new estimate.
    pub(super) fn by(basis: Basis) -> Self {
        Self { basis, lowered: Lowered::default() }
    }
}

impl RateEstimator {
    /// Evidence for the learned rate; `None` without a learned rate.
    pub(crate) fn rate_evidence(&self, now: Instant) -> Option<Grounds> {
        let (belief, now) = (self.belief.as_ref()?, seconds(now));
        let Held { basis, lowered } = self.held;
        let is_known = belief.rate(now) < UNLIMITED && (self.configured.is_none() || self.refused);
        let (configured, rising, noise) = (self.configured, belief.is_rising(), self.noise);
        is_known.then_some(Grounds::Rate(RateEvidence { basis, configured, lowered, now, rising, noise }))
    }

    /// Returns true if the rate was learned, or is a lower bound that is still being raised.
    pub(crate) fn guesses(&self) -> bool {
        self.belief.as_ref().is_some_and(|belief| belief.is_rising() || self.configured.is_none())
    }

    /// Evidence for the learned concurrency limit; `None` without one.
    pub(crate) fn concurrency_evidence(&self) -> Option<Grounds> {
        self.crowd.grounds().map(Grounds::AtOnce)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rate_estimator::{AnsweredRequest, ApiRefusal};

    /// Sends a request every 10 ms for `seconds`, each answered 4 ms later. The first `most` of each ten seconds are
    /// served.
    fn found(estimator: &mut RateEstimator, seconds: u64, most: u64) {
        let (mut closed, mut counted) = (Instant::START, (0, 0));
        for seq in 1..seconds * 100 {
            let sent = Instant::START + Duration::from_millis(seq * 10);
            if sent < closed {
                continue;
            }
            let window = seq / 1000;
            counted = if counted.0 == window { (window, counted.1 + 1) } else { (window, 1) };
            estimator.take(sent, true);
            let answered = AnsweredRequest { seq, sent, at: sent + Duration::from_millis(4), crowd: 1 };
            if counted.1 <= most {
                estimator.served(answered, false);
            } else {
                closed = estimator.refused(answered, ApiRefusal::bare(seq)).unwrap_or(closed);
            }
            if estimator.rate_evidence(sent).is_some() {
                return;
            }
        }
    }

    #[test]
    fn a_rate_that_was_found_says_from_what() {
        let mut estimator = RateEstimator::new(None);
        assert_eq!(estimator.rate_evidence(Instant::START), None);
        found(&mut estimator, 30, 100);
        let line = estimator.rate_evidence(Instant::START + Duration::from_secs(11)).unwrap().to_string();
        // A hundred in the first second, and then none until the window of ten seconds is over and a probe is served.
        let pause = line.strip_prefix("100 served in 1 s, then refused; served again after ").expect(&line);
        let pause: f64 = pause.split(' ').next().unwrap().parse().unwrap();
        assert!((8.9..12.0).contains(&pause), "{line}");
        assert_eq!(estimator.concurrency_evidence(), None);
    }

    #[test]
    fn what_is_configured_has_no_grounds_until_it_is_refused() {
        let mut estimator = RateEstimator::new(Some(100.0));
        let at = Instant::START + Duration::from_secs(1);
        estimator.take(at, true);
        estimator.served(AnsweredRequest { seq: 1, sent: at, at, crowd: 1 }, false);
        assert_eq!(estimator.rate_evidence(at), None);
    }

    #[test]
    fn what_an_api_calls_too_many_at_once_is_said_so() {
        let mut estimator = RateEstimator::new(None);
        estimator.too_many(6);
        let line = estimator.concurrency_evidence().unwrap().to_string();
        assert_eq!(line, "the API said that 6 at once are too many; 0 served since with 5 at most");
    }
}
