//! Relays a blind tunnel turn by turn. The bytes of a new turn are held until each lane gives a slot; nothing else is
//! delayed or changed. Only headers of TLS records are read: see `message::tls_turns`.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use parking_lot::Mutex;
use tokio::{net::TcpStream, sync::Notify};
use tracing::debug;

use super::{
    both_ways::{self, Gate},
    relay::{self, Permits},
    socket::Socket,
    turn_lanes::{self, TurnLane, TurnLanes},
    turn_reports,
};
use crate::{
    clock::Instant,
    lane::{Admission, AdmitRequest, Refusal},
    learn::AnswerReport,
    metrics::TurnOutcome,
    proxy::{
        exchange::Exchange,
        message::tls_turns::TlsTurns,
        steps::{draws, retry::patience_ends},
    },
};

/// Silence of the server that ends a turn whose answer has begun. Streamed answers pause for less.
const ANSWERED_AFTER: Duration = Duration::from_secs(3);
/// Silence that ends the first turn of a connection: longer, because session tickets after a handshake look like an
/// answer.
const FIRST_ANSWERED_AFTER: Duration = Duration::from_secs(30);

/// Maximum time after an answer's last bytes in which an API closes the answer's connection. Time-outs of idle
/// connections are longer.
const CLOSES_WITH_ANSWER: Duration = Duration::from_millis(100);

/// Interval at which a tunnel with a waiting turn is marked as active.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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
    /// When the server has last sent application data in the current turn.
    heard: Option<Instant>,
    /// When the client's last bytes of the current turn were passed on.
    written: Option<Instant>,
    /// A turn waits for its slots.
    waits: bool,
    ended: bool,
    /// When the server has last sent application data, in any turn.
    last_answer: Option<Instant>,
    /// When the server has closed its side.
    server_ended: Option<Instant>,
}

/// Reason why a turn is not sent.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error("a turn was refused: {0}")]
    Refused(Refusal),
    #[error("the client left while a turn waited")]
    Left,
    #[error("the API closed the connection before a turn had its slot")]
    Closed,
}

/// Relays both sides' bytes until both have closed, one breaks or a turn may not wait any longer.
pub(crate) async fn relay(exchange: Arc<Exchange>, client: Socket, upstream: TcpStream, lanes: TurnLanes) {
    let open = relay::OpenTunnel::new(&exchange);
    exchange.progress.moves();
    let relay = TurnRelay {
        exchange: &exchange,
        lanes: &lanes,
        state: Mutex::default(),
        answered: Notify::new(),
        server_ended: Notify::new(),
        waits: Notify::new(),
    };
    tokio::select! {
        ended = both_ways::copy(client, upstream, &relay) => match ended {
            Ok(()) => debug!("a tunnel has ended"),
            Err(error) => debug!(%error, "a tunnel broke"),
        },
        cut = relay.silent() => {
            if cut {
                exchange.proxy.drain.on_cut();
            }
        }
        () = relay.answers_end() => unreachable!("it watches for as long as the tunnel is open"),
    }
    relay.state.lock().end_turn();
    drop((open, relay));
    exchange.session.client.linger().await;
}

// === impl TurnRelay ===

