//! Pauses in a history: an API refuses one process, and every process obeys what the store has said about that.

use andante_fleet::{AskedPause, Micros, Pause, PauseCause, Sync};

use super::{Event, Fault, MS, Process, S, World, Wrong};

/// True pauses, by the global clock.
#[derive(Default)]
pub(super) struct Pauses {
    /// End of the last pause that an API has asked for.
    last: Micros,
    /// End of the last such pause that all members certainly know.
    told: Micros,
    /// End of the pause that a store without losses has to know.
    stored: Micros,
}

/// Members do not report extensions shorter than this: successive responses name about the same end.
const SAME: Micros = 100 * MS;
/// Effect of clock drift: elsewhere a pause of 10 s may end earlier by at most this.
const RATES: Micros = 5 * MS;

impl World {
    /// Makes the API refuse a process, which then has to wait for some seconds.
    pub(super) fn refuse(&mut self, at: usize) {
        let (now, lasts) = (self.now, S + self.below(9 * S));
        let (ends, before) = (now + lasts, self.pauses.last);
        self.pauses.last = before.max(ends);
        let process = &mut self.processes[at];
        if process.starts_at > now {
            return;
        }
        let local = process.at(now);
        process.closed = process.closed.max(local + std::time::Duration::from_micros(lasts.unsigned_abs()));
        process.obliged = process.obliged.max(ends);
        let asked = process.asked();
        process.pauses.asked(local, &asked);
        self.wake(at);
        if self.faults == [Fault::Refused] {
            // A member that was told of a pause ends it later, by the message's delay.
            if ends > before + 3 * self.rtt + 2 * RATES + SAME {
                self.pauses.told = ends;
            }
            // The sum of a call in flight, a call that reports, a message, another call in flight, and a call that
            // asks.
            let heard = now + 12 * self.rtt + 30 * MS;
            self.at(heard, Event::Oblige(self.pauses.told));
        }
    }

    /// From now on every member must know of a pause until `ends`, if nothing goes wrong.
    pub(super) fn oblige(&mut self, ends: Micros) {
        for process in self.processes.iter_mut().filter(|process| process.member.has_joined()) {
            process.obliged = process.obliged.max(ends);
        }
    }

    /// Returns true if a process sends during a pause that it has heard of.
    pub(super) fn breaks_pause(&self, at: usize) -> bool {
        self.now + RATES < self.processes[at].obliged
    }

    /// Records that the store's clock was set. If set forward, its time catches up at once, and a recorded pause may be
    /// over.
    pub(super) fn clock_was_set(&mut self) {
        self.pauses.stored = 0;
    }

    /// Records that the store has lost its state.
    pub(super) fn pauses_forgotten(&mut self) {
        self.pauses.stored = 0;
    }

    /// Records that the store executed `call`, sent at `sent`. Returns the end of the pause that the reply's receiver
    /// must observe.
    pub(super) fn stored_pauses(&mut self, call: &Sync, sent: Micros) -> Micros {
        let before = self.pauses.stored;
        let said = call.pauses.iter().filter(|pause| pause.left > 0).map(|pause| sent + pause.left - RATES);
        // A member that was told of a pause ends it a little later than the API asks for.
        self.pauses.stored = said.fold(before, Micros::max).min(self.pauses.last);
        before
    }

    /// Handles a valid reply that reports `pauses`; the store knew of a pause until `stored`.
    pub(super) fn told_of_pauses(&mut self, at: usize, pauses: &[Pause], stored: Micros) {
        let (now, wrong, last) = (self.now, self.wrong, self.pauses.last);
        let latest = last + 3 * self.rtt + 2 * RATES;
        let sound = self.faults == [Fault::Refused];
        let process = &mut self.processes[at];
        process.obliged = process.obliged.max(stored);
        let local = process.at(now);
        for pause in pauses {
            let until = pause.until(local);
            process.pauses.told(local, "", until);
            process.closed = if wrong == Some(Wrong::ShortensPauses) { until } else { process.closed.max(until) };
            assert!(!sound || process.truly(process.closed) <= latest, "a pause grows as it is told");
        }
    }

    /// Adds another, shorter pause of the lane, which the faulty store then takes for the valid one.
    pub(super) fn with_the_last_pause(&self, call: &mut Sync) {
        if self.wrong == Some(Wrong::LastPauseHolds)
            && let Some(pause) = call.pauses.first().cloned()
        {
            call.pauses.insert(0, Pause { left: 0, ..pause });
        }
    }
}

impl Process {
    /// Pauses that the API asks the process for.
    pub(super) fn asked(&self) -> Vec<AskedPause> {
        vec![AskedPause { budget: "".into(), until: self.closed, cause: PauseCause::RetryAfter }]
    }
}
