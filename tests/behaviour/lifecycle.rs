//! Time, load and lifecycle: clients and upstreams that are slow, leave, break, or are one too many.

use std::{fs, thread, time::Duration};

use serde_json::Value;

use crate::support::Andante;

mod access_log;
mod departures;
mod descriptors;
mod drain;
mod early_answers;
mod handover;
mod leaving;
mod queues;
mod readers;
mod reuse;
mod signals;
mod streaming;
mod telemetry;
mod timeouts;
mod upstreams;

/// Whether no client is connected, and no request waits or is in flight.
fn quiet(status: &Value) -> bool {
    let lanes = status["lanes"].as_array().unwrap();
    let done = |lane: &Value| lane["waiting"] == 0 && lane["in_flight"] == 0;
    status["connections"]["client"] == 0 && status["tunnels"] == 0 && lanes.iter().all(done)
}

/// Number of waiting requests in the only lane.
fn waiting(status: &Value) -> u64 {
    status["lanes"][0]["waiting"].as_u64().unwrap_or(0)
}

/// A value of `/proc/PID/status`, in bytes.
pub(crate) fn memory(andante: &Andante, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", andante.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() * 1024
}

/// Lets time pass where the test is about time.
pub(crate) fn pass(time: Duration) {
    let clock = andante::clock::Clock::start();
    while let Some(rest) = time.checked_sub(clock.now().since(andante::clock::Instant::START)) {
        if rest.is_zero() {
            return;
        }
        thread::park_timeout(rest);
    }
}
