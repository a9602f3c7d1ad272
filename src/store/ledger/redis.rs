//! The ledger in a Redis or a Valkey, as one script. All keys are in one slot of a cluster.

mod bounded;
mod hints;
mod primary;
mod problem;
mod wire;

use std::{collections::HashMap, time::Duration};

use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, aio::MultiplexedConnection};
use tokio::sync::{mpsc, watch};

#[cfg(test)]
pub(super) use self::wire::read;
use self::{
    bounded::UnreadReply,
    hints::listen,
    primary::{Primary, Requirement},
    problem::{failed, shown, silent, unconnected},
};
use super::{HINTS, Ledger, LedgerError, StoreHint};
use crate::{
    clock::{Clock, Instant},
    config::{StoreLayout, StoreUrl},
    fleet::{MemberId, Micros, Reply, Sync},
};

/// The ledger in a Redis.
#[derive(Debug)]
pub struct RedisLedger {
    layout: StoreLayout,
    primary: Primary,
    connected: Option<Connected>,
    script: redis::Script,
    clock: Clock,
    /// The deciding server, as far as it is known; hints come from there.
    decides: watch::Sender<Option<Client>>,
}

/// A connection to the deciding server.
#[derive(Clone, Debug)]
struct Connected {
    connection: MultiplexedConnection,
    client: Client,
    requirement: Requirement,
    /// Time at which this server was last found to decide.
    found: Instant,
}

/// Way of naming the script to a server.
#[derive(Clone, Copy)]
enum ScriptForm {
    /// Hash of the script, which the server may not know yet.
    Hash,
    Text,
}

/// Prefix of the ledger's keys: it puts all pools, whatever their names, into one slot of a cluster.
const PREFIX: &str = "{andante}:";
/// Prefix of the keys of a ledger that only `andante doctor` uses.
const TRIAL: &str = "{andante}:doctor:";
/// Setting up a connection may take this long: less than the second that a member waits for a call, so that the reason
/// of a failure is reported.
const CONNECT: Duration = Duration::from_millis(800);
/// Interval after which the Sentinels are asked again, also for the number of replicas.
const REFIND: Duration = Duration::from_secs(10);
/// Redirections that a call follows between servers of a cluster.
const HOPS: usize = 4;
const SYNC: &str = concat!(include_str!("server.lua"), include_str!("sync.lua"));
const DECLARE: &str = concat!(include_str!("server.lua"), include_str!("declare.lua"));

// === impl RedisLedger ===

impl RedisLedger {
    /// The ledger at `url`. Connects on first use.
    pub fn new(url: &StoreUrl) -> Result<Self, LedgerError> {
        let primary = Primary::new(url.clone());
        let (decides, _) = watch::channel(primary.given()?);
        let (script, clock) = (redis::Script::new(SYNC), Clock::start());
        Ok(Self { layout: url.layout(), primary, connected: None, script, clock, decides })
    }

    /// Declares that no member holds anything, so that everything may be given out at once. Returns `false`, and does
    /// nothing, if there is a ledger already.
    pub async fn declare_new(&mut self, lease: Micros, nonce: u32) -> Result<bool, LedgerError> {
        let ask = |requirement: Requirement, _| {
            let mut eval = redis::cmd("EVAL");
            eval.arg(DECLARE).arg(1).arg(format!("{PREFIX}ledger")).arg(lease).arg(nonce).arg(requirement.to_string());
            eval
        };
        let said = self.eval(ask).await?;
        Ok(said.first().is_some_and(|word| word == "new"))
    }

    /// Lets the store execute andante's script with a ledger of its own, which is removed again. Returns whether the
    /// store knows a fleet.
    pub async fn try_out(&mut self, call: &Sync) -> Result<bool, LedgerError> {
        let replied = self.run_in(TRIAL, call, None).await?;
        wire::read(&replied).ok_or_else(|| senseless(&replied))?;
        let mut connection = self.connected().await?.connection;
        let (mut remove, mut known) = (redis::cmd("DEL"), redis::cmd("HEXISTS"));
        remove.arg(format!("{TRIAL}ledger")).arg(format!("{TRIAL}leases"));
        remove.query_async::<()>(&mut connection).await.map_err(|error| failed(&error))?;
        known.arg(format!("{PREFIX}ledger")).arg("f");
        known.query_async(&mut connection).await.map_err(|error| failed(&error))
    }

    async fn connected(&mut self) -> Result<Connected, LedgerError> {
        let now = self.clock.now();
        let known = self.layout != StoreLayout::Sentinel;
        if let Some(connected) = &self.connected
            && (known || now.since(connected.found) < REFIND)
        {
            return Ok(connected.clone());
        }
        let (client, requirement) = self.primary.find().await?;
        if let Some(connected) = &mut self.connected
            && is_same(&connected.client, &client)
        {
            (connected.requirement, connected.found) = (requirement, now);
            return Ok(connected.clone());
        }
        let connecting = tokio::time::timeout(CONNECT, connect(&client, requirement));
        let (connection, requirement) = match connecting.await {
            Ok(connected) => connected.inspect_err(|_| self.primary.is_of_no_use())?,
            Err(_) => {
                self.primary.is_of_no_use();
                return Err(silent(&client, &format!("no connection within {CONNECT:?}")));
            }
        };
        self.decides.send_if_modified(|decides| {
            let other = !decides.as_ref().is_some_and(|before| is_same(before, &client));
            if other {
                *decides = Some(client.clone());
            }
            other
        });
        let connected = Connected { connection, client, requirement, found: now };
        self.connected = Some(connected.clone());
        Ok(connected)
    }

