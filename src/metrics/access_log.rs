//! Counts lines of the access log that were not written. The counts belong to the process, like its log: the log is set
//! up before anything that has metrics.

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

/// Reason why the log cannot be written at the moment. `None` if there is no access log.
static PROBLEM: Mutex<Option<Option<String>>> = Mutex::new(None);

/// Records that there is an access log from now on, without problems.
pub fn started() {
    *PROBLEM.lock() = Some(None);
}

/// Lost lines that the log has not reported yet.
static UNREPORTED: AtomicU64 = AtomicU64::new(0);

/// Counts lost lines.
pub fn lost(lines: u64) {
    LOST.inc_by(lines);
    UNREPORTED.fetch_add(lines, Ordering::Relaxed);
}

/// Takes the number of lines lost since the last call.
pub fn take_unreported() -> u64 {
    UNREPORTED.swap(0, Ordering::Relaxed)
}

/// Records why the log cannot be written; `None` if it works again.
pub fn set_problem(problem: Option<String>) {
    *PROBLEM.lock() = Some(problem);
}

/// Lines lost so far, and the reason why the log cannot be written at the moment; `None` if there is no access log.
pub fn status() -> Option<(u64, Option<String>)> {
    let problem = PROBLEM.lock().clone()?;
    Some((LOST.get(), problem))
}
