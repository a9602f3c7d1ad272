//! Tests of how long an answer takes, which run while no other test loads the machine.
//!
//! A thread that has started an andante counts as concurrent until it ends. So a test that restarts its andante does
//! not wait for others in between.

use std::cell::RefCell;

use parking_lot::{Condvar, Mutex};

static MACHINE: Mutex<Machine> = Mutex::new(Machine { beside: 0, alone: false });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static SHARE: RefCell<Option<Share>> = const { RefCell::new(None) };
}

/// Threads that use the machine.
struct Machine {
    beside: usize,
    alone: bool,
}

/// This thread's use of the machine.
enum Share {
    Beside,
    Alone,
}

/// No andante of other tests runs until this is dropped.
pub(crate) struct Alone(());

/// Waits until no other test runs, and has others wait.
pub(crate) fn alone() -> Alone {
    // With one test thread, it is still the thread of an earlier test.
    SHARE.set(None);
    let mut machine = MACHINE.lock();
    CHANGED.wait_while(&mut machine, |machine| machine.alone || machine.beside > 0);
    machine.alone = true;
    SHARE.set(Some(Share::Alone));
    Alone(())
}

/// Waits until no test of another thread is alone.
pub(super) fn beside() {
    if SHARE.with_borrow(Option::is_some) {
        return;
    }
    let mut machine = MACHINE.lock();
    // Not behind a test that waits to be alone: another thread of this test may run already.
    CHANGED.wait_while(&mut machine, |machine| machine.alone);
    machine.beside += 1;
    SHARE.set(Some(Share::Beside));
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut machine = MACHINE.lock();
        match self {
            Self::Beside => machine.beside -= 1,
            Self::Alone => machine.alone = false,
        }
        CHANGED.notify_all();
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        SHARE.set(None);
    }
}
