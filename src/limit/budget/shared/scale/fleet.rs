//! Many members with many lanes each, one store that needs time for each call, and the network between them.

mod api;
mod outcome;
mod requests;
mod talk;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
    sync::Arc,
    time::Duration,
};

use andante_clock::Instant;
use andante_fleet::{
    Division, Entry, Extent, Lease, Member, MemberId, Micros, Mode, Reply, ReplyOutcome, StoreDown, Sync, Terms,
    WakeUp, micros,
};
use andante_fleet_model::Book;

use self::api::CountedWindow;
pub(super) use self::outcome::Outcome;
use crate::{Amount, Budget, Charge, Cost, EstimatedAmount, LimitSpec, MarginSpec, Scope, Unit};

/// Parameters of a simulation.
#[derive(Clone)]
pub(super) struct Shape {
    pub(super) members: usize,
    pub(super) lanes: usize,
    /// Lanes that each member uses.
    pub(super) each: usize,
    pub(super) limits: Vec<Taken>,
    /// Load on the first limit.
    pub(super) load: Load,
    /// Time before counting begins, and total time.
    pub(super) warm: Duration,
    pub(super) length: Duration,
    pub(super) seed: u64,
    /// When another store replaces the current one.
    pub(super) replaced_at: Option<Duration>,
}

/// A limit of each lane, and the amounts that requests take of it.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) limit: LimitSpec,
    /// Least and most amount that a request states.
    pub(super) costs: (u32, u32),
    /// Least and most amount that a response reports, usually near the least; the request states none.
    pub(super) takes: Option<(u32, u32)>,
}

/// Load on each lane.
#[derive(Clone)]
pub(super) enum Load {
    /// More than the limits allow.
    Most,
    /// Random requests at this part of all limits.
    Part(f64),
    /// Requests of each member at this part of the limit, whether or not they succeed.
    Parts(Vec<f64>),
    /// Number of workers of each member at each lane; a worker sends its next request when it has its response.
    Workers(Vec<u64>),
}

/// A lane at one member.
struct MemberLane {
    lane: usize,
    budget: Budget,
    waiting: u64,
    /// Cost of the next request.
    cost: Cost,
    /// Usage estimate of each limit, and the number of requests whose usage is pending.
    usual: Vec<EstimatedAmount>,
    under_way: u32,
    wakes_at: Micros,
    due: Micros,
}

struct Process {
    member: Member,
    lanes: Vec<MemberLane>,
    due: BTreeSet<(Micros, usize)>,
    under_way: Option<Spoken>,
    reports: bool,
    next_beat: Micros,
    not_before: Micros,
    wakes_at: Micros,
}

/// A call that waits for its reply.
struct Spoken {
    seq: u64,
    sent: Micros,
    /// Lanes in the call, each with its number of entries.
    lanes: Vec<(usize, usize)>,
    entries: Vec<Entry>,
}

enum Event {
    /// A request arrives at a member's lane, or a request may leave there.
    Request(usize, usize),
    Slot(usize, usize),
    Talk(usize),
    Execute(usize, Box<Sync>),
    Reply(usize, u64, Box<Reply>),
    /// The API counts units of one of a lane's limits.
    Arrive(usize, usize, u32),
    /// The response to a request arrives, with the time of sending and the usage that only the response reports.
    Answer(usize, usize, Charge, Micros, Vec<(usize, u32)>),
    Hint(usize, usize, Arc<str>, bool),
    Replaced,
}

/// State of the whole simulation.
pub(super) struct Fleet {
    shape: Shape,
    dice: u64,
    now: Micros,
    count: u64,
    events: BinaryHeap<Reverse<(Micros, u64)>>,
    what: HashMap<u64, Event>,
    book: Book,
    run: u32,
    /// The store is busy until then and answers no call before.
    busy_until: Micros,
    worked: Micros,
    line: Micros,
    processes: Vec<Process>,
    numbers: HashMap<MemberId, usize>,
    /// Users of each lane: the member, and the lane's index among the member's lanes.
    users: Vec<Vec<(usize, usize)>>,
    /// The API's count for each limit of each lane.
    counted: Vec<Vec<CountedWindow>>,
    /// Units by which a window was exceeded, if only responses report the usage.
    beyond: u32,
    /// Requests that each member has sent.
    sent: Vec<u64>,
    calls: u64,
    entries: u64,
    messages: u64,
    bytes: u64,
}

