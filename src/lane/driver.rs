//! A lane's driver: the state behind one short lock, the only timer, and the permits. Passes events to the state, and
//! carries out their effects.
//!
//! If no request waits and every limit says *now*, a request passes on the spot. Otherwise it takes a ticket. While
//! requests wait, one task per lane sleeps until the next slot matures; only then is the ticket chosen that gets it.

mod bottleneck;
mod diagnostics;
mod handover;
mod keeping;
mod log;
mod merge;
mod obstacle;
mod permit;
mod sharing;
mod steer;
mod view;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use andante_clock::{Clock, Instant};
use andante_learn::AnswerReport;
use andante_limit::Unit;
use andante_metrics::RuleMetrics;
use andante_order::QueuePlace;
use andante_policy::{Policy, RenamedRules, Rules};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

pub(crate) use self::keeping::KeptLane;
use self::{
    diagnostics::Diagnostics,
    log::log_changes,
    permit::{Dismissal, Outcome},
    sharing::{SharedLane, tell_of_pauses},
};
pub use self::{
    diagnostics::UpstreamFailure,
    permit::{Admission, Permit, Waiting},
    sharing::Sharing,
};
pub use self::{keeping::KeepRequest, obstacle::Obstacle};
use crate::{
    capacity::Capacity,
    journal::Journal,
    request::{AdmitRequest, Refusal},
    state::{Decision, Effects, End, Evicted, Grant, SharedNames, Slot, State, SubLimitRules, Timer, Usage},
};

/// The queue and the limits of one budget, under one policy.
///
/// A reload turns it into another `Lane`, with the new policy and the same queue and limits. A request keeps the `Lane`
/// that it came to: one policy handles it, one rule counts it, and neither look-up takes a lock.
pub struct Lane {
    host: Arc<str>,
    policy: Arc<Policy>,
    metrics: Arc<RuleMetrics>,
    clock: Clock,
    /// The journal of events in this lane, if people can read it.
    journal: Option<Arc<Journal>>,
    shared: Arc<Shared>,
}

/// State that all lanes of one budget share, whatever their policies.
struct Shared {
    state: Mutex<State<GrantSender>>,
    /// Wakes the timer when it sleeps too long.
    wake: Notify,
    diagnostics: Diagnostics,
    /// The lane's place in the store, if it is persisted.
    kept: Option<KeptLane>,
    /// The task that talks to the store, if its limits are shared with other processes.
    sharing: Option<SharedLane>,
    /// State that has taken over from this one. A tunnel may keep a lane for longer than a reload does. A tunnel to a
    /// port that got a rule of its own keeps the lane that its port had.
    successor: OnceLock<Arc<Shared>>,
}

/// The channel through which a waiting request gets its permit, and the lane that it came to.
pub(crate) struct GrantSender {
    lane: Arc<Lane>,
    sender: oneshot::Sender<Box<Outcome>>,
}

/// The most sub-limits that a sweep examines in one go, to forget those that remember nothing.
const SOME: u32 = 1000;

// === impl Lane ===

impl Lane {
    /// A lane in which nothing has happened yet.
    pub fn new(host: Arc<str>, policy: Arc<Policy>, metrics: Arc<RuleMetrics>, clock: Clock) -> Self {
        let now = clock.now();
        let state = Mutex::new(State::new(policy.clone(), now, clock.epoch()));
        let shared = Shared {
            state,
            wake: Notify::new(),
            diagnostics: Diagnostics::new(now),
            kept: None,
            sharing: None,
            successor: OnceLock::new(),
        };
        Self { host, policy, metrics, clock, journal: None, shared: Arc::new(shared) }
    }

    /// This lane, which writes into `journal` from now on.
    pub(super) fn with_journal(self, journal: Arc<Journal>) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Shares the limits and pauses of this lane with other processes; the store knows it by `names`.
    pub(super) fn shared(mut self, sharing: &Sharing, names: SharedNames) -> Self {
        let now = self.clock.now();
        let shared = Arc::get_mut(&mut self.shared).expect("nobody else has it yet");
        let state = shared.state.get_mut();
        state.share(now, sharing.lease.clone());
        tell_of_pauses(state, now, &names.pauses, &sharing.pauses.of(now, &names.pauses));
        shared.sharing = Some(sharing.lane(names));
        self
    }

