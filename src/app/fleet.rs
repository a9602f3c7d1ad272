//! Shares budgets with other andantes: calls the store for all lanes, one call at a time.

mod metrics;
mod report;
mod standing;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroU32,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tracing::warn;

pub(super) use self::report::FleetReport;
use self::report::OfFleet;
use crate::{
    clock::{Clock, Instant},
    config::FleetConfig,
    fleet::{
        Division, Entry, Extent, Lease, Member, MemberId, Mode, Pause, ReplyOutcome, RunningPauses, StoreDown, Terms,
        micros,
    },
    lane::{Lane, Sharing},
    limit::ShareReport,
    metrics::Metrics,
    proxy::Proxy,
    store::{Ledger, LedgerError, StoreHint},
};

/// The task's state before any request is sent.
pub(super) struct FleetMember<L> {
    ledger: L,
    member: Member,
    lease: Lease,
    clock: Clock,
    wakes: mpsc::UnboundedReceiver<Arc<Lane>>,
    told: mpsc::Receiver<StoreHint>,
    lanes: HashMap<u64, Weak<Lane>>,
    /// Lanes by the pools that were reported for them.
    pools: HashMap<Arc<str>, u64>,
    /// Times at which each lane is due.
    due: BTreeSet<(Instant, u64)>,
    next: HashMap<u64, Instant>,
    /// The next call has to report everything.
    reports: bool,
    next_beat: Instant,
    not_before: Instant,
    failures: u32,
    /// Number of successive replies that led to nothing.
    astray: u32,
    began: Instant,
    /// Configured number of andantes in the fleet.
    size: Option<NonZeroU32>,
    /// Pauses that APIs asked of other members.
    pauses: RunningPauses,
    report: Arc<FleetReport>,
}

/// Report about one lane in a call.
struct SpokenLane {
    number: u64,
    lane: Arc<Lane>,
    entries: Vec<Entry>,
    pauses: Vec<Pause>,
}

/// The task that calls the store.
pub(super) struct Talking {
    leave: oneshot::Sender<()>,
    task: JoinHandle<()>,
    pub(super) report: Arc<FleetReport>,
}

/// Time after which an unanswered call is given up.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after a failure; it grows with each further one.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Least distance between calls, whatever the store replies.
const GAP: Duration = Duration::from_millis(2);
/// Replies that may lead to nothing. A store that has forgotten its data asks for a report, and may then not know it.
/// More such replies in a row are failures.
const ASTRAY: u32 = 2;
/// Time that the store's scripts count between two calls of an unknown member.
const UNKNOWN: Duration = Duration::from_millis(400);
/// Pools that one call may report, unless everything has to be reported.
const MOST: usize = 500;
/// Interval at which lanes check what may leave while the store does not answer.
const RECHECK: Duration = Duration::from_secs(1);
/// Longest time for telling the store that a process leaves.
const FAREWELL: Duration = Duration::from_secs(1);

// === impl FleetMember ===

impl<L: Ledger> FleetMember<L> {
    /// Creates a member according to `config`, and the handle by which lanes wake it.
    pub(super) fn new(mut ledger: L, store: String, config: &FleetConfig, clock: Clock) -> (Self, Sharing) {
        let floor = if let StoreDown::Floor(floor) = config.down { floor.percent } else { 0 };
        let division = Division { members: config.size.map_or(0, NonZeroU32::get), floor };
        let terms = Terms { lease: micros(config.lease), split: 0, division };
        let (lease, id) = (Lease::new(config.down).holding(config.in_flight_hold), fresh());
        let (sender, wakes) = mpsc::unbounded_channel();
        let told = ledger.listen(id);
        let sharing = Sharing::new(store.as_str().into(), lease.clone(), sender);
        let member = Self {
            ledger,
            member: Member::new(id, terms, lease.clone()),
            lease: lease.clone(),
            pauses: sharing.pauses.clone(),
            clock,
            wakes,
            told,
            lanes: HashMap::new(),
            pools: HashMap::new(),
            due: BTreeSet::new(),
            next: HashMap::new(),
            reports: false,
            next_beat: Instant::START,
            not_before: Instant::START,
            failures: 0,
            astray: 0,
            began: clock.now(),
            size: config.size,
            report: Arc::new(FleetReport::new(store, lease, clock)),
        };
        (member, sharing)
    }

    /// Makes calls for the lanes of `proxy` from now on, and counts them in `metrics`.
    pub(super) fn start(self, proxy: &Arc<Proxy>, metrics: &Metrics) -> Talking {
        metrics.register(Box::new(OfFleet(self.report.clone())));
        let (leave, left) = oneshot::channel();
        let (report, proxy) = (self.report.clone(), Arc::downgrade(proxy));
        let task = tokio::spawn(self.run(proxy, left));
        Talking { leave, task, report }
    }

