//! Relays a blind tunnel turn by turn: the bytes of a new turn are held until each of its lanes gives a slot, nothing else is
//! delayed, and no byte is changed. Looks at the headers of TLS records only: see `message::tls_turns`.

use std::{future::poll_fn, io, sync::Arc, task::Poll, time::Duration};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split},
    net::TcpStream,
    sync::Notify,
};
use tracing::{debug, warn};

use super::{
    relay::{self, Permits},
    socket::Socket,
};
use crate::{
    clock::Instant,
    lane::{Admission, AdmitRequest, Lane, Refusal},
    learn::AnswerReport,
    metrics::TurnOutcome,
    proxy::{exchange::Exchange, log_throttle::LogTopic, message::tls_turns::TlsTurns, steps::retry::patience_ends},
};

/// Size of the buffers, as of other relays.
const BUFFER_BYTES: usize = 32 * 1024;
/// A turn whose answer has begun is in flight no more once the server is silent for this long. Streams pause for less.
const ANSWERED_AFTER: Duration = Duration::from_secs(3);
/// The same for the first turn of a connection: session tickets, which follow a handshake, look like an answer.
const FIRST_ANSWERED_AFTER: Duration = Duration::from_secs(30);

/// How often a tunnel whose turn waits is kept from being taken for a silent one.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Lanes that a tunnel draws on, each once: more than one if its TLS handshake names another host than its CONNECT.
pub(crate) type Lanes = SmallVec<[TurnLane; 2]>;

/// A lane that gives a slot for each turn.
pub(crate) struct TurnLane {
    pub(crate) lane: Arc<Lane>,
    /// What each turn asks for.
    pub(crate) ask: AdmitRequest,
}

/// The lanes of a tunnel, and how long a turn may wait for them all.
pub(crate) struct TurnLanes {
    pub(crate) lanes: Lanes,
    pub(crate) patience: Duration,
}

/// A tunnel that is paced by turns.
struct TurnRelay<'a> {
    exchange: &'a Exchange,
    lanes: &'a TurnLanes,
    state: Mutex<TurnState>,
    /// The answer to a turn has begun.
    answered: Notify,
    /// The server has closed its side.
    server_ended: Notify,
    /// A turn has begun to wait.
    waits: Notify,
}

#[derive(Default)]
struct TurnState {
    turns: TlsTurns,
    /// The slots of the turn that is in flight.
    permits: Permits,
    begun: u64,
    answered: bool,
    /// When the server has last sent application data.
    heard: Option<Instant>,
    /// A turn waits for its slots.
    waits: bool,
    ended: bool,
}

/// Why a tunnel ends before both sides have closed it.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the client left while a turn waited")]
    Left,
    #[error("the API closed the connection while a turn waited")]
    Closed,
    #[error("a turn was refused: {0}")]
    Refused(Refusal),
}

/// Relays what both sides say until both have closed, one breaks or a turn may not wait any longer.
pub(crate) async fn relay(exchange: Arc<Exchange>, client: Socket, upstream: TcpStream, lanes: TurnLanes) {
    let _open = relay::OpenTunnel::new(&exchange);
    exchange.progress.moves();
    let relay = TurnRelay {
        exchange: &exchange,
        lanes: &lanes,
        state: Mutex::default(),
        answered: Notify::new(),
        server_ended: Notify::new(),
        waits: Notify::new(),
    };
    let ((client, to_client), (upstream, to_upstream)) = (split(client), split(upstream));
    let both = async { tokio::try_join!(relay.up(client, to_upstream), relay.down(upstream, to_client)) };
    let ended = tokio::select! {
        ended = both => ended.map(drop),
        () = relay.silent() => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        () = relay.answers_end() => unreachable!("it watches for as long as the tunnel is open"),
    };
    match ended {
        Ok(()) => debug!("a tunnel has ended"),
        Err(Broken::Refused(refusal)) => refused(&exchange, &lanes, &refusal),
        Err(Broken::Closed) => closed(&exchange, &lanes),
        Err(error) => debug!(%error, "a tunnel broke"),
    }
}

// === impl TurnLanes ===