    /// This lane under another policy: with the same queue, and with all that was sent and learned.
    pub(super) fn reconfigured(self: &Arc<Self>, policy: Arc<Policy>, metrics: Arc<RuleMetrics>) -> Arc<Self> {
        let (host, journal, shared) = (self.host.clone(), self.journal.clone(), self.shared.clone());
        let lane = Arc::new(Self { host, policy: policy.clone(), metrics, clock: self.clock, journal, shared });
        let epoch = lane.clock.epoch();
        lane.tell(|state, now| state.reconfigured(now, policy, epoch));
        lane
    }

    /// Applies the narrower rules of `rules`; `renamed` lists rules with new names.
    pub(super) fn sub_limit_rules(self: &Arc<Self>, rules: &Arc<Rules>, renamed: &RenamedRules) {
        let rules = SubLimitRules::new(rules.clone(), renamed.clone(), &self.policy);
        self.tell(|state, now| state.sub_limit_rules(now, rules));
    }

    /// Counts its sub-limits together with those of all lanes.
    pub(super) fn within(self, capacity: Arc<Capacity>) -> Self {
        self.shared.state.lock().set_capacity(capacity);
        self
    }

    /// Forgets returns that are over, and sub-limits that remember nothing.
    pub(super) fn forget_idle(&self) {
        let mut looks = self.shared.state.lock().sub_limits();
        loop {
            // Between the calls, other tasks may take the lock.
            let some = looks.min(SOME);
            let now = self.clock.now();
            self.shared.state.lock().forget_idle(now, some);
            looks -= some;
            if looks == 0 {
                return;
            }
        }
    }

    /// Number of sub-limits that fit into the allocated memory.
    #[cfg(test)]
    pub(super) fn sub_limits(&self) -> u32 {
        self.shared.state.lock().sub_limits()
    }

    /// Number of returns of refused requests that are remembered.
    #[cfg(test)]
    pub(super) fn remembered_returns(&self) -> usize {
        self.shared.state.lock().remembered_returns()
    }

    /// Returns whether this is the only `Lane` left for the budget.
    pub(super) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Asks for a slot. Must be called on a tokio runtime, which drives the lane while requests wait.
    pub fn admit(self: &Arc<Self>, ask: AdmitRequest) -> Admission {
        self.admit_at(self.clock.now(), ask)
    }

