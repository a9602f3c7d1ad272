//! The ledger in a Redis or a Valkey, by one script. Everything is in one slot of a cluster.

use std::{error::Error, io, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo as _, ProtocolVersion, PushKind, RedisError,
    ServerErrorKind, Value, aio::MultiplexedConnection,
};
use tokio::sync::mpsc;

use super::{HINTS, Ledger, LedgerError, StoreHint};
use crate::{
    config::StoreUrl,
    fleet::{Epoch, Extent, MemberId, Micros, Pause, PauseCause, PoolGrant, Reply, Sync},
};

/// The ledger in a Redis.
#[derive(Debug)]
pub struct RedisLedger {
    client: Client,
    connection: Option<MultiplexedConnection>,
    script: redis::Script,
}

/// Where a member is told that it is to call.
struct Channels {
    member: String,
    own: String,
    pools: String,
    pauses: String,
}

/// What the ledger's keys begin with: in one slot, whatever a pool is called.
const PREFIX: &str = "{andante}:";
/// Setting up a connection may take this long.
const CONNECT: Duration = Duration::from_secs(2);
/// So many values are said of each pool in a reply, and of each pause in a call or a reply.
const VALUES: usize = 7;
const PAUSE_VALUES: usize = 3;
/// So much is shown of what a store says.
const SHOWN: usize = 120;
const SCRIPT: &str = include_str!("sync.lua");

/// Speaks the protocol in which messages are pushed.
fn client(url: &str) -> Result<Client, RedisError> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Client::open(info.set_redis_settings(settings))
}

// === impl RedisLedger ===

impl RedisLedger {
    /// The ledger at `url`. Connects when it is used.
    pub fn new(url: &StoreUrl) -> Result<Self, LedgerError> {
        let client = client(url.revealed()).map_err(|error| failed(&error))?;
        Ok(Self { client, connection: None, script: redis::Script::new(SCRIPT) })
    }

    /// Declares that no member holds anything, so that everything may be given out at once. Returns `false`, and does
    /// nothing, if there is a ledger already.
    pub async fn declare_new(&mut self, lease: Micros, nonce: u32) -> Result<bool, LedgerError> {
        const DECLARE: &str = include_str!("declare.lua");
        let mut connection = self.connection().await?;
        let mut eval = redis::cmd("EVAL");
        eval.arg(DECLARE).arg(1).arg(format!("{PREFIX}ledger")).arg(lease).arg(nonce);
        eval.query_async(&mut connection).await.map_err(|error| failed(&error))
    }

    /// Whether the store answers.
    pub async fn ping(&mut self) -> Result<(), LedgerError> {
        let mut connection = self.connection().await?;
        redis::cmd("PING").query_async::<()>(&mut connection).await.map_err(|error| failed(&error))
    }

    async fn connection(&mut self) -> Result<MultiplexedConnection, LedgerError> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let connecting = tokio::time::timeout(CONNECT, self.client.get_multiplexed_async_connection());
        let connection = match connecting.await {
            Ok(connected) => connected.map_err(|error| unconnected(&error))?,
            Err(_) => return Err(LedgerError(format!("no connection within {CONNECT:?}"))),
        };
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Executes a call; `given` are the time and the process that the script is to believe, for tests.
    pub(super) async fn run(&mut self, call: &Sync, given: Option<(Micros, &str)>) -> Result<Vec<String>, LedgerError> {
        let mut connection = self.connection().await?;
        let arguments = arguments(call, given);
        let ask = |name: &str, script: &str| {
            let mut ask = redis::cmd(name);
            ask.arg(script).arg(2).arg(format!("{PREFIX}ledger")).arg(format!("{PREFIX}leases")).arg(&arguments);
            ask
        };
        let mut replied = ask("EVALSHA", self.script.get_hash()).query_async(&mut connection).await;
        if matches!(&replied, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
            // Not by SCRIPT LOAD: proxies before managed servers refuse that.
            replied = ask("EVAL", SCRIPT).query_async(&mut connection).await;
        }
        replied.map_err(|error: RedisError| {
            // A new connection says its password anew, and may lead to another server by the same name.
            self.connection = None;
            failed(&error)
        })
    }
}

