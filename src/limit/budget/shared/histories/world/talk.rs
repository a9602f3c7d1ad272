//! Calls of a process to the store, and handling of the replies: as in `app/fleet.rs`.

use std::time::Duration;

use andante_clock::Instant;
use andante_fleet::{Extent, Micros, Mode, Reply, ReplyOutcome, Sync, WakeUp};

use super::{Event, Fault, LEASE, MS, Place, S, World, Wrong, streams::POOL};
use crate::Scope;

/// Name of the lane in the store.
const LANE: &str = "api\nhost";

impl World {
    /// Runs a process: the task that calls the store, and a lane.
    pub(super) fn wake(&mut self, at: usize) {
        let (now, wrong, members) = (self.now, self.wrong, self.processes.len() as u32);
        let (metered, unit) = (self.metered, self.spec.unit);
        let process = &mut self.processes[at];
        if process.starts_at > now {
            let starts = process.starts_at;
            return self.wake_at(at, starts);
        }
        if process.stopped_until > now {
            let goes_on = process.stopped_until;
            return self.wake_at(at, goes_on);
        }
        let local = process.at(now);
        if wrong == Some(Wrong::SeatedAtOnce) {
            process.lease.count(Instant::START, 1, 0);
        }
        if !process.member.has_joined() && now - process.began >= LEASE {
            process.lease.count(local, members, 0);
        }
        if let Some((_, since, _)) = process.under_way
            && now - since >= S
        {
            let (_, _, entries) = process.under_way.take().expect("it was looked at just now");
            process.budget.unheard(local, &entries);
            process.pauses.unheard();
            (process.next_look, process.not_before) = (now, now + 10 * MS);
            process.place = Place::Now;
        }
        let mut leave = Vec::new();
        // With an in-flight limit, requests leave one by one, so that the next one counts this one.
        let most = if self.streams.limit.is_some() { 1 } else { usize::MAX };
        let unleased = wrong == Some(Wrong::NoLease);
        while leave.len() < most
            && process.requests() > 0
            && (process.budget.has_room(local) || unleased && process.has_token(local))
            && let cost = process.cost(&self.costs, unit)
            && process.budget.ready(local, &cost, Scope::NONE).instant(local).max(process.closed) <= local
        {
            let charge = process.budget.take(local, local, cost, Scope::NONE);
            process.waiting = process.waiting.saturating_sub(u32::from(!process.greedy));
            process.turn += 1;
            if metered && process.turn.is_multiple_of(5) {
                // The request's client has left.
                process.budget.return_unused(charge);
                if process.turn.is_multiple_of(10) {
                    break;
                }
                continue;
            }
            process.budget.sent(charge, local);
            let reserved = cost.of(unit).map_or(0, |reserved| reserved.get());
            process.sent += u64::from(reserved);
            leave.push((charge, reserved));
        }
        if process.budget.calls() | process.pauses.calls() {
            process.next_look = now;
        }
        let (life, way) = (process.life, process.way);
        for (charge, reserved) in leave {
            let used = if metered { self.below(Micros::from(reserved) + 1) as u32 } else { reserved };
            self.broken |= self.breaks_pause(at);
            let jitter = self.below(self.jitter + 1);
            let back = way + self.below(5 * MS);
            self.tell(|| format!("{at} sends"));
            self.at(now + way + jitter, Event::Arrive(used));
            self.begin(at, now + way + jitter, back);
            self.at(now + way + jitter + back, Event::Answer(at, life, charge, local, used));
        }
        self.talk(at);
        let process = &mut self.processes[at];
        let mut next = process.next_beat.max(process.not_before);
        if let Some((_, since, _)) = process.under_way {
            next = since + S;
        } else if process.member.has_joined() {
            next = next.min(process.next_look.max(process.not_before));
        }
        if process.requests() > 0 {
            let slot = process
                .budget
                .ready(local, &process.cost(&self.costs, unit), Scope::NONE)
                .instant(local)
                .max(process.closed);
            // Without room, a response or the store wakes the process.
            next = if slot > local || process.budget.has_room(local) { next.min(process.truly(slot)) } else { next };
        }
        self.wake_at(at, next.max(now + 50));
    }