    /// Executes a call. In tests `given` replaces the script's time and process.
    pub(super) async fn run(&mut self, call: &Sync, given: Option<(Micros, &str)>) -> Result<Vec<String>, LedgerError> {
        self.run_in(PREFIX, call, given).await
    }

    /// Executes a call in the ledger whose keys begin with `prefix`.
    async fn run_in(
        &mut self,
        prefix: &str,
        call: &Sync,
        given: Option<(Micros, &str)>,
    ) -> Result<Vec<String>, LedgerError> {
        let hash = self.script.get_hash().to_owned();
        let ask = |requirement, form| {
            let (name, script) = match form {
                ScriptForm::Hash => ("EVALSHA", hash.as_str()),
                // Not with SCRIPT LOAD, which proxies in front of managed servers refuse.
                ScriptForm::Text => ("EVAL", SYNC),
            };
            let mut ask = redis::cmd(name);
            ask.arg(script).arg(2).arg(format!("{prefix}ledger")).arg(format!("{prefix}leases"));
            ask.arg(wire::arguments(call, requirement, given));
            ask
        };
        self.eval(ask).await
    }

    /// Lets the deciding server execute a script.
    async fn eval(&mut self, ask: impl Fn(Requirement, ScriptForm) -> Cmd) -> Result<Vec<String>, LedgerError> {
        for _ in 0..HOPS {
            let mut connected = self.connected().await?;
            let (connection, requirement) = (&mut connected.connection, connected.requirement);
            let mut replied = ask(requirement, ScriptForm::Hash).query_async::<Vec<String>>(connection).await;
            if matches!(&replied, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
                replied = ask(requirement, ScriptForm::Text).query_async(connection).await;
            }
            match replied {
                Ok(said) => return self.unless_refused(said, requirement),
                Err(error) => self.sent_on(&connected, &error)?,
            }
        }
        Err(LedgerError("the servers of the cluster send from one to another".to_owned()))
    }

    /// Turns a refusal by the script into an error. The script refuses on a server that does not decide.
    fn unless_refused(&mut self, said: Vec<String>, requirement: Requirement) -> Result<Vec<String>, LedgerError> {
        let problem = match said.first().map(String::as_str) {
            Some("alone") => {
                let (heard, needed) = (said.get(1).map_or("", String::as_str), requirement.to_string());
                format!(
                    "the server hears of {heard} of its replicas and has to hear of {needed}, without which another one may \
                     have taken its place"
                )
            }
            Some("clustered") => "it is part of a cluster: write redis+cluster:// (or rediss+cluster://)".to_owned(),
            _ => return Ok(said),
        };
        self.give_up();
        Err(LedgerError(problem))
    }

    /// Handles a failed call: another server of the cluster is asked next, or the error is returned. A redirected call
    /// was not executed.
    fn sent_on(&mut self, connected: &Connected, error: &RedisError) -> Result<(), LedgerError> {
        // A new connection sends its password again, and the same name may lead to another server.
        self.give_up();
        let moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
        match error.redirect_node().filter(|_| moved) {
            Some((to, _)) if self.layout == StoreLayout::Cluster => {
                self.primary.is_named(to, &connected.client);
                Ok(())
            }
            Some(_) => {
                Err(LedgerError("it is part of a cluster: write redis+cluster:// (or rediss+cluster://)".to_owned()))
            }
            None => Err(failed(error)),
        }
    }
}

impl Ledger for RedisLedger {
    async fn sync(&mut self, call: &Sync) -> Result<Reply, LedgerError> {
        let said = self.run(call, None).await?;
        let reply = wire::read(&said).ok_or_else(|| senseless(&said))?;
        if reply == Reply::Deposed {
            self.give_up();
        }
        Ok(reply)
    }

    fn listen(&mut self, member: MemberId) -> mpsc::Receiver<StoreHint> {
        let (sender, receiver) = mpsc::channel(HINTS);
        tokio::spawn(listen(self.decides.subscribe(), member, sender));
        receiver
    }

    fn give_up(&mut self) {
        self.connected = None;
        self.primary.is_of_no_use();
    }
}

fn senseless(said: &[String]) -> LedgerError {
    LedgerError(format!("a reply that makes no sense: {}", shown(said)))
}

/// Returns whether both clients lead to the same server.
fn is_same(one: &Client, other: &Client) -> bool {
    one.get_connection_info().addr() == other.get_connection_info().addr()
}

/// Connects, and asks a server of a cluster how long it continues without the others.
async fn connect(client: &Client, asked: Requirement) -> Result<(MultiplexedConnection, Requirement), LedgerError> {
    let connecting = bounded::connect(client, AsyncConnectionConfig::new(), UnreadReply::default(), CONNECT);
    let mut connection = connecting.await.map_err(|error| {
        let is_dropped = error.is_connection_dropped() && !error.is_connection_refusal();
        if is_dropped || error.is_timeout() { silent(client, &error.to_string()) } else { unconnected(&error) }
    })?;
    let Requirement::Cluster { node_timeout } = asked else { return Ok((connection, asked)) };
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("cluster-node-timeout");
    // A user may lack the permission for that.
    let said: HashMap<String, u64> = ask.query_async(&mut connection).await.unwrap_or_default();
    let node_timeout = said.values().max().map_or(node_timeout, |millis| Duration::from_millis(*millis));
    Ok((connection, Requirement::Cluster { node_timeout }))
}
