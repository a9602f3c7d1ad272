//! Progress of one exchange, and the deadline of its current phase.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::{Clock, Instant, nanos},
    config::Timeouts,
    policy::RuleTimeouts,
};

/// The phase of one exchange, and its deadline. Bodies advance it, and the connection's watchdog reads it.
pub(crate) struct Progress {
    clock: Clock,
    timeouts: Arc<Timeouts>,
    /// `timeouts.answer` and `timeouts.idle` of the request's rule, in nanoseconds.
    answer: AtomicU64,
    idle: AtomicU64,
    phase: AtomicU8,
    /// When the current phase has taken too long, in nanoseconds of the clock.
    deadline: AtomicU64,
    /// Time of the task's current turn, in nanoseconds of the clock; `UNREAD`, or `NO_TURN`.
    turn: AtomicU64,
    /// No further request is to be read from the connection.
    last: AtomicBool,
    /// Much of the request's body is still to be read.
    unread: AtomicBool,
    /// Length of the request's body in bytes; `NO_HEAD`, or `UNCERTAIN`.
    body_bytes: AtomicU64,
    /// Bytes of the request's body that were read from the connection.
    read_bytes: AtomicU64,
}

/// Phase of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No request.
    Idle,
    /// Part of a request's head has been read.
    Head,
    /// A ticket waits in its lane.
    Waiting,
    /// The request is being sent to the upstream, and the client has to send more of its body.
    Upload,
    /// The upstream has to answer.
    Answer,
    /// The answer's body is being sent.
    Body,
    /// The previous phase took too long; the request is to fail with that phase.
    LateWaiting,
    LateUpload,
    LateAnswer,
    /// The process ends, and the request was not sent.
    CutOff,
    /// The process ends, and the upstream may have the request, or a part of it.
    CutOffInFlight,
}

/// The clock was not read in this turn yet.
const UNREAD: u64 = 0;
/// The task has no turn, or takes no part in turns.
const NO_TURN: u64 = u64::MAX;
/// No head was parsed since the last request on the connection ended.
const NO_HEAD: u64 = u64::MAX;
/// The end of the request in the stream of bytes is unknown, and so are the beginnings of later ones.
const UNCERTAIN: u64 = u64::MAX - 1;

// === impl Progress ===

impl Progress {
    /// Progress of a connection that was opened at `now`. The first request has to come soon; later ones may take
    /// longer.
    pub(crate) fn new(clock: Clock, timeouts: Arc<Timeouts>, now: Instant) -> Self {
        let deadline = now + timeouts.head;
        Self {
            clock,
            answer: AtomicU64::new(nanos(timeouts.answer)),
            idle: AtomicU64::new(nanos(timeouts.idle)),
            timeouts,
            phase: AtomicU8::new(Phase::Idle as u8),
            deadline: AtomicU64::new(deadline.as_nanos()),
            turn: AtomicU64::new(NO_TURN),
            last: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            body_bytes: AtomicU64::new(NO_HEAD),
            read_bytes: AtomicU64::new(0),
        }
    }

    /// Runs `turn` as a turn of the task. The clock is read once in a turn, because a turn waits for nothing.
    pub(crate) fn in_turn<R>(&self, turn: impl FnOnce() -> R) -> R {
        self.turn.store(UNREAD, Ordering::Relaxed);
        let done = turn();
        self.turn.store(NO_TURN, Ordering::Relaxed);
        done
    }

    /// The time; within a turn, the time at which the turn first asked.
    fn now(&self) -> Instant {
        match self.turn.load(Ordering::Relaxed) {
            NO_TURN => self.clock.now(),
            UNREAD => {
                let now = self.clock.now();
                // A body is read in another task: its reading of the clock must not outlive the turn.
                let _ = self.turn.compare_exchange(UNREAD, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
                now
            }
            now => Instant::from_nanos(now),
        }
    }

    /// Records that a part of a request's head was read. The rest of the head has to follow soon.
    pub(crate) fn reads_head(&self) {
        if self.phase() == Phase::Idle {
            self.enter(Phase::Head, self.timeouts.head);
        }
    }

    /// Maximum durations of the phases.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Maximum time that the upstream may take to answer.
    pub(crate) fn answer(&self) -> Duration {
        Duration::from_nanos(self.answer.load(Ordering::Relaxed))
    }

    /// Maximum silence of a body or a tunnel.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_nanos(self.idle.load(Ordering::Relaxed))
    }

