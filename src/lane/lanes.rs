//! The collection of lanes: finds or creates the lane of a request, and forgets lanes that remember nothing.

mod forgetting;
mod handover;
mod named;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

pub use self::handover::GivenLane;
use self::{forgetting::forget, handover::AwaitedLanes};
use super::{
    Lane, Sharing, capacity::Capacity, journal::Journal, kept::KeptLanes, request::AddedRule, state::SharedNames,
};
use andante_clock::{Clock, Instant};
use andante_limit::Unit;
use andante_metrics::{Metrics, RuleMetrics};
use andante_policy::{Origin, Policy, RenamedRules, Rules, renamed_since};
use parking_lot::{Mutex, RwLock};

/// All lanes.
pub struct Lanes {
    clock: Clock,
    metrics: Metrics,
    /// Only a reload writes it. While a reload moves the lanes, no other lane can be opened for the same requests.
    table: RwLock<LaneTable>,
    /// Stored records of lanes, if state is persisted.
    kept: Option<KeptLanes>,
    /// The journal of events in all lanes.
    journal: Arc<Journal>,
    /// The store through which lanes share their limits with other processes, if they do.
    sharing: Option<Sharing>,
    /// End of an operator's pause of all lanes, including future ones.
    held: Mutex<Option<Instant>>,
    /// Lanes that an earlier process still has.
    awaited: AwaitedLanes,
    /// True if the next process has the lanes.
    given: AtomicBool,
    /// The most lanes and keyed budgets.
    capacity: Arc<Capacity>,
}

/// The rules, and the lanes created under them.
struct LaneTable {
    rules: Arc<Rules>,
    /// The lanes of each rule, in the order of the rules; lanes of hosts without a rule come last.
    rules_lanes: Vec<RuleLanes>,
    /// The rules before the last reload.
    before: Option<Arc<Rules>>,
    /// Rules for some requests that have other names since reloads.
    renamed: RenamedRules,
}

/// The lanes of one rule, by their hosts.
#[derive(Default)]
struct RuleLanes {
    lanes: RwLock<HashMap<Arc<str>, OpenLane>>,
    /// The number of lanes at which the next search for idle lanes begins.
    crowded: AtomicUsize,
}

/// A lane, and the first origin that it was asked for: after a reload, the rule for this origin gets the lane.
struct OpenLane {
    lane: Arc<Lane>,
    origin: Origin,
}

/// A lane that was only looked up.
pub struct LookedUp {
    /// The lane.
    pub lane: Arc<Lane>,
    /// True if requests have come to it.
    pub open: bool,
    /// The rules under which it was found.
    pub rules: Arc<Rules>,
}

/// This many lanes of a rule are kept although they remember nothing, so that people can see their counters.
const FEW: usize = 1024;

// === impl Lanes ===

impl Lanes {
    /// An empty collection.
    pub fn new(rules: Rules, metrics: Metrics, clock: Clock) -> Self {
        show(&metrics, &rules);
        Self {
            clock,
            metrics,
            table: RwLock::new(LaneTable::new(rules)),
            kept: None,
            sharing: None,
            journal: Arc::default(),
            held: Mutex::default(),
            awaited: AwaitedLanes::default(),
            given: AtomicBool::new(false),
            capacity: Arc::default(),
        }
    }

    /// Limits lanes and budgets to a part of `bytes`, the memory of the process.
    pub fn within(self, bytes: u64) -> Self {
        Self { capacity: Arc::new(Capacity::of_memory(bytes)), ..self }
    }

    /// Restores lanes opened from now on from their `kept` records.
    pub fn keeping(self, kept: KeptLanes) -> Self {
        Self { kept: Some(kept), ..self }
    }

    /// Shares the configured limits of lanes with other processes from now on.
    pub fn sharing(self, sharing: Sharing) -> Self {
        Self { sharing: Some(sharing), ..self }
    }

    /// The lane for requests to `origin`.
    pub fn find(&self, origin: &Origin) -> Arc<Lane> {
        let table = self.table.read();
        let rule = table.rules.position(origin);
        let rule_lanes = table.of(rule);
        if let Some(open) = rule_lanes.lanes.read().get(&origin.host) {
            return open.lane.clone();
        }
        let mut lanes = rule_lanes.lanes.write();
        if lanes.len() >= rule_lanes.crowded.load(Ordering::Relaxed).max(FEW) {
            let most = self.capacity.lanes;
            self.forgotten(forget(&mut lanes, most, *self.held.lock()));
            // If all of them have to stay, not every new lane repeats the search.
            let crowded = (lanes.len() * 2).min(most.max(lanes.len() * 5 / 4));
            rule_lanes.crowded.store(crowded, Ordering::Relaxed);
        }
        lanes.entry(origin.host.clone()).or_insert_with(|| self.open_under(&table, rule, origin)).lane.clone()
    }

    fn open_under(&self, table: &LaneTable, rule: Option<usize>, origin: &Origin) -> OpenLane {
        let lane = self.open(&table.rules, rule, origin);
        if table.before.is_some() {
            lane.sub_limit_rules(&table.rules, &table.renamed);
        }
        OpenLane { lane, origin: origin.clone() }
    }

