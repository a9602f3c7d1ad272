//! Requests in flight in a history, as the API counts them. Responses may outlast a lease, without a bound at a
//! connected member. At a member that is cut off or killed, no response outlasts the hold after its lease: that is the
//! condition of the promise.

use std::{num::NonZeroU32, time::Duration};

use andante_clock::Instant;
use andante_fleet::{Lease, MemberId, Micros};

use super::{Event, MS, S, World};

/// Name of the limit in the store.
pub(super) const POOL: &str = "api\nhost\nin-flight";

/// All requests that have left.
#[derive(Default)]
pub(super) struct Streams {
    /// Limit on requests in flight; `None` in a history of windows.
    pub(super) limit: Option<NonZeroU32>,
    hold: Micros,
    /// No other limit exists.
    pub(super) alone: bool,
    open: Vec<Stream>,
    /// Total time that requests were in flight.
    busy: Micros,
}

struct Stream {
    at: usize,
    name: MemberId,
    arrives: Micros,
    ends: Micros,
    /// When its member stops holding the request's token: at the lease's end, or never if the request left by a floor.
    held_until: Micros,
}

const FOR_EVER: Micros = Micros::MAX / 4;

// === impl Stream ===

impl Stream {
    fn is_under_way(&self, now: Micros, hold: Micros) -> bool {
        (self.arrives..self.ends.min(self.held_until + hold)).contains(&now)
    }
}

// === impl Streams ===

impl Streams {
    pub(super) fn hold(&self) -> Duration {
        if self.limit.is_some() { Duration::from_micros(self.hold.unsigned_abs()) } else { Lease::HOLD }
    }

    /// Returns true if too many requests are in flight.
    pub(super) fn exceed(&mut self, now: Micros) -> bool {
        let (hold, limit) = (self.hold, self.limit.map_or(u32::MAX, NonZeroU32::get));
        // A request that has not arrived yet is not over.
        self.open.retain(|stream| stream.arrives > now || stream.is_under_way(now, hold));
        self.open.iter().filter(|stream| stream.is_under_way(now, hold)).count() > limit as usize
    }

    /// Extends the lease of the member with this name.
    pub(super) fn leased(&mut self, name: MemberId, until: Micros) {
        let theirs = self.open.iter_mut().filter(|stream| stream.name == name && stream.held_until != FOR_EVER);
        theirs.for_each(|stream| stream.held_until = stream.held_until.max(until));
    }

    /// Records that the process was killed. The API may not notice.
    pub(super) fn left(&mut self, at: usize, now: Micros) {
        let theirs = self.open.iter_mut().filter(|stream| stream.at == at && stream.held_until == FOR_EVER);
        theirs.for_each(|stream| stream.held_until = now);
    }
}

// === impl World ===

impl World {
    /// Limits the number of requests in flight, and mostly nothing else.
    pub(in super::super) fn with_in_flight(mut self) -> Self {
        let most = self.pick(&[1, 2, 3, 6, 20]);
        self.streams.limit = NonZeroU32::new(most as u32);
        self.streams.hold = self.pick(&[3 * S, 8 * S, 20 * S]);
        if self.below(4) > 0 {
            (self.spec, self.streams.alone) = ("1000000/s".parse().expect("it is a limit"), true);
        }
        self.jitter = 5 * MS;
        self.ends += 2 * self.streams.hold;
        for at in 0..self.processes.len() {
            let mut process = self.process(0);
            (process.greedy, process.way) = (self.processes[at].greedy, self.processes[at].way);
            self.processes[at] = process;
            let begins = self.now + self.below(500 * MS);
            self.wake_at(at, begins);
        }
        self
    }

    /// Starts a request of this process that arrives at `arrives`, and schedules the response's end at the API and the
    /// process.
    pub(super) fn begin(&mut self, at: usize, arrives: Micros, way: Micros) {
        if self.streams.limit.is_none() {
            return;
        }
        let lasts = match self.below(10) {
            0 => self.below(2 * self.streams.hold),
            1..4 => self.below(3 * S),
            _ => 10 * MS + self.below(500 * MS),
        };
        let process = &mut self.processes[at];
        let local = process.at(self.now);
        process.in_flight += 1;
        process.budget.under_way(local, process.in_flight);
        let held_until = if process.lease.holds(local) { process.truly(process.lease.until()) } else { FOR_EVER };
        let (life, name, ends) = (process.life, process.member.id(), arrives + lasts);
        self.streams.busy += ends.min(self.ends) - arrives.min(self.ends);
        self.streams.open.push(Stream { at, name, arrives, ends, held_until });
        self.at(arrives, Event::Begin);
        self.at(ends + way, Event::End(at, life));
    }

    /// Handles the end of a response at the process.
    pub(super) fn ended(&mut self, at: usize, life: u32) {
        let now = self.now;
        let process = &mut self.processes[at];
        if process.life == life {
            let local: Instant = process.at(now);
            process.in_flight -= 1;
            process.budget.under_way(local, process.in_flight);
            self.wake(at);
        }
    }

    /// Part of the in-flight limit that was in use.
    pub(in super::super) fn busy(&self) -> f64 {
        let most = self.streams.limit.map_or(1, NonZeroU32::get);
        self.streams.busy as f64 / (f64::from(most) * (self.ends - S) as f64)
    }
}
