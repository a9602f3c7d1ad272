//! Members, a store, the network between them, and an API that counts.

mod fault;
mod paused;
mod process;
mod stores;
mod streams;
mod talk;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fmt,
    num::NonZeroU32,
    time::Duration,
};

use andante_clock::Instant;
use andante_fleet::{
    Division, Floor, Lease, Member, MemberId, Micros, Reply, SharedPauses, StoreDown, Sync, Terms, micros,
};

pub(super) use self::fault::{Fault, Wrong};
use self::{
    paused::Pauses,
    process::Process,
    stores::{Place, Stores},
    streams::Streams,
};
use crate::{Budget, Charge, LimitSpec, MarginSpec, Unit};

#[derive(Debug)]
enum Event {
    Wake(usize),
    /// The store that executes the call, and when the call was sent.
    Execute(usize, u32, Box<Sync>, Place, Micros),
    /// The last field is the end of the pause that the receiver has to observe.
    Reply(usize, u32, u64, Reply, Micros),
    Arrive(u32),
    /// The last field is the request's usage.
    Answer(usize, u32, Charge, Instant, u32),
    /// A request arrives that counts as in flight, and its response ends.
    Begin,
    End(usize, u32),
    Hint(usize, u32),
    PauseHint(usize),
    Oblige(Micros),
    Fault(Fault),
    Demand(usize),
}

pub(super) struct World {
    dice: u64,
    now: Micros,
    count: u64,
    events: BinaryHeap<Reverse<(Micros, u64)>>,
    what: std::collections::HashMap<u64, Event>,
    spec: LimitSpec,
    per: Micros,
    jitter: Micros,
    rtt: Micros,
    ends: Micros,
    faults: Vec<Fault>,
    wrong: Option<Wrong>,
    stores: Stores,
    processes: Vec<Process>,
    names: u64,
    down: StoreDown,
    /// Costs of successive requests.
    costs: Vec<u32>,
    /// Responses report a request's usage, up to its cost; and some requests are not sent.
    metered: bool,
    /// When each unit of the last window arrived.
    arrived: VecDeque<Micros>,
    accepted: u64,
    pauses: Pauses,
    streams: Streams,
    /// A process has sent during a pause that it knew of, or too many requests were in flight.
    broken: bool,
    story: VecDeque<String>,
}

const MS: Micros = 1000;
const S: Micros = 1_000_000;
const LEASE: Micros = 10 * S;

// === impl World ===

impl World {
    pub(super) fn random(seed: u64, faults: &[Fault], wrong: Option<Wrong>) -> Self {
        let mut world = Self {
            dice: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x51,
            now: S,
            count: 0,
            events: BinaryHeap::new(),
            what: Default::default(),
            spec: "1/s".parse().unwrap(),
            per: S,
            jitter: 5 * MS,
            rtt: MS,
            ends: 0,
            faults: faults.to_vec(),
            wrong,
            stores: Stores::new(),
            processes: Vec::new(),
            names: seed << 20,
            down: StoreDown::Wait,
            costs: vec![1],
            metered: false,
            arrived: VecDeque::new(),
            accepted: 0,
            pauses: Pauses::default(),
            streams: Streams::default(),
            broken: false,
            story: VecDeque::new(),
        };
        let n = world.pick(&[1, 1, 2, 3, 4, 6, 10, 20, 60]);
        let seconds = world.pick(&[1, 1, 2, 5, 15]);
        let burst = world.pick(&[1, n]);
        world.spec = format!("{n}/{seconds}s burst {burst}").parse().unwrap();
        world.per = seconds * S;
        world.jitter = world.pick(&[5 * MS, 20 * MS]).min(world.per / 20);
        world.rtt = world.pick(&[MS, 5 * MS, 40 * MS]);
        world.ends = 25 * S + world.below(20 * S) + 3 * world.per;
        if world.below(10) < 7 {
            world.stores.declare_new();
        }
        if faults.contains(&Fault::Failover) {
            world.stores.split = world.pick(&[2 * S, 5 * S, 16 * S]);
        }
        let processes = world.pick(&[2, 2, 3, 4]);
        let floors = matches!(wrong, Some(Wrong::SeatedAtOnce | Wrong::LendsFloors)) || world.below(3) == 0;
        if floors {
            let members = NonZeroU32::new(processes as u32).expect("it is one of these");
            world.down = StoreDown::Floor(Floor { percent: world.pick(&[20, 50, 90]) as u8, members });
        }
        for at in 0..processes as usize {
            let process = world.process(0);
            world.processes.push(process);
            let begins = world.now + world.below(500 * MS);
            world.wake_at(at, begins);
            let mut when = world.now;
            while when < world.ends && world.below(3) > 0 {
                when += 500 * MS + world.below(10 * S);
                world.at(when, Event::Demand(at));
            }
        }
        for fault in faults.iter().filter(|fault| !matches!(fault, Fault::Net | Fault::Rate | Fault::Way)) {
            for _ in 0..world.below(4) {
                let when = 2 * S + world.below(world.ends - 2 * S);
                world.at(when, Event::Fault(*fault));
            }
        }
        if world.below(3) == 0 {
            for _ in 0..world.below(4) {
                let most = world.pick(&[1, n / 2, n]);
                let cost = 1 + world.below(most) as u32;
                world.costs.push(cost);
            }
        }
        world
    }