    /// Sets the timeouts of the current request's rule.
    pub(crate) fn set_rule(&self, rule: &RuleTimeouts) {
        let answer = nanos(rule.answer.unwrap_or(self.timeouts.answer));
        self.idle.store(nanos(rule.idle.unwrap_or(self.timeouts.idle)), Ordering::Relaxed);
        if self.answer.swap(answer, Ordering::Relaxed) != answer {
            self.awaits_answer();
        }
    }

    /// Enters `phase`, which may take `at_most`. Returns the time for callers that need it.
    pub(crate) fn enter(&self, phase: Phase, at_most: Duration) -> Instant {
        let now = self.now();
        self.enter_until(phase, now + at_most);
        now
    }

    /// Enters `phase`, which has to be over at `deadline`.
    pub(crate) fn enter_until(&self, phase: Phase, deadline: Instant) {
        self.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Records that the upstream has to answer now. Returns the time.
    pub(crate) fn awaits_answer(&self) -> Instant {
        self.enter(Phase::Answer, self.answer())
    }

    /// Records that a body has moved, and restarts its idle timeout. Returns the time.
    pub(crate) fn moves(&self) -> Instant {
        self.enter(Phase::Body, self.idle())
    }

    /// Records that the request is over and the next one may come. Returns the time.
    pub(crate) fn rest(&self) -> Instant {
        self.enter(Phase::Idle, self.timeouts.keep_alive)
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::from_u8(self.phase.load(Ordering::Relaxed))
    }

    /// When the current phase has taken too long.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    /// Sets whether much of the request's body is still to be read: too much to be skipped before the next request.
    pub(crate) fn set_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Marks that the next head begins with the next byte that is read.
    pub(crate) fn awaits_head(&self) {
        self.body_bytes.store(NO_HEAD, Ordering::Relaxed);
    }

    /// Records that a head was parsed, whose body has `body_bytes` if its length is stated. If a second head was read
    /// with the first, the positions of all later heads are uncertain.
    pub(crate) fn head_parsed(&self, body_bytes: Option<u64>) {
        let first = self.body_bytes.load(Ordering::Relaxed) == NO_HEAD;
        let body_bytes = body_bytes.filter(|bytes| first && *bytes < UNCERTAIN).unwrap_or(UNCERTAIN);
        self.body_bytes.store(body_bytes, Ordering::Relaxed);
    }

    /// Returns whether the request whose head was parsed ends `bytes` after that head.
    pub(crate) fn ends_after(&self, bytes: u64) -> bool {
        bytes < UNCERTAIN && self.body_bytes.load(Ordering::Relaxed) == bytes
    }

    /// Records that `bytes` after the head were read from the connection.
    pub(crate) fn on_body_read(&self, bytes: u64) {
        self.read_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether a part of the request's body has not come yet; `false` if the body's length is unknown.
    pub(crate) fn is_body_coming(&self) -> bool {
        let length = self.body_bytes.load(Ordering::Relaxed);
        length < UNCERTAIN && self.read_bytes.load(Ordering::Relaxed) < length
    }

    /// Marks the current request as the last one on its connection, if the connection is HTTP/1.
    pub(crate) fn set_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// Makes the current request fail, if it can still be answered. Returns `false` if the connection has to be closed
    /// instead.
    pub(crate) fn give_up(&self, drained: bool) -> bool {
        let late = match self.phase() {
            Phase::Waiting if drained => Phase::CutOff,
            Phase::Upload | Phase::Answer if drained => Phase::CutOffInFlight,
            Phase::Waiting => Phase::LateWaiting,
            Phase::Upload => Phase::LateUpload,
            Phase::Answer => Phase::LateAnswer,
            _ => return false,
        };
        // The answer that reports the failure has to be read within a bounded time, too.
        self.enter(late, self.timeouts.head);
        true
    }
}

// === impl Phase ===

impl Phase {
    fn from_u8(phase: u8) -> Self {
        const ALL: [Phase; 11] = [
            Phase::Idle,
            Phase::Head,
            Phase::Waiting,
            Phase::Upload,
            Phase::Answer,
            Phase::Body,
            Phase::LateWaiting,
            Phase::LateUpload,
            Phase::LateAnswer,
            Phase::CutOff,
            Phase::CutOffInFlight,
        ];
        ALL[usize::from(phase)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_turn_is_that_of_the_turn_alone() {
        let clock = Clock::start();
        let progress = Progress::new(clock, Arc::new(Timeouts::default()), clock.now());
        let second = Duration::from_secs(1);
        let mut times = vec![progress.in_turn(|| progress.moves())];
        tokio::time::advance(second).await;
        times.push(progress.rest());
        tokio::time::advance(second).await;
        times.push(progress.in_turn(|| progress.awaits_answer()));
        assert_eq!(times, [0, 1, 2].map(|turn| clock.began() + second * turn));
    }
}
