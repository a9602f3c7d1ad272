//! Several andantes at one API, with or without a common store.

use std::time::Duration;

use andante_clock::Instant;
use andante_fleet::{
    Division, Entry, Extent, Lease, Member, MemberId, Pause, Reply, ReplyOutcome, StoreDown, Sync, Terms, WakeUp,
    micros,
};
use andante_fleet_model::Book;
use andante_order::Turn;

use super::{
    clients::{Andante, Client},
    dice::Dice,
    world::{Answer, World},
};
use crate::state::SharedNames;

/// Lanes of several processes, which workers ask in turn.
pub(super) struct Fleet {
    members: Vec<Process>,
    /// Start of counting served requests.
    counts_from: Instant,
    book: Book,
    has_store: bool,
    /// When the store stops answering, and when it answers again.
    away: Option<(Instant, Instant)>,
    /// The last member sends one request after the other, with pauses in between.
    light: Option<Light>,
    /// Number of calls that the store has executed.
    pub(super) calls: u64,
}

/// A client with occasional requests.
struct Light {
    /// Its only worker.
    worker: usize,
    every: Duration,
    asked: Instant,
    /// Wait of each of its requests.
    waits: Vec<Duration>,
}

/// A process, and its exchange with the store as in `app/fleet.rs`.
struct Process {
    andante: Andante,
    member: Member,
    lease: Lease,
    under_way: Option<Call>,
    next_look: Instant,
    next_beat: Instant,
    not_before: Instant,
    reports: bool,
    /// Number of its requests that were served.
    served: u64,
    /// True if the API's reported quota is divided; otherwise each member uses what it finds.
    divides: bool,
    /// When the process starts.
    begins: Instant,
    /// Workers that wait for its start.
    early: Vec<(usize, Turn)>,
}

struct Call {
    sync: Sync,
    sent: Instant,
    executed: bool,
    reply: Option<Reply>,
}

const LEASE: Duration = Duration::from_secs(10);
/// Time from a process to the store, or back.
const WAY: Duration = Duration::from_millis(1);
const GAP: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(500);
/// A process has joined the store before its first request comes.
const JOINED: Duration = Duration::from_millis(100);

// === impl Fleet ===

impl Fleet {
    /// A fleet of `members`, which share what they learn if there `has_store`.
    pub(super) fn new(world: &World, now: Instant, members: usize, has_store: bool) -> Self {
        let member = |number| {
            let lease = Lease::new(StoreDown::Wait);
            let division = Division::default();
            let terms = Terms { lease: micros(LEASE), split: 0, division };
            let mut andante = Andante::new(world, now);
            if has_store {
                lease.count(now, members as u32, 0);
                andante.state.share(now, lease.clone());
            }
            Process {
                andante,
                member: Member::new(MemberId(number as u64 + 1), terms, lease.clone()),
                lease,
                under_way: None,
                next_look: Instant::FAR,
                next_beat: Instant::START,
                not_before: Instant::START,
                reports: false,
                served: 0,
                divides: true,
                begins: now,
                early: Vec::new(),
            }
        };
        let book = Book::declared_new("run", micros(now.since(Instant::START)), micros(LEASE), 1);
        let members = (0..members).map(member).collect();
        Self { members, counts_from: now, book, has_store, away: None, light: None, calls: 0 }
    }

    /// Ignores requests served before `counts_from`.
    pub(super) fn counting_from(self, counts_from: Instant) -> Self {
        Self { counts_from, ..self }
    }

    /// The members report pauses to each other, and nothing else: each takes the API's reported quota as its own.
    pub(super) fn undivided(mut self, now: Instant) -> Self {
        for process in &mut self.members {
            process.divides = false;
            process.lease.count(now, 1, 0);
        }
        self
    }

    /// The last member starts at `begins`.
    pub(super) fn with_a_late_one(mut self, begins: Instant) -> Self {
        self.members.last_mut().expect("there is one").begins = begins;
        self
    }

    /// The store does not answer between these two instants.
    pub(super) fn without_store(self, from: Instant, until: Instant) -> Self {
        Self { away: Some((from, until)), ..self }
    }