    /// Asks for a slot at `now`.
    pub fn admit_at(self: &Arc<Self>, now: Instant, ask: AdmitRequest) -> Admission {
        let mut state = self.shared.state.lock();
        // Under the lock, as it is set: whatever was asked before has been absorbed.
        if let Some(successor) = self.shared.successor.get() {
            drop(state);
            return self.on_state(successor).admit_at(now, ask);
        }
        match state.asked(now, &ask) {
            Decision::Send(slot) => {
                let (block, calls) = (state.asks_for_block(), state.calls());
                drop(state);
                if block {
                    self.ask_for_block();
                }
                if calls {
                    self.call();
                }
                Admission::Send(self.permit(slot, Duration::ZERO))
            }
            Decision::Refuse(refusal) => Admission::Refuse(refusal),
            Decision::Wait(offer) => {
                let (sender, grant) = oneshot::channel();
                let (expected, ahead) = (offer.expected, offer.ahead);
                let place = state.enqueued(now, &ask, offer, GrantSender { lane: self.clone(), sender });
                self.metrics.waiting.inc();
                let effects = state.effects(now);
                drop(state);
                self.execute(effects);
                Admission::Wait(Waiting { lane: self.clone(), place, grant, answered: false, expected, ahead })
            }
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Records that a request is being written.
    pub(super) fn sent(self: &Arc<Self>, now: Instant, slot: &Slot) {
        self.tell_at(now, |state| state.sent(now, slot));
    }

    /// Takes back a send: the request was not written after all. Returns whether its slot is still valid.
    pub(super) fn recalled(self: &Arc<Self>, slot: &Slot) -> bool {
        self.tell(|state, _| state.recalled(slot))
    }

    /// Records the answer to the request that left at `sent`.
    pub(super) fn answered(self: &Arc<Self>, now: Instant, slot: &Slot, sent: Instant, heard: &AnswerReport<'_>) {
        self.tell_at(now, |state| state.answered(now, slot, sent, heard));
        self.metrics.upstream_seconds.observe(now.since(sent));
    }

    /// Applies the usage that the answer reported.
    pub(super) fn used(self: &Arc<Self>, slot: &mut Slot, usage: &Usage) {
        self.tell(|state, now| state.used(now, slot, usage));
    }

    /// Estimated use of `unit` for a request with a body of this many bytes, from other answers; `None` before any
    /// answer.
    pub fn of_length(&self, unit: Unit, bytes: u64) -> Option<u32> {
        self.shared.state.lock().of_length(unit, bytes)
    }

    /// Records a request that could not be sent, broke off, or timed out.
    pub(super) fn broke(self: &Arc<Self>, slot: &Slot) {
        self.tell(|state, now| state.broke(now, slot));
    }

    /// Settles a permit that has ended.
    pub(super) fn settled(self: &Arc<Self>, now: Instant, slot: &mut Slot, end: End) {
        self.metrics.in_flight.ended();
        self.tell_at(now, |state| state.settled(now, slot, end));
    }

    /// Removes a dropped ticket.
    pub(super) fn left(self: &Arc<Self>, place: QueuePlace) {
        if self.tell(|state, _| state.left(place)) {
            self.metrics.waiting.dec();
        }
    }

    /// Removes a ticket whose deadline has passed. `None` if it has its slot by now.
    pub(super) fn gave_up(self: &Arc<Self>, place: QueuePlace) -> Option<Refusal> {
        let refusal = self.tell(|state, now| state.gave_up(now, place))?;
        self.metrics.waiting.dec();
        Some(refusal)
    }

    /// Rereads the system's clock, which renews calendar limits. The clock may have been set, or have advanced while
    /// the machine slept.
    pub(super) fn read_clock(self: &Arc<Self>) {
        let epoch = self.clock.epoch();
        self.tell(|state, _| state.clock_read(epoch));
    }

    /// Passes an event to the state, and carries out its effects.
    fn tell<R>(self: &Arc<Self>, event: impl FnOnce(&mut State<GrantSender>, Instant) -> R) -> R {
        let now = self.clock.now();
        self.tell_at(now, |state| event(state, now))
    }

    /// Passes an event at `now` to the state, and carries out its effects.
    fn tell_at<R>(self: &Arc<Self>, now: Instant, event: impl FnOnce(&mut State<GrantSender>) -> R) -> R {
        let mut state = self.shared.state.lock();
        let result = event(&mut state);
        if state.has_effects() {
            let effects = state.effects(now);
            drop(state);
            self.execute(effects);
        }
        result
    }

    fn permit(self: &Arc<Self>, slot: Box<Slot>, waited: Duration) -> Permit {
        self.metrics.wait_seconds.observe(waited);
        Permit::new(self.clone(), slot)
    }

    /// Carries out effects; the lock is not held. A request that has just left returns its slot, and the next request
    /// may have left as well: a loop handles any number of them.
    fn execute(self: &Arc<Self>, mut effects: Effects<GrantSender>) {
        loop {
            let Effects { grants, evicted, timer, block, calls, changes } = effects;
            evicted.into_iter().for_each(dismiss);
            if block {
                self.ask_for_block();
            }
            if calls {
                self.call();
            }
            match timer {
                Timer::Keep => {}
                Timer::Set(at) => drop(tokio::spawn(self.clone().run_timer(at))),
                Timer::Ring => self.shared.wake.notify_one(),
            }
            let mut undelivered: SmallVec<[Box<Slot>; 2]> =
                grants.into_iter().filter_map(|grant| deliver(grant).err()).collect();
            log_changes(self, &changes);
            if undelivered.is_empty() {
                return;
            }
            let now = self.clock.now();
            let mut state = self.shared.state.lock();
            undelivered.iter_mut().for_each(|slot| state.settled(now, slot, End::Unsent));
            effects = state.effects(now);
        }
    }

    /// The lane's only timer: sleeps until `at`, and then from slot to slot while requests wait.
    async fn run_timer(self: Arc<Self>, mut at: Instant) {
        let mut now = self.clock.now();
        loop {
            if at <= now {
                // More slots have matured than are granted in one go: others may have the lock in between.
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

/// Hands a slot to a request that has waited for it. Returns the slot if the request has left.
fn deliver(grant: Grant<GrantSender>) -> Result<(), Box<Slot>> {
    let Grant { ticket: GrantSender { lane, sender }, slot, waited } = grant;
    lane.metrics.waiting.dec();
    sender.send(Box::new(Ok(lane.permit(slot, waited)))).map_err(|permit| {
        lane.metrics.in_flight.ended();
        permit.expect("it is what was sent").into_slot()
    })
}

/// Tells a request that it no longer waits; it may have left.
fn dismiss(evicted: Evicted<GrantSender>) {
    let Evicted { ticket: GrantSender { lane, sender }, refusal } = evicted;
    lane.metrics.waiting.dec();
    let _ = sender.send(Box::new(Err(Dismissal::Refused(refusal))));
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("host", &self.host).field("rule", &self.policy.name).finish_non_exhaustive()
    }
}
