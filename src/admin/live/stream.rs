//! A body that lasts for as long as the page is open.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http_body::{Body, Frame};
use hyper::body::Bytes;
use tokio::sync::mpsc;

/// Sender of the body's frames.
pub(super) type FrameSender = mpsc::Sender<Bytes>;

/// Progress of a stream: set whenever the client has taken a frame.
#[derive(Clone, Default)]
pub(in crate::admin) struct StreamProgress(Arc<AtomicBool>);

/// The body.
pub(in crate::admin) struct Streamed {
    frames: mpsc::Receiver<Bytes>,
    progress: StreamProgress,
}

/// Server-Sent Events of this name, with `json` on its one line.
pub(super) fn event(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

/// A body, and the sender of its frames.
pub(super) fn channel(progress: StreamProgress) -> (FrameSender, Streamed) {
    let (sender, frames) = mpsc::channel(2);
    (sender, Streamed { frames, progress })
}

// === impl StreamProgress ===

impl StreamProgress {
    /// Returns whether the client has taken a frame since the last call.
    pub(in crate::admin) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

// === impl Streamed ===

impl Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.frames.poll_recv(cx).map(|frame| {
            self.progress.0.store(true, Ordering::Relaxed);
            frame.map(|frame| Ok(Frame::data(frame)))
        })
    }
}
