//! Runs what hyper makes of an HTTP/2 connection: the frames in the task that asked for the connection, the rest in tasks
//! of their own.
//!
//! hyper does not expose how many streams the upstream allows, and would read the frames that say so in another task.
//! In one task with them the answer is looked up whenever it may have changed.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hyper::rt::Executor;
use parking_lot::Mutex;

/// Reads and writes frames until the connection has ended.
pub(crate) type Frames = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor of one connection.
#[derive(Clone, Default)]
pub(crate) struct H2Executor(Arc<ExecutorState>);

#[derive(Default)]
struct ExecutorState {
    begun: AtomicBool,
    frames: Mutex<Option<Frames>>,
}

impl H2Executor {
    /// What has to be polled along with the connection; there once hyper has shaken hands.
    pub(crate) fn frames(&self) -> Option<Frames> {
        self.0.frames.lock().take()
    }
}

impl<F> Executor<F> for H2Executor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        // The first that hyper hands over is the connection's; what follows belongs to single requests.
        if self.0.begun.swap(true, Ordering::Relaxed) {
            // Boxed: it is as large as the connection itself, and would be moved four times on its way into the task.
            tokio::spawn(Box::pin(future));
        } else {
            *self.0.frames.lock() = Some(Box::pin(future));
        }
    }
}
