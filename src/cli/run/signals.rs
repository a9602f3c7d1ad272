//! Signals for the command that reach andante.

use std::{fs::File, future::poll_fn, io, task::Poll};

use rustix::{
    process::{Pid, Signal, getpgid, getpgrp, kill_process},
    termios::tcgetpgrp,
};
use tokio::{
    process::Child,
    signal::unix::{self, SignalKind},
};
use tracing::debug;

use crate::cli::signals::is_ignored;

/// Signals that are passed on. WINCH, TSTP and CONT are not: terminals send these to the whole group.
const PASSED_ON: [Signal; 6] = [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Receives the signals that reach andante.
pub(super) struct CommandSignals {
    streams: Vec<(Signal, unix::Signal)>,
}

// === impl CommandSignals ===

impl CommandSignals {
    /// Catches the signals to pass on, except ignored ones (`nohup`): the command inherits ignored signals, but not
    /// caught ones.
    pub(super) fn listen() -> io::Result<Self> {
        let caught = PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal));
        let streams = caught.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)));
        Ok(Self { streams: streams.collect::<io::Result<_>>()? })
    }

    /// The next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Passes `signal` on to the `child`, unless the terminal has sent it one already.
pub(super) fn pass_on(signal: Signal, child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let Some(id) = id else { return };
    if is_from_terminal(signal) && in_foreground() && getpgid(Some(id)).is_ok_and(|group| group == getpgrp()) {
        return;
    }
    if let Err(error) = kill_process(id, signal) {
        debug!(?signal, %error, "could not pass a signal on");
    }
}

/// Returns whether andante is in the foreground of its terminal, so that its keys reach andante, wherever the streams
/// go.
pub(super) fn in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Ctrl-C and Ctrl-\ reach the whole foreground group. A `kill` looks the same: sent to andante alone, in the
/// foreground, it does not reach the command.
fn is_from_terminal(signal: Signal) -> bool {
    signal == Signal::INT || signal == Signal::QUIT
}
