//! State that a lane would lose if it were forgotten.

use std::time::Duration;

use andante_clock::Instant;

use super::State;

/// State that a lane would lose if it were forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Requests wait or are in flight, or an operator or a fleet relies on the lane.
    Owed,
    /// Requests that count in the window of a configured limit or of a narrower rule; the instant is that of the last
    /// one.
    Counted(Instant),
    /// A pause that an API has asked for.
    Pause,
    /// Knowledge from answers; the instant is that of the last request.
    Learned(Instant),
    /// A new lane would do the same.
    Nothing,
}

/// The time after its last request for which a lane remembers what it learned, however many lanes there are.
pub(super) const REMEMBERED: Duration = Duration::from_secs(3600);

impl<T> State<T> {
    /// The state that forgetting this lane would lose, given that a new lane is `paused` until then.
    pub(crate) fn memory(&mut self, now: Instant, paused: Option<Instant>) -> Memory {
        self.sub_limits.forget_idle(u32::MAX, now, |_| false);
        let held = self.held_until(now).is_some_and(|until| Some(until) != paused);
        let holds_portion = self.fleet.as_ref().is_some_and(|fleet| fleet.holds_portion());
        let waits = self.under_way() > 0 || !self.queue.is_empty();
        if held || waits || self.budget.holds_shares() || holds_portion {
            return Memory::Owed;
        }
        // Includes requests of an earlier process.
        let sub_limits = self.sub_limits.last_counted(now);
        let last = self.stats.active.map(|(_, last)| last).max(self.budget.last()).max(sub_limits);
        let last = last.unwrap_or(Instant::START);
        if !self.budget.is_idle(now) || sub_limits.is_some() {
            return Memory::Counted(last);
        }
        if self.learned.last_pause().is_some_and(|until| until > now) {
            return Memory::Pause;
        }
        let blank = self.learned.is_blank() && self.in_flight.is_blank();
        if blank || now.since(last) >= REMEMBERED { Memory::Nothing } else { Memory::Learned(last) }
    }
}
