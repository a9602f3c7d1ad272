//! The signals that ask andante to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears SIGINT and SIGTERM, from its making on: one that comes before it is asked for is not lost.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// Which signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: a service manager.
    Terminate,
}

// === impl Signals ===

impl Signals {
    /// Takes over both signals; they no longer end the process by themselves. Needs a tokio runtime.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one. Loses none when dropped and called again.
    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
        }
    }
}

// === impl Stop ===

impl Stop {
    /// Its name, for the log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// What a process that this signal ended returns in a shell: 128 and the signal's number.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}
