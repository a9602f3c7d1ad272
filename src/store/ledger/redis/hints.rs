//! Receives hints that the deciding server publishes for a member.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value, aio::SendError};
use tokio::sync::{mpsc, watch};

use super::{
    CONNECT, PREFIX,
    bounded::{self, UnreadReply},
};
use crate::{fleet::MemberId, store::StoreHint};

/// Channels on which a member is asked to call.
#[derive(Clone)]
struct Channels {
    member: String,
    own: String,
    pools: String,
    pauses: String,
}

/// Passes on hints that the server `decides` publishes for `member`, until the receiver is dropped. Reconnects as often
/// as necessary, and follows to another server.
pub(super) async fn listen(
    mut decides: watch::Receiver<Option<Client>>,
    member: MemberId,
    sender: mpsc::Sender<StoreHint>,
) {
    const PAUSE: Duration = Duration::from_millis(500);
    let channels = Channels::of(member);
    loop {
        let known = tokio::select! {
            () = sender.closed() => return,
            known = decides.wait_for(Option::is_some) => known.map(|client| client.clone()),
        };
        let Ok(Some(client)) = known else { return };
        // A single place suffices: a second notice adds nothing.
        let (ends, mut ended) = mpsc::channel(1);
        let (to, known) = (sender.clone(), channels.clone());
        // Parsed on arrival, so that a store that floods its channels fills no queue.
        let unread = UnreadReply::default();
        let understood = unread.clone();
        let push = move |push: PushInfo| -> Result<(), SendError> {
            understood.reset();
            match (push.kind, known.hint(&push.data)) {
                (PushKind::Message, Some(told)) => drop(to.try_send(told)),
                (PushKind::Disconnection, _) => drop(ends.try_send(())),
                _ => {}
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        if let Ok(mut connection) = bounded::connect(&client, config, unread, CONNECT).await
            && connection.subscribe(&channels.all()).await.is_ok()
        {
            tokio::select! {
                () = sender.closed() => return,
                changed = decides.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                _ = ended.recv() => {}
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

    /// Parses a pushed message: its channel, and the name of a pool, or of the member that has reported a pause.
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