    /// The last member sends one request after the other, `every` so often.
    pub(super) fn with_a_light_one(self, every: Duration) -> Self {
        let worker = self.members.len() - 1;
        Self { light: Some(Light { worker, every, asked: Instant::START, waits: Vec::new() }), ..self }
    }

    /// The wait of each request of the light member, including one that still waits.
    pub(super) fn waits(&self, end: Instant) -> Vec<Duration> {
        let light = self.light.as_ref().expect("there is one");
        let waiting = (light.asked != Instant::FAR).then(|| end.since(light.asked));
        light.waits.iter().copied().chain(waiting).collect()
    }

    /// Number of served requests of each member.
    pub(super) fn served(&self) -> Vec<u64> {
        self.members.iter().map(|process| process.served).collect()
    }

    /// Prints what each member has learned, and when.
    pub(super) fn trace(&self) {
        let mut log: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .flat_map(|(at, process)| process.andante.log.iter().map(move |(when, change)| (*when, at, change)))
            .collect();
        log.sort_by_key(|(when, ..)| *when);
        log.iter().for_each(|(when, at, change)| println!("{:10.3} {at} {change:?}", when.as_nanos() as f64 / 1e9));
    }

    fn of(&mut self, worker: usize) -> &mut Process {
        let members = self.members.len();
        &mut self.members[worker % members]
    }

    /// Delivers due calls and replies of the store. Returns whether there were any.
    fn exchange(&mut self, now: Instant) -> bool {
        let mut anything = false;
        let away = self.away.is_some_and(|(from, until)| (from..until).contains(&now));
        for at in 0..self.members.len() {
            let process = &mut self.members[at];
            let Some(call) = &mut process.under_way else { continue };
            if !call.executed && call.sent + WAY <= now {
                (call.executed, anything) = (true, true);
                if !away {
                    self.calls += 1;
                    let (reply, hints) = self.book.sync(&call.sync, micros(now.since(Instant::START)), "run");
                    call.reply = Some(reply);
                    self.hint(now, at, &hints);
                }
            }
            anything |= self.members[at].hears(now);
        }
        anything
    }

    fn hint(&mut self, now: Instant, from: usize, hints: &[WakeUp]) {
        for other in (0..self.members.len()).filter(|other| *other != from) {
            let other = &mut self.members[other];
            for hint in hints {
                match hint {
                    WakeUp::Pauses => other.next_beat = other.next_beat.min(now + WAY),
                    WakeUp::Pool { member, pool } if member.is_none_or(|member| member == other.member.id()) => {
                        other.andante.state.hinted(now, pool, member.is_some());
                        other.next_look = other.next_look.min(now + WAY);
                    }
                    WakeUp::Pool { .. } => {}
                }
            }
        }
    }
}

impl Client for Fleet {
    fn ask(&mut self, now: Instant, worker: usize, turn: Turn) -> bool {
        if let Some(light) = &mut self.light {
            if worker != light.worker && worker % self.members.len() == light.worker {
                return false;
            }
            light.asked = if worker == light.worker { now } else { light.asked };
        }
        let process = self.of(worker);
        if now < process.begins + JOINED {
            process.early.push((worker, turn));
            return false;
        }
        process.andante.ask(now, worker, turn)
    }

    fn serve(&mut self, now: Instant) -> (Vec<usize>, Instant) {
        let mut leaving = Vec::new();
        let mut next;
        loop {
            next = Instant::FAR;
            for process in &mut self.members {
                let begun = process.begins + JOINED;
                if !process.early.is_empty() && begun > now {
                    next = next.min(begun);
                } else {
                    let early = std::mem::take(&mut process.early);
                    leaving.extend(
                        early
                            .iter()
                            .filter(|(worker, turn)| process.andante.ask(now, *worker, *turn))
                            .map(|(worker, _)| *worker),
                    );
                }
                let (left, at) = process.andante.serve(now);
                leaving.extend(left);
                next = next.min(at);
            }
            if !self.has_store {
                return (leaving, next);
            }
            self.members.iter_mut().for_each(|process| process.talks(now));
            if !self.exchange(now) {
                break;
            }
        }
        let store = self.members.iter().map(Process::next).min().unwrap_or(Instant::FAR);
        (leaving, next.min(store))
    }

