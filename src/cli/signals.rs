//! Signals of `serve`: stops, reloads, and signals that it must survive.

use std::{fs::File, io};

use rustix::process;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;

/// Receives signals from its creation on: a signal before [`next`](Self::next) is called is not lost.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if andante was started with SIGHUP ignored (`nohup`), which must stay so.
    hangup: Option<Signal>,
    user: [Signal; 2],
    /// andante was started from a terminal.
    terminal: bool,
}

/// Request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// The end.
    Stop(Stop),
    /// SIGHUP: to load the configuration again.
    Reload,
}

/// Signal that asks for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: a service manager.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
}

// === impl Signals ===

impl Signals {
    /// Takes over the signals, which then no longer end the process by themselves. Needs a tokio runtime.
    pub(super) fn listen() -> io::Result<Self> {
        let hangup = (!is_ignored(process::Signal::HUP)).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
            user: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
            terminal: has_terminal(),
        })
    }

    /// Waits for the next signal that asks for the end. Loses none when dropped and called again.
    pub(super) async fn stop(&mut self) -> Stop {
        loop {
            match self.next().await {
                SignalRequest::Stop(stop) => return stop,
                SignalRequest::Reload => {
                    warn!(signal = "SIGHUP", "shutting down: the configuration is not reloaded")
                }
            }
        }
    }

    /// Waits for the next signal that asks for an action, and logs all others. Loses none when dropped and called
    /// again.
    pub(super) async fn next(&mut self) -> SignalRequest {
        let [user1, user2] = &mut self.user;
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return SignalRequest::Stop(Stop::Interrupt),
                _ = self.terminate.recv() => return SignalRequest::Stop(Stop::Terminate),
                () = received(&mut self.hangup) => {
                    let gone = self.terminal && !has_terminal();
                    return if gone { SignalRequest::Stop(Stop::Hangup) } else { SignalRequest::Reload };
                }
                _ = user1.recv() => meaningless("SIGUSR1"),
                _ = user2.recv() => meaningless("SIGUSR2"),
            }
        }
    }
}

/// Waits for `signal`; without end if it is not listened to.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

fn meaningless(signal: &str) {
    warn!(signal, "signal ignored: andante reopens a moved access log by itself; send SIGTERM to shut down");
}

/// Returns whether this process has a terminal, wherever its streams go. A closed terminal does not count.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Returns whether the parent process made this one ignore `signal`.
pub(super) fn is_ignored(signal: process::Signal) -> bool {
    ignores(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), signal)
}

/// Returns whether `/proc/PID/status` shows that the process ignores `signal`; proc_pid_status(5), `SigIgn`.
fn ignores(status: &str, signal: process::Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

// === impl Stop ===

impl Stop {
    /// Name of the signal, for the log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }

    /// Exit code in shells of a process that this signal ended: 128 plus the signal's number.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::Hangup => 129,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::*;

    #[test]
    fn what_we_were_told_to_ignore_is_known() {
        let status = "Name:\tandante\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(ignores(status, Signal::HUP));
        assert!(!ignores(status, Signal::TERM));
        assert!(!ignores("", Signal::HUP));
    }
}
