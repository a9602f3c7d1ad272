//! The end of the earlier process: it serves its open requests, and gives away lane by lane.

use std::time::Duration;

use tracing::{info, warn};

use super::{Successor, Successors};
use crate::{
    app::{LAST_WORDS, Running},
    clock::log_seconds,
};

/// Interval of the search for lanes with nothing left to send.
const LOOK: Duration = Duration::from_millis(20);
/// Time for the first request on a connection that was just accepted: later requests are refused here.
const JUST_CONNECTED: Duration = Duration::from_millis(100);
/// Time for which a lane with an empty queue waits for answers that no limit counts. A refused request is sent again
/// from here. A stream of answers may last for minutes.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

impl Running {
    /// Offer to later processes that want to take over. Dropping it ends the offer.
    pub fn successors(&mut self) -> Successors {
        std::mem::take(&mut self.successors)
    }

    /// Stops accepting, and gives the state to `successor`. Queued and running requests may finish within the
    /// configured time. Gives each lane away when its queue is empty.
    pub async fn hand_over(self, mut successor: Successor) {
        let Self { proxy, drain, mut acceptors, mut tasks, workers, closing, .. } = self;
        info!(open = proxy.open(), within_s = log_seconds(drain), "draining beside the andante that takes over");
        // The sockets stay open in the other process.
        acceptors.shutdown().await;
        tasks.shutdown().await;
        if let Some(pages) = &closing.pages {
            pages.abort();
        }
        let until = proxy.clock.now() + drain;
        proxy.drain(until);
        let lanes = &proxy.lanes;
        tokio::time::sleep(JUST_CONNECTED).await;
        lanes.begin_handover();
        // The state already contains everything that lanes with nothing to send have sent.
        drop(lanes.hand_over(ANSWERS_WITHIN));
        if let Some(writer) = &closing.writer {
            writer.release().await;
        }
        successor.released(lanes).await;
        while proxy.clock.now() < until + LAST_WORDS {
            let emptied = tokio::time::timeout(LOOK, workers.emptied(&proxy)).await.is_ok();
            successor.give(lanes.hand_over(ANSWERS_WITHIN)).await;
            if emptied {
                break;
            }
        }
        if proxy.open() > 0 {
            warn!(open = proxy.open(), "cutting connections that have not ended");
        }
        proxy.log_counted(true);
        drop(workers);
        successor.give(lanes.hand_over(Duration::ZERO)).await;
        successor.ended().await;
        closing.finish().await;
    }
}
