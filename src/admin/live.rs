//! The stream behind the live page. Changes are computed once a second for all pages together, and only while one is
//! open. Samples of the last 15 minutes are always kept.

mod board;
mod history;
mod stream;

use std::{collections::HashMap, sync::Arc, time::Duration};

use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, broadcast},
    time,
};

pub(super) use self::stream::{StreamProgress, Streamed};
use self::{board::Board, history::History};
use super::{
    detail::{LaneName, News},
    source::StatusSource,
};

/// Interval of updates to pages.
const TURN: Duration = Duration::from_secs(1);
/// Interval of samples for the history.
const SAMPLE: Duration = Duration::from_secs(5);
/// Pages that may be open at once. Probes need connections too.
const PAGES: usize = 32;
/// A page that is further behind than this number of turns gets the complete content again.
const BEHIND: usize = 4;

/// State of the live page's streams.
pub(super) struct Live {
    source: Arc<dyn StatusSource>,
    shared: Mutex<LiveState>,
    /// Signals a new page without content.
    joined: Notify,
}

struct LiveState {
    board: Board,
    history: History,
    /// The number of the last sample that pages were sent.
    sampled: u64,
    /// `None` once andante stops.
    turns: Option<broadcast::Sender<Arc<LiveUpdate>>>,
    pages: usize,
    /// The lanes that pages have opened, with the number of pages.
    opened: HashMap<LaneName, usize>,
}

/// Data for the pages at one instant.
struct LiveUpdate {
    number: u64,
    changes: Bytes,
    /// Samples of the history since the turn before.
    samples: Option<Bytes>,
    opened: HashMap<LaneName, Bytes>,
}

/// An open page.
struct Page {
    live: Arc<Live>,
    lane: Option<LaneName>,
}

// === impl Live ===

impl Live {
    pub(super) fn new(source: Arc<dyn StatusSource>) -> Self {
        let shared = LiveState {
            board: Board::default(),
            history: History::default(),
            sampled: 0,
            turns: Some(broadcast::channel(BEHIND).0),
            pages: 0,
            opened: HashMap::new(),
        };
        Self { source, shared: Mutex::new(shared), joined: Notify::new() }
    }

    /// Computes updates for the pages, without end.
    pub(super) async fn run(self: Arc<Self>) {
        let (mut turns, mut samples) = (time::interval(TURN), time::interval(SAMPLE));
        turns.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        samples.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = samples.tick() => {
                    let sample = self.source.sample();
                    self.shared.lock().history.add(sample);
                    continue;
                }
                _ = turns.tick() => {}
                () = self.joined.notified() => turns.reset(),
            }
            if self.shared.lock().pages > 0 {
                let live = Arc::clone(&self);
                // Uses a blocking thread, because the present one may have slots to hand out.
                let _ = tokio::task::spawn_blocking(move || live.turn()).await;
            }
        }
    }

    /// The stream of a page that shows `lane` in detail; `None` if there are too many pages. Ends once andante
    /// stops.
    pub(super) fn open(self: &Arc<Self>, lane: Option<LaneName>, progress: StreamProgress) -> Option<Streamed> {
        let mut shared = self.shared.lock();
        if shared.pages >= PAGES {
            return None;
        }
        let turns = shared.turns.as_ref()?.subscribe();
        shared.pages += 1;
        if let Some(lane) = &lane {
            *shared.opened.entry(lane.clone()).or_default() += 1;
        }
        drop(shared);
        self.joined.notify_one();
        let page = Page { live: Arc::clone(self), lane };
        let (frames, streamed) = stream::channel(progress);
        tokio::spawn(page.show(turns, frames));
        Some(streamed)
    }

    /// Ends all streams.
    pub(super) fn close(&self) {
        self.shared.lock().turns = None;
    }

    /// Computes the changes, and sends them.
    fn turn(&self) {
        let (after, opened) = {
            let shared = self.shared.lock();
            (shared.board.newest(), shared.opened.keys().cloned().collect::<Vec<_>>())
        };
        let (news, status) = (self.source.news(after), self.source.status());
        let details: Vec<_> = opened.into_iter().map(|name| (self.source.lane(&name), name)).collect();
        let mut shared = self.shared.lock();
        let LiveState { board, history, sampled, turns, .. } = &mut *shared;
        let (number, changes) = board.update(status, news);
        let opened = details.into_iter().map(|(detail, name)| {
            let frame = board.lane(&name, detail, history.of(&name));
            (name, frame)
        });
        let opened = opened.collect();
        let samples = history.after(*sampled);
        *sampled = history.number();
        let turn = LiveUpdate { number, changes, samples, opened };
        if let Some(turns) = turns {
            // The last page may have been closed meanwhile.
            let _ = turns.send(Arc::new(turn));
        }
    }
}

// === impl Page ===

impl Page {
    /// Sends each turn, after the complete content.
    async fn show(self, mut turns: broadcast::Receiver<Arc<LiveUpdate>>, frames: stream::FrameSender) {
        let mut shown = None;
        loop {
            let turn = tokio::select! {
                () = frames.closed() => return,
                turn = turns.recv() => turn,
            };
            let turn = match turn {
                Ok(turn) => turn,
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    shown = None;
                    continue;
                }
                Err(broadcast::error::RecvError::Closed) => return,
            };
            let ((number, changes), samples) = match shown {
                Some(shown) if shown >= turn.number => continue,
                Some(_) => ((turn.number, turn.changes.clone()), turn.samples.clone()),
                None => {
                    let shared = self.live.shared.lock();
                    (shared.board.whole(), Some(shared.history.whole()))
                }
            };
            shown = Some(number);
            let lane = self.lane.as_ref().and_then(|lane| turn.opened.get(lane)).cloned();
            for frame in [changes].into_iter().chain(samples).chain(lane) {
                if frames.send(frame).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let mut shared = self.live.shared.lock();
        shared.pages -= 1;
        if let Some(lane) = &self.lane
            && let Some(pages) = shared.opened.get_mut(lane)
        {
            *pages -= 1;
            if *pages == 0 {
                shared.opened.remove(lane);
            }
        }
        if shared.pages == 0 {
            shared.board.clear();
        }
    }
}

/// Events of the lane called `name`.
fn of_lane<'a>(news: impl Iterator<Item = &'a News>, name: &LaneName) -> Vec<&'a News> {
    news.filter(|news| *news.rule == *name.rule && *news.host == *name.host).collect()
}
