//! A simulated API behind simulated limiters, on a simulated network, and 64 workers that always have something to
//! send.

mod answers;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    time::Duration,
};

use andante_clock::Instant;
use andante_order::Turn;

use super::{
    MORNING,
    clients::Client,
    dice::Dice,
    limiter::Limiter,
    tells::{Tells, Wait},
};

/// Number of workers.
pub(super) const WORKERS: usize = 64;

/// An API, and the network to it. Times are in seconds.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) name: String,
    /// The limiters, each with the one kind of request that it limits, if it does not limit all.
    pub(super) limiters: Vec<(Limiter, Option<usize>)>,
    pub(super) tells: Tells,
    pub(super) wait: Wait,
    /// The status of its refusals.
    pub(super) refuses: u16,
    pub(super) latency: f64,
    pub(super) jitter: f64,
    /// Time that it works on a request.
    pub(super) work: f64,
    /// Requests a second from other clients.
    pub(super) strangers: f64,
    /// Share of the workers that send requests of each kind.
    pub(super) kinds: Vec<f64>,
    /// True if the kinds differ in their credentials, and not in what they ask for.
    pub(super) are_keys: bool,
    /// Start and length of an outage.
    pub(super) outage: Option<(f64, f64)>,
    /// Starts and lengths of pauses, in which it refuses everything, whatever its limits are.
    pub(super) pauses: Vec<(f64, f64)>,
    /// Times and factors of changes of its limits.
    pub(super) changes: Vec<(f64, f64)>,
    pub(super) lasts: f64,
    /// Requests a second that it can serve at the end; `None` means what its first limit allows.
    pub(super) capacity: Option<f64>,
    /// Configured limits.
    pub(super) configured: Option<&'static str>,
}

/// An answer in transit.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<f64>,
    pub(super) told: Option<Shown>,
}

/// Contents of its fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) limit: f64,
    pub(super) remaining: f64,
    pub(super) reset: f64,
    pub(super) window: Option<f64>,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) served: u64,
    pub(super) refused: u64,
    /// Answers after the first window.
    pub(super) late: u64,
    pub(super) refused_late: u64,
    /// Used share of what is allowed at the end.
    pub(super) share: f64,
    /// Used share from one minute on.
    pub(super) middle: f64,
    /// Used share in the minute after the last pause.
    pub(super) after: f64,
    /// The longest time without a served request, after the first window.
    pub(super) stall: f64,
}

/// A simulated event.
#[derive(Clone, Debug)]
enum Event {
    Arrive(usize),
    Done(usize),
    Answer(usize),
    /// A worker of a client without a queue sends.
    Send(usize),
    Wake,
    OtherSender,
}

struct Request {
    worker: usize,
    answer: Option<Answer>,
    /// The parallel limiters in which it holds a place.
    holds: Vec<usize>,
}

// === impl World ===

impl World {
    pub(super) fn new(name: &str, limiters: impl IntoIterator<Item = Limiter>) -> Self {
        Self {
            name: name.into(),
            limiters: limiters.into_iter().map(|limiter| (limiter, None)).collect(),
            tells: Tells::Nothing,
            wait: Wait::Unsaid,
            refuses: 429,
            latency: 0.05,
            jitter: 0.003,
            work: 0.01,
            strangers: 0.0,
            kinds: vec![1.0],
            are_keys: false,
            outage: None,
            pauses: vec![],
            changes: vec![],
            lasts: 120.0,
            capacity: None,
            configured: None,
        }
    }

    /// Requests a second that may be served.
    pub(super) fn capacity(&self) -> f64 {
        let factor: f64 = self.changes.iter().map(|(_, factor)| factor).product();
        let of_all = self.limiters.iter().filter(|(_, kind)| kind.is_none());
        let least = of_all.map(|(limiter, _)| limiter.rate() * factor).fold(f64::INFINITY, f64::min);
        self.capacity.unwrap_or(least - self.strangers)
    }