    fn sent(&mut self, now: Instant, worker: usize) {
        if let Some(light) = self.light.as_mut().filter(|light| light.worker == worker) {
            light.waits.push(now.since(light.asked));
            light.asked = Instant::FAR;
        }
        self.of(worker).andante.sent(now, worker);
    }

    fn answered(&mut self, now: Instant, worker: usize, answer: &Answer, dice: &mut Dice) -> Option<Duration> {
        let counts = now >= self.counts_from && answer.status == 200;
        let process = self.of(worker);
        process.served += u64::from(counts);
        let again = process.andante.answered(now, worker, answer, dice);
        self.light.as_ref().filter(|light| light.worker == worker).map(|light| light.every).or(again)
    }

    fn note(&mut self, now: Instant) -> String {
        self.members.iter_mut().map(|process| process.andante.note(now) + " ").collect()
    }
}

// === impl Process ===

impl Process {
    fn names() -> SharedNames {
        SharedNames { pools: "\napi.test".into(), pauses: "\napi.test".into() }
    }

    /// The next time for an exchange with the store.
    fn next(&self) -> Instant {
        match &self.under_way {
            Some(Call { executed: false, sent, .. }) => *sent + WAY,
            Some(Call { reply: Some(_), sent, .. }) => *sent + WAY + WAY,
            Some(Call { sent, .. }) => *sent + PATIENCE,
            None if self.next_beat < self.begins => self.begins,
            None => self.next_beat.min(self.next_look).max(self.not_before),
        }
    }

    /// Calls the store, if there is a reason.
    fn talks(&mut self, now: Instant) {
        if std::mem::take(&mut self.andante.calls) {
            self.next_look = now;
        }
        let due = self.reports || self.next_look.min(self.next_beat) <= now;
        if self.under_way.is_some() || now < self.not_before.max(self.begins) || !due {
            return;
        }
        let (mut entries, mut pauses) = (Vec::<Entry>::new(), Vec::<Pause>::new());
        if self.member.has_joined() {
            let spoken = self.andante.state.speak(now, &Self::names(), self.reports);
            self.next_look = spoken.next;
            (entries, pauses) = (spoken.entries, spoken.pauses);
            entries.retain(|_| self.divides);
        }
        if entries.is_empty() && pauses.is_empty() && self.next_beat > now && !self.reports {
            return;
        }
        let extent = if self.reports { Extent::All } else { Extent::Some };
        let sync = self.member.call(now, extent, entries, pauses);
        self.next_beat = now + LEASE / 3;
        self.under_way = Some(Call { sync, sent: now, executed: false, reply: None });
    }

    /// Handles the store's reply. Returns whether there was one.
    fn hears(&mut self, now: Instant) -> bool {
        let due = |call: &Call| match call.reply {
            Some(_) => call.sent + WAY + WAY <= now,
            None => call.executed && call.sent + PATIENCE <= now,
        };
        let Some(Call { sync, reply, .. }) = self.under_way.take_if(|call| due(call)) else { return false };
        self.not_before = now + GAP;
        let state = &mut self.andante.state;
        let Some(reply) = reply else {
            state.unheard(now, &sync.entries);
            (self.next_look, self.not_before) = (now, now + AGAIN);
            return true;
        };
        assert!(reply.answers(&sync), "{reply:?}");
        let leased = self.lease.holds(now);
        match self.member.heard(now, sync.seq, reply) {
            ReplyOutcome::Granted { given, pauses } => {
                let members = if self.divides { self.member.members() } else { 1 };
                self.lease.count(now, members, 0);
                let given: Vec<(&Entry, _)> = sync.entries.iter().zip(&given).collect();
                state.given(now, given.into_iter());
                for pause in &pauses {
                    state.told_of_pause(now, "", pause);
                }
                (self.reports, self.next_look) = (false, now);
            }
            ReplyOutcome::Report => {
                state.unheard(now, &sync.entries);
                self.reports = true;
            }
            ReplyOutcome::Reset => {
                state.lose_shares(now);
                let id = MemberId(self.member.id().0 + 100);
                self.member.begin_anew(id);
                self.next_beat = now;
            }
            other => panic!("{other:?}"),
        }
        if !leased {
            state.leased();
        }
        true
    }
}
