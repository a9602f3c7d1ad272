//! Shares budgets with other andantes: talks to the store for all lanes, one call at a time.

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

/// What talks to the store, before anything is sent.
pub(super) struct FleetMember<L> {
    ledger: L,
    member: Member,
    lease: Lease,
    clock: Clock,
    wakes: mpsc::UnboundedReceiver<Arc<Lane>>,
    told: mpsc::Receiver<StoreHint>,
    lanes: HashMap<u64, Weak<Lane>>,
    /// The lanes whose pools were spoken of.
    pools: HashMap<Arc<str>, u64>,
    /// When each lane is to be looked at.
    due: BTreeSet<(Instant, u64)>,
    next: HashMap<u64, Instant>,
    /// The next call has to report everything.
    reports: bool,
    next_beat: Instant,
    not_before: Instant,
    failures: u32,
    /// So many replies in a row have led to nothing.
    astray: u32,
    began: Instant,
    /// How many andantes are said to be in the fleet.
    size: Option<NonZeroU32>,
    /// The pauses that other members were asked for.
    pauses: RunningPauses,
    report: Arc<FleetReport>,
}

/// What a call says of one lane.
struct SpokenLane {
    number: u64,
    lane: Arc<Lane>,
    entries: Vec<Entry>,
    pauses: Vec<Pause>,
}

/// The task that talks to the store.
pub(super) struct Talking {
    leave: oneshot::Sender<()>,
    task: JoinHandle<()>,
    pub(super) report: Arc<FleetReport>,
}

/// A call that is not answered by then is given up.
const PATIENCE: Duration = Duration::from_secs(1);
/// After a failure the next call waits, longer each time.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Calls keep this distance at least, whatever the store says.
const GAP: Duration = Duration::from_millis(2);
/// A store that has forgotten asks for a report, and may not know it: more replies in a row that lead to nothing are failures.
const ASTRAY: u32 = 2;
/// As the store's scripts have it.
const UNKNOWN: Duration = Duration::from_millis(400);
/// So many pools are spoken of in one call, unless everything has to be reported.
const MOST: usize = 500;
/// While the store does not answer, lanes look this often at what may leave.
const RECHECK: Duration = Duration::from_secs(1);
/// The store is told that a process leaves for so long at most.
const FAREWELL: Duration = Duration::from_secs(1);

// === impl FleetMember ===

impl<L: Ledger> FleetMember<L> {
    /// A member as `config` has it, and how its lanes wake it.
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

    /// Talks for the lanes of `proxy` from now on, and counts that in `metrics`.
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
            // What may be used without the lease changes with time.
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
        // What is said to be free now must not be used any more.
        self.lease.end();
        let entries: Vec<Entry> = self.alive().iter().flat_map(|(_, lane)| lane.leave()).collect();
        let call = self.member.call(self.clock.now(), Extent::Leaving, entries, Vec::new());
        // Else it is withheld until the lease is over, and a window.
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

    /// Lanes look anew what may leave without the lease.
    fn recheck(&self) {
        self.stand(None);
        self.alive().iter().for_each(|(_, lane)| lane.leased());
    }

    fn alive(&self) -> Vec<(u64, Arc<Lane>)> {
        self.lanes.iter().filter_map(|(number, lane)| Some((*number, lane.upgrade()?))).collect()
    }

    /// Makes one call, if there is anything to say.
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
                Err(LedgerError(format!("no answer within {PATIENCE:?}")))
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
                // A store that is learning does not know yet how many there are. What it gives is a part among these.
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
                    warn!(store = self.report.store, "the store has given away what this member held: it begins anew");
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
        // These say themselves what is wrong.
        let refused = matches!(self.member.mode(), Mode::Deposed | Mode::NotYet(_) | Mode::Disagreed(_));
        if self.astray > ASTRAY && !refused {
            let problem = "it lets this andante begin anew, report or repeat itself, and no more";
            return self.failed(heard, &[], &LedgerError(problem.to_owned()));
        }
        match self.member.mode() {
            Mode::Learning(_) => self.next_beat = self.next_beat.min(heard + Duration::from_secs(1)),
            // Between two calls of somebody whom it does not know yet no more time passes for it.
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

    /// A call was of no use: the next one waits, longer each time.
    fn failed(&mut self, heard: Instant, spoken: &[SpokenLane], why: &LedgerError) {
        self.failures = (self.failures + 1).max(self.astray);
        let pause = PAUSE.saturating_mul(1 << self.failures.min(8)).min(LONGEST_PAUSE);
        (self.not_before, self.next_beat) = (heard + pause, heard + pause);
        self.unheard(spoken);
        self.stand(Some(why));
    }

    /// What is to be said of the lanes that are due; of all, if everything has to be reported.
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

    /// Others were asked for these pauses: lanes that there are keep them, and those to come.
    fn pause(&mut self, heard: Instant, proxy: &Weak<Proxy>, pauses: &[Pause]) {
        // In this order: a lane that is opened meanwhile finds them by itself, or is found.
        self.pauses.told(heard, pauses);
        self.find_lanes(proxy);
        self.alive().iter().for_each(|(_, lane)| lane.told_of_pauses(pauses));
    }

    /// A reload makes other lanes of the same budgets.
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

/// A name that no other member has.
fn fresh() -> MemberId {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Scripts reckon in numbers of 53 bits; this is a name, and never reckoned with.
    MemberId(RandomState::new().build_hasher().finish())
}

// === impl Talking ===

impl Talking {
    /// Leaves the fleet. Nothing may leave any more.
    pub(super) async fn finish(self) {
        // The task ends before only with the runtime.
        let _ = self.leave.send(());
        let _ = self.task.await;
    }
}
