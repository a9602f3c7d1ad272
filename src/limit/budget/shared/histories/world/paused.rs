//! Pauses in a history: an API refuses one process, and whatever the store has said of that a process keeps.

use super::{Event, Fault, MS, Process, S, World, Wrong};
use crate::fleet::{AskedPause, Micros, Pause, PauseCause, Sync};

/// What is true of pauses, by the one clock.
#[derive(Default)]
pub(super) struct Pauses {
    /// The end of the last pause that an API has asked for.
    last: Micros,
    /// The end of the last one of these that all members are certainly told of.
    told: Micros,
    /// The end that a store has to know of which nothing has been forgotten.
    stored: Micros,
}

/// Members do not tell what makes a pause longer by less than that: answers that come one after the other name about the same end.
const SAME: Micros = 100 * MS;
/// Clocks that go at different rates: a pause of 10 s ends by so much earlier elsewhere at most.
const RATES: Micros = 5 * MS;

impl World {
    /// The API refuses a process, which is to wait for some seconds.
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
            // Whoever was told of a pause ends it later, by the way of what told it.
            if ends > before + 3 * self.rtt + 2 * RATES + SAME {
                self.pauses.told = ends;
            }
            // A call that is under way, one that tells, a message, a call that is under way, and one that asks.
            let heard = now + 12 * self.rtt + 30 * MS;
            self.at(heard, Event::Oblige(self.pauses.told));
        }
    }

    /// By now everybody has heard of a pause until `ends`, if nothing goes wrong.
    pub(super) fn oblige(&mut self, ends: Micros) {
        for process in self.processes.iter_mut().filter(|process| process.member.has_joined()) {
            process.obliged = process.obliged.max(ends);
        }
    }

    /// Whether a process sends although it has heard of a pause.
    pub(super) fn breaks_pause(&self, at: usize) -> bool {
        self.now + RATES < self.processes[at].obliged
    }

    /// The store's clock was set: if forward, its time makes up at once for what it lagged, and a pause may be over that was
    /// written down before.
    pub(super) fn clock_was_set(&mut self) {
        self.pauses.stored = 0;
    }

    /// The store has forgotten.
    pub(super) fn pauses_forgotten(&mut self) {
        self.pauses.stored = 0;
    }

    /// The store has executed `call`, which was sent then. Says until when whoever hears its reply is to pause.
    pub(super) fn stored_pauses(&mut self, call: &Sync, sent: Micros) -> Micros {
        let before = self.pauses.stored;
        let said = call.pauses.iter().filter(|pause| pause.left > 0).map(|pause| sent + pause.left - RATES);
        // Whoever was told of a pause ends it a little later than the API asks for.
        self.pauses.stored = said.fold(before, Micros::max).min(self.pauses.last);
        before
    }

    /// A reply that counts tells of `pauses`, and of all that the store knew, which is until `stored`.
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

    /// Another pause of the lane is what the store knows, though it is shorter.
    pub(super) fn with_the_last_pause(&self, call: &mut Sync) {
        if self.wrong == Some(Wrong::LastPauseHolds)
            && let Some(pause) = call.pauses.first().cloned()
        {
            call.pauses.insert(0, Pause { left: 0, ..pause });
        }
    }
}

impl Process {
    /// What the API asks it for.
    pub(super) fn asked(&self) -> Vec<AskedPause> {
        vec![AskedPause { budget: "".into(), until: self.closed, cause: PauseCause::RetryAfter }]
    }
}
