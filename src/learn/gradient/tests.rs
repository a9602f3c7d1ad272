//! The limit before servers of k workers, in virtual time.
//!
//! Expectations are arithmetic. The limit settles where `limit = 1.1 k + √limit`, which is `(½ + √(¼ + 1.1 k))²`;
//! requests above k wait in the server. If times vary, the mean of n unloaded ones is wrong by at most `2 cv / √n` in
//! 95 of 100 cases (cv: standard deviation over mean). The limit then settles as for a k that is larger by that error.

use std::{cmp::Reverse, collections::BinaryHeap, collections::VecDeque};

use super::*;

const SECOND: u64 = 1_000_000_000;
/// Mean time that the work on a request takes.
const SERVICE: u64 = SECOND / 10;

/// A server that works on so many requests at once; other requests wait in order of arrival.
struct Server {
    workers: usize,
    /// Time that a request takes of a worker, in nanoseconds, and time until the head of its answer.
    work: fn(&mut fastrand::Rng) -> (u64, u64),
    /// Travel time of a request and its answer, together.
    way: u64,
}

/// Observed behaviour of a server.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Share of the workers' time that was used.
    used: f64,
    /// Mean number of requests that waited in the server.
    queue: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives,
    Head,
    Free,
    Ends,
    Asks,
}

struct World {
    limit: GradientLimit,
    server: Server,
    dice: fastrand::Rng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event, Seq)>>,
    queue: VecDeque<Seq>,
    busy: usize,
    under_way: u32,
    sent: Vec<u64>,
    /// Number of requests that wait for the limit; `None`: always some.
    waiting: Option<u32>,
    used: u128,
    queued: u128,
}

impl World {
    fn new(server: Server, seed: u64) -> Self {
        Self {
            limit: GradientLimit::default(),
            server,
            dice: fastrand::Rng::with_seed(seed),
            now: 0,
            events: BinaryHeap::new(),
            queue: VecDeque::new(),
            busy: 0,
            under_way: 0,
            sent: Vec::new(),
            waiting: None,
            used: 0,
            queued: 0,
        }
    }

    fn at(&mut self, after: u64, event: Event, seq: Seq) {
        self.events.push(Reverse((self.now + after, event, seq)));
    }

    /// Runs for so many seconds, and returns what was seen meanwhile.
    fn run(&mut self, seconds: u64) -> Seen {
        let (begun, end) = (self.now, self.now + seconds * SECOND);
        (self.used, self.queued) = (0, 0);
        self.send();
        while let Some(&Reverse((at, event, seq))) = self.events.peek()
            && at <= end
        {
            self.events.pop();
            self.pass(at);
            match event {
                Event::Arrives => self.queue.push_back(seq),
                Event::Head => {
                    let took = self.now - self.sent[seq as usize];
                    self.limit.answered(seq, Duration::from_nanos(took));
                }
                Event::Free => self.busy -= 1,
                Event::Ends => self.under_way -= 1,
                Event::Asks => {
                    self.waiting = self.waiting.map(|waiting| waiting + 1);
                    self.at(seq, Event::Asks, seq);
                }
            }
            self.work();
            self.send();
        }
        self.pass(end);
        let time = u128::from(self.now - begun) as f64;
        Seen { used: self.used as f64 / time / self.server.workers as f64, queue: self.queued as f64 / time }
    }

    fn pass(&mut self, at: u64) {
        let time = u128::from(at - self.now);
        self.used += time * self.busy.min(self.server.workers) as u128;
        self.queued += time * self.queue.len() as u128;
        self.now = at;
    }

    fn send(&mut self) {
        while self.under_way < self.limit.limit() && self.waiting != Some(0) {
            self.waiting = self.waiting.map(|waiting| waiting - 1);
            self.under_way += 1;
            let seq = self.sent.len() as Seq;
            self.sent.push(self.now);
            self.limit.took(seq, self.under_way);
            self.at(self.server.way / 2, Event::Arrives, seq);
        }
    }

    fn work(&mut self) {
        while self.busy < self.server.workers
            && let Some(seq) = self.queue.pop_front()
        {
            self.busy += 1;
            let (took, head) = (self.server.work)(&mut self.dice);
            self.at(took, Event::Free, seq);
            self.at(head + self.server.way / 2, Event::Head, seq);
            self.at(took + self.server.way / 2, Event::Ends, seq);
        }
    }
}

fn whole(took: f64) -> (u64, u64) {
    let took = (took * SERVICE as f64) as u64;
    (took, took)
}

/// Within 2%, cv = 0.04 / √12: with exactly equal times, requests would move in lockstep, which is unrealistic.
fn steady(dice: &mut fastrand::Rng) -> (u64, u64) {
    whole(0.98 + 0.04 * dice.f64())
}