    /// The kind of request that a worker sends.
    pub(super) fn kind_of(&self, worker: usize) -> usize {
        let mut share = 0.0;
        let place = (worker as f64 + 0.5) / WORKERS as f64;
        let before = self.kinds.iter().take_while(|kind| {
            share += **kind;
            place > share + 1e-9
        });
        before.count().min(self.kinds.len() - 1)
    }

    /// Lets the workers send through `client`.
    pub(super) fn run(&self, client: &mut dyn Client, seed: u64) -> Outcome {
        let start = 3.7 + 100.0 * (seed as f64 * 0.37).fract();
        let mut run = Run {
            capacity: self.capacity(),
            world: self.clone(),
            client,
            dice: Dice::with_seed(seed * 7919 + 13),
            events: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            sequence: 0,
            requests: BTreeMap::new(),
            start,
            now: start,
            next_wakeup: f64::INFINITY,
            ids: 0,
            changes: self.changes.clone().into(),
            last_served: start,
            reopened: None,
            outcome: Outcome::default(),
            counts: (0.0, 0.0),
        };
        run.run();
        run.finish()
    }
}

// === the run ===

struct Run<'a> {
    capacity: f64,
    world: World,
    client: &'a mut dyn Client,
    dice: Dice,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Event>,
    sequence: u64,
    requests: BTreeMap<usize, Request>,
    start: f64,
    now: f64,
    next_wakeup: f64,
    ids: usize,
    changes: VecDeque<(f64, f64)>,
    last_served: f64,
    /// When the first was served after the last pause.
    reopened: Option<f64>,
    outcome: Outcome,
    /// Served at the end, and from one minute on.
    counts: (f64, f64),
}

