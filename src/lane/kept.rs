//! Lanes that outlive the process: records in JSON, for the state file.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    time::Duration,
};

use andante_clock::{Clock, Instant};
use andante_limit::Gap;
use andante_policy::{Origin, Policy, Rules};
use parking_lot::Mutex;

use super::{
    Lane,
    driver::{KeepRequest, KeptLane},
    state::{LaneRecord, Past},
};

/// Stored records of lanes that no request has asked for since the start. Also holds the channel through which open
/// lanes ask for blocks of long quotas.
pub struct KeptLanes {
    records: Mutex<HashMap<String, LaneRecord>>,
    past: Mutex<Past>,
    requests: mpsc::Sender<KeepRequest>,
    /// Lanes that the store has to forget.
    gone: Mutex<Vec<Arc<str>>>,
    /// When records without any effect are next searched for.
    looks: Mutex<Instant>,
}

/// A lane whose record cannot be read.
pub struct UnreadLane {
    /// The lane, and the error.
    pub problem: String,
    /// Name of the lane in the store.
    pub id: Arc<str>,
    /// The replacement record: the lane may have sent anything until now. Otherwise each start would presume this
    /// again, and a monthly limit would always count as used up.
    pub text: Vec<u8>,
}

/// A lane's record, to be stored.
pub struct WrittenLane {
    /// Name of the lane in the store.
    pub id: Arc<str>,
    /// The record, as JSON.
    pub text: Vec<u8>,
    /// The lane, which waits to [hear](Self::done) of it.
    lane: Arc<Lane>,
}

/// The time between searches for records that have no effect any more and that no request has asked for.
const LOOKS: Duration = Duration::from_secs(600);
/// The most records kept, the latest.
const MOST: usize = 65_536;
/// Separates the names of a rule and of a host: contained in neither.
const BETWEEN: char = '\n';

// === impl KeptLanes ===

