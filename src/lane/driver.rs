//! One lane: the state behind one short lock, the one timer, and the permits. Tells the state what happens, and does what
//! that leads to.
//!
//! If nobody waits and every limit says *now*, a request passes on the spot. Otherwise it takes a ticket. While somebody
//! waits, one task per lane sleeps until the next slot matures, and only then is the ticket chosen that gets it.

mod log;
mod permit;
mod symptoms;

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use self::{log::log_changes, symptoms::Symptoms};
pub use self::{
    permit::{Admission, Permit, Waiting},
    symptoms::UpstreamFailure,
};
use crate::{
    clock::{Clock, Instant},
    lane::{
        order::Place,
        request::AdmitRequest,
        snapshot::{QueueStatus, Snapshot},
        state::{Decision, Effects, End, Grant, Memory, Slot, State, Timer},
    },
    learn::AnswerReport,
    metrics::RuleMetrics,
    policy::Policy,
};

/// The queue and the limits of one budget, under one policy.
///
/// A reload makes another `Lane` of it, with the new policy and the same queue and limits. A request keeps the one that it
/// came to: it is handled by one policy and counted by one rule, and looking that up takes no lock.
pub struct Lane {
    host: Arc<str>,
    policy: Arc<Policy>,
    metrics: Arc<RuleMetrics>,
    clock: Clock,
    shared: Arc<Shared>,
}

/// What all lanes of one budget share, whatever their policies.
struct Shared {
    state: Mutex<State<GrantSender>>,
    /// Tells the timer that it sleeps too long.
    wake: Notify,
    symptoms: Symptoms,
}

/// How a waiting request gets its permit, and the lane that it came to.
struct GrantSender {
    lane: Arc<Lane>,
    sender: oneshot::Sender<Permit>,
}

// === impl Lane ===

impl Lane {
    /// A lane in which nothing has happened yet.
    pub fn new(host: Arc<str>, policy: Arc<Policy>, metrics: Arc<RuleMetrics>, clock: Clock) -> Self {
        let now = clock.now();
        let state = Mutex::new(State::new(policy.clone(), now, clock.epoch()));
        let shared = Shared { state, wake: Notify::new(), symptoms: Symptoms::new(now) };
        Self { host, policy, metrics, clock, shared: Arc::new(shared) }
    }

    /// This lane under another policy: with the same queue, and with all that was sent and learned.
    pub(super) fn reconfigured(self: &Arc<Self>, policy: Arc<Policy>, metrics: Arc<RuleMetrics>) -> Arc<Self> {
        let (host, shared) = (self.host.clone(), self.shared.clone());
        let lane = Arc::new(Self { host, policy: policy.clone(), metrics, clock: self.clock, shared });
        let epoch = lane.clock.epoch();
        lane.tell(|state, now| state.reconfigured(now, policy, epoch));
        lane
    }

    /// From now on, requests that asked `other` ask this lane: what was sent there counts here.
    pub(super) fn absorb(self: &Arc<Self>, other: &Self) {
        // One lock after the other: two lanes that absorb each other must not wait for each other.
        let budget = other.shared.state.lock().budget().clone();
        self.tell(|state, now| state.absorbed(now, &budget));
    }

    /// Whether no other policy of this budget is in anybody's hands.
    pub(super) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Asks for a slot. Must be called on a tokio runtime, which drives the lane while somebody waits.
    pub fn admit(self: &Arc<Self>, ask: AdmitRequest) -> Admission {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        match state.asked(now, &ask) {
            Decision::Send(slot) => {
                drop(state);
                Admission::Send(self.permit(slot, Duration::ZERO))
            }
            Decision::Refuse(refusal) => Admission::Refuse(refusal),
            Decision::Wait(offer) => {
                let (sender, grant) = oneshot::channel();
                let place = state.enqueued(now, &ask, &offer, GrantSender { lane: self.clone(), sender });
                self.metrics.waiting.inc();
                let effects = state.effects(now);
                drop(state);
                self.execute(effects);
                Admission::Wait(Waiting { lane: self.clone(), place, grant, granted: false, expected: offer.expected })
            }
        }
    }

    /// Whether the upstream is left alone because it fails.
    pub fn is_broken(&self) -> bool {
        self.shared.state.lock().learned().is_broken()
    }

    /// Whether the API serves requests, so that a 503 refuses one and says nothing of an outage.
    pub fn is_alive(&self) -> bool {
        self.shared.state.lock().learned().is_alive()
    }

    /// For how long nothing leaves, as far as is known.
    pub fn closed_for(&self) -> Duration {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        let learned = state.learned();
        learned.closed(now, learned.usual_scope()).map_or(Duration::ZERO, |(until, _)| until.since(now))
    }

    /// Whether one more request may be sent again although the upstream is in trouble; counts it if so.
    pub fn may_retry(&self) -> bool {
        self.shared.state.lock().learned().may_retry()
    }

