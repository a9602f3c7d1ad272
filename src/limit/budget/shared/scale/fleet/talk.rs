//! Calls of members to the store, and handling of the replies: as in `app/fleet.rs`.

use super::*;

impl Fleet {
    pub(super) fn talk_at(&mut self, at: usize, when: Micros) {
        let when = when.max(self.now + 1);
        self.processes[at].wakes_at = when;
        self.at(when, Event::Talk(at));
    }

    /// Schedules the next report on the lane.
    pub(super) fn look_at(&mut self, at: usize, own: usize, when: Micros) {
        let process = &mut self.processes[at];
        let before = std::mem::replace(&mut process.lanes[own].due, when);
        process.due.remove(&(before, own));
        process.due.insert((when, own));
        if process.under_way.is_none() {
            self.sleep(at);
        }
    }

    /// Sleeps until the next report is due.
    fn sleep(&mut self, at: usize) {
        let process = &self.processes[at];
        let work = if process.member.has_joined() {
            process.due.first().map_or(Micros::MAX, |first| first.0)
        } else {
            Micros::MAX
        };
        let next = if process.reports { self.now } else { work.min(process.next_beat) };
        let next = process.under_way.as_ref().map_or(next.max(process.not_before), |spoken| spoken.sent + PATIENCE);
        self.talk_at(at, next);
    }

    pub(super) fn talk(&mut self, at: usize) {
        let now = self.now;
        let local = super::local(at, now);
        if self.processes[at].under_way.as_ref().is_some_and(|spoken| now - spoken.sent >= PATIENCE) {
            self.unheard(at);
            self.processes[at].not_before = now + 10 * MS;
        }
        let process = &mut self.processes[at];
        if process.under_way.is_some() || now < process.not_before {
            return self.sleep(at);
        }
        let (mut lanes, mut entries) = (Vec::new(), Vec::new());
        if process.member.has_joined() {
            let due = process.due.iter().take_while(|(when, _)| *when <= now).map(|(_, own)| *own).take(MOST);
            let due: Vec<usize> = if process.reports { (0..process.lanes.len()).collect() } else { due.collect() };
            for own in due {
                let lane = &mut process.lanes[own];
                let limits = &self.shape.limits;
                let backlog = |unit: Unit| {
                    let Some(number) = limits.iter().position(|taken| taken.limit.unit == unit) else {
                        return lane.waiting;
                    };
                    if limits[number].takes.is_some() {
                        return (lane.waiting as f64 * lane.usual[number].mean()).ceil() as u64;
                    }
                    let cost = u64::from(lane.cost.of(unit).map_or(0, Amount::get));
                    let usual = u64::from(limits[number].costs.0.midpoint(limits[number].costs.1));
                    if lane.waiting > 0 { cost + (lane.waiting - 1) * usual } else { 0 }
                };
                let spoken = lane.budget.speak(local, &name(lane.lane), backlog, process.reports);
                let next = super::global(at, spoken.next).max(now + 1);
                let before = std::mem::replace(&mut lane.due, next);
                process.due.remove(&(before, own));
                process.due.insert((lane.due, own));
                if !spoken.entries.is_empty() {
                    lanes.push((own, spoken.entries.len()));
                    entries.extend(spoken.entries);
                }
            }
        }
        if entries.is_empty() && now < process.next_beat && !process.reports {
            return self.sleep(at);
        }
        let extent = if process.reports { Extent::All } else { Extent::Some };
        let call = process.member.call(local, extent, entries.clone(), Vec::new());
        process.under_way = Some(Spoken { seq: call.seq, sent: now, lanes, entries });
        process.next_beat = now + process.member.lease_length().as_micros() as Micros / 3;
        let way = self.way();
        if self.below(LOST) > 0 {
            self.at(now + way, Event::Execute(at, Box::new(call)));
        }
        self.sleep(at);
    }