    /// The lane for requests to `origin`, without opening it. Where none is open, a lane that no request will use
    /// stands for the one that the first request would open.
    pub fn look_up(&self, origin: &Origin) -> LookedUp {
        let table = self.table.read();
        let rule = table.rules.position(origin);
        let rules = table.rules.clone();
        if let Some(open) = table.of(rule).lanes.read().get(&origin.host) {
            return LookedUp { lane: open.lane.clone(), open: true, rules };
        }
        let policy = rules.policy(rule).clone();
        // Separate metrics: those of hosts without a rule are counted.
        let (host, metrics) = (origin.host.clone(), Metrics::new().rule(&policy.name));
        let lane = Lane::new(host, policy, metrics, self.clock);
        let lane = Arc::new(match &self.kept {
            Some(kept) => kept.look_up(lane, origin, &rules),
            None => lane,
        });
        self.hold(&lane);
        LookedUp { lane, open: false, rules }
    }

    /// The rules for some of the requests to `origin`, in the order of writing, and last the rule besides the reserve.
    pub fn added(&self, origin: &Origin) -> Box<[AddedRule]> {
        let added = |policy: Arc<Policy>| match policy.is_besides_reserve() {
            true => AddedRule::uncounted(policy),
            false => AddedRule { draws: self.metrics.rule(&policy.name).draws(), policy },
        };
        self.rules().beside(origin).map(added).collect()
    }

    /// Applies `rules` from now on. Each lane goes to the rule that its requests match now, with all that it remembers
    /// and with its waiting requests. Must be called on a tokio runtime, which drives the lanes.
    pub fn reload(&self, rules: Rules) {
        let mut table = self.table.write();
        show(&self.metrics, &rules);
        for gone in table.rules.iter().filter(|rule| rules.iter().all(|other| other.name != rule.name)) {
            self.metrics.rule(&gone.name).set_limit_per_second(None);
        }
        let rules = rules.reusing(&table.rules);
        let renamed = renamed_since(&rules, &table.rules, &table.renamed);
        let mut next = LaneTable { before: Some(table.rules.clone()), renamed, ..LaneTable::new(rules) };
        let LaneTable { rules, rules_lanes, renamed, .. } = &mut next;
        let (mut parting, now, before) = (Vec::new(), self.clock.now(), table.rules.clone());
        for OpenLane { lane, origin } in
            table.rules_lanes.drain(..).flat_map(|of_rule| of_rule.lanes.into_inner().into_values())
        {
            let rule = rules.position(&origin);
            let policy = rules.policy(rule);
            let others = others_parted(&before, rules, &origin);
            // Before it has another limit, which does not apply to these ports.
            let waiting = match others.is_empty() {
                true => Vec::new(),
                false => lane.depart(|port| rules.position(&Origin { port, ..origin.clone() }) != rule),
            };
            let moved = if Arc::ptr_eq(policy, lane.policy()) {
                lane
            } else {
                lane.reconfigured(policy.clone(), self.metrics_of(rules, rule, &origin.host))
            };
            moved.sub_limit_rules(rules, renamed);
            if !others.is_empty() {
                parting.push((moved.clone(), others, waiting));
            }
            let last = rules_lanes.len() - 1;
            match rules_lanes[rule.unwrap_or(last)].lanes.get_mut().entry(origin.host.clone()) {
                Entry::Vacant(place) => {
                    moved.share_as(shared_names(rules, policy, &origin.host));
                    place.insert(OpenLane { lane: moved, origin });
                }
                // Two rules for ports of one host have become one.
                Entry::Occupied(taken) => taken.get().lane.join(&moved),
            }
        }
        for (lane, others, waiting) in parting {
            let lane_of = |origin: &Origin| {
                let rule = next.rules.position(origin);
                let mut lanes = next.of(rule).lanes.write();
                lanes.entry(origin.host.clone()).or_insert_with(|| self.open_under(&next, rule, origin)).lane.clone()
            };
            others.iter().for_each(|other| lane_of(other).part_from(&lane, now));
            for moving in waiting {
                lane_of(&Origin { port: moving.ask.port, ..others[0].clone() }).adopt(moving);
            }
        }
        *table = next;
    }

    /// Opens the persisted lanes, so that people see the rest of their limits before the first request.
    pub fn open_kept(&self) {
        for origin in self.kept.iter().flat_map(|kept| kept.origins(&self.rules())) {
            self.find(&origin);
        }
    }

    /// Takes the names, in the store, of the lanes forgotten since the last call.
    pub fn gone(&self) -> Vec<Arc<str>> {
        self.kept.as_ref().map(KeptLanes::gone).unwrap_or_default()
    }

    /// Puts back the names of forgotten lanes that the store has not received.
    pub fn forgotten(&self, gone: Vec<Arc<str>>) {
        if let Some(kept) = &self.kept {
            kept.forget(gone);
        }
    }

    /// Number of lanes.
    pub fn len(&self) -> usize {
        self.table.read().rules_lanes.iter().map(|rule_lanes| rule_lanes.lanes.read().len()).sum()
    }

