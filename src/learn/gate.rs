//! A lane's gate: closed until an instant, then opened by one request that probes the API.

use std::time::Duration;

use andante_clock::Instant;
use andante_limit::Seq;
use serde::{Deserialize, Serialize};

/// Why a gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The API has asked for a wait.
    RetryAfter,
    /// The API reports that nothing is left until its reset.
    Exhausted,
    /// The API has refused a request and named no time.
    Refused,
    /// The API has banned us.
    Banned,
    /// The upstream fails.
    Breaker,
    /// An operator has paused the lane.
    Operator,
}

/// A pause of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    closed: Option<Closed>,
    /// Last request that has left.
    newest: Seq,
    /// Last request that had left when the gate was closed last.
    before: Option<Seq>,
}

#[derive(Clone, Copy, Debug)]
struct Closed {
    until: Instant,
    reason: Reason,
    /// Probe in flight that may open the gate, and when it was sent.
    probe: Option<(Seq, Instant)>,
}

/// If a probe stays unanswered this long, another one is sent: the first may hang.
const TRYING: Duration = Duration::from_secs(2);
/// Longest time that a gate stays closed, whatever an API says; then a probe is sent.
const LONGEST: Duration = Duration::from_secs(86_400);

// === impl Reason ===

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::RetryAfter, Self::Exhausted, Self::Refused, Self::Banned, Self::Breaker, Self::Operator];

    /// Name in metrics, `/status` and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry-after",
            Self::Exhausted => "exhausted",
            Self::Refused => "refused",
            Self::Banned => "banned",
            Self::Breaker => "breaker",
            Self::Operator => "operator",
        }
    }
}

// === impl Gate ===

impl Gate {
    /// When the gate lets the next request pass. While a probe is in flight, another one passes only after a while.
    pub(super) fn earliest(&self, now: Instant) -> Instant {
        match self.closed {
            None => now,
            Some(Closed { probe: Some((_, since)), .. }) => (since + TRYING).max(now),
            Some(Closed { until, .. }) => until.max(now),
        }
    }

    /// Known end of the pause, and its reason.
    pub(super) fn until(&self) -> Option<(Instant, Reason)> {
        self.closed.map(|closed| (closed.until, closed.reason))
    }

    /// Returns true if the request `seq` had left before the gate was closed last, so that its answer tells nothing
    /// new.
    pub(super) fn knows(&self, seq: Seq) -> bool {
        self.before.is_some_and(|before| seq <= before)
    }

    /// Last request that has left.
    pub(super) fn newest(&self) -> Seq {
        self.newest
    }

    /// Returns true if a probe is in flight.
    pub(super) fn tries(&self) -> bool {
        self.closed.is_some_and(|closed| closed.probe.is_some())
    }

    /// Returns true if the gate is open.
    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Opens the gate.
    pub(super) fn open(&mut self) {
        self.closed = None;
    }

    /// Closes the gate until `until`, or extends the pause. Returns true if that changes anything.
    pub(super) fn close(&mut self, now: Instant, until: Instant, reason: Reason) -> bool {
        let until = until.min(now + LONGEST);
        match &mut self.closed {
            // A refusal of the probe, or of a request that was in flight before, does not shorten the pause.
            Some(closed) if closed.until >= until => {
                closed.probe = None;
                false
            }
            _ => {
                self.closed = Some(Closed { until, reason, probe: None });
                self.before = Some(self.newest);
                true
            }
        }
    }

    /// Records that a request leaves as `seq`. A request that passes a closed gate is its probe.
    pub(super) fn take(&mut self, now: Instant, seq: Seq) {
        self.newest = seq;
        if let Some(closed) = &mut self.closed {
            closed.probe = Some((seq, now));
        }
    }

    /// Opens the gate if the served request `seq` is its probe. Returns true if it did.
    pub(super) fn served(&mut self, seq: Seq) -> bool {
        let opens = self.is_probe(seq);
        if opens {
            self.closed = None;
        }
        opens
    }

    /// Records that the request `seq` ended without information about the gate. If it was the probe, another one may
    /// try.
    pub(super) fn ended(&mut self, seq: Seq) {
        if let Some(closed) = &mut self.closed {
            closed.probe.take_if(|(probe, _)| *probe == seq);
        }
    }

    /// Returns true if `seq` is a probe of the closed gate.
    pub(super) fn is_probe(&self, seq: Seq) -> bool {
        // A slow probe still opens the gate after further probes have left.
        self.closed.is_some() && !self.knows(seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(of: u64) -> Instant {
        Instant::START + Duration::from_secs(of)
    }

    #[test]
    fn one_request_tries_and_only_it_opens() {
        let mut gate = Gate::default();
        gate.take(s(0), 1);
        assert!(gate.close(s(0), s(5), Reason::RetryAfter));
        assert_eq!(gate.earliest(s(1)), s(5));
        assert!(!gate.served(1), "an answer to what was under way before");
        gate.take(s(5), 7);
        assert_eq!(gate.earliest(s(5)), s(7), "if it hangs another one tries");
        assert!(gate.served(7));
        assert_eq!(gate.earliest(s(6)), s(6));
    }

    #[test]
    fn a_probe_that_is_lost_makes_room_for_another() {
        let mut gate = Gate::default();
        gate.close(s(0), s(5), Reason::Breaker);
        gate.take(s(6), 7);
        gate.ended(3);
        assert_eq!(gate.earliest(s(6)), s(8));
        gate.ended(7);
        assert_eq!(gate.earliest(s(6)), s(6));
    }

    #[test]
    fn a_later_word_prolongs_and_an_earlier_one_does_not_shorten() {
        let mut gate = Gate::default();
        gate.close(s(0), s(5), Reason::RetryAfter);
        assert!(!gate.close(s(0), s(3), Reason::Refused));
        assert!(gate.close(s(1), s(9), Reason::RetryAfter));
        assert_eq!(gate.until(), Some((s(9), Reason::RetryAfter)));
        assert!(gate.close(s(1), Instant::FAR, Reason::Banned));
        assert_eq!(gate.until(), Some((s(86_401), Reason::Banned)), "and never for ever");
    }
}
