//! One lane: the state behind one short lock, the one timer, and the permits.
//!
//! If nobody waits and every limit says *now*, a request passes on the spot. Otherwise it takes a ticket. While somebody
//! waits, one task per lane sleeps until the next slot matures, and only then is the ticket chosen that gets it.

mod log;
mod permit;
mod symptoms;

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use self::{log::log_changes, symptoms::Symptoms};
pub use self::{
    permit::{Admission, Permit, Waiting},
    symptoms::Failure,
};
use crate::{
    clock::{Clock, Instant},
    lane::{
        order::Place,
        request::AdmitRequest,
        snapshot::Snapshot,
        state::{Decision, End, Memory, Slot, State},
    },
    learn::{Changes, Heard},
    metrics::RuleMetrics,
    policy::Policy,
};

/// The queue and the limits of one budget.
pub struct Lane {
    host: Arc<str>,
    policy: Arc<Policy>,
    metrics: Arc<RuleMetrics>,
    clock: Clock,
    door: Mutex<Door>,
    /// Tells the driver that it sleeps too long.
    wake: Notify,
    symptoms: Symptoms,
}

/// What is behind the lock.
struct Door {
    state: State<oneshot::Sender<Permit>>,
    /// Until when the driver sleeps; `None` while there is none.
    next_wakeup: Option<Instant>,
}

/// Permits for tickets, to be handed over once the lock is released: a request that has left meanwhile gives back its own.
type Grants = SmallVec<[(oneshot::Sender<Permit>, Permit); 2]>;

/// What is to be done once the lock is released.
#[must_use]
struct Outcome {
    grants: Grants,
    changes: Changes,
}

/// A driver that has nobody to wait for ends by itself when it wakes; one that would sleep for longer is woken.
const DOZE: Duration = Duration::from_secs(1);

// === impl Lane ===

impl Lane {
    /// A lane in which nothing has happened yet.
    pub fn new(host: Arc<str>, policy: Arc<Policy>, metrics: Arc<RuleMetrics>, clock: Clock) -> Self {
        let now = clock.now();
        let door = Mutex::new(Door { state: State::new(policy.clone(), now), next_wakeup: None });
        Self { host, policy, metrics, clock, door, wake: Notify::new(), symptoms: Symptoms::new(now) }
    }

    /// Asks for a slot. Must be called on a tokio runtime, which drives the lane while somebody waits.
    pub fn admit(self: &Arc<Self>, ask: AdmitRequest) -> Admission {
        let now = self.clock.now();
        let mut door = self.door.lock();
        let mut receiver = None;
        let decision = door.state.admit(now, &ask, || {
            let (sender, grant) = oneshot::channel();
            receiver = Some(grant);
            sender
        });
        match decision {
            Decision::Send(slot) => {
                drop(door);
                Admission::Send(self.permit(slot, Duration::ZERO))
            }
            Decision::Refuse(refusal) => Admission::Refuse(refusal),
            Decision::Wait { place, expected } => {
                self.metrics.waiting.inc();
                self.release(door, now);
                let grant = receiver.expect("a request that waits has taken a ticket");
                Admission::Wait(Waiting { lane: self.clone(), place, grant, granted: false, expected })
            }
        }
    }

    /// Whether the upstream is left alone because it fails.
    pub fn is_broken(&self) -> bool {
        self.door.lock().state.learned().is_broken()
    }

    /// Whether the API serves requests, so that a 503 refuses one and says nothing of an outage.
    pub fn is_alive(&self) -> bool {
        self.door.lock().state.learned().is_alive()
    }

    /// For how long nothing leaves, as far as is known.
    pub fn closed_for(&self) -> Duration {
        let now = self.clock.now();
        let mut door = self.door.lock();
        let learned = door.state.learned();
        learned.closed(now, learned.usual_scope()).map_or(Duration::ZERO, |(until, _)| until.since(now))
    }

    /// Whether one more request may be sent again although the upstream is in trouble; counts it if so.
    pub fn may_retry(&self) -> bool {
        self.door.lock().state.learned().may_retry()
    }

    /// How many answers were no refusals.
    pub fn served(&self) -> u64 {
        let door = self.door.lock();
        door.state.tally().answered - door.state.tally().refused_by_api
    }

    /// The policy that holds here.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Where this lane is counted.
    pub fn metrics(&self) -> &Arc<RuleMetrics> {
        &self.metrics
    }

    /// The host whose budget this is.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// How many wait, and when the next slot matures: what warming a connection needs to know.
    pub fn outlook(&self) -> (usize, Instant) {
        let now = self.clock.now();
        let mut door = self.door.lock();
        (door.state.waiting(), door.state.next_slot(now))
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.door.lock().state.waiting()
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The lane as it stands.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        self.door.lock().state.snapshot(now, self.host.clone())
    }

    /// Whether somebody waits although a slot has matured.
    #[cfg(test)]
    pub(super) fn loses_slots(&self) -> bool {
        let now = self.clock.now();
        let mut door = self.door.lock();
        door.state.waiting() > 0 && door.state.next_slot(now) <= now
    }

    /// How many that wait have been moved from line to line, one by one.
    #[cfg(test)]
    pub(super) fn moved(&self) -> usize {
        self.door.lock().state.moved()
    }