/// From half to one and a half: cv = 1 / √12.
fn uniform(dice: &mut fastrand::Rng) -> (u64, u64) {
    whole(0.5 + dice.f64())
}

/// cv = 1.
fn exponential(dice: &mut fastrand::Rng) -> (u64, u64) {
    whole(-(1.0 - dice.f64()).ln())
}

/// A stream of 10 s whose head comes after half a second.
fn stream(dice: &mut fastrand::Rng) -> (u64, u64) {
    let long = 5.0 + 10.0 * dice.f64();
    ((long * SECOND as f64) as u64, SECOND / 2)
}

fn server(workers: usize, work: fn(&mut fastrand::Rng) -> (u64, u64)) -> Server {
    Server { workers, work, way: 0 }
}

/// Expected queue of a server with k workers, if k is overestimated by the share `error`.
fn queue_of(k: f64, error: f64) -> f64 {
    (0.5 + (0.25 + 1.1 * (1.0 + error) * k).sqrt()).powi(2) - k
}

/// Largest error of a mean of unloaded times, with as many values as requests leave in a probe.
fn error(k: f64, cv: f64) -> f64 {
    2.0 * cv / ((k + queue_of(k, 0.0)) / 2.0).clamp(16.0, 100.0).sqrt()
}

fn steady_queue(workers: usize) -> f64 {
    queue_of(workers as f64, error(workers as f64, 0.04 / 12f64.sqrt()))
}

#[test]
fn workers_are_never_idle_and_few_requests_wait_for_them() {
    for k in [4, 16, 64] {
        let mut world = World::new(server(k, steady), 0);
        let start = world.run(30);
        let Seen { used, queue } = world.run(120);
        let most = steady_queue(k);
        println!(
            "{k} workers: {start:?}, then {used:.3} used, {queue:.1} wait, {most:.1} may; {}",
            world.limit.grounds()
        );
        assert!(used >= 0.95, "{k} workers: {used}");
        assert!(queue <= most, "{k} workers: {queue} wait, and {most} may");
    }
}

#[test]
fn answers_that_vary_do_not_mislead_it() {
    for (name, work, cv) in
        [("uniform", uniform as fn(&mut _) -> _, 1.0 / 12f64.sqrt()), ("exponential", exponential, 1.0)]
    {
        for k in [4, 16, 64] {
            let most = queue_of(k as f64, error(k as f64, cv));
            let seen: Vec<Seen> = (0..20)
                .map(|seed| {
                    let mut world = World::new(server(k, work), seed);
                    world.run(60);
                    world.run(240)
                })
                .collect();
            let mean = |of: fn(&Seen) -> f64| seen.iter().map(of).sum::<f64>() / seen.len() as f64;
            let within = seen.iter().filter(|seen| seen.used >= 0.95 && seen.queue <= most).count();
            let (used, queue) = (mean(|seen| seen.used), mean(|seen| seen.queue));
            println!("{k} workers, {name}: {used:.3} used, {queue:.1} wait, {most:.1} may; {within} of 20 within");
            assert!(used >= 0.95 && queue <= most, "{k} workers, {name}: {used} used, {queue} wait, and {most} may");
            assert!(within >= 18, "{k} workers, {name}: {within} of 20 within\n{seen:?}");
        }
    }
}

#[test]
fn it_follows_when_workers_come_and_go() {
    for (before, after) in [(16, 64), (64, 16), (4, 16), (16, 4)] {
        let mut world = World::new(server(before, steady), 0);
        world.run(60);
        world.server.workers = after;
        // A hundred times the present response time, including the requests in flight.
        let meanwhile = world.run(if after < before { 10 * before as u64 / after as u64 } else { 10 });
        let Seen { used, queue } = world.run(120);
        let most = steady_queue(after);
        println!("{before} to {after} workers: {meanwhile:?}, then {used:.3} used, {queue:.1} wait, {most:.1} may");
        assert!(used >= 0.95, "{before} to {after} workers: {used}");
        assert!(queue <= most, "{before} to {after} workers: {queue} wait, and {most} may");
    }
}

#[test]
fn work_that_takes_longer_than_before_is_no_queue() {
    let mut world = World::new(server(16, steady), 0);
    world.run(60);
    world.server.work = |dice| whole(2.94 + 0.12 * dice.f64());
    world.run(60);
    let Seen { used, queue } = world.run(240);
    assert!(used >= 0.95 && queue <= steady_queue(16), "{used} used, {queue} wait");
}

/// The response time with few requests in flight is measured while the work takes ten times as long, for ten seconds.
/// Ten seconds later as few requests wait as before.
#[test]
fn what_was_measured_during_a_slowdown_does_not_outlive_it() {
    for seed in 0..8 {
        let mut world = World::new(server(10, uniform), seed);
        world.run(60);
        world.server.work = |dice| whole(5.0 + 10.0 * dice.f64());
        world.run(10 + 5 * seed);
        world.server.work = uniform;
        world.run(10);
        let Seen { used, queue } = world.run(30);
        let most = queue_of(10.0, 0.5);
        assert!(used >= 0.95 && queue <= most, "{seed}: {used} used, {queue} wait, and {most} may");
    }
}