impl Ledger for RedisLedger {
    async fn sync(&mut self, call: &Sync) -> Result<Reply, LedgerError> {
        let said = self.run(call, None).await?;
        read(&said).ok_or_else(|| LedgerError(format!("a reply that makes no sense: {}", shown(&said))))
    }

    fn listen(&mut self, member: MemberId) -> mpsc::Receiver<StoreHint> {
        let (sender, receiver) = mpsc::channel(HINTS);
        tokio::spawn(listen(self.client.clone(), member, sender));
        receiver
    }

    fn give_up(&mut self) {
        self.connection = None;
    }
}

/// Passes on what is published for `member`, for as long as somebody wants to hear it. Connects anew as often as it must.
async fn listen(client: Client, member: MemberId, sender: mpsc::Sender<StoreHint>) {
    const PAUSE: Duration = Duration::from_millis(500);
    let channels = Channels::of(member);
    while !sender.is_closed() {
        let (pushes, mut pushed) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(pushes).set_connection_timeout(Some(CONNECT));
        if let Ok(mut connection) = client.get_multiplexed_async_connection_with_config(&config).await
            && connection.subscribe(&channels.all()).await.is_ok()
        {
            loop {
                tokio::select! {
                    () = sender.closed() => return,
                    push = pushed.recv() => match push.map(|push| (push.kind, channels.hint(&push.data))) {
                        Some((PushKind::Message, Some(told))) => drop(sender.try_send(told)),
                        Some((PushKind::Disconnection, _)) | None => break,
                        Some(_) => {}
                    }
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

// === impl Channels ===

impl Channels {
    fn of(member: MemberId) -> Self {
        let (own, pools, pauses) =
            (format!("{PREFIX}hint:{member}"), format!("{PREFIX}hints"), format!("{PREFIX}pauses"));
        Self { member: member.to_string(), own, pools, pauses }
    }

    fn all(&self) -> [&str; 3] {
        [&self.own, &self.pools, &self.pauses]
    }

    /// A message as it was pushed: its channel, and the name of a pool, or of the member that has told of a pause.
    fn hint(&self, data: &[Value]) -> Option<StoreHint> {
        let [channel, said] = data else { return None };
        let text = |value: &Value| redis::from_redis_value_ref::<String>(value).ok();
        let (channel, said) = (text(channel)?, text(said)?);
        if channel == self.pauses {
            return (said != self.member).then_some(StoreHint::Pauses);
        }
        Some(StoreHint::Pool { pool: said, turn: channel == self.own })
    }
}

/// The beginning of what a store says, for people.
fn shown(said: &[impl AsRef<str>]) -> String {
    let words = said.iter().flat_map(|word| word.as_ref().chars().chain([' ']));
    let shown: String = words.take(SHOWN).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    shown.trim_end().to_owned()
}

/// What went wrong, without what was sent.
fn failed(error: &RedisError) -> LedgerError {
    let detail = error.detail().unwrap_or_default();
    // Where in the script it happened is of no use to whoever runs the store.
    let detail = detail.split(" script: ").next().unwrap_or_default();
    LedgerError(match error.code() {
        _ if error.is_io_error() => error.to_string(),
        Some(code) => shown(&[code, detail]),
        None => shown(&[error.category(), detail]),
    })
}

/// Why there is no connection, and what can be done where that is for TLS.
fn unconnected(error: &RedisError) -> LedgerError {
    let LedgerError(said) = failed(error);
    LedgerError(match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(_)) => format!(
            "{said}: this machine's authorities are trusted, or else those in the file that SSL_CERT_FILE names, which has to \
             have the one of the store"
        ),
        Some(_) => format!("no TLS: {said}: is it spoken on this port?"),
        None => said,
    })
}

/// What went wrong with TLS, wherever that is inside of `error`.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    if let Some(shared) = error.downcast_ref::<Arc<dyn Error + Send + std::marker::Sync>>() {
        return tls_error(&**shared);
    }
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => tls_error(inner),
        None => error.source().and_then(tls_error),
    }
}