    /// What would be lost if this lane were forgotten.
    pub(super) fn memory(&self) -> Memory {
        let now = self.clock.now();
        self.door.lock().state.memory(now)
    }

    pub(super) fn sent(self: &Arc<Self>, slot: &Slot) -> Instant {
        self.change(|state, now| {
            state.sent(now, slot.charge);
            now
        })
    }

    /// What was sent has not been written after all. Says whether its slot still holds.
    pub(super) fn recall(self: &Arc<Self>, slot: &Slot) -> bool {
        self.change(|state, _| state.recall(slot.charge))
    }

    /// The answer of what left at `sent` is here.
    pub(super) fn answered(self: &Arc<Self>, slot: &Slot, sent: Instant, heard: &Heard<'_>) {
        let took = self.change(|state, now| {
            state.answered(now, slot, sent, heard);
            now.since(sent)
        });
        self.metrics.upstream_seconds.observe(took.as_secs_f64());
    }

    /// What was taken could not be sent, broke off, or was not answered in time.
    pub(super) fn broke(self: &Arc<Self>, slot: &Slot) {
        self.change(|state, now| state.broke(now, slot.charge));
    }

    /// A permit has come to its end.
    pub(super) fn settle(self: &Arc<Self>, slot: &Slot, end: End) {
        self.metrics.in_flight.dec();
        self.change(|state, now| state.settle(now, slot, end));
    }

    /// A ticket is dropped.
    pub(super) fn leave(self: &Arc<Self>, place: Place) {
        self.change(|state, _| {
            if state.leave(place) {
                self.metrics.waiting.dec();
            }
        });
    }

    /// Changes the state, and hands out what slots that has freed.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State<oneshot::Sender<Permit>>, Instant) -> R) -> R {
        let now = self.clock.now();
        let mut door = self.door.lock();
        let result = change(&mut door.state, now);
        self.release(door, now);
        result
    }

    /// Gives what has matured and lets go of the lock; then permits are handed over and changes told.
    fn release(self: &Arc<Self>, door: MutexGuard<'_, Door>, now: Instant) {
        let outcome = self.let_go(door, now);
        self.hand_over(outcome);
    }

    /// Gives what has matured, sees to the driver, and lets go of the lock.
    fn let_go(self: &Arc<Self>, mut door: MutexGuard<'_, Door>, now: Instant) -> Outcome {
        let mut grants = Grants::new();
        let mut spawn = false;
        if door.state.waiting() > 0 {
            let next = self.serve(&mut door, now, &mut grants);
            match door.next_wakeup {
                Some(next_wakeup) if next < next_wakeup => self.wake.notify_one(),
                Some(_) => {}
                None if door.state.waiting() > 0 => {
                    door.next_wakeup = Some(next);
                    spawn = true;
                }
                None => {}
            }
        }
        if door.state.waiting() == 0 && door.next_wakeup.is_some_and(|next_wakeup| next_wakeup > now + DOZE) {
            self.wake.notify_one();
        }
        let changes = door.state.take_changes();
        drop(door);
        if spawn {
            tokio::spawn(self.clone().drive());
        }
        Outcome { grants, changes }
    }

    /// Gives slots that have matured; says when the next one does.
    fn serve(self: &Arc<Self>, door: &mut Door, now: Instant, grants: &mut Grants) -> Instant {
        let due = door.next_wakeup.map_or(now, |next_wakeup| next_wakeup.min(now));
        door.state.serve(now, due, |ticket, slot, waited| {
            self.metrics.waiting.dec();
            grants.push((ticket, self.permit(slot, waited)));
        })
    }

    fn permit(self: &Arc<Self>, slot: Slot, waited: Duration) -> Permit {
        self.metrics.in_flight.inc();
        self.metrics.wait_seconds.observe(waited.as_secs_f64());
        Permit::new(self.clone(), slot)
    }

    /// Hands over permits and tells changes. A request that has left in this very moment gives its permit back, for which
    /// the next one gets one, who may have left as well: a loop, however many those are.
    fn hand_over(self: &Arc<Self>, mut outcome: Outcome) {
        loop {
            let Outcome { grants, changes } = outcome;
            let sent = grants.into_iter().filter_map(|(ticket, permit)| ticket.send(permit).err());
            let left: SmallVec<[Slot; 2]> = sent.map(Permit::into_slot).collect();
            log_changes(self, &changes);
            if left.is_empty() {
                return;
            }
            let now = self.clock.now();
            let mut door = self.door.lock();
            for slot in &left {
                self.metrics.in_flight.dec();
                door.state.settle(now, slot, End::Unsent);
            }
            outcome = self.let_go(door, now);
        }
    }

    /// Sleeps from slot to slot while somebody waits: the one timer of this lane.
    async fn drive(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let mut grants = Grants::new();
            let (next_wakeup, changes) = {
                let mut door = self.door.lock();
                let next = self.serve(&mut door, now, &mut grants);
                door.next_wakeup = (door.state.waiting() > 0).then_some(next);
                (door.next_wakeup, door.state.take_changes())
            };
            self.hand_over(Outcome { grants, changes });
            let Some(next) = next_wakeup else { return };
            if next <= now {
                // More have their slots than are given in one go: others may have the lock in between.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                () = self.wake.notified() => {}
            }
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("host", &self.host).field("rule", &self.policy.name).finish_non_exhaustive()
    }
}