#[test]
fn what_is_on_its_way_is_not_taken_for_a_queue() {
    let mut world = World::new(Server { way: 4 * SERVICE, ..server(16, uniform) }, 0);
    world.run(60);
    let Seen { used, queue } = world.run(240);
    // As if there were five times as many workers, each with one place in the server and four on the way.
    let most = queue_of(80.0, error(80.0, 1.0 / 12f64.sqrt()));
    assert!(used >= 0.95 && queue <= most, "{used} used, {queue} wait, and {most} may");
}

#[test]
fn a_stream_counts_until_its_end_and_is_measured_by_its_head() {
    let mut world = World::new(server(16, stream), 0);
    world.run(1000);
    let Seen { used, queue } = world.run(6000);
    // A worker is free for a waiting request after 10 s / 16: one waiting request doubles the time to the head.
    assert!(used >= 0.9 && queue <= 2.0, "{used} used, {queue} wait");
}

#[test]
fn a_limit_that_is_not_used_does_not_grow() {
    let mut world = World::new(server(64, steady), 0);
    world.waiting = Some(0);
    // A request each 50 ms that takes 100 ms: two are in flight.
    world.at(SECOND / 20, Event::Asks, SECOND / 20);
    world.run(600);
    assert_eq!(f64::from(world.limit.limit()), FIRST);
}

#[test]
fn it_falls_once_for_all_that_was_refused_together() {
    let mut limit = GradientLimit { limit: 100.0, stage: Stage::Steady, ..GradientLimit::default() };
    (0..100).for_each(|seq| limit.took(seq, seq as u32 + 1));
    (0..50).for_each(|seq| limit.overloaded(seq));
    assert_eq!(limit.limit(), 90);
    limit.took(100, 90);
    limit.overloaded(99);
    assert_eq!(limit.limit(), 90);
    limit.overloaded(100);
    assert_eq!(limit.limit(), 81);
    for seq in 101..200 {
        limit.took(seq, 1);
        limit.overloaded(seq);
    }
    assert_eq!(limit.limit(), 1, "one goes on asking");
}

#[test]
fn an_overload_ends_a_probe() {
    let mut limit = GradientLimit { limit: 40.0, ..GradientLimit::default() };
    let above = Level { under_way: 40, seconds: 0.1 };
    (limit.stage, limit.cohort) = (Stage::Probe { most: 20, above, first: false }, Cohort::of(20));
    assert_eq!(limit.limit(), 20);
    limit.took(0, 20);
    limit.overloaded(0);
    assert_eq!(limit.limit(), 36);
}

#[test]
fn clients_that_leave_before_their_answers_are_a_sign_of_a_queue_and_refusals_are_none() {
    let after = |end: fn(&mut GradientLimit, Seq)| {
        let mut limit = GradientLimit { limit: 16.0, stage: Stage::Steady, ..GradientLimit::default() };
        for seq in 0..16 {
            limit.took(seq, 16);
        }
        (0..16).for_each(|seq| end(&mut limit, seq));
        limit.limit()
    };
    assert_eq!(after(GradientLimit::abandoned), 14);
    assert_eq!(after(GradientLimit::unmeasured), 16);
    assert_eq!(after(|limit, seq| limit.answered(seq, Duration::from_micros(1))), 16, "nobody was asked");
}

#[test]
fn requests_that_hang_do_not_hold_it_up() {
    let mut limit = GradientLimit::default();
    // Three of the four requests that may be in flight are never answered.
    (0..4).for_each(|seq| limit.took(seq, 4));
    for seq in 3..300 {
        limit.answered(seq, Duration::from_millis(50));
        limit.took(seq + 1, 4);
    }
    assert!(limit.limit() > 4 && !limit.is_blank(), "{limit:?}");
}

#[test]
fn what_breaks_off_counts_once() {
    let mut limit = GradientLimit::default();
    limit.took(0, 1);
    limit.broke(0);
    limit.abandoned(0);
    // Requests in flight with the first one say nothing about the limit since; after them sixteen are a cohort.
    (1..20).for_each(|seq| limit.took(seq, 3));
    for seq in 4..9 {
        limit.broke(seq);
        limit.abandoned(seq);
    }
    (9..15).for_each(|seq| limit.answered(seq, Duration::from_millis(50)));
    assert!(limit.is_blank(), "eleven of sixteen have ended: {limit:?}");
    (15..20).for_each(|seq| limit.answered(seq, Duration::from_millis(50)));
    assert!(!limit.is_blank(), "all have: {limit:?}");
}
