//! The power fails, again and again, at any moment and within any commit. Afterwards the disk may have any of the
//! sectors that were not synchronised. The lock is never synchronised, so it may have any text that was ever written.
//! The tests run in virtual time, and read the file as every start does.

use std::{collections::VecDeque, fs};

use super::*;
use crate::{
    clock::Instant,
    lane::{
        Admission, AdmitRequest,
        order::{Claim, Turn},
    },
    learn::{AnswerReport, RouteKey},
    limit::Cost,
    policy::{Origin, Policy, Rules, Scheme},
    store::{Disk, FaultyFile},
};

/// An API, and the machine on which andante runs.
struct World {
    policy: Policy,
    /// Most requests that the API accepts within this time.
    most: usize,
    per: Duration,
    folder: tempfile::TempDir,
    dice: fastrand::Rng,
    clock: Clock,
    starts: u32,
    arrived: VecDeque<Instant>,
    accepted: u64,
    /// Number of starts that set the state aside.
    aside: u32,
    lies: bool,
    /// Longest life of a process, in milliseconds.
    longest: u64,
}

/// A process, from its start to the power failure.
struct Process {
    lanes: Lanes,
    writing: Writing,
    disk: FaultyFile,
    /// Texts of the lock since the start.
    locks: Vec<Vec<u8>>,
}

/// Time of a power failure.
#[derive(Clone, Copy)]
struct Failure {
    /// Time since the start.
    after: Duration,
    /// Disk operations after that time; `None` fails at once.
    operations: Option<u32>,
}

const STEP: Duration = Duration::from_millis(10);
/// 1% of 10,000.
const BLOCK: u64 = 100;

impl World {
    fn new(limits: &[&str], calendar: &[&str], most: usize, per: Duration, seed: u64) -> Self {
        let any = Policy::new("any", vec!["*".parse().unwrap()]);
        let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        let calendar = calendar.iter().map(|limit| limit.parse().unwrap()).collect();
        Self {
            policy: Policy { limits, calendar, ..any },
            most,
            per,
            folder: tempfile::tempdir().unwrap(),
            dice: fastrand::Rng::with_seed(seed),
            clock: Clock::start(),
            starts: 0,
            arrived: VecDeque::new(),
            accepted: 0,
            aside: 0,
            lies: false,
            longest: 2500,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.redb")
    }

    fn lock(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("state.redb.lock")).unwrap_or_default()
    }

    /// Retries, because a program that another test has just started holds the old lock until its exec.
    fn open(&self) -> Opened {
        let mut tries = 0..1000;
        loop {
            match StateFile::open(&self.path(), false) {
                Err(OpenError::InUse { .. }) if tries.next().is_some() => {
                    thread::park_timeout(Duration::from_millis(1))
                }
                opened => return opened.unwrap(),
            }
        }
    }

    fn start(&mut self, failure: Failure) -> Process {
        let before = self.lock();
        let mut opened = self.open();
        if let Some(aside) = &opened.aside {
            let why = aside.why.as_ref().expect("nobody asked for it").to_string();
            assert!(!why.is_empty() && aside.path.exists(), "{aside:?}");
            self.aside += 1;
        }
        let disk = FaultyFile::with(fs::read(self.path()).unwrap());
        if self.lies {
            disk.lie();
        }
        if failure.after.is_zero() {
            failure.operations.iter().for_each(|operations| disk.lose_power_after(*operations));
        }
        let over = disk.clone();
        opened.store = Disk::over(move || Ok(over.clone()));
        self.starts += 1;
        // The machine restarts each time: only the time of day continues.
        let (clock, began, boot) = (self.clock, self.clock.now(), format!("boot-{}", self.starts));
        let readings = move || {
            let now = clock.now();
            let wall = Duration::from_secs(1_790_000_000) + now.since(Instant::START);
            Reading::of(wall, now.since(began), &boot)
        };
        let (keeping, kept) = Keeping::begin(self.path(), opened, Box::new(readings));
        let lanes = Lanes::new(Rules::new(vec![self.policy.clone()]), Metrics::new(), keeping.clock).keeping(kept);
        lanes.open_kept();
        let writing = Writing { keeping, metrics: Metrics::new() };
        let mut process = Process { lanes, writing, disk, locks: vec![before] };
        self.note_lock(&mut process);
        process
    }

    /// Adds the lock's present text to those that may survive the power failure.
    fn note_lock(&self, process: &mut Process) {
        if !process.disk.has_lost_power() {
            process.locks.push(self.lock());
        }
    }