    /// Schedules the wake-up of a process, which replaces an earlier one.
    pub(super) fn wake_at(&mut self, at: usize, when: Micros) {
        self.processes[at].wakes_at = when;
        self.at(when, Event::Wake(at));
    }

    fn talk(&mut self, at: usize) {
        let now = self.now;
        let (net, per, wrong) = (self.faults.contains(&Fault::Net), self.per, self.wrong);
        let limit = self.spec.rate.count.get();
        let process = &mut self.processes[at];
        let (beat, look) = (now >= process.next_beat, now >= process.next_look);
        if process.under_way.is_some() || now < process.not_before || !(beat || look || process.reports) {
            return;
        }
        let local = process.at(now);
        let (mut entries, mut pauses) = (Vec::new(), Vec::new());
        if process.member.has_joined() {
            let backlog = process.backlog(&self.costs);
            let mut spoken = process.budget.speak(local, LANE, |_| backlog, process.reports);
            let (waiting, reports) = (process.requests() as u32, process.reports);
            process.budget.speak_in_flight(local, LANE, waiting, reports, &mut spoken);
            process.next_look = process.truly(spoken.next);
            entries = spoken.entries;
            pauses = process.pauses.speak(local, LANE, process.asked(), process.reports);
        }
        if entries.is_empty() && pauses.is_empty() && !beat && !process.reports {
            return;
        }
        let extent = if process.reports { Extent::All } else { Extent::Some };
        let call = process.member.call(local, extent, entries, pauses);
        process.under_way = Some((call.seq, now, call.entries.clone()));
        process.next_beat = now + LEASE / 3;
        let mut said = call.clone();
        for entry in &mut said.entries {
            match wrong {
                Some(Wrong::GivesSpent) => entry.holds = entry.holds.saturating_sub(1),
                Some(Wrong::NoWindowAfterDeath) => entry.settle = -per - S,
                Some(Wrong::LendsFloors) => entry.limit = limit,
                Some(Wrong::NoHold) if &*entry.pool == POOL => entry.per = MS,
                _ => {}
            }
        }
        let (life, cut) = (process.life, process.cut_until > now);
        self.tell(|| format!("{at} says {} {:?} {:?} {:?}", call.seq, call.extent, call.entries, call.pauses));
        self.with_the_last_pause(&mut said);
        let place = self.place_of(at);
        let way = self.rtt / 2 + self.below(self.rtt);
        if cut || net && self.below(33) == 0 {
            return;
        }
        if net && self.below(25) == 0 {
            let late = now + S / 2 + self.below(24 * S);
            return self.at(late, Event::Execute(at, life, Box::new(said), place, now));
        }
        if net && self.below(25) == 0 {
            let mut twice = said.clone();
            twice.seq += u64::from(wrong == Some(Wrong::NoSeq));
            let late = now + self.below(20 * S);
            self.at(late, Event::Execute(at, u32::MAX, Box::new(twice), place, now));
        }
        self.at(now + way, Event::Execute(at, life, Box::new(said), place, now));
    }