    /// At least a quarter of a millisecond, and now and then much more.
    fn way(&mut self) -> Micros {
        let late = if self.below(100) == 0 { self.below(50 * MS) } else { 0 };
        MS / 4 + self.exponential(MS as f64 / 4.0) + late
    }

    pub(super) fn execute(&mut self, at: usize, call: &Sync) {
        let now = self.now;
        if self.busy_until > now {
            let again = self.busy_until;
            self.line = self.line.max(again - now);
            // Calls are served in the order of arrival, also when they come again.
            return self.at(again, Event::Execute(at, Box::new(call.clone())));
        }
        let work = CALL + ENTRY * call.entries.len() as Micros;
        (self.busy_until, self.worked) = (now + work, self.worked + work);
        self.calls += 1;
        self.entries += call.entries.len() as u64;
        self.bytes += CALL_BYTES + ENTRY_BYTES * call.entries.len() as u64;
        let (reply, hints) = self.book.sync(call, now, &self.run.to_string());
        for hint in hints {
            let WakeUp::Pool { member, pool } = hint else { continue };
            let lane: usize = pool.split('\n').nth(1).and_then(|host| host[4..].parse().ok()).expect("a pool's name");
            let told: Vec<usize> = match member {
                Some(member) => vec![self.numbers[&member]],
                None => self.users[lane].iter().map(|(user, _)| *user).collect(),
            };
            // Members that do not use the lane receive the message as well.
            self.messages += if member.is_some() { 1 } else { self.processes.len() as u64 };
            for other in told.into_iter().filter(|other| *other != at) {
                let way = self.way();
                self.at(now + work + way, Event::Hint(other, lane, pool.clone(), member.is_some()));
            }
        }
        let way = self.way();
        if self.below(LOST) > 0 {
            self.at(now + work + way, Event::Reply(at, call.seq, Box::new(reply)));
        }
    }

    pub(super) fn replied(&mut self, at: usize, seq: u64, reply: Reply) {
        let (now, local) = (self.now, super::local(at, self.now));
        let process = &mut self.processes[at];
        if process.under_way.as_ref().is_none_or(|spoken| spoken.seq != seq) {
            return;
        }
        let outcome = process.member.heard(local, seq, reply);
        process.not_before = now + GAP;
        match outcome {
            ReplyOutcome::Granted { given, .. } => {
                let spoken = process.under_way.take().expect("it was looked at just now");
                process.reports = false;
                let mut given = spoken.entries.iter().zip(&given);
                for (own, entries) in spoken.lanes {
                    self.processes[at].lanes[own].budget.given(local, given.by_ref().take(entries));
                    self.look_at(at, own, now);
                    self.send(at, own);
                }
            }
            ReplyOutcome::Report => {
                self.unheard(at);
                self.processes[at].reports = true;
            }
            ReplyOutcome::Reset => {
                process.under_way = None;
                let id = MemberId(process.member.id().0 + (1 << 32));
                process.member.begin_anew(id);
                (process.reports, process.next_beat) = (false, now);
                process.lanes.iter_mut().for_each(|lane| lane.budget.lose_shares(local));
                self.numbers.insert(id, at);
            }
            ReplyOutcome::Refused | ReplyOutcome::Stale => {
                self.unheard(at);
                self.processes[at].not_before = now + S / 2;
            }
        }
        if matches!(self.processes[at].member.mode(), Mode::Learning(_)) {
            let process = &mut self.processes[at];
            process.next_beat = process.next_beat.min(now + S);
        }
        self.sleep(at);
    }

    /// Handles a call whose outcome is unknown.
    fn unheard(&mut self, at: usize) {
        let (now, local) = (self.now, super::local(at, self.now));
        let Some(spoken) = self.processes[at].under_way.take() else { return };
        let mut entries = &spoken.entries[..];
        for (own, count) in spoken.lanes {
            let (said, rest) = entries.split_at(count);
            entries = rest;
            self.processes[at].lanes[own].budget.unheard(local, said);
            self.look_at(at, own, now);
        }
    }
}
