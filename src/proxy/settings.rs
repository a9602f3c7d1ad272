//! How many requests an upstream takes at once on an HTTP/2 connection, as its SETTINGS say. hyper reads them in a task
//! of its own and tells nobody: whoever waits for them has to look whenever that task has done something.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Waker};

use hyper::{
    body::Body,
    client::conn::http2::Connection,
    rt::{Executor, bounds::Http2ClientConnExec},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

/// What hyper takes for the upstream's bound until that has said one. An odd number, which no upstream says.
pub(super) const UNTOLD: usize = 7919;

/// Runs hyper's tasks of one connection, and wakes who waits after each of their steps.
#[derive(Clone, Default)]
pub(super) struct Tasks {
    waiting: Arc<Mutex<Option<Waker>>>,
}

/// Drives `connection`, made with [`UNTOLD`] and `tasks`, to its end. `allows` is called with the upstream's bound as soon
/// as that is known, and again whenever hyper has something to do; without a bound it is `usize::MAX`.
pub(super) async fn drive<S, B>(
    connection: Connection<TokioIo<S>, B, Tasks>,
    tasks: Tasks,
    mut allows: impl FnMut(usize),
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin + 'static,
    Tasks: Http2ClientConnExec<B, TokioIo<S>>,
{
    let mut connection = pin!(connection);
    let mut told = false;
    poll_fn(|cx| {
        if !told {
            // Before the look: what comes after it wakes.
            *tasks.waiting.lock() = Some(cx.waker().clone());
        }
        let ended = connection.as_mut().poll(cx);
        let allowed = connection.current_max_send_streams();
        if allowed != UNTOLD {
            told = true;
            allows(allowed);
        }
        ended
    })
    .await
}

// === impl Tasks ===

impl<F> Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        let waiting = self.waiting.clone();
        tokio::spawn(async move {
            let mut task = pin!(task);
            poll_fn(|cx| {
                let done = task.as_mut().poll(cx);
                let waker = waiting.lock().take();
                waker.into_iter().for_each(Waker::wake);
                done
            })
            .await
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::Empty;
    use hyper::{body::Bytes, client::conn::http2};
    use tokio::{
        io::{AsyncWriteExt as _, duplex},
        sync::mpsc,
        time::{sleep, timeout},
    };

    use super::*;

    /// What is told by an upstream that takes its time to say `settings`.
    async fn told(settings: &[u8]) -> usize {
        let (ours, mut theirs) = duplex(64 * 1024);
        let tasks = Tasks::default();
        let made = http2::Builder::new(tasks.clone()).initial_max_send_streams(UNTOLD).handshake(TokioIo::new(ours));
        let (_sender, connection) = made.await.unwrap();
        let connection: Connection<_, Empty<Bytes>, _> = connection;
        let (tell, mut hear) = mpsc::unbounded_channel();
        tokio::spawn(drive(connection, tasks, move |allowed| {
            let _ = tell.send(allowed);
        }));
        sleep(Duration::from_millis(200)).await;
        assert!(hear.try_recv().is_err());
        theirs.write_all(settings).await.unwrap();
        timeout(Duration::from_secs(1), hear.recv()).await.expect("it is told at once").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn settings_that_come_late_are_noticed() {
        // RFC 9113 §6.5: length 6, type 4; SETTINGS_MAX_CONCURRENT_STREAMS is 3.
        assert_eq!(told(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64").await, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn settings_without_a_bound_are_settings() {
        assert_eq!(told(b"\0\0\0\x04\0\0\0\0\0").await, usize::MAX);
    }
}