    pub(super) fn execute(&mut self, at: usize, life: u32, call: Sync, place: Place, sent: Micros) {
        let now = self.now;
        if place == Place::Now && self.stores.frozen_until > now {
            let later = self.stores.frozen_until + self.below(MS);
            return self.at(later, Event::Execute(at, life, Box::new(call), place, sent));
        }
        let Some((reply, hints)) = self.stores.execute(&call, place, now) else { return };
        self.tell(|| format!("the store ({place:?}) hears {} of {at} and says {reply:?}", call.seq));
        let net = self.faults.contains(&Fault::Net);
        let counts = place == Place::Now && matches!(reply, Reply::Done { .. });
        let paused = if counts { self.stored_pauses(&call, sent) } else { 0 };
        for hint in hints {
            let (member, in_flight, event): (_, _, fn(usize, u32) -> Event) = match hint {
                WakeUp::Pool { member, pool } => (member, &*pool == POOL, Event::Hint),
                WakeUp::Pauses => (None, false, |other, _| Event::PauseHint(other)),
            };
            for other in 0..self.processes.len() {
                let id = self.processes[other].member.id();
                if id != call.member && member.is_none_or(|told| told == id) && !(net && self.below(10) == 0) {
                    let way = now + self.rtt / 2 + self.below(self.rtt);
                    self.at(way, event(other, u32::from(member.is_some()) + 2 * u32::from(in_flight)));
                }
            }
        }
        let mut way = self.rtt / 2 + self.below(self.rtt);
        if self.processes[at].cut_until > now || net && self.below(33) == 0 {
            return;
        }
        if net && self.below(25) == 0 {
            way += self.below(12 * S);
        }
        if std::mem::take(&mut self.processes[at].stops) {
            way += self.below(9 * S);
            let cut_until = now + way + self.below(20 * S);
            let process = &mut self.processes[at];
            (process.stopped_until, process.cut_until) = (now + way + 1, cut_until);
        }
        self.at(now + way, Event::Reply(at, life, call.seq, reply, paused));
    }

    pub(super) fn replied(&mut self, at: usize, life: u32, seq: u64, reply: Reply, paused: Micros) {
        let now = self.now;
        let (wrong, pool) = (self.wrong, self.pool());
        let id = self.name();
        let process = &mut self.processes[at];
        if process.life != life || process.starts_at > now {
            return;
        }
        let local = process.at(now);
        if process.under_way.as_ref().is_none_or(|(under_way, ..)| *under_way != seq) {
            // The process does not wait for this reply any more.
            if let (Reply::Done { pauses_known, .. }, Some(Wrong::LateReplyTells)) = (&reply, wrong) {
                process.member.skip_pauses(*pauses_known);
            }
            if let (Reply::Done { given, .. }, Some(Wrong::LateReply)) = (&reply, wrong)
                && let (Some(given), Some(limit)) = (given.first(), process.budget.meters.windows_mut().next())
                && let Some(share) = limit.share.as_mut().filter(|share| *share.pool == *pool)
            {
                share.heard(local, given.clone());
            }
            return;
        }
        match process.member.heard(local, seq, reply) {
            ReplyOutcome::Stale => return,
            ReplyOutcome::Granted { given, pauses } => {
                let (_, _, entries) = process.under_way.take().expect("it was answered");
                process.reports = false;
                process.budget.given(local, entries.iter().zip(&given));
                process.pauses.heard();
                if wrong == Some(Wrong::LeaseFromReply) {
                    process.lease.set(local + Duration::from_micros(LEASE as u64));
                }
                let (name, until) = (process.member.id(), process.truly(process.lease.until()));
                self.streams.leased(name, until);
                self.told_of_pauses(at, &pauses, paused);
            }
            ReplyOutcome::Report => {
                let (_, _, entries) = process.under_way.take().expect("it was answered");
                process.budget.unheard(local, &entries);
                process.pauses.unheard();
                process.reports = true;
            }
            ReplyOutcome::Reset => {
                process.under_way = None;
                process.pauses.lost();
                process.budget.lose_shares(local);
                process.member.begin_anew(id);
                (process.reports, process.next_beat) = (false, now);
            }
            ReplyOutcome::Refused => {
                let (_, _, entries) = process.under_way.take().expect("it was answered");
                process.budget.unheard(local, &entries);
                process.pauses.unheard();
                process.not_before = now + S / 2;
                process.place = Place::Now;
            }
        }
        let process = &mut self.processes[at];
        if process.member.mode() == Mode::Member {
            process.lease.count(local, process.member.members(), 0);
        }
        process.next_look = now;
        self.wake(at);
    }
}