impl Run<'_> {
    fn at(&mut self, at: f64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse(((at * 1e9) as u64, self.sequence)));
        self.happenings.insert(self.sequence, event);
    }

    fn window(&self) -> f64 {
        self.world.limiters.iter().map(|(limiter, _)| limiter.window()).fold(0.0, f64::max)
    }

    fn tail(&self) -> f64 {
        let window = self.window();
        f64::max(30.0, if self.world.lasts > 4.0 * window { 2.0 * window } else { window })
    }

    fn run(&mut self) {
        let end = self.start + self.world.lasts;
        for worker in 0..WORKERS {
            self.at(self.start, Event::Send(worker));
        }
        if self.world.strangers > 0.0 {
            self.at(self.start, Event::OtherSender);
        }
        while let Some(Reverse((at, sequence))) = self.events.pop() {
            self.now = at as f64 / 1e9;
            if self.now > end {
                self.now = end;
                break;
            }
            while let Some(&(_, factor)) = self.changes.front().filter(|(at, _)| self.now - self.start >= *at) {
                self.world.limiters.iter_mut().for_each(|(limiter, _)| limiter.change(factor));
                self.changes.pop_front();
            }
            let event = self.happenings.remove(&sequence).expect("it was laid down");
            self.happen(event);
            // Each worker with a slot leaves.
            let (leaving, next) = self.client.serve(self.instant());
            for worker in leaving {
                self.leave(worker);
            }
            if next != Instant::FAR {
                let next = (next.as_nanos() as f64 / 1e9).max(self.now + 1e-6);
                if next < self.next_wakeup - 1e-9 || self.next_wakeup <= self.now {
                    self.next_wakeup = next;
                    self.at(next, Event::Wake);
                }
            }
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_nanos((self.now * 1e9).round() as u64)
    }

    fn way(&mut self) -> f64 {
        let World { latency, work, jitter, .. } = self.world;
        (latency * 0.5 - work * 0.5 + self.dice.exponential(jitter)).max(0.0005)
    }

    fn leave(&mut self, worker: usize) {
        self.ids += 1;
        let id = self.ids;
        self.client.sent(self.instant(), worker);
        self.requests.insert(id, Request { worker, answer: None, holds: Vec::new() });
        let way = self.way();
        self.at(self.now + way, Event::Arrive(id));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Send(worker) => {
                if self.client.ask(self.instant(), worker, Turn::New) {
                    self.leave(worker);
                }
            }
            Event::Wake => {
                if self.next_wakeup <= self.now + 1e-9 {
                    self.next_wakeup = f64::INFINITY;
                }
            }
            Event::OtherSender => {
                let now = self.now + MORNING.as_secs_f64();
                self.world.limiters.iter_mut().filter(|(_, kind)| kind.is_none()).for_each(|(limiter, _)| {
                    limiter.ask(now);
                });
                let next = self.now + self.dice.exponential(1.0 / self.world.strangers);
                self.at(next, Event::OtherSender);
            }
            Event::Arrive(id) => self.arrive(id),
            Event::Done(id) => {
                let holds = std::mem::take(&mut self.requests.get_mut(&id).expect("it is under way").holds);
                holds.iter().for_each(|&index| self.world.limiters[index].0.done());
                let way = self.way();
                self.at(self.now + way, Event::Answer(id));
            }
            Event::Answer(id) => {
                let Request { worker, answer, .. } = self.requests.remove(&id).expect("it is under way");
                let answer = answer.expect("it has been answered");
                if let Some(again) = self.client.answered(self.instant(), worker, &answer, &mut self.dice) {
                    if again.is_zero() {
                        let turn = if answer.status == 200 { Turn::New } else { Turn::Resent };
                        if self.client.ask(self.instant(), worker, turn) {
                            self.leave(worker);
                        }
                    } else {
                        self.at(self.now + again.as_secs_f64(), Event::Send(worker));
                    }
                }
            }
        }
    }

    fn arrive(&mut self, id: usize) {
        let since = self.now - self.start;
        let kind = self.world.kind_of(self.requests[&id].worker);
        let down = self.world.outage.is_some_and(|(from, lasts)| since >= from && since < from + lasts);
        let mut answer = Answer { status: 200, retry_after: None, told: None };
        let (mut delay, mut holds) = (0.0, Vec::new());
        if down {
            answer.status = 503;
        } else if let Some(left) = self.pause(since) {
            (answer.status, answer.retry_after) = (self.world.refuses, left);
        } else {
            (delay, holds) = self.limit(kind, &mut answer);
        }
        let served = answer.status == 200;
        let first = self.start + f64::max(10.0, self.window().min(self.world.lasts / 3.0));
        let late = self.now > first;
        self.outcome.late += u64::from(late);
        if served {
            self.outcome.served += 1;
            let end = self.start + self.world.lasts;
            self.counts.0 += f64::from(u8::from(self.now >= end - self.tail()));
            self.counts.1 += f64::from(u8::from((60.0..240.0).contains(&since)));
            if self.world.pauses.last().is_some_and(|(at, lasts)| since >= at + lasts) {
                let reopened = *self.reopened.get_or_insert(since);
                self.outcome.after += f64::from(u8::from(since - reopened < 60.0));
            }
            if late {
                self.outcome.stall = self.outcome.stall.max(self.now - self.last_served);
            }
            self.last_served = self.now;
        } else {
            self.outcome.refused += 1;
            self.outcome.refused_late += u64::from(late);
        }
        let work = if served { self.world.work * (0.7 + 0.3 * self.dice.exponential(1.0)) + delay } else { 0.0005 };
        let request = self.requests.get_mut(&id).expect("it is under way");
        (request.answer, request.holds) = (Some(answer), holds);
        self.at(self.now + work, Event::Done(id));
    }

    fn finish(mut self) -> Outcome {
        self.outcome.share = self.counts.0 / (self.tail() * self.capacity);
        self.outcome.middle = self.counts.1 / (self.world.lasts.min(240.0) - 60.0).max(1.0) / self.capacity;
        self.outcome.after /= 60.0 * self.capacity;
        let end = self.start + self.world.lasts;
        self.outcome.stall = self.outcome.stall.max(end - self.last_served);
        self.outcome
    }
}

/// A duration of this many seconds.
pub(super) fn seconds(of: f64) -> Duration {
    Duration::from_secs_f64(of.max(0.0))
}