    /// The process runs until the power fails.
    async fn live(&mut self, mut process: Process, failure: Failure) {
        let began = self.clock.now();
        let mut written = began;
        let lane = process.lanes.find(&origin());
        while !process.disk.has_lost_power() {
            let now = self.clock.now();
            let over = now.since(began) >= failure.after;
            match failure.operations {
                None if over => break,
                // Ends the wait, because no further write comes.
                Some(_) if now.since(began) >= failure.after + 2 * EVERY => break,
                Some(operations) if over && now.since(began) < failure.after + STEP => {
                    process.disk.lose_power_after(operations);
                }
                _ => {}
            }
            while let Admission::Send(mut permit) = lane.admit(ask()) {
                permit.sent();
                permit.answered(&AnswerReport::SERVED, Instant::START);
                drop(permit);
                self.arrive(now);
            }
            let due = now.since(written) >= EVERY;
            let mut asked = Vec::new();
            // The thread runs at once, or somewhat later.
            if due || self.dice.bool() {
                asked.extend(process.writing.keeping.requests.try_iter().filter_map(|request| match request {
                    KeepRequest::Block(lane) => Some(lane),
                    KeepRequest::Release(_) | KeepRequest::End => None,
                }));
            }
            if due || !asked.is_empty() {
                process.writing.write(&process.lanes, &asked, due, false);
                self.note_lock(&mut process);
                written = if due { now } else { written };
            }
            tokio::time::advance(STEP).await;
        }
        let path = self.path();
        let dice = &mut self.dice;
        // Everything, nothing, or any part survives.
        let part = dice.u8(0..4);
        let disk = process.disk.after_power_failure(|| match part {
            0 => true,
            1 => false,
            _ => dice.bool(),
        });
        let lock = process.locks[dice.usize(..process.locks.len())].clone();
        drop((lane, process));
        fs::write(&path, disk).unwrap();
        fs::write(path.with_extension("redb.lock"), lock).unwrap();
        let off = Duration::from_millis(dice.u64(0..3000));
        tokio::time::advance(off).await;
    }

    fn arrive(&mut self, now: Instant) {
        while self.arrived.front().is_some_and(|first| now.since(*first) >= self.per) {
            self.arrived.pop_front();
        }
        self.arrived.push_back(now);
        self.accepted += 1;
        assert!(self.arrived.len() <= self.most, "start {}: {} within {:?}", self.starts, self.arrived.len(), self.per);
    }

    fn failure(&mut self) -> Failure {
        let after = if self.dice.u8(0..10) == 0 { 0 } else { self.dice.u64(20..self.longest) };
        let operations = self.dice.bool().then(|| self.dice.u32(1..40));
        Failure { after: Duration::from_millis(after), operations }
    }

    /// Lets the power fail this many times. `look` sees the lanes at each start.
    async fn suffer(&mut self, failures: u32, mut look: impl FnMut(&mut Self, &Lanes)) {
        for _ in 0..failures {
            let failure = self.failure();
            let process = self.start(failure);
            look(self, &process.lanes);
            self.live(process, failure).await;
        }
    }
}

fn origin() -> Origin {
    Origin::parse(Scheme::Http, "api.test", Some(80)).unwrap()
}

fn ask() -> AdmitRequest {
    let (kind, claim, turn) = (RouteKey::new("GET", "/"), Claim::USUAL, Turn::New);
    AdmitRequest { cost: Cost::MIN, kind, claim, deadline: Instant::FAR, turn, draws: None, port: 80 }
}

/// Units of the last limit that a lane counts.
fn used(lanes: &Lanes) -> u64 {
    let lane = lanes.find(&origin()).snapshot();
    let rolling = lane.limits.last().map(|limit| limit.used.into());
    lane.calendar.last().map(|limit| limit.used.into()).or(rolling).unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_power_failure_exceeds_a_pace_or_a_burst() {
    // Unwritten usage counts as used up: a life that is shorter than the window sends nothing.
    for (limit, most, per, longest, least) in
        [("100/s", 100, 1, 2500, 5000), ("100/10s burst 100", 100, 10, 12_000, 1000)]
    {
        let mut world = World::new(&[limit], &[], most, Duration::from_secs(per), 1);
        world.longest = longest;
        world.suffer(200, |_, _| {}).await;
        println!("{limit}: {} sent in {:?}, {} set aside", world.accepted, world.clock.now(), world.aside);
        assert!(world.accepted > least, "{limit}: {}", world.accepted);
        assert_eq!(world.aside, 0, "what was synchronised is there");
    }
}

/// The count is never less than the requests sent, and each failure adds at most one block to it.
#[tokio::test(start_paused = true)]
async fn a_power_failure_costs_one_block_of_a_month_at_most() {
    let month = Duration::from_secs(30 * 86_400);
    for (limits, calendar) in
        [(&["100/s burst 100", "10000/month"][..], &[][..]), (&["100/s burst 100"], &["10000/month in UTC"])]
    {
        let mut world = World::new(limits, calendar, 10_000, month, 2);
        let mut lost = 0;
        world
            .suffer(200, |world, lanes| {
                let used = used(lanes);
                assert!(used >= world.accepted, "start {}: {used} counted of {}", world.starts, world.accepted);
                let more = used - world.accepted - lost;
                assert!(more <= BLOCK, "start {}: {more} lost", world.starts);
                lost = used - world.accepted;
            })
            .await;
        println!("{calendar:?}: {} sent, {lost} lost, {} set aside", world.accepted, world.aside);
        assert!(world.accepted > 3000 && lost > 0, "{} sent, {lost} lost", world.accepted);
        assert_eq!(world.aside, 0, "what was synchronised is there");
    }
}

/// The tests detect a disk that only claims to have its data. The data then cannot be read, or counts less than was
/// sent.
#[tokio::test(start_paused = true)]
async fn a_disk_that_lies_is_found_out() {
    let mut world = World::new(&["100/s burst 100", "10000/month"], &[], 10_000, Duration::from_secs(1 << 22), 3);
    world.lies = true;
    let mut fewer = 0;
    world.suffer(20, |world, lanes| fewer += u32::from(used(lanes) < world.accepted)).await;
    println!("{fewer} of 20 starts counted too little, {} set aside", world.aside);
    assert!(fewer + world.aside > 0);
}
