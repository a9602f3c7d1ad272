//! The beginning of an HTTP/2 connection to an upstream.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use h2::client;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};

use super::{
    Outbound,
    h2::{ConnectionState, SharedConnection, Stream},
    h2_driver::{Driver, UNTOLD},
    lifespan::Lifespan,
    liveness::Liveness,
};
use crate::{
    error::{BoxError, Error},
    memory::Holder,
    policy::Origin,
    proxy::message::{
        frame_filter::{FrameFilter, Received},
        head_memory::{self, Head, MAX_HEAD_BYTES},
        receive_window::{FIRST_WINDOW_BYTES, ReceiveWindow},
        stream_body::{CONNECTION_WINDOW, MOST_STREAMS},
        stream_reader::unwrapped,
        writes::Writes,
    },
};

/// Bytes of a request's body that h2 keeps for an upstream that does not read.
const SEND_BUFFER_BYTES: usize = 1024 * 1024;

/// Facts about a connection before it speaks HTTP/2.
pub(super) struct NewConnection<'a> {
    pub(super) origin: &'a Origin,
    /// Records the writes on the connection.
    pub(super) writes: Arc<Writes>,
    pub(super) life: Lifespan,
    /// True if the upstream has complained of PINGs.
    pub(super) no_pings: Arc<AtomicBool>,
}

/// Returns the callback for each read on a connection that begins now.
fn on_read(state: Arc<ConnectionState>, mut head: Head) -> impl FnMut(Received) -> io::Result<()> {
    let (clock, begun, mut timed) = (state.clock, state.clock.now(), false);
    move |received| {
        state.liveness.on_read(received.message, || clock.now());
        if !head.resize(received.open_block) {
            return Err(head_memory::error());
        }
        // Acknowledgement of the connection's first SETTINGS.
        if received.acknowledgement && !std::mem::replace(&mut timed, true) {
            state.window.on_round_trip(clock.now().since(begun));
        }
        Ok(())
    }
}

/// Makes an HTTP/2 connection of `stream`. Returns it with room for a first request, once the upstream has announced
/// how many it accepts at once: no request is sent before.
pub(super) async fn handshake<S>(
    outbound: &Outbound,
    new: NewConnection<'_>,
    stream: S,
) -> Result<(Arc<SharedConnection>, Stream), Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let NewConnection { origin, writes, life, no_pings } = new;
    let clock = outbound.clock;
    let state = Arc::new(ConnectionState {
        clock,
        liveness: Liveness::default(),
        window: Arc::new(ReceiveWindow::new(clock, outbound.windows.clone())),
        is_dead: AtomicBool::new(false),
        no_pings,
    });
    let failed = |source: BoxError| Error::Connect { origin: origin.to_string(), source };
    let head = Head::of(outbound.memory.charge(Holder::Heads));
    let stream = FrameFilter::of_server(stream, on_read(state.clone(), head));
    let (sender, connection) = client::Builder::new()
        .initial_max_send_streams(UNTOLD)
        .initial_window_size(FIRST_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        // A worker that leaves resets its stream, and frames of that stream may still arrive. The API is not at fault,
        // but h2 would end the connection for too many such frames.
        .max_concurrent_reset_streams(4 * MOST_STREAMS)
        .max_local_error_reset_streams(None)
        .enable_push(false)
        .handshake(stream)
        .await
        .map_err(|error| failed(unwrapped(error)))?;
    let shared = Arc::new(SharedConnection::new(sender, writes, life, state.clone()));
    let (told, settled) = oneshot::channel();
    let open = outbound.metrics.upstream_connections.clone();
    open.inc();
    // Weakly, because the connection ends with its last sender.
    let driver = Driver::new(connection, Arc::downgrade(&shared), state, told);
    tokio::spawn(async move {
        driver.await;
        open.dec();
    });
    settled.await.map_err(|_| failed("it ended before it had said what it allows (SETTINGS)".into()))?;
    let stream = shared.open().ok_or_else(|| Error::BadAnswer {
        origin: origin.to_string(),
        source: "it allows no request at all (SETTINGS_MAX_CONCURRENT_STREAMS is 0)".into(),
    })?;
    Ok((shared, stream))
}