    async fn run(mut self, proxy: Weak<Proxy>, mut left: oneshot::Receiver<()>) {
        loop {
            let now = self.clock.now();
            let first = self.due.first().map_or(Instant::FAR, |(at, _)| *at);
            let work = if self.member.has_joined() && !self.reports { first } else { Instant::FAR };
            let at = if self.reports { now } else { work.min(self.next_beat) }.max(self.not_before);
            // Budgets without a lease change with time.
            let recheck = if self.lease.holds(now) { self.lease.until() } else { now + RECHECK };
            tokio::select! {
                biased;
                _ = &mut left => break,
                Some(lane) = self.wakes.recv() => self.woken(lane),
                Some(told) = self.told.recv() => self.hinted(&told),
                () = self.clock.sleep_until(at) => self.talk(&proxy).await,
                () = self.clock.sleep_until(recheck) => self.recheck(),
            }
        }
        // Tokens that the last call reports as free must not be used afterwards.
        self.lease.end();
        let entries: Vec<Entry> = self.alive().iter().flat_map(|(_, lane)| lane.leave()).collect();
        let call = self.member.call(self.clock.now(), Extent::Leaving, entries, Vec::new());
        // Without this call the store withholds the tokens until the lease has ended, and for one window more.
        let _ = tokio::time::timeout(FAREWELL, self.ledger.sync(&call)).await;
    }

    fn woken(&mut self, lane: Arc<Lane>) {
        let Some(number) = lane.shared_as() else { return };
        self.lanes.insert(number, Arc::downgrade(&lane));
        self.look_at(number, Instant::START);
    }

    fn hinted(&mut self, told: &StoreHint) {
        let (pool, turn) = match told {
            StoreHint::Pool { pool, turn } => (pool.as_str(), *turn),
            StoreHint::Pauses => {
                self.next_beat = Instant::START;
                return;
            }
        };
        let Some(&number) = self.pools.get(pool) else { return };
        if let Some(lane) = self.lanes.get(&number).and_then(Weak::upgrade)
            && lane.hinted(pool, turn)
        {
            self.look_at(number, Instant::START);
        }
    }

    fn look_at(&mut self, number: u64, at: Instant) {
        if let Some(before) = self.next.insert(number, at) {
            self.due.remove(&(before, number));
        }
        self.due.insert((at, number));
    }

    /// Lets lanes check again what may leave without the lease.
    fn recheck(&self) {
        self.stand(None);
        self.alive().iter().for_each(|(_, lane)| lane.leased());
    }

    fn alive(&self) -> Vec<(u64, Arc<Lane>)> {
        self.lanes.iter().filter_map(|(number, lane)| Some((*number, lane.upgrade()?))).collect()
    }

    /// Makes one call, if there is anything to report.
    async fn talk(&mut self, proxy: &Weak<Proxy>) {
        let now = self.clock.now();
        let beat = now >= self.next_beat;
        if beat {
            self.find_lanes(proxy);
        }
        let spoken = self.gather(now);
        let entries: Vec<Entry> = spoken.iter().flat_map(|spoken| spoken.entries.iter().cloned()).collect();
        let pauses: Vec<Pause> = spoken.iter().flat_map(|spoken| spoken.pauses.iter().cloned()).collect();
        if spoken.is_empty() && !beat && !self.reports {
            return;
        }
        let extent = if self.reports { Extent::All } else { Extent::Some };
        let now = self.clock.now();
        let call = self.member.call(now, extent, entries, pauses);
        let replied = match tokio::time::timeout(PATIENCE, self.ledger.sync(&call)).await {
            Ok(replied) => replied,
            Err(_) => {
                self.ledger.give_up();
                Err(LedgerError(format!("it did not answer within {PATIENCE:?}")))
            }
        };
        let heard = self.clock.now();
        self.next_beat = now + self.member.lease_length() / 3;
        let outcome = match replied {
            Ok(reply) if reply.answers(&call) => self.member.heard(heard, call.seq, reply),
            Ok(_) => return self.failed(heard, &spoken, &LedgerError("a reply that makes no sense".to_owned())),
            Err(error) => return self.failed(heard, &spoken, &error),
        };
        self.report.metrics.answered(heard.since(now));
        self.not_before = now + GAP;
        let was_leased = self.lease.holds(now);
        self.failures = 0;
        self.astray += 1;
        match outcome {
            ReplyOutcome::Granted { given, pauses } => {
                (self.reports, self.astray) = (false, 0);
                // A store that is learning does not know yet how many members there are. The store's grants assume
                // the configured number.
                if self.member.mode() == Mode::Member {
                    self.take_seat(heard, self.member.members(), self.member.differing());
                }
                let mut given = call.entries.iter().zip(&given);
                for SpokenLane { number, lane, entries, .. } in &spoken {
                    let of_lane = given.clone().take(entries.len());
                    of_lane.for_each(|(said, holds)| self.report.told_of_limit(lane.host(), said, holds));
                    lane.given(given.by_ref().take(entries.len()));
                    self.look_at(*number, Instant::START);
                }
                if !pauses.is_empty() {
                    self.pause(heard, proxy, &pauses);
                }
            }
            ReplyOutcome::Report => {
                self.unheard(&spoken);
                self.reports = true;
            }
            ReplyOutcome::Reset => {
                if self.astray <= ASTRAY {
                    warn!(
                        store = self.report.store,
                        "the store gave this member's shares to others: joining the fleet again"
                    );
                }
                self.alive().iter().for_each(|(_, lane)| lane.lose_shares());
                let id = fresh();
                self.member.begin_anew(id);
                self.told = self.ledger.listen(id);
                (self.reports, self.next_beat) = (false, heard);
            }
            ReplyOutcome::Refused | ReplyOutcome::Stale => {
                self.unheard(&spoken);
                self.not_before = heard + LONGEST_PAUSE;
            }
        }
        // Each of these modes describes its own problem.
        let refused = matches!(self.member.mode(), Mode::Deposed | Mode::NotYet(_) | Mode::Disagreed(_));
        if self.astray > ASTRAY && !refused {
            let problem = "its answers only ask this andante to join again, report or repeat a call";
            return self.failed(heard, &[], &LedgerError(problem.to_owned()));
        }
        match self.member.mode() {
            Mode::Learning(_) => self.next_beat = self.next_beat.min(heard + Duration::from_secs(1)),
            // Between two calls of an unknown member the store counts at most this much time.
            Mode::NotYet(left) => {
                let soon = heard + left.min(UNKNOWN);
                (self.next_beat, self.not_before) = (self.next_beat.min(soon), soon);
            }
            _ => {}
        }
        {
            let mut last = self.report.last.lock();
            last.took = heard.since(now);
            last.members = self.member.members();
            last.epoch = self.member.epoch().map_or(0, |epoch| epoch.counter);
            last.id = Some(self.member.id());
        }
        self.stand(None);
        if !was_leased && self.lease.holds(heard) {
            self.alive().iter().for_each(|(_, lane)| lane.leased());
        }
    }