    /// Returns whether there are no lanes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All lanes.
    pub fn all(&self) -> Vec<Arc<Lane>> {
        let lanes =
            |of_rule: &RuleLanes| of_rule.lanes.read().values().map(|open| open.lane.clone()).collect::<Vec<_>>();
        self.table.read().rules_lanes.iter().flat_map(lanes).collect()
    }

    /// Pauses every lane, also those opened meanwhile, for `length` or until [`Self::resume_all`]. Returns the number
    /// of lanes.
    pub fn pause_all(&self, length: Option<Duration>) -> usize {
        let until = length.map_or(Instant::FAR, |length| self.clock.now() + length);
        *self.held.lock() = Some(until);
        self.all().iter().map(|lane| lane.pause_until(until, length)).count()
    }

    /// Resumes every lane. Returns how many were paused by an operator.
    pub fn resume_all(&self) -> usize {
        *self.held.lock() = None;
        self.all().iter().filter(|lane| lane.resume()).count()
    }

    /// Recent events in the lanes.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The current rules.
    pub fn rules(&self) -> Arc<Rules> {
        self.table.read().rules.clone()
    }

    fn open(&self, rules: &Rules, rule: Option<usize>, origin: &Origin) -> Arc<Lane> {
        let (policy, host) = (rules.policy(rule), &origin.host);
        let lane = Lane::new(host.clone(), policy.clone(), self.metrics_of(rules, rule, host), self.clock);
        // Before its record is searched for: a record that arrives in between goes to waiting lanes.
        let awaited = self.is_awaited(host);
        let lane = match &self.kept {
            Some(kept) => kept.open(lane, origin, rules),
            None => lane,
        };
        if awaited {
            lane.await_predecessor();
        }
        if self.given.load(Ordering::Acquire) {
            lane.hand_over_new();
        }
        let lane = match &self.sharing {
            Some(sharing) => lane.shared(sharing, shared_names(rules, policy, host)),
            None => lane,
        };
        let lane = Arc::new(lane.within(self.capacity.clone()).with_journal(self.journal.clone()));
        self.hold(&lane);
        lane
    }

    /// Pauses a new lane if all of them are paused.
    fn hold(&self, lane: &Arc<Lane>) {
        let now = self.clock.now();
        if let Some(until) = self.held.lock().filter(|until| *until > now) {
            lane.pause_until(until, (until != Instant::FAR).then(|| until.since(now)));
        }
    }

    fn metrics_of(&self, rules: &Rules, rule: Option<usize>, host: &str) -> Arc<RuleMetrics> {
        match rule {
            Some(rule) => self.metrics.rule(&rules.get(rule).name),
            None => self.metrics.unruled(host),
        }
    }
}

// === impl LaneTable ===

impl LaneTable {
    fn new(rules: Rules) -> Self {
        let rules_lanes = (0..=rules.iter().count()).map(|_| RuleLanes::default()).collect();
        Self { rules: Arc::new(rules), rules_lanes, before: None, renamed: RenamedRules::default() }
    }

    /// The lanes of this rule, or of hosts without one.
    fn of(&self, rule: Option<usize>) -> &RuleLanes {
        &self.rules_lanes[rule.unwrap_or(self.rules_lanes.len() - 1)]
    }
}

/// Names of the lane of `host` under `policy` in the store that several andantes share. A pool's name contains the rule
/// only if another rule limits other ports of the host: otherwise a renamed rule keeps what was sent. A pause's name
/// contains the rule if other requests to the host have another rule, or none.
fn shared_names(rules: &Rules, policy: &Policy, host: &Arc<str>) -> SharedNames {
    let name = |alone| format!("{}\n{host}", if alone { "" } else { &*policy.name }).into();
    SharedNames { pools: name(rules.limits_alone(host)), pauses: name(rules.is_alone(host)) }
}

/// Origins whose requests came to the lane of `origin` under the rules `before` and have another rule `now`: one for each
/// rule.
fn others_parted(before: &Rules, now: &Rules, origin: &Origin) -> Vec<Origin> {
    let named: Vec<u16> = [before, now].into_iter().flat_map(|rules| rules.ports(&origin.host)).collect();
    if named.is_empty() {
        return Vec::new();
    }
    let unnamed = [80, 443].into_iter().chain(1..=u16::MAX).find(|port| !named.contains(port));
    let mut others = Vec::<Origin>::new();
    for port in named.into_iter().chain(unnamed) {
        let other = Origin { port, ..origin.clone() };
        let parts = before.position(&other) == before.position(origin) && now.position(&other) != now.position(origin);
        if parts && others.iter().all(|known| now.position(known) != now.position(&other)) {
            others.push(other);
        }
    }
    others
}

/// Shows all of `rules`, and the rates that they allow, among the metrics.
fn show(metrics: &Metrics, rules: &Rules) {
    for rule in rules.iter() {
        let requests = rule.limits.iter().filter(|limit| limit.unit == Unit::REQUESTS);
        let slowest = requests.map(|limit| limit.rate.per_second()).reduce(f64::min);
        metrics.rule(&rule.name).set_limit_per_second(slowest);
    }
}