impl TurnLanes {
    /// Puts `lanes` in the order of their hosts: two tunnels that draw on the same lanes must not each hold a slot that the
    /// other one waits for.
    pub(crate) fn new(mut lanes: Lanes, patience: Duration) -> Self {
        lanes.sort_by(|one, other| one.lane.host().cmp(other.lane.host()));
        lanes.dedup_by(|one, other| Arc::ptr_eq(&one.lane, &other.lane));
        Self { lanes, patience }
    }
}

// === impl TurnRelay ===

impl TurnRelay<'_> {
    /// Copies what the client says.
    async fn up(&self, mut client: ReadHalf<Socket>, mut upstream: WriteHalf<TcpStream>) -> Result<(), Broken> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = client.read(&mut buffer).await?;
            if read == 0 {
                self.state.lock().ended = true;
                return Ok(upstream.shutdown().await?);
            }
            let bytes = &buffer[..read];
            let (mut looked, mut written) = (0, 0);
            while looked < read {
                let turn = self.state.lock().turns.on_client(bytes, &mut looked);
                let until = turn.unwrap_or(read);
                upstream.write_all(&bytes[written..until]).await?;
                written = until;
                if turn.is_some() {
                    self.begin().await?;
                }
            }
            upstream.write_all(&bytes[written..]).await?;
            self.moved();
        }
    }

    /// Copies what the server says.
    async fn down(&self, mut upstream: ReadHalf<TcpStream>, mut client: WriteHalf<Socket>) -> Result<(), Broken> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = upstream.read(&mut buffer).await?;
            if read == 0 {
                {
                    let mut state = self.state.lock();
                    state.ended = true;
                    // Whatever was in flight, no more of its answer comes.
                    state.permits.clear();
                }
                self.server_ended.notify_one();
                return Ok(client.shutdown().await?);
            }
            self.heard(&buffer[..read]);
            client.write_all(&buffer[..read]).await?;
            self.moved();
        }
    }

    /// Takes the slots of a new turn. The one before is over.
    async fn begin(&self) -> Result<(), Broken> {
        {
            let mut state = self.state.lock();
            state.permits.clear();
            (state.waits, state.answered) = (true, false);
        }
        self.waits.notify_one();
        let taken = tokio::select! {
            biased;
            // First: nobody would answer, whether there is a slot or not.
            () = self.server_ended.notified() => Err(Broken::Closed),
            taken = take(self.exchange, self.lanes) => taken.map_err(Broken::Refused),
            () = client_left(self.exchange) => Err(Broken::Left),
        };
        let now = self.exchange.proxy.clock.now();
        let mut state = self.state.lock();
        state.waits = false;
        let outcome = match &taken {
            Ok(_) => TurnOutcome::Sent,
            Err(Broken::Refused(_)) => TurnOutcome::Refused,
            Err(Broken::Closed) => TurnOutcome::Closed,
            Err(_) => TurnOutcome::Left,
        };
        self.lanes.lanes.iter().for_each(|of| of.lane.metrics().turned(outcome));
        state.permits = taken?;
        state.permits.iter_mut().for_each(|permit| permit.sent_at(now));
        (state.begun, state.heard) = (state.begun + 1, None);
        drop(state);
        self.moved();
        Ok(())
    }

    /// The server has sent `bytes`.
    fn heard(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        if !state.turns.on_server(bytes) || state.permits.is_empty() {
            return;
        }
        let now = self.exchange.proxy.clock.now();
        state.heard = Some(now);
        if !state.answered {
            state.answered = true;
            state.permits.iter_mut().for_each(|permit| permit.answered(&AnswerReport::SERVED, now));
            self.answered.notify_one();
        }
    }

    /// Takes turns out of flight whose answers have ended, as far as that can be seen.
    async fn answers_end(&self) {
        let clock = self.exchange.proxy.clock;
        loop {
            let until = {
                let mut state = self.state.lock();
                let silence = if state.begun > 1 { ANSWERED_AFTER } else { FIRST_ANSWERED_AFTER };
                let until = state.heard.filter(|_| state.answered && !state.permits.is_empty());
                let until = until.map(|heard| heard + silence);
                if until.is_some_and(|until| until <= clock.now()) {
                    state.permits.clear();
                }
                until.filter(|_| !state.permits.is_empty())
            };
            match until {
                Some(until) => clock.sleep_until(until).await,
                None => self.answered.notified().await,
            }
        }
    }

    fn moved(&self) {
        self.exchange.progress.moves();
    }

    /// Ends when nothing has moved for too long, except for a turn that waits; or at the end of the drain.
    async fn silent(&self) {
        let (proxy, idle) = (&self.exchange.proxy, self.exchange.progress.idle());
        let waits = || self.state.lock().waits;
        loop {
            // Only while nothing waits it is a matter of the tunnel that nothing moves.
            if waits() {
                proxy
                    .clock
                    .sleep_until((proxy.clock.now() + LOOK_AGAIN.min(idle / 2)).min(proxy.drain.cut_off()))
                    .await;
                if proxy.drain.cut_off() <= proxy.clock.now() {
                    return;
                }
                self.moved();
                continue;
            }
            let host = self.lanes.lanes.first().map(|of| of.lane.host());
            tokio::select! {
                () = relay::too_long(self.exchange, host, || !self.state.lock().ended) => return,
                () = self.waits.notified() => {}
            }
        }
    }
}