    /// How many answers were no refusals.
    pub fn served(&self) -> u64 {
        let state = self.shared.state.lock();
        state.stats().answered - state.stats().refused_by_api
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

    /// How many wait, and when the next slot matures.
    pub fn queue_status(&self) -> QueueStatus {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        QueueStatus { waiting: state.waiting(), next_slot: state.next_slot(now) }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiting()
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The lane as it stands.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        self.shared.state.lock().snapshot(now, self.host.clone())
    }

    /// Whether somebody waits although a slot has matured.
    #[cfg(test)]
    pub(super) fn loses_slots(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        state.waiting() > 0 && state.next_slot(now) <= now
    }

    /// How many that wait have been moved from line to line, one by one.
    #[cfg(test)]
    pub(super) fn moved(&self) -> usize {
        self.shared.state.lock().moved()
    }

    /// What would be lost if this lane were forgotten.
    pub(super) fn memory(&self) -> Memory {
        let now = self.clock.now();
        self.shared.state.lock().memory(now)
    }

    /// A request is being written. Returns when.
    pub(super) fn sent(self: &Arc<Self>, slot: &Slot) -> Instant {
        self.tell(|state, now| {
            state.sent(now, slot.charge);
            now
        })
    }

    /// What was sent has not been written after all. Returns whether its slot still holds.
    pub(super) fn recalled(self: &Arc<Self>, slot: &Slot) -> bool {
        self.tell(|state, _| state.recalled(slot.charge))
    }

    /// The answer of what left at `sent` is here.
    pub(super) fn answered(self: &Arc<Self>, slot: &Slot, sent: Instant, heard: &AnswerReport<'_>) {
        let took = self.tell(|state, now| {
            state.answered(now, slot, sent, heard);
            now.since(sent)
        });
        self.metrics.upstream_seconds.observe(took.as_secs_f64());
    }

    /// What was taken could not be sent, broke off, or was not answered in time.
    pub(super) fn broke(self: &Arc<Self>, slot: &Slot) {
        self.tell(|state, now| state.broke(now, slot.charge));
    }

    /// A permit has come to its end.
    pub(super) fn settled(self: &Arc<Self>, slot: &Slot, end: End) {
        self.metrics.in_flight.dec();
        self.tell(|state, now| state.settled(now, slot, end));
    }

    /// A ticket is dropped.
    pub(super) fn left(self: &Arc<Self>, place: Place) {
        if self.tell(|state, _| state.left(place)) {
            self.metrics.waiting.dec();
        }
    }

    /// Calendar limits are renewed by the system's clock, which may have been set, or have gone on while the machine slept.
    pub(super) fn read_clock(self: &Arc<Self>) {
        let epoch = self.clock.epoch();
        self.tell(|state, _| state.clock_read(epoch));
    }

    /// Tells the state an event, and does what that leads to.
    fn tell<R>(self: &Arc<Self>, event: impl FnOnce(&mut State<GrantSender>, Instant) -> R) -> R {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        let result = event(&mut state, now);
        if state.has_effects() {
            let effects = state.effects(now);
            drop(state);
            self.execute(effects);
        }
        result
    }

    fn permit(self: &Arc<Self>, slot: Slot, waited: Duration) -> Permit {
        self.metrics.in_flight.inc();
        self.metrics.wait_seconds.observe(waited.as_secs_f64());
        Permit::new(self.clone(), slot)
    }

    /// Does what an event has led to; the lock is not held. A request that has left in this very moment gives its slot
    /// back, for which the next one gets one, which may have left as well: a loop, however many those are.
    fn execute(self: &Arc<Self>, mut effects: Effects<GrantSender>) {
        loop {
            let Effects { grants, timer, changes } = effects;
            match timer {
                Timer::Keep => {}
                Timer::Set(at) => drop(tokio::spawn(self.clone().drive(at))),
                Timer::Ring => self.shared.wake.notify_one(),
            }
            let undelivered: SmallVec<[Slot; 2]> =
                grants.into_iter().filter_map(|grant| deliver(grant).err()).collect();
            log_changes(self, &changes);
            if undelivered.is_empty() {
                return;
            }
            let now = self.clock.now();
            let mut state = self.shared.state.lock();
            undelivered.iter().for_each(|slot| state.settled(now, slot, End::Unsent));
            effects = state.effects(now);
        }
    }

    /// The one timer of this lane: sleeps until `at`, and then from slot to slot while somebody waits.
    async fn drive(self: Arc<Self>, mut at: Instant) {
        let mut now = self.clock.now();
        loop {
            if at <= now {
                // More have their slots than are given in one go: others may have the lock in between.
                tokio::task::yield_now().await;
            } else {
                tokio::select! {
                    () = self.clock.sleep_until(at) => {}
                    () = self.shared.wake.notified() => {}
                }
            }
            now = self.clock.now();
            let mut effects = self.shared.state.lock().woken(now, at.min(now));
            let timer = std::mem::replace(&mut effects.timer, Timer::Keep);
            self.execute(effects);
            let Timer::Set(next) = timer else { return };
            at = next;
        }
    }
}

/// Hands a slot to a request that has waited for it; the slot comes back if the request has left.
fn deliver(grant: Grant<GrantSender>) -> Result<(), Slot> {
    let Grant { ticket: GrantSender { lane, sender }, slot, waited } = grant;
    lane.metrics.waiting.dec();
    sender.send(lane.permit(slot, waited)).map_err(|permit| {
        lane.metrics.in_flight.dec();
        permit.into_slot()
    })
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("host", &self.host).field("rule", &self.policy.name).finish_non_exhaustive()
    }
}
