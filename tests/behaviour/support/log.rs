//! Standard error of a process.

use std::{
    io::{ErrorKind, Read},
    process::ChildStderr,
    sync::Arc,
    thread,
};

use parking_lot::Mutex;

use super::PAUSE;

/// The text so far. A thread reads all the time, so that the writer never blocks.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<Said>>);

struct Said {
    pipe: ChildStderr,
    bytes: Vec<u8>,
}

impl Log {
    pub(crate) fn of(pipe: ChildStderr) -> Self {
        rustix::io::ioctl_fionbio(&pipe, true).unwrap();
        let log = Self(Arc::new(Mutex::new(Said { pipe, bytes: Vec::new() })));
        let reading = log.clone();
        thread::spawn(move || {
            while reading.0.lock().read() {
                thread::park_timeout(PAUSE);
            }
        });
        log
    }

    /// The whole text up to this moment.
    pub(crate) fn text(&self) -> String {
        let mut said = self.0.lock();
        said.read();
        String::from_utf8_lossy(&said.bytes).into_owned()
    }
}

impl Said {
    /// Reads the available bytes; `false` at the end.
    fn read(&mut self) -> bool {
        match self.pipe.read_to_end(&mut self.bytes) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}
