//! Attacks on memory: resident memory stays below `max-memory`, and a well-behaved worker is served meanwhile.

mod answers;
mod keys;
mod requests;
mod store;
mod upstreams;
mod waiting;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use andante::clock::Clock;

use crate::support::{Andante, Client, Upstream};

/// The bound in these tests.
const MAX_MEMORY: &str = "max-memory = \"256MiB\"\n";
const MAX_MEMORY_BYTES: u64 = 256 << 20;

/// Answers that a well-behaved worker got during an attack.
struct Served {
    asked: usize,
    good: usize,
    /// Duration of each answer, the longest last.
    times: Vec<Duration>,
}

/// Does `attack` on `andante`, which is below `max-memory` all the time, and serves a worker that asks `beside` fifty times
/// a second.
fn withstands(andante: &Andante, beside: &Upstream, attack: impl FnOnce()) {
    withstands_beside(1, andante, beside, attack);
}

/// Does `attack` beside a worker at 127.0.0.`source`, under the conditions of [`withstands`].
fn withstands_beside(source: u8, andante: &Andante, beside: &Upstream, attack: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let (served, highest) = thread::scope(|scope| {
        let served = scope.spawn(|| worker(source, andante, beside, &over));
        let highest = scope.spawn(|| highest(andante, &over));
        {
            // Also if the attack panics: the scope waits for the other two.
            let _over = Over(&over);
            attack();
        }
        (served.join().unwrap(), highest.join().unwrap())
    });
    let p99 = served.times[(served.times.len() * 99 / 100).min(served.times.len() - 1)];
    println!("{} MiB, {} of {}, p99 {p99:?}", highest >> 20, served.good, served.asked);
    assert!(highest < MAX_MEMORY_BYTES, "{} MiB resident", highest >> 20);
    assert!(served.good * 100 >= served.asked * 95, "{} of {} served", served.good, served.asked);
    assert!(p99 <= Duration::from_millis(500), "p99 {p99:?}");
}

/// Stops the worker and the measurement beside an attack.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn worker(source: u8, andante: &Andante, upstream: &Upstream, over: &AtomicBool) -> Served {
    let mut served = Served { asked: 0, good: 0, times: Vec::new() };
    while !over.load(Ordering::Relaxed) {
        let clock = Clock::start();
        let begun = clock.now();
        // A connection of its own each time: one that is new must be let in, too.
        let mut client = Client::connect_from(source, andante.proxy());
        client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/beside"), upstream.address()));
        let answer = client.answer();
        served.asked += 1;
        served.good += usize::from(answer.status() == 200);
        served.times.push(clock.now().since(begun));
        thread::park_timeout(Duration::from_millis(20));
    }
    served.times.sort_unstable();
    served
}

fn highest(andante: &Andante, over: &AtomicBool) -> u64 {
    let mut highest = 0;
    while !over.load(Ordering::Relaxed) {
        highest = highest.max(crate::lifecycle::memory(andante, "VmRSS:"));
        thread::park_timeout(Duration::from_millis(10));
    }
    highest
}
