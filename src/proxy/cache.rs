//! Private caches (RFC 9111), one for each rule with a cache: their memory, and the events that end the life of a
//! stored answer.
//!
//! An answer's owner is part of its [`Key`]; this module never looks at requests. Memory for stored answers is bounded.
//! An answer that is being stored, or being sent to a worker, counts as stored. The least recently used answers are
//! evicted first.

pub(crate) mod freshness;
mod room;
pub(crate) mod stored;

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
    sync::{Arc, atomic::AtomicUsize},
};

use lru::LruCache;
use parking_lot::{Mutex, RwLock};

use self::{
    room::Room,
    stored::{StoredAnswer, StoredHead},
};
use super::sharing::Key;
use crate::{
    memory::{Holder, Memory},
    policy::{CachePolicy, Egress, Policy, Rules},
    proxy::message::recorded_body::BodyRecorder,
};

/// A single answer takes at most 1/`PART` of its cache.
const PART: usize = 8;

/// The caches of all rules.
pub(crate) struct Caches {
    memory: Arc<Memory>,
    by_rule: RwLock<HashMap<Arc<str>, RuleCache>>,
}

/// A rule's cache, and the egress by which its answers came: by another egress the answers may differ.
struct RuleCache {
    egress: Egress,
    cache: Arc<Cache>,
}

/// The cache of one rule.
pub(crate) struct Cache {
    most: usize,
    /// Bytes that answers take: stored ones, those that are being stored, and those that a request still holds.
    used: Arc<AtomicUsize>,
    memory: Arc<Memory>,
    content: Mutex<Content>,
}

/// Keyed hash of a URL, regardless of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resource(pub(crate) u64);

/// The state of a resource when a request for it was sent. While a `Version` exists, the cache counts the resource's
/// changes.
pub(crate) struct Version {
    cache: Arc<Cache>,
    resource: Resource,
    changes: u64,
}

/// Change count of a resource with stored answers, or with requests in flight.
#[derive(Default)]
struct Watched {
    /// Number of times that requests may have changed the resource.
    changes: u64,
    /// Number of answers and [versions](Version) of the resource.
    users: usize,
}

struct Content {
    answers: LruCache<Key, StoredEntry>,
    /// Keys of the answers that are being stored.
    recordings: HashSet<Key>,
    watched: HashMap<Resource, Watched>,
}

struct StoredEntry {
    answer: Arc<StoredAnswer>,
    resource: Resource,
    /// Changes of the resource when the answer was requested.
    changes: u64,
}

/// An answer that is being stored while its body passes. If the recording is dropped before it is complete, nothing is
/// stored.
pub(crate) struct Recording {
    cache: Arc<Cache>,
    key: Key,
    version: Version,
    head: Option<StoredHead>,
    body: Vec<u8>,
    /// Memory that the answer takes so far; `None` once it is complete.
    room: Option<Room>,
}

// === impl Caches ===

impl Caches {
    /// Creates an empty set of caches, which draw on `memory`.
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, by_rule: RwLock::default() }
    }

    /// The cache of the rule `policy`, if the rule has one.
    pub(crate) fn of(&self, policy: &Policy) -> Option<Arc<Cache>> {
        let CachePolicy { bytes, .. } = policy.cache?;
        let fits = |of: &&RuleCache| of.cache.most == bytes && of.egress == policy.egress;
        if let Some(of) = self.by_rule.read().get(&policy.name).filter(fits) {
            return Some(of.cache.clone());
        }
        let mut caches = self.by_rule.write();
        if let Some(of) = caches.get(&policy.name).filter(fits) {
            return Some(of.cache.clone());
        }
        // A cache of another size or egress starts empty.
        let cache = Cache::new(bytes, self.memory.clone());
        caches.insert(policy.name.clone(), RuleCache { egress: policy.egress.clone(), cache: cache.clone() });
        Some(cache)
    }

    /// Drops the caches of rules that `rules` does not contain.
    pub(crate) fn retain(&self, rules: &Rules) {
        let has_cache = |name: &str| rules.iter().any(|rule| *rule.name == *name && rule.cache.is_some());
        self.by_rule.write().retain(|name, _| has_cache(name));
    }
}

// === impl Cache ===

impl Cache {
    /// Creates a cache of up to `most` bytes.
    pub(crate) fn new(most: usize, memory: Arc<Memory>) -> Arc<Self> {
        let (recordings, watched) = (HashSet::new(), HashMap::new());
        let content = Content { answers: LruCache::unbounded(), recordings, watched };
        Arc::new(Self { most, used: Arc::default(), memory, content: Mutex::new(content) })
    }

    /// Adds `more` bytes to `room`, and evicts older answers for them. Returns `false` if there is not enough memory.
    fn take(&self, content: &mut Content, room: &mut Room, more: usize) -> bool {
        while !room.grow(more, self.most) {
            if !content.forget_oldest() {
                return false;
            }
        }
        true
    }

    /// Current version of `resource`.
    pub(crate) fn version(self: &Arc<Self>, resource: Resource) -> Version {
        let changes = self.content.lock().watch(resource);
        Version { cache: self.clone(), resource, changes }
    }

