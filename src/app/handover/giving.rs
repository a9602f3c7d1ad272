//! The end of the earlier process: it serves what it has, and gives lane by lane away.

use std::{io, time::Duration};

use tracing::{info, warn};

use super::{Successor, Successors};
use crate::{
    app::{LAST_WORDS, Running},
    lane::GivenLane,
};

/// How often lanes are looked for that have nothing to send any more.
const LOOK: Duration = Duration::from_millis(20);
/// For so long a request is awaited from whoever has just connected: from then on it would be refused here.
const JUST_CONNECTED: Duration = Duration::from_millis(100);
/// How long a lane with an empty queue waits for answers that no limit counts: a refused request is sent again from here,
/// and a stream of answers may last for minutes.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

impl Running {
    /// Where later processes ask to take over. Whoever drops it, ends that.
    pub fn successors(&mut self) -> Successors {
        std::mem::take(&mut self.successors)
    }

    /// Stops accepting and gives the state to `successor`, lets queued and running requests finish within the configured
    /// time, and gives each lane away when nothing waits in it any more.
    pub async fn hand_over(self, mut successor: Successor) {
        let Self { proxy, drain, mut acceptors, mut tasks, pages, workers, writer, talking, exporting, .. } = self;
        info!(open = proxy.open(), within_s = drain.as_secs_f64(), "draining beside the andante that takes over");
        // The sockets stay open in the other process.
        acceptors.shutdown().await;
        tasks.shutdown().await;
        if let Some(pages) = &pages {
            pages.abort();
        }
        let until = proxy.clock.now() + drain;
        proxy.drain(until);
        let lanes = &proxy.lanes;
        tokio::time::sleep(JUST_CONNECTED).await;
        lanes.begin_handover();
        // Those with nothing to send stand in the state with all that they have sent.
        drop(lanes.hand_over(Duration::ZERO));
        if let Some(writer) = &writer {
            writer.release().await;
        }
        let mut told = successor.released(lanes).await;
        let mut emptied = std::pin::pin!(proxy.emptied());
        loop {
            let ended = tokio::time::timeout(LOOK, &mut emptied).await.is_ok();
            told = give(told, &mut successor, lanes.hand_over(ANSWERS_WITHIN)).await;
            if ended || proxy.clock.now() >= until + LAST_WORDS {
                break;
            }
        }
        if proxy.open() > 0 {
            warn!(open = proxy.open(), "cutting connections that have not ended");
        }
        proxy.log_counted(true);
        drop(workers);
        told = give(told, &mut successor, lanes.hand_over(Duration::ZERO)).await;
        if let Err(error) = match told {
            Ok(()) => successor.ended().await,
            Err(error) => Err(error),
        } {
            warn!(%error, "could not tell the andante that takes over what was sent; it counts all of it as used");
        }
        if let Some(talking) = talking {
            talking.finish().await;
        }
        if let Some(writer) = writer {
            writer.finish().await;
        }
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
    }
}

/// Gives `lanes` away, if all before were told.
async fn give(told: io::Result<()>, successor: &mut Successor, lanes: Vec<GivenLane>) -> io::Result<()> {
    match told {
        Ok(()) => successor.give(lanes).await,
        Err(error) => Err(error),
    }
}