impl KeptLanes {
    /// Reads the stored records at `now`, and returns those that could not be read.
    pub fn read<'a>(
        stored: impl Iterator<Item = (&'a str, &'a [u8])>,
        past: Past,
        now: Instant,
        requests: mpsc::Sender<KeepRequest>,
    ) -> (Self, Vec<UnreadLane>) {
        let (mut records, mut unread) = (HashMap::new(), Vec::new());
        for (id, text) in stored {
            let record = serde_json::from_slice::<LaneRecord>(text).unwrap_or_else(|error| {
                let problem = format!("{}: {error}", id.replace(BETWEEN, " "));
                let record = LaneRecord::lost(now);
                unread.push(UnreadLane { problem, id: id.into(), text: written(&record) });
                record
            });
            records.insert(id.to_owned(), record);
        }
        let (gone, looks) = (Mutex::default(), Mutex::new(now + LOOKS));
        let (records, past) = (Mutex::new(records), Mutex::new(past));
        (Self { records, past, requests, gone, looks }, unread)
    }

    /// Number of records that no request has asked for yet.
    pub fn len(&self) -> usize {
        self.records.lock().len()
    }

    /// Returns whether there are no such records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes out the record called `id`.
    pub(super) fn take(&self, id: &str) -> Option<LaneRecord> {
        self.records.lock().remove(id)
    }

    /// Adds the record of another process for the lane called `id`, as of `now`. The record does not include requests
    /// sent in a `gap`.
    pub(super) fn put(&self, id: &str, record: Option<LaneRecord>, gap: Option<Gap>, now: Instant) {
        let mut past = self.past.lock();
        past.until = Some(now);
        let record = match record {
            Some(record) => {
                past.gap = gap.or(past.gap);
                record
            }
            None if gap.is_some() => LaneRecord::lost(now),
            None => return,
        };
        self.records.lock().insert(id.to_owned(), record);
    }

    /// Makes the store forget these lanes, which remember nothing.
    pub(super) fn forget(&self, gone: impl IntoIterator<Item = Arc<str>>) {
        self.gone.lock().extend(gone);
    }

    /// Takes the names of the lanes that the store has to forget.
    pub(super) fn gone(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.gone.lock())
    }

    /// Forgets, from time to time, records that no request has asked for and that have no effect any more.
    pub(super) fn sweep(&self, now: Instant, epoch: Duration) {
        let mut looks = self.looks.lock();
        if now < *looks {
            return;
        }
        *looks = now + LOOKS;
        let past = *self.past.lock();
        let mut records = self.records.lock();
        let mut kept = Vec::new();
        records.retain(|id, record| {
            let says = !record.is_over(past, now, epoch);
            let id = Arc::<str>::from(&**id);
            if says {
                kept.push((record.lost.unwrap_or(record.budget.at), id));
            } else {
                self.forget([id]);
            }
            says
        });
        kept.sort_unstable();
        for (_, id) in kept.drain(..kept.len().saturating_sub(MOST)) {
            records.remove(&*id);
            self.forget([id]);
        }
    }

    /// Origins of the persisted lanes whose requests would come to the same lanes under `rules`, or to the successors
    /// of lanes whose rules are gone.
    pub(super) fn origins(&self, rules: &Rules) -> Vec<Origin> {
        let records = self.records.lock();
        let origins = records.iter().filter_map(|(id, record)| {
            let origin = record.origin.as_ref()?.to_origin()?;
            let policy = rules.policy_for(&origin);
            (*id_of(policy, &origin.host) == **id || is_of_gone_rule(id, &origin.host, rules)).then_some(origin)
        });
        origins.collect()
    }

    /// Restores the new `lane` for requests to `origin` from its record.
    pub(super) fn open(&self, lane: Lane, origin: &Origin, rules: &Rules) -> Lane {
        let own = self.records.lock().remove(&*id_of(lane.policy(), &origin.host));
        self.restored(lane, own, origin, rules)
    }

    /// Restores a lane for a look-up: the record stays for the lane that requests will open.
    pub(super) fn look_up(&self, lane: Lane, origin: &Origin, rules: &Rules) -> Lane {
        let own = self.records.lock().get(&*id_of(lane.policy(), &origin.host)).cloned();
        self.restored(lane, own, origin, rules)
    }

    /// Restores `lane` from its `own` record, or from one under a rule that was removed.
    fn restored(&self, lane: Lane, own: Option<LaneRecord>, origin: &Origin, rules: &Rules) -> Lane {
        let id = id_of(lane.policy(), &origin.host);
        let record = own.or_else(|| self.of_gone_rule(&origin.host, rules));
        let (lost, past) = (record.as_ref().and_then(|record| record.lost), *self.past.lock());
        let (record, past) = (record.filter(|_| lost.is_none()), Past { lost: past.lost.max(lost), ..past });
        let kept = KeptLane { id, origin: origin.into(), requests: self.requests.clone() };
        lane.restored(kept, record.as_ref(), past)
    }

    /// The latest record of a lane for `host` under a rule that is not there any more, or a lost one.
    fn of_gone_rule(&self, host: &str, rules: &Rules) -> Option<LaneRecord> {
        let records = self.records.lock();
        let other = records.iter().filter(|(id, _)| is_of_gone_rule(id, host, rules));
        other.max_by_key(|(_, record)| (record.lost, record.budget.at)).map(|(_, record)| record.clone())
    }

    /// A lane like `lane`, restored from its record. Uses up the record.
    pub(super) fn open_again(&self, lane: &Arc<Lane>, clock: Clock, rules: &Rules) -> Option<Arc<Lane>> {
        let origin = lane.kept_origin()?;
        let blank = Lane::new(lane.host().clone(), lane.policy().clone(), lane.metrics().clone(), clock);
        Some(Arc::new(self.open(blank, &origin, rules)))
    }
}

/// The host of the lane called `id`.
pub(super) fn host_of(id: &str) -> Option<&str> {
    id.split_once(BETWEEN).map(|(_, host)| host)
}

/// Returns whether `id` names a lane for `host` under a rule that was removed.
pub(super) fn is_of_gone_rule(id: &str, host: &str, rules: &Rules) -> bool {
    let gone = |name: &str| name == Policy::UNRULED || rules.iter().all(|rule| &*rule.name != name);
    id.split_once(BETWEEN).is_some_and(|(rule, of)| of == host && gone(rule))
}

/// The lane's name in the store.
fn id_of(policy: &Policy, host: &str) -> Arc<str> {
    format!("{}{BETWEEN}{host}", policy.name).into()
}

// === impl WrittenLane ===

impl WrittenLane {
    /// Reports that the record is stored, or cannot be, if not `fully`.
    pub fn done(&self, fully: bool) {
        self.lane.written(fully);
    }
}

/// The records of `lanes` that have changed, or of all if `asked`. With `last`, nothing will leave any more.
pub fn write_down<'a>(
    lanes: impl Iterator<Item = &'a Arc<Lane>>,
    asked: bool,
    last: bool,
) -> impl Iterator<Item = WrittenLane> {
    lanes.filter_map(move |lane| {
        let id = lane.kept_as()?.clone();
        let record = lane.record(asked, last)?;
        Some(WrittenLane { id, text: written(&record), lane: lane.clone() })
    })
}

pub(super) fn written(record: &LaneRecord) -> Vec<u8> {
    serde_json::to_vec(record).expect("it has no maps and no numbers that JSON lacks")
}