    /// Handles a failed call: the next one waits, longer each time.
    fn failed(&mut self, heard: Instant, spoken: &[SpokenLane], why: &LedgerError) {
        self.failures = (self.failures + 1).max(self.astray);
        let pause = PAUSE.saturating_mul(1 << self.failures.min(8)).min(LONGEST_PAUSE);
        (self.not_before, self.next_beat) = (heard + pause, heard + pause);
        self.unheard(spoken);
        self.stand(Some(why));
    }

    /// Reports of the lanes that are due, or of all lanes if everything has to be reported.
    fn gather(&mut self, now: Instant) -> Vec<SpokenLane> {
        let mut spoken = Vec::new();
        if !self.member.has_joined() {
            return spoken;
        }
        let (mut pools, reports) = (0, self.reports);
        let due: Vec<u64> = if reports {
            self.lanes.keys().copied().collect()
        } else {
            self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, number)| *number).collect()
        };
        for number in due {
            if pools >= MOST && !reports {
                break;
            }
            let Some(lane) = self.lanes.get(&number).and_then(Weak::upgrade) else {
                self.lanes.remove(&number);
                self.next.remove(&number).map(|at| self.due.remove(&(at, number)));
                self.pools.retain(|_, lane| *lane != number);
                continue;
            };
            let said = lane.speak(reports);
            self.look_at(number, said.next);
            let ShareReport { entries, pauses, .. } = said;
            if !(entries.is_empty() && pauses.is_empty()) {
                pools += entries.len() + pauses.len();
                self.pools.extend(entries.iter().map(|entry| (entry.pool.clone(), number)));
                spoken.push(SpokenLane { number, lane, entries, pauses });
            }
        }
        spoken
    }

    fn unheard(&mut self, spoken: &[SpokenLane]) {
        for SpokenLane { number, lane, entries, .. } in spoken {
            lane.unheard(entries);
            self.look_at(*number, Instant::START);
        }
    }

    /// Passes on pauses that APIs asked of other members, to present lanes and to new ones.
    fn pause(&mut self, heard: Instant, proxy: &Weak<Proxy>, pauses: &[Pause]) {
        // The order matters: a lane that opens meanwhile either reads the pauses itself, or is found here.
        self.pauses.told(heard, pauses);
        self.find_lanes(proxy);
        self.alive().iter().for_each(|(_, lane)| lane.told_of_pauses(pauses));
    }

    /// Finds new lanes; a reload makes other lanes for the same budgets.
    fn find_lanes(&mut self, proxy: &Weak<Proxy>) {
        let Some(proxy) = proxy.upgrade() else { return };
        for lane in proxy.lanes.all() {
            if let Some(number) = lane.shared_as()
                && self.lanes.insert(number, Arc::downgrade(&lane)).is_none()
            {
                self.look_at(number, Instant::START);
            }
        }
    }
}

/// An id that no other member has.
fn fresh() -> MemberId {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Scripts compute with numbers of 53 bits; this id is never part of a computation.
    MemberId(RandomState::new().build_hasher().finish())
}

// === impl Talking ===

impl Talking {
    /// Leaves the fleet. No request may leave any more.
    pub(super) async fn finish(self) {
        // Before that, the task ends only with the runtime.
        let _ = self.leave.send(());
        let _ = self.task.await;
    }
}
