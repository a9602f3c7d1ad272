//! Handover of lanes from one process to the next while both run. The earlier process sends the waiting requests of
//! each lane, and then hands it over. Until then, the later process keeps the lane's new requests waiting.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use andante_clock::Instant;
use andante_limit::Gap;
use parking_lot::Mutex;

use super::Lanes;
use crate::{Lane, kept, state::LaneRecord};

/// Lanes that an earlier process still has, by their names in the store, with their last known records.
#[derive(Default)]
pub(super) struct AwaitedLanes(Mutex<HashMap<String, Option<LaneRecord>>>);

/// A lane that goes to the next process.
pub struct GivenLane {
    /// Name of the lane in the store.
    pub id: Arc<str>,
    /// The lane's record as JSON; `None` if it remembers nothing.
    pub text: Option<Vec<u8>>,
}

// === impl AwaitedLanes ===

impl AwaitedLanes {
    /// Returns whether an earlier process has a lane for `host`.
    fn has_host(&self, host: &str) -> bool {
        self.0.lock().keys().any(|id| kept::host_of(id) == Some(host))
    }
}

// === impl Lanes ===

impl Lanes {
    /// Expects the lanes called `ids` from an earlier process. Requests to their hosts wait until the lanes
    /// [arrive](Self::arrived).
    pub fn awaiting(self, ids: Vec<String>) -> Self {
        let kept = self.kept.as_ref();
        let awaited = ids.into_iter().map(|id| {
            let record = kept.and_then(|kept| kept.take(&id));
            (id, record)
        });
        Self { awaited: AwaitedLanes(Mutex::new(awaited.collect())), ..self }
    }

    /// Takes over the lane called `id`, for which the earlier process sends nothing more, with its record.
    ///
    /// # Errors
    /// If the record cannot be read: then the lane's limits count as used up.
    pub fn arrived(&self, id: &str, text: Option<&[u8]>) -> Result<(), serde_json::Error> {
        let record = text.map(serde_json::from_slice::<LaneRecord>).transpose();
        let gap = record.is_err().then(|| Gap::lost(self.clock.now()));
        let (record, result) = match record {
            Ok(record) => (record, Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.take_over(id, record, gap);
        result
    }

    /// Takes over all lanes that the earlier process has not handed over, because it ended abruptly. The lanes count as
    /// fully used `since` their last known records. Returns their number.
    pub fn predecessor_lost(&self, since: Instant) -> usize {
        let lost: Vec<_> = self.awaited.0.lock().iter().map(|(id, record)| (id.clone(), record.clone())).collect();
        let gap = Gap { from: Some(since), until: self.clock.now() };
        for (id, record) in &lost {
            self.take_over(id, record.clone(), Some(gap));
        }
        lost.len()
    }

    fn take_over(&self, id: &str, record: Option<LaneRecord>, gap: Option<Gap>) {
        let Some(kept) = &self.kept else { return };
        let origin = record.as_ref().and_then(|record| record.origin.as_ref()?.to_origin());
        kept.put(id, record, gap, self.clock.now());
        // A lane opened from here on starts from the record.
        self.awaited.0.lock().remove(id);
        let host = kept::host_of(id).unwrap_or_default();
        let rules = self.rules();
        for lane in self.all().into_iter().filter(|lane| **lane.host() == *host && lane.awaits_predecessor()) {
            // Rules may distinguish the ports of a host: each lane has a name of its own.
            let is_its = lane.kept_as().is_some_and(|own| **own == *id) || kept::is_of_gone_rule(id, host, &rules);
            if is_its && let Some(before) = kept.open_again(&lane, self.clock, &rules) {
                lane.inherits(&before);
            }
            if !self.awaited.has_host(host) {
                lane.predecessor_ended();
            }
        }
        origin.iter().for_each(|origin| drop(self.find(origin)));
    }

    /// Returns whether an earlier process still sends for `host`.
    pub(super) fn is_awaited(&self, host: &str) -> bool {
        self.awaited.has_host(host)
    }

    /// Assigns lanes that are opened from now on to the next process.
    pub fn begin_handover(&self) {
        self.given.store(true, Ordering::Release);
    }

    /// Hands over all lanes without waiting or in-flight requests; after `patience`, in-flight requests only matter to
    /// lanes that limit them.
    pub fn hand_over(&self, patience: Duration) -> Vec<GivenLane> {
        let give = |lane: &Arc<Lane>| {
            let (id, record) = (lane.kept_as()?.clone(), lane.hand_over(patience)?);
            Some(GivenLane { id, text: record.as_ref().map(kept::written) })
        };
        self.all().iter().filter_map(give).collect()
    }

    /// The names of the lanes that still have something to send.
    pub fn not_given(&self) -> Vec<Arc<str>> {
        let lanes = self.all();
        let kept = lanes.iter().filter(|lane| !lane.is_given());
        kept.filter_map(|lane| lane.kept_as().cloned()).collect()
    }
}