fn arguments(call: &Sync, given: Option<(Micros, &str)>) -> Vec<String> {
    let or_empty = |value: Option<i64>| value.map(|value| value.to_string()).unwrap_or_default();
    let extent = match call.extent {
        Extent::Some => "some",
        Extent::All => "all",
        Extent::Leaving => "leaving",
    };
    let mut arguments = vec![
        call.member.to_string(),
        call.seq.to_string(),
        call.epoch.map(|epoch| epoch.counter.to_string()).unwrap_or_default(),
        call.epoch.map(|epoch| epoch.id.to_string()).unwrap_or_default(),
        u8::from(call.leased).to_string(),
        call.basis.map(|basis| basis.seq.to_string()).unwrap_or_default(),
        or_empty(call.basis.map(|basis| basis.elapsed)),
        call.terms.lease.to_string(),
        call.terms.split.to_string(),
        call.nonce.to_string(),
        extent.to_owned(),
        or_empty(given.map(|(time, _)| time)),
        given.map(|(_, run)| run.to_owned()).unwrap_or_default(),
        call.terms.division.to_string(),
        call.pauses_known.to_string(),
        call.pauses.len().to_string(),
    ];
    for Pause { name, left, cause } in &call.pauses {
        arguments.extend([name.to_string(), left.to_string(), cause.as_str().to_owned()]);
    }
    for entry in &call.entries {
        arguments.push(entry.pool.to_string());
        let numbers = [
            entry.limit.into(),
            entry.per,
            entry.settle,
            entry.holds.into(),
            entry.want.into(),
            entry.cost.into(),
            entry.need.into(),
            entry.demand.into(),
        ];
        arguments.extend(numbers.map(|number| number.to_string()));
        arguments.push(or_empty(entry.ends));
    }
    arguments
}

/// The script's reply; `None` if it is none.
pub(super) fn read(said: &[String]) -> Option<Reply> {
    let [word, rest @ ..] = said else { return None };
    Some(match word.as_str() {
        "done" => {
            let [counter, id, learning, members, differing, entries, rest @ ..] = rest else { return None };
            let (entries, rest) = chunks(entries, VALUES, rest)?;
            let [pauses_known, pauses, rest @ ..] = rest else { return None };
            let (pauses, _) = chunks(pauses, PAUSE_VALUES, rest)?;
            let epoch = Epoch { counter: counter.parse().ok()?, id: id.parse().ok()? };
            Reply::Done {
                epoch,
                learning: learning.parse().ok()?,
                members: members.parse().ok()?,
                differing: differing.parse().ok()?,
                given: entries.map(given).collect::<Option<_>>()?,
                pauses_known: pauses_known.parse().ok()?,
                pauses: pauses.map(pause).collect::<Option<_>>()?,
            }
        }
        "report" => Reply::Report,
        "reset" => Reply::Reset,
        "deposed" => Reply::Deposed,
        "disagreed" => Reply::Disagreed(rest.first()?.parse().ok()?),
        "ignored" => Reply::Ignored,
        _ => return None,
    })
}

/// So many groups of this many values, and what comes after them.
fn chunks<'a>(
    count: &str,
    values: usize,
    said: &'a [String],
) -> Option<(impl Iterator<Item = &'a [String]>, &'a [String])> {
    let count: usize = count.parse().ok()?;
    let (chunks, rest) = said.split_at_checked(count.checked_mul(values)?)?;
    Some((chunks.chunks(values), rest))
}

fn pause(values: &[String]) -> Option<Pause> {
    let [name, left, cause] = values else { return None };
    Some(Pause { name: name.as_str().into(), left: left.parse().ok()?, cause: PauseCause::read(cause) })
}

fn given(values: &[String]) -> Option<PoolGrant> {
    let [holds, target, wanted, over, queued, limit, pace] = values else { return None };
    Some(PoolGrant {
        holds: holds.parse().ok()?,
        target: target.parse().ok()?,
        wanted: wanted == "1",
        over: over == "1",
        queued: queued == "1",
        limit: limit.parse().ok()?,
        pace: pace.parse().ok()?,
    })
}