/// Takes the slots of a tunnel that is one turn from its beginning to its end. `None` if it may not have them.
pub(crate) async fn take_once(exchange: &Exchange, lanes: &TurnLanes) -> Option<Permits> {
    let taken = tokio::select! {
        biased;
        () = client_left(exchange) => return None,
        taken = take(exchange, lanes) => taken,
        () = exchange.proxy.drain.begun() => return None,
    };
    taken.inspect_err(|refusal| refused(exchange, lanes, refusal)).ok()
}

/// Ends when the client has closed its side.
async fn client_left(exchange: &Exchange) {
    poll_fn(|cx| if exchange.session.client.poll_left(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Waits for a slot of each lane.
async fn take(exchange: &Exchange, lanes: &TurnLanes) -> Result<Permits, Refusal> {
    let clock = exchange.proxy.clock;
    let deadline = clock.now() + lanes.patience;
    let mut permits = Permits::new();
    for TurnLane { lane, ask } in &lanes.lanes {
        let permit = match lane.admit(AdmitRequest { deadline, ..ask.clone() }) {
            Admission::Send(permit) => permit,
            Admission::Refuse(refusal) => return Err(refusal),
            Admission::Wait(mut waiting) => {
                let until = patience_ends(deadline, waiting.expected);
                tokio::select! {
                    granted = &mut waiting => granted?,
                    () = clock.sleep_until(until) => match waiting.give_up() {
                        Some(refusal) => return Err(refusal),
                        // It has its slot by now.
                        None => waiting.await?,
                    },
                }
            }
        };
        permits.push(permit);
    }
    Ok(permits)
}

/// No answer can be given: the client finds its connection closed.
fn refused(exchange: &Exchange, lanes: &TurnLanes, refusal: &Refusal) {
    let proxy = &exchange.proxy;
    let Some(TurnLane { lane, .. }) = lanes.lanes.first() else { return };
    let host = lane.host();
    if proxy.reports.throttle.is_due(LogTopic::TurnRefused, host, proxy.clock.now()) {
        warn!(
            %host,
            client = %exchange.session.address,
            %refusal,
            "closed a tunnel: a request inside may not wait for its slot any longer, and there is no other answer; \
             raise max-wait or the client's time-out, send fewer requests at once, or start with --intercept {host}"
        );
    }
}

/// The client finds its connection closed, although its request was never sent.
fn closed(exchange: &Exchange, lanes: &TurnLanes) {
    let proxy = &exchange.proxy;
    let Some(TurnLane { lane, .. }) = lanes.lanes.first() else { return };
    let host = lane.host();
    if proxy.reports.throttle.is_due(LogTopic::TurnClosed, host, proxy.clock.now()) {
        warn!(
            %host,
            client = %exchange.session.address,
            "the API closed a connection while a request in it waited for its slot: the wait was longer than the API \
             keeps idle connections; send fewer requests at once, or start with --intercept {host}, which needs no \
             connection while a request waits"
        );
    }
}