const MS: Micros = 1000;
const S: Micros = 1_000_000;
/// Time of the store's script for a call, and for each pool in it: measured, see `docs/scale.md`.
const CALL: Micros = 43;
const ENTRY: Micros = 27;
/// Bytes of a call with its reply, and of each pool in it: measured, see `docs/scale.md`.
const CALL_BYTES: u64 = 331;
const ENTRY_BYTES: u64 = 174;
/// Values of `app/fleet.rs`.
const GAP: Micros = 2 * MS;
const PATIENCE: Micros = S;
const MOST: usize = 500;
/// Requests that wait at an overloaded lane.
const CROWD: u64 = 50;
/// Lost calls and replies: one in this many.
const LOST: Micros = 1000;
const WAY: Micros = 3 * MS;
const JITTER: Micros = 5 * MS;
/// Response time per unit, if the response reports units.
const UNIT: Micros = 2 * MS;
/// A store that takes over answers after `OUTAGE`, and decides `SPLIT` later.
const OUTAGE: Micros = 3 * S;
const SPLIT: Micros = 3 * S;

/// Local clock of the member `at`: members have not begun at the same time.
fn local(at: usize, now: Micros) -> Instant {
    Instant::from_nanos((now + begun_before(at)).unsigned_abs() * 1000)
}

/// Global time at which the member's clock shows `local`.
fn global(at: usize, local: Instant) -> Micros {
    local.as_nanos().min(1 << 60) as Micros / 1000 - begun_before(at)
}

fn begun_before(at: usize) -> Micros {
    at as Micros * 377_777 % (60 * S)
}

fn name(lane: usize) -> String {
    format!("api\nhost{lane}")
}

// === impl Fleet ===

impl Fleet {
    pub(super) fn new(shape: Shape) -> Self {
        let lease = micros(Duration::from_secs(10));
        let mut fleet = Self {
            dice: shape.seed,
            now: S,
            count: 0,
            events: BinaryHeap::new(),
            what: HashMap::new(),
            book: Book::declared_new("1", 0, lease, 7),
            run: 1,
            busy_until: 0,
            worked: 0,
            line: 0,
            processes: Vec::new(),
            numbers: HashMap::new(),
            users: vec![Vec::new(); shape.lanes],
            counted: vec![vec![CountedWindow::default(); shape.limits.len()]; shape.lanes],
            beyond: 0,
            sent: vec![0; shape.members],
            calls: 0,
            entries: 0,
            messages: 0,
            bytes: 0,
            shape,
        };
        for at in 0..fleet.shape.members {
            let process = fleet.process(at, lease);
            fleet.numbers.insert(process.member.id(), at);
            fleet.processes.push(process);
            // A fleet of a thousand takes more than a second to start.
            let begins = fleet.now + fleet.below(5 * S);
            fleet.talk_at(at, begins);
            for own in 0..fleet.processes[at].lanes.len() {
                fleet.at(begins, Event::Request(at, own));
            }
        }
        if let Some(replaced) = fleet.shape.replaced_at {
            fleet.at(S + micros(replaced), Event::Replaced);
        }
        fleet
    }

    fn process(&mut self, at: usize, length: Micros) -> Process {
        let (shape, lease) = (self.shape.clone(), Lease::new(StoreDown::Wait));
        let terms = Terms { lease: length, split: SPLIT, division: Division::default() };
        let lanes = (0..shape.each).map(|own| {
            let lane = (at * shape.each + own) % shape.lanes;
            self.users[lane].push((at, own));
            let margin = MarginSpec::Fixed(Duration::from_micros(JITTER as u64));
            let limits: Vec<LimitSpec> = shape.limits.iter().map(|taken| taken.limit).collect();
            let mut budget = Budget::new(&limits, margin, Instant::START);
            budget.share(lease.clone());
            let cost = shape.limits.iter().fold(Cost::MIN, |cost, taken| cost.with(taken.limit.unit, taken.costs.1));
            MemberLane {
                lane,
                budget,
                waiting: 0,
                cost,
                usual: vec![EstimatedAmount::default(); limits.len()],
                under_way: 0,
                wakes_at: 0,
                due: Micros::MAX,
            }
        });
        Process {
            lanes: lanes.collect(),
            member: Member::new(MemberId(at as u64 + 1), terms, lease),
            due: BTreeSet::new(),
            under_way: None,
            reports: false,
            next_beat: 0,
            not_before: 0,
            wakes_at: 0,
        }
    }