    /// Records that a request may have changed `resource`: answers requested before are not used any more, for any
    /// client (RFC 9111 §4.4).
    pub(crate) fn changed(&self, resource: Resource) {
        if let Some(watched) = self.content.lock().watched.get_mut(&resource) {
            watched.changes += 1;
        }
    }

    /// The answer stored for `key`, if the resource is still in this `version`.
    pub(crate) fn find(&self, key: Key, version: &Version) -> Option<Arc<StoredAnswer>> {
        let mut content = self.content.lock();
        let entry = content.answers.get(&key)?;
        if (entry.resource, entry.changes) == (version.resource, version.changes) {
            return Some(entry.answer.clone());
        }
        content.remove(&key);
        None
    }

    /// Drops the answer stored for `key`.
    pub(crate) fn forget(&self, key: Key) {
        self.content.lock().remove(&key);
    }

    /// Replaces `old` with `answer` for `key`. `version` is the resource's version when the request was sent. Does
    /// nothing if `old` was replaced meanwhile.
    pub(crate) fn renew(&self, key: Key, version: &Version, old: &Arc<StoredAnswer>, answer: Arc<StoredAnswer>) {
        let fits = answer.head.cost() + answer.body.len() <= self.most / PART;
        let mut content = self.content.lock();
        if !content.answers.peek(&key).is_some_and(|entry| Arc::ptr_eq(&entry.answer, old)) {
            return;
        }
        content.remove(&key);
        // The body keeps the memory that it took when it was recorded.
        if fits {
            content.put(key, version, answer);
        }
    }

    /// Begins to store an answer with `head`, whose body has at least `least` bytes. `None` if the answer is too large,
    /// or is being stored already.
    pub(crate) fn record(
        self: &Arc<Self>,
        key: Key,
        version: &Version,
        head: StoredHead,
        least: u64,
    ) -> Option<Recording> {
        let cost = head.cost();
        if usize::try_from(least).ok()?.saturating_add(cost) > self.most / PART {
            return None;
        }
        let mut room = Room::new(self.used.clone(), self.memory.charge(Holder::Cache));
        let mut content = self.content.lock();
        if content.recordings.contains(&key) || !self.take(&mut content, &mut room, cost) {
            return None;
        }
        content.recordings.insert(key);
        drop(content);
        let version = version.clone();
        Some(Recording { cache: self.clone(), key, version, head: Some(head), body: Vec::new(), room: Some(room) })
    }
}

// === impl Content ===

impl Content {
    /// Drops the least recently used answer that no request holds: dropping a held one would free no memory. Returns
    /// `false` if there is none.
    fn forget_oldest(&mut self) -> bool {
        let is_free = |entry: &StoredEntry| Arc::strong_count(&entry.answer) == 1;
        let oldest = self.answers.iter().rev().find(|(_, entry)| is_free(entry)).map(|(key, _)| *key);
        oldest.iter().for_each(|key| self.remove(key));
        oldest.is_some()
    }

    /// Inserts an answer that was requested in this `version`.
    fn put(&mut self, key: Key, version: &Version, answer: Arc<StoredAnswer>) {
        let Version { resource, changes, .. } = *version;
        self.watch(resource);
        self.answers.put(key, StoredEntry { answer, resource, changes });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.answers.pop(key) {
            self.unwatch(entry.resource);
        }
    }

    /// Returns whether the resource has not changed since this `version`.
    fn is_at(&self, version: &Version) -> bool {
        self.watched.get(&version.resource).is_some_and(|watched| watched.changes == version.changes)
    }

    /// Counts another user of `resource`, and returns the number of its changes.
    fn watch(&mut self, resource: Resource) -> u64 {
        let watched = self.watched.entry(resource).or_default();
        watched.users += 1;
        watched.changes
    }

    fn unwatch(&mut self, resource: Resource) {
        let Entry::Occupied(mut watched) = self.watched.entry(resource) else { return };
        watched.get_mut().users -= 1;
        if watched.get().users == 0 {
            watched.remove();
        }
    }
}

// === impl Version ===

impl Clone for Version {
    fn clone(&self) -> Self {
        self.cache.content.lock().watch(self.resource);
        Self { cache: self.cache.clone(), resource: self.resource, changes: self.changes }
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.cache.content.lock().unwatch(self.resource);
    }
}

// === impl Recording ===

impl BodyRecorder for Recording {
    fn piece(&mut self, piece: &[u8]) -> bool {
        let Some(room) = &mut self.room else { return false };
        let fits = room.bytes() + piece.len() <= self.cache.most / PART;
        if !fits || !self.cache.take(&mut self.cache.content.lock(), room, piece.len()) {
            return false;
        }
        self.body.extend_from_slice(piece);
        true
    }

    fn complete(mut self: Box<Self>) {
        let (Some(head), Some(room)) = (self.head.take(), self.room.take()) else { return };
        let answer = Arc::new(StoredAnswer { head, body: room.hold(mem::take(&mut self.body)) });
        let mut content = self.cache.content.lock();
        // If the resource has changed, this answer must not be used, and a newer one may be stored.
        if content.is_at(&self.version) {
            content.remove(&self.key);
            content.put(self.key, &self.version, answer);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.cache.content.lock().recordings.remove(&self.key);
    }
}