    /// Gives every process more requests than there are tokens.
    pub(super) fn saturated(mut self) -> Self {
        self.what.retain(|_, event| !matches!(event, Event::Demand(_)));
        self.processes.iter_mut().for_each(|process| process.greedy = true);
        self.ends += 10 * self.per;
        self.stores.declare_new();
        self
    }

    /// Makes requests take a unit whose usage, up to the reservation, only responses report.
    pub(super) fn metered(mut self) -> Self {
        (self.metered, self.spec.unit) = (true, Unit::named("tokens").expect("that is a name"));
        let least = self.spec.rate.count.get().div_ceil(4);
        self.costs = self.costs.iter().map(|cost| cost.max(&least)).copied().collect();
        let budgets: Vec<Budget> = self.processes.iter().map(|process| self.budget(&process.lease)).collect();
        self.processes.iter_mut().zip(budgets).for_each(|(process, budget)| process.budget = budget);
        self
    }

    /// A world of `members` that share `limit`, and whose requests take `costs` in turn.
    pub(super) fn costly(members: usize, limit: &str, costs: &[u32]) -> Self {
        let mut world = Self::random(7, &[], None);
        (world.spec, world.costs) = (limit.parse().unwrap(), costs.to_vec());
        (world.per, world.jitter, world.rtt) = (micros(world.spec.rate.per), 5 * MS, 5 * MS);
        (world.down, world.ends) = (StoreDown::Wait, 40 * S);
        world.processes.clear();
        world.events.clear();
        world.what.clear();
        for at in 0..members {
            let process = world.process(0);
            world.processes.push(process);
            let begins = world.now + world.below(500 * MS);
            world.wake_at(at, begins);
        }
        world.saturated()
    }

    /// Number of units that arrived, and the least number that any member has sent.
    pub(super) fn used(&self) -> (f64, u64) {
        let least = self.processes.iter().map(|process| process.sent).min().unwrap_or(0);
        (self.accepted as f64, least)
    }

    /// Units that the API would have admitted, except for the time lost of each window.
    pub(super) fn most(&self) -> f64 {
        let lost = (2 * self.jitter + 3 * self.rtt + 30 * MS) as f64;
        (self.ends - S) as f64 / (self.per as f64 + lost) * f64::from(self.spec.rate.count.get())
    }

    /// Runs to the end; returns the end of the story if a window had too many units.
    pub(super) fn run(&mut self) -> Option<String> {
        while let Some(Reverse((at, number))) = self.events.pop() {
            let Some(event) = self.what.remove(&number) else { continue };
            if at > self.ends {
                break;
            }
            self.now = self.now.max(at);
            self.happens(event);
            let most = self.spec.rate.count.get() as usize;
            if self.arrived.len() > most || self.broken {
                let story: Vec<String> = self.story.drain(..).collect();
                return Some(format!(
                    "{} within {} µs: {}, pause or in-flight limit broken: {}\n{}",
                    self.arrived.len(),
                    self.per,
                    self.spec,
                    self.broken,
                    story.join("\n")
                ));
            }
        }
        None
    }