    pub(super) fn run(mut self) -> Outcome {
        let (warm, ends) = (S + micros(self.shape.warm), S + micros(self.shape.length));
        let mut counts = None;
        while let Some(Reverse((at, number))) = self.events.pop() {
            if at > ends {
                break;
            }
            if at > warm && counts.is_none() {
                counts = Some((self.accepted(), self.calls, self.entries, self.worked, self.messages, self.bytes));
                self.line = 0;
                self.sent.fill(0);
            }
            self.now = self.now.max(at);
            let event = self.what.remove(&number).expect("it was put in with its number");
            self.happens(event);
        }
        let (accepted, calls, entries, worked, messages, bytes) = counts.expect("it lasts longer than that");
        let seconds = (ends - warm) as f64 / S as f64;
        // The scarcest of all limits counts.
        let (used, least) = (0..self.shape.limits.len())
            .map(|at| self.used(at, &accepted, seconds))
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .expect("there is a limit");
        let all: u64 = self.accepted().iter().zip(&accepted).map(|(after, before)| after[0] - before[0]).sum();
        let calls = (self.calls - calls) as f64;
        let sent: u64 = self.sent.iter().sum();
        Outcome {
            shares: self.sent.iter().map(|units| *units as f64 / sent.max(1) as f64).collect(),
            used,
            least,
            calls: calls / seconds / self.shape.members as f64,
            entries: (self.entries - entries) as f64 / calls,
            slots: all as f64 / calls,
            busy: (self.worked - worked) as f64 / (ends - warm) as f64,
            line: self.line,
            messages: (self.messages - messages) as f64 / seconds,
            bytes: (self.bytes - bytes) as f64 / seconds,
            beyond: self.beyond,
        }
    }

    fn happens(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Request(at, own) => self.request(at, own),
            Event::Slot(at, own) => {
                if self.processes[at].lanes[own].wakes_at == now {
                    self.send(at, own);
                }
            }
            Event::Talk(at) => {
                if self.processes[at].wakes_at == now {
                    self.talk(at);
                }
            }
            Event::Execute(at, call) => self.execute(at, &call),
            Event::Reply(at, seq, reply) => self.replied(at, seq, *reply),
            Event::Arrive(lane, at, cost) => self.arrive(lane, at, cost),
            Event::Answer(at, own, charge, sent, took) => {
                let lane = &mut self.processes[at].lanes[own];
                lane.budget.answered(charge, self::local(at, sent), self::local(at, now));
                lane.budget.observe(self::local(at, now), Duration::from_micros((now - sent).unsigned_abs()));
                lane.under_way -= u32::from(!took.is_empty());
                for (number, took) in took {
                    lane.usual[number].remember(took, None);
                    lane.budget.settle(charge, self.shape.limits[number].limit.unit, took, self::local(at, now));
                }
                lane.waiting += u64::from(matches!(self.shape.load, Load::Workers(_)));
                self.send(at, own);
            }
            Event::Hint(at, lane, pool, turn) => {
                let Some(own) = self.processes[at].lanes.iter().position(|own| own.lane == lane) else { return };
                if self.processes[at].lanes[own].budget.hinted(self::local(at, now), &pool, turn) {
                    self.look_at(at, own, now);
                    self.send(at, own);
                }
            }
            Event::Replaced => {
                self.run += 1;
                self.book = Book::default();
                self.busy_until = now + OUTAGE;
            }
        }
    }

    fn at(&mut self, when: Micros, event: Event) {
        self.count += 1;
        self.events.push(Reverse((when.max(self.now), self.count)));
        self.what.insert(self.count, event);
    }

    fn below(&mut self, most: Micros) -> Micros {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.dice >> 20) % most.max(1).unsigned_abs()) as Micros
    }

    fn exponential(&mut self, mean: f64) -> Micros {
        let part = (self.below(1 << 30) + 1) as f64 / (1_u64 << 30) as f64;
        (-part.ln() * mean) as Micros
    }
}
