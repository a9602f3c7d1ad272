//! HTTP/2: a client and an upstream made of the `h2` crate, and single frames that the crate would not send.

mod client;
mod frames;
mod upstream;

use std::{future::Future, sync::LazyLock, thread};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::HeaderMap;
use tokio::runtime::{Builder, Handle};

pub(crate) use self::{
    client::Client2,
    frames::{Frame, Frames, block, kind},
    upstream::{Exchange, Upstream2},
};
use super::{Message, PATIENCE};

/// Drives everything that is asynchronous here, on a thread of its own: the tests wait in threads of theirs.
pub(crate) fn runtime() -> &'static Handle {
    static RUNTIME: LazyLock<Handle> = LazyLock::new(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        handle
    });
    &RUNTIME
}

/// Waits for `future`; panics with `what` when that takes too long.
pub(crate) fn wait<T>(what: &str, future: impl Future<Output = T>) -> T {
    let patient = async { tokio::time::timeout(PATIENCE, future).await };
    runtime().block_on(patient).unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Sends `bytes` as the other side makes room for them.
pub(crate) async fn push(into: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) -> Result<(), h2::Error> {
    if bytes.is_empty() {
        return into.send_data(bytes, end);
    }
    while !bytes.is_empty() {
        into.reserve_capacity(bytes.len());
        let room = match std::future::poll_fn(|cx| into.poll_capacity(cx)).await {
            Some(room) => room?,
            None => return Err(h2::Reason::CANCEL.into()),
        };
        let piece = bytes.split_to(room.min(bytes.len()));
        into.send_data(piece, end && bytes.is_empty())?;
    }
    Ok(())
}

/// The next piece of a body, for which room is made again.
pub(crate) async fn next(from: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let piece = from.data().await;
    if let Some(Ok(piece)) = &piece {
        let _ = from.flow_control().release_capacity(piece.len());
    }
    piece
}

/// Reads `body` to its end, into `message`.
async fn read(body: &mut RecvStream, message: &mut Message) -> Result<(), h2::Error> {
    while let Some(piece) = next(body).await {
        message.body.extend_from_slice(&piece?);
    }
    message.framed.clone_from(&message.body);
    let trailers = body.trailers().await?.unwrap_or_default();
    message.trailers = trailers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    Ok(())
}

/// A head, written as if it were one of HTTP/1.
fn head(line: String, fields: &HeaderMap) -> Vec<u8> {
    let mut head = format!("{line}\r\n");
    for (name, value) in fields {
        head += &format!("{name}: {}\r\n", text(value));
    }
    (head + "\r\n").into_bytes()
}

fn text(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}
