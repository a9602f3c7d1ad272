//! Progress and result of a batch. Pure except for the writing.

use std::{collections::BTreeMap, io::Write as _, process::ExitCode, time::Duration};

use serde_json::json;

use super::{
    BatchOptions, FAILED,
    input::{BatchFiles, Prepared},
};
use crate::{
    admin::Status,
    batch::{Counts, Stopped},
    cli::{
        run::{diagnosis, progress, summary},
        signals::Stop,
        wording,
    },
};

/// Data of the final report.
pub(super) struct Report {
    total: u64,
    /// Requests with a line from an earlier run.
    before: u64,
    /// Requests with a line: an answer, or the reason why there is none.
    done: u64,
    failed: u64,
    /// Requests without an answer.
    unanswered: u64,
    unknown: Vec<String>,
    by_status: BTreeMap<String, u64>,
    quiet: bool,
    json: bool,
}

/// Kind of the incidents of requests that break off before their bodies; the batch sends no other bad requests.
const BODY_BROKE_OFF: &str = "http_request_error";
/// Names that are listed.
const NAMES: usize = 5;

// === impl Report ===

impl Report {
    pub(super) fn new(prepared: &Prepared, opened: &BatchFiles, options: &BatchOptions) -> Self {
        Self {
            total: prepared.total,
            before: opened.done,
            done: opened.done,
            failed: opened.failed,
            unanswered: opened.unanswered,
            unknown: opened.unknown.clone(),
            by_status: BTreeMap::new(),
            quiet: options.quiet,
            json: options.json,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet || self.json
    }

    /// Adds the counts of this run.
    pub(super) fn ended(&mut self, counts: &Counts) {
        self.done += counts.done();
        self.failed += counts.failed();
        self.unanswered += counts.unanswered();
        self.unknown.extend(counts.unknown());
        self.by_status = counts.by_status();
    }

    /// Sets the number of requests that came from a pipe.
    pub(super) fn learned_total(&mut self, total: u64) {
        self.total = total;
    }

    pub(super) fn is_done(&self) -> bool {
        self.done >= self.total
    }

    /// The exit code; `signal` asked for the end.
    pub(super) fn exit_code(&self, stopped: Option<&Stopped>, signal: Option<Stop>) -> ExitCode {
        match stopped {
            Some(Stopped::Interrupted) => signal.unwrap_or(Stop::Interrupt).exit_code().into(),
            None if self.is_done() && self.failed == 0 => ExitCode::SUCCESS,
            _ => FAILED.into(),
        }
    }

    /// Prints the report, unless it is switched off.
    pub(super) fn say(&self, status: Option<&Status>, elapsed: Duration, stopped: Option<&Stopped>) {
        let text = match (self.json, self.quiet) {
            (true, _) => format!("{}\n", self.json(elapsed)),
            (false, true) => return,
            (false, false) => self.text(status, elapsed, stopped),
        };
        // If the text cannot be written, the exit code still tells whether all went well.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    fn json(&self, elapsed: Duration) -> serde_json::Value {
        json!({
            "total": self.total,
            "answered": self.done - self.unanswered,
            "answered_before": self.before,
            "failed": self.failed,
            "unanswered": self.unanswered,
            "unknown": self.unknown,
            "answers": self.by_status,
            "elapsed_s": elapsed.as_secs_f64(),
        })
    }

    fn text(&self, status: Option<&Status>, elapsed: Duration, stopped: Option<&Stopped>) -> String {
        let mut text = format!(
            "andante: {} of {} answered in {}",
            wording::count(self.done - self.unanswered),
            wording::several(self.total, "request"),
            wording::short(elapsed)
        );
        if self.before > 0 {
            text += &format!(", {} done before", wording::count(self.before));
        }
        text.push('\n');
        if self.unanswered > 0 {
            text += &format!(
                "  {} without an answer: the file says why; delete a line to have its request sent again\n",
                wording::several(self.unanswered, "request")
            );
        }
        if !self.by_status.is_empty() {
            let each = self.by_status.iter().map(|(name, many)| format!("{name}: {}", wording::count(*many)));
            text += &format!("  {}\n", each.collect::<Vec<_>>().join(", "));
        }
        let refused = self.failed.saturating_sub(self.unanswered);
        if refused > 0 {
            text += &format!(
                "  {} answered with an error status: delete a line to have its request sent again (--max-failures N ends sooner)\n",
                wording::several(refused, "request")
            );
        }
        if !self.unknown.is_empty() {
            let listed = self.unknown.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if self.unknown.len() > NAMES { ", …" } else { "" };
            text += &format!(
                "  {} may have been executed, and must not be executed twice: {listed}{more}\n  --resend-unknown sends them again\n",
                wording::several(self.unknown.len() as u64, "request"),
            );
        }
        if self.done + (self.unknown.len() as u64) < self.total {
            text += "  run the same command again to continue\n";
        }
        // The batch is the only client of its andante, so no other client can have left.
        let left = match stopped {
            Some(Stopped::Interrupted) => "taken back at the interrupt",
            Some(_) => "taken back when it stopped",
            None => "given up",
        };
        let of_status =
            |status| summary::queue(status, left) + &diagnosis::own_causes(status) + &summary::lanes(status);
        status.map_or(text.clone(), |status| text + &of_status(status))
    }
}

/// Counts requests that the batch has `given_up` as given up. The batch's andante saw some of them break off
/// before their bodies, and counted those as failures.
pub(super) fn take_back(status: &mut Status, given_up: u64) {
    let requests = &mut status.requests;
    let broken_off = given_up.saturating_sub(requests.left).min(requests.rejected);
    requests.rejected -= broken_off;
    requests.left += broken_off;
    if broken_off > 0 {
        status.incidents.retain(|incident| incident.kind != BODY_BROKE_OFF);
    }
}

/// `andante: 1,234 of 30,000, 8.3/s, 2 failed, paused 12 s: retry-after, 52m to go`.
pub(super) fn line(counts: &Counts, left: u64, pace: Option<f64>, status: Option<&Status>, stopping: bool) -> String {
    let done = counts.done();
    let mut parts = vec![format!("{} of {}", wording::count(done), wording::count(left))];
    let pace = pace.filter(|pace| *pace > 0.0);
    parts.extend(pace.map(wording::measured_pace));
    if counts.failed() > 0 {
        parts.push(format!("{} failed", wording::count(counts.failed())));
    }
    parts.extend(status.and_then(progress::paused));
    if counts.is_unreached() {
        parts.push("andante does not answer: waiting for it".to_owned());
    }
    if stopping {
        parts.push("waiting for requests in flight; interrupt again to exit now".to_owned());
    } else {
        parts.extend(pace.map(|pace| format!("{} to go", wording::seconds(left.saturating_sub(done) as f64 / pace))));
    }
    format!("andante: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::status::Requests;

    #[test]
    fn what_broke_off_at_an_interrupt_is_taken_back_and_did_not_fail() {
        for (given_up, left, rejected, expected) in [(39, 38, 1, (39, 0)), (39, 39, 2, (39, 2)), (5, 3, 1, (4, 0))] {
            let mut status =
                Status { requests: Requests { left, rejected, ..Requests::default() }, ..Status::default() };
            take_back(&mut status, given_up);
            assert_eq!((status.requests.left, status.requests.rejected), expected);
        }
    }

    #[test]
    fn what_an_interrupt_takes_back_is_no_client_that_left() {
        let report = Report {
            total: 3,
            before: 0,
            done: 1,
            failed: 0,
            unanswered: 0,
            unknown: Vec::new(),
            by_status: BTreeMap::new(),
            quiet: false,
            json: false,
        };
        let status = Status { requests: Requests { left: 2, ..Requests::default() }, ..Status::default() };
        let text = report.text(Some(&status), Duration::ZERO, Some(&Stopped::Interrupted));
        assert!(text.contains("taken back at the interrupt: 2") && !text.contains("client"), "{text}");
        let text = report.text(Some(&status), Duration::ZERO, Some(&Stopped::Failures(1)));
        assert!(text.contains("taken back when it stopped: 2"), "{text}");
    }
}
