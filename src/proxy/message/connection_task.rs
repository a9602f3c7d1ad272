//! The task of an upstream's HTTP/1 connection: filters its wake-ups and repeated reads.
//!
//! When the last piece of an answer is taken, hyper wakes the task without need. In addition, hyper polls the socket
//! several times in one turn for more to read.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// State of the connection's task.
#[derive(Default)]
pub(crate) struct ConnectionTask {
    /// Waker of the task.
    waker: Mutex<Option<Waker>>,
    /// True if there was nothing to read in this turn: the task is woken when there is.
    dry: AtomicBool,
    /// True if the answer was read to its end, and no request was sent since: only the socket can have something for
    /// the task.
    rests: AtomicBool,
}

// === impl ConnectionTask ===

impl ConnectionTask {
    /// Begins a turn of the task, which `waker` wakes for its next turn.
    pub(crate) fn turn(&self, waker: &Waker) {
        self.dry.store(false, Ordering::Relaxed);
        let mut known = self.waker.lock();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Records that a request is about to be sent.
    pub(crate) fn works(&self) {
        self.rests.store(false, Ordering::Relaxed);
    }

    /// Records that the last answer was read to its end.
    pub(crate) fn rests(&self) {
        self.rests.store(true, Ordering::Relaxed);
    }

    /// Wakes the task for hyper, unless the task rests.
    pub(crate) fn wake(&self) {
        if !self.rests.load(Ordering::Relaxed)
            && let Some(waker) = &*self.waker.lock()
        {
            waker.wake_by_ref();
        }
    }

    /// Runs `act` with a waker that wakes the task even if it rests. The end of a request may still wait for the socket
    /// when the answer has been read.
    pub(crate) fn with_waker<T>(&self, act: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let waker = self.waker.lock();
        act(&mut Context::from_waker(waker.as_ref().unwrap_or(Waker::noop())))
    }

    /// Polls `read` at most once in a turn after it was pending. The end of its wait wakes the task even if the task
    /// rests.
    pub(crate) fn ask<T>(&self, read: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        if self.dry.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let asked = self.with_waker(read);
        self.dry.store(asked.is_pending(), Ordering::Relaxed);
        asked
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicUsize},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_wakes_it_while_it_rests_but_what_it_has_asked_for() {
        let (task, woken) = (ConnectionTask::default(), Arc::new(Woken::default()));
        let mut asked = None;
        task.turn(&Waker::from(woken.clone()));
        let _: Poll<()> = task.ask(|cx| {
            asked = Some(cx.waker().clone());
            Poll::Pending
        });
        let woken = || woken.0.load(Ordering::Relaxed);
        task.wake();
        assert_eq!(woken(), 1);
        task.rests();
        task.wake();
        assert_eq!(woken(), 1, "it rests");
        asked.iter().for_each(Waker::wake_by_ref);
        assert_eq!(woken(), 2, "the socket has something");
        task.works();
        task.wake();
        assert_eq!(woken(), 3);
    }

    #[test]
    fn what_had_nothing_is_asked_again_in_the_next_turn() {
        let task = ConnectionTask::default();
        let mut asked = 0;
        let mut ask = |polled: Poll<()>| {
            let _ = task.ask(|_| {
                asked += 1;
                polled
            });
            asked
        };
        task.turn(Waker::noop());
        assert_eq!([ask(Poll::Ready(())), ask(Poll::Pending), ask(Poll::Pending)], [1, 2, 2]);
        task.turn(Waker::noop());
        assert_eq!(ask(Poll::Pending), 3);
    }
}