    fn happens(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Wake(at) if self.processes[at].wakes_at == now => self.wake(at),
            Event::Wake(_) => {}
            Event::Execute(at, life, call, place, sent) => self.execute(at, life, *call, place, sent),
            Event::Reply(at, life, seq, reply, paused) => self.replied(at, life, seq, reply, paused),
            Event::PauseHint(at) => {
                let process = &mut self.processes[at];
                if process.cut_until <= now && process.starts_at <= now {
                    process.next_beat = now;
                    self.wake(at);
                }
            }
            Event::Oblige(ends) => self.oblige(ends),
            Event::Arrive(units) => {
                while self.arrived.front().is_some_and(|first| *first <= now - self.per) {
                    self.arrived.pop_front();
                }
                self.arrived.extend((0..units).map(|_| now));
                self.accepted += u64::from(units);
            }
            Event::Answer(at, life, charge, sent, used) => {
                let (metered, unit) = (self.metered, self.spec.unit);
                let process = &mut self.processes[at];
                if process.life == life {
                    let local = process.at(now);
                    process.budget.answered(charge, sent, local);
                    if metered {
                        process.budget.settle(charge, unit, used, local);
                    }
                    process.budget.observe(local, local.since(sent));
                    self.wake(at);
                }
            }
            Event::Begin => self.broken |= self.streams.exceed(now),
            Event::End(at, life) => self.ended(at, life),
            Event::Hint(at, told) => {
                let (turn, in_flight) = (told & 1, told & 2 > 0);
                let grants = self.wrong == Some(Wrong::HintGrants) && turn == 1;
                let pool = if in_flight { streams::POOL.to_owned() } else { self.pool() };
                let process = &mut self.processes[at];
                let local = process.at(now);
                if process.cut_until <= now && process.starts_at <= now {
                    process.budget.hinted(local, &pool, turn == 1);
                    process.next_look = now;
                    if grants {
                        process.budget.add_token(local);
                    }
                    self.wake(at);
                }
            }
            Event::Fault(fault) => self.fault(fault),
            Event::Demand(at) => {
                let most = Micros::from(self.spec.rate.count.get()) * 2 + 2;
                let (units, flip) = (self.below(most) as u32, self.below(2) == 0);
                let process = &mut self.processes[at];
                if flip {
                    process.greedy = !process.greedy;
                } else {
                    process.waiting += units;
                }
                self.wake(at);
            }
        }
    }

    fn process(&mut self, life: u32) -> Process {
        let lease = Lease::new(self.down).holding(self.streams.hold());
        let split = if self.wrong == Some(Wrong::NoSplit) { 0 } else { self.stores.split };
        let terms = Terms { lease: LEASE, split, division: Division::default() };
        let now = self.now;
        let faster = if self.faults.contains(&Fault::Rate) { self.below(200) - 100 } else { 0 };
        let way = if self.faults.contains(&Fault::Way) { self.pick(&[MS, 5 * MS, 40 * MS, 120 * MS]) } else { 3 * MS };
        let ahead = self.below(1000 * S);
        Process {
            life,
            budget: self.budget(&lease),
            in_flight: 0,
            member: Member::new(self.name(), terms, lease.clone()),
            lease,
            under_way: None,
            reports: false,
            next_look: now,
            next_beat: now,
            not_before: now,
            waiting: 0,
            turn: 0,
            greedy: self.below(2) == 0,
            sent: 0,
            ahead,
            faster,
            pauses: SharedPauses::default(),
            closed: Instant::START,
            obliged: 0,
            way,
            cut_until: 0,
            place: Place::Now,
            parted_until: 0,
            stops: false,
            stopped_until: 0,
            starts_at: 0,
            began: now,
            wakes_at: now,
        }
    }

    fn budget(&self, lease: &Lease) -> Budget {
        let margin = MarginSpec::Fixed(Duration::from_micros(self.jitter as u64));
        let limits = if self.streams.alone { &[][..] } else { &[self.spec] };
        let mut budget = Budget::new(limits, margin, Instant::START);
        budget.share(lease.clone());
        budget.share_in_flight(Instant::START, self.streams.limit);
        budget
    }

    /// Name of the limit in the store.
    fn pool(&self) -> String {
        let of_unit = if self.metered { format!("\n{}", self.spec.unit) } else { String::new() };
        format!("api\nhost\n{}{of_unit}", self.per)
    }

    fn name(&mut self) -> MemberId {
        self.names += 1;
        MemberId(self.names)
    }

    fn at(&mut self, when: Micros, event: Event) {
        self.count += 1;
        self.events.push(Reverse((when.max(self.now), self.count)));
        self.what.insert(self.count, event);
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.story.len() >= 60 {
            self.story.pop_front();
        }
        self.story.push_back(format!("{:10.4}  {}", self.now as f64 / 1e6, text()));
    }

    fn below(&mut self, most: Micros) -> Micros {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.dice >> 20) % most.max(1).unsigned_abs()) as Micros
    }

    fn pick(&mut self, from: &[Micros]) -> Micros {
        from[self.below(from.len() as Micros) as usize]
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent: Vec<u64> = self.processes.iter().map(|process| process.sent).collect();
        write!(f, "{} in {} s, sent {sent:?}", self.spec, self.ends / S)
    }
}