impl TurnRelay<'_> {
    /// Takes the slots of a new turn. The previous turn is over.
    async fn begin(&self) -> Result<(), Unsent> {
        let clock = self.exchange.proxy.clock;
        let (since, lanes) = (clock.now(), self.lanes.current(self.exchange));
        {
            let mut state = self.state.lock();
            state.end_turn();
            (state.waits, state.answered) = (true, false);
        }
        self.waits.notify_one();
        let taken = tokio::select! {
            biased;
            // Checked first: without a server a slot would be wasted.
            () = self.server_ended.notified() => Err(Unsent::Closed),
            taken = take(self.exchange, &lanes) => taken.map_err(Unsent::Refused),
            () = client_left(self.exchange) => Err(Unsent::Left),
        };
        let now = clock.now();
        let (outcome, refusal) = match &taken {
            Ok(_) => (TurnOutcome::Sent, None),
            Err(Unsent::Refused(refusal)) => (TurnOutcome::Refused, Some(refusal)),
            Err(Unsent::Closed) if self.state.lock().was_idle(since) => (TurnOutcome::Closed, None),
            Err(Unsent::Closed) => (TurnOutcome::Ended, None),
            Err(Unsent::Left) => (TurnOutcome::Left, None),
        };
        turn_reports::on_outcome(self.exchange, &lanes, outcome, refusal, now.since(since));
        let mut state = self.state.lock();
        state.waits = false;
        state.permits = taken?;
        state.permits.iter_mut().for_each(|permit| permit.sent_at(now));
        (state.begun, state.heard, state.written) = (state.begun + 1, None, Some(now));
        drop(state);
        self.moved();
        Ok(())
    }

    /// Records that the server has sent `bytes`.
    fn heard(&self, bytes: &[u8]) {
        let now = self.exchange.proxy.clock.now();
        let mut state = self.state.lock();
        if !state.turns.on_server(bytes) {
            return;
        }
        state.last_answer = Some(now);
        if state.permits.is_empty() {
            return;
        }
        state.heard = Some(now);
        if !state.answered {
            state.answered = true;
            if state.begun > 1 {
                state.on_answered(now);
            }
            self.answered.notify_one();
        }
    }

    /// Releases the slots of turns whose answers seem to have ended.
    async fn answers_end(&self) {
        let clock = self.exchange.proxy.clock;
        loop {
            let until = {
                let mut state = self.state.lock();
                let silence = if state.begun > 1 { ANSWERED_AFTER } else { FIRST_ANSWERED_AFTER };
                let until = state.heard.filter(|_| state.answered && !state.permits.is_empty());
                let until = until.map(|heard| heard + silence);
                if until.is_some_and(|until| until <= clock.now()) {
                    state.end_turn();
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

    /// Ends when nothing has moved for too long, except for a turn that waits; or at the end of the drain. Returns
    /// whether the drain cuts off a turn that waits or is in flight.
    async fn silent(&self) -> bool {
        let (proxy, idle) = (&self.exchange.proxy, self.exchange.progress.idle());
        let waits = || self.state.lock().waits;
        loop {
            // Silence counts only while no turn waits.
            if waits() {
                proxy
                    .clock
                    .sleep_until((proxy.clock.now() + LOOK_AGAIN.min(idle / 2)).min(proxy.drain.cut_off()))
                    .await;
                if proxy.drain.cut_off() <= proxy.clock.now() {
                    return true;
                }
                self.moved();
                continue;
            }
            tokio::select! {
                drained = relay::too_long(self.exchange, self.lanes.host(), || !self.state.lock().ended) => {
                    return drained && !self.state.lock().permits.is_empty();
                }
                () = self.waits.notified() => {}
            }
        }
    }
}

impl Gate for TurnRelay<'_> {
    type Closed = Unsent;

    fn next_turn(&self, bytes: &[u8], looked: &mut usize) -> Option<usize> {
        let mut state = self.state.lock();
        let begins = state.turns.on_client(bytes, looked);
        if begins.is_none() && !state.answered {
            state.written = Some(self.exchange.proxy.clock.now());
        }
        begins
    }

    async fn pass(&self) -> Result<(), Unsent> {
        self.begin().await
    }

    fn on_answer(&self, bytes: &[u8]) {
        self.heard(bytes);
    }

    fn on_progress(&self) {
        self.moved();
    }

    fn on_api_end(&self) {
        {
            let mut state = self.state.lock();
            state.ended = true;
            state.server_ended = Some(self.exchange.proxy.clock.now());
            // The answer in flight ends with the connection.
            state.end_turn();
        }
        self.server_ended.notify_one();
    }

    fn on_worker_end(&self) {
        self.state.lock().ended = true;
    }
}

// === impl TurnState ===

impl TurnState {
    /// Ends the turn in flight. In the first turn of a connection the server's first bytes may be session tickets,
    /// which a TLS 1.3 server sends before it reads the request (RFC 8446 §4.6.1). So that answer counts by its last
    /// bytes.
    fn end_turn(&mut self) {
        if let Some(heard) = self.heard {
            self.on_answered(heard);
        }
        self.permits.clear();
    }

    /// Records the answer to the turn in flight, unless one is recorded.
    fn on_answered(&mut self, at: Instant) {
        let Some(written) = self.written else { return };
        for permit in &mut self.permits {
            permit.answered_at(at, &AnswerReport::SERVED, written);
        }
    }

    /// Returns whether the API has closed the connection as idle while the turn waited that has begun at `since`.
    /// Otherwise the API had closed it before, or closed it with an answer: then the turn may be the rest of an upload.
    fn was_idle(&self, since: Instant) -> bool {
        self.server_ended.is_some_and(|ended| {
            let silent = self.last_answer.map_or(Duration::MAX, |last| ended.since(last));
            ended >= since && silent >= CLOSES_WITH_ANSWER
        })
    }
}

/// Takes the slots of a tunnel that counts as one turn as a whole. `None` if they are refused or the client leaves.
pub(crate) async fn take_once(exchange: &Exchange, lanes: &TurnLanes) -> Option<Permits> {
    let lanes = lanes.current(exchange);
    let taken = tokio::select! {
        biased;
        () = client_left(exchange) => return None,
        taken = take(exchange, &lanes) => taken,
        () = exchange.proxy.drain.begun() => return None,
    };
    taken.inspect_err(|refusal| turn_reports::on_refusal(exchange, &lanes, refusal)).ok()
}

/// Ends when the client has closed its side.
async fn client_left(exchange: &Exchange) {
    poll_fn(|cx| if exchange.session.client.poll_left(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Waits for a slot of each lane.
async fn take(exchange: &Exchange, lanes: &[TurnLane]) -> Result<Permits, Refusal> {
    let clock = exchange.proxy.clock;
    let deadline = clock.now() + turn_lanes::patience(lanes);
    let mut permits = Permits::new();
    for TurnLane { lane, ask, added, .. } in lanes {
        draws::count(added, &ask.draws);
        let permit = match lane.admit(AdmitRequest { deadline, ..ask.clone() }) {
            Admission::Send(permit) => permit,
            Admission::Refuse(refusal) => return Err(refusal),
            Admission::Wait(mut waiting) => {
                let until = patience_ends(deadline, waiting.expected);
                loop {
                    tokio::select! {
                        biased;
                        granted = &mut waiting => break granted?,
                        // Without a refusal, the slot has come meanwhile, or the turn waits in another lane by now.
                        () = clock.sleep_until(until) => if let Some(refusal) = waiting.give_up() {
                            return Err(refusal);
                        },
                    }
                }
            }
        };
        permits.push(permit);
    }
    Ok(permits)
}
