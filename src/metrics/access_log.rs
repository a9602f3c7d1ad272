//! Lines of the access log that were not written. Of the process, as its log is: the log is set up before anything that
//! has metrics.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use prometheus::IntCounter;

/// Lines that were lost so far.
pub(super) static LOST: LazyLock<IntCounter> = LazyLock::new(|| {
    let help = "Lines of the access log that could not be written.";
    IntCounter::new("andante_access_log_lost_total", help).expect("the name is valid")
});

/// Why it cannot be written at the moment. `None` if there is no access log.
static PROBLEM: Mutex<Option<Option<String>>> = Mutex::new(None);

/// There is an access log from now on, and nothing wrong with it.
pub fn started() {
    *PROBLEM.lock() = Some(None);
}

/// Lines that were lost since the log has said so.
static UNREPORTED: AtomicU64 = AtomicU64::new(0);

/// This many lines were lost.
pub fn lost(lines: u64) {
    LOST.inc_by(lines);
    UNREPORTED.fetch_add(lines, Ordering::Relaxed);
}

/// How many lines were lost since the last call.
pub fn take_unreported() -> u64 {
    UNREPORTED.swap(0, Ordering::Relaxed)
}

/// It cannot be written because of `problem`; `None` if it can again.
pub fn set_problem(problem: Option<String>) {
    *PROBLEM.lock() = Some(problem);
}

/// How many lines were lost so far, and why it cannot be written at the moment; `None` if there is no access log.
pub fn status() -> Option<(u64, Option<String>)> {
    let problem = PROBLEM.lock().clone()?;
    Some((LOST.get(), problem))
}
