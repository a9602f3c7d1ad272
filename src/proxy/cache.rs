//! Private caches (RFC 9111), one for each rule that has one: their memory, and what ends the life of what is in them.
//!
//! Whose an answer is, is a part of its [`Key`]; this module never looks at requests. What is stored is bounded, what is
//! being stored or sent to a worker counts as stored, and those answers go first that were not used for the longest time.

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

/// One answer takes at most this part of its cache.
const PART: usize = 8;

/// The caches of all rules.
pub(crate) struct Caches {
    memory: Arc<Memory>,
    by_rule: RwLock<HashMap<Arc<str>, RuleCache>>,
}

/// A rule's cache, and by which way its answers have come: by another one they may be other answers.
struct RuleCache {
    egress: Egress,
    cache: Arc<Cache>,
}

/// The cache of one rule.
pub(crate) struct Cache {
    most: usize,
    /// The bytes that answers take: stored ones, those that are being stored, and those that somebody has in hand.
    used: Arc<AtomicUsize>,
    memory: Arc<Memory>,
    content: Mutex<Content>,
}

/// What a URL stands for, whoever asks; a keyed hash of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resource(pub(crate) u64);

/// A resource as it was when a request for it was sent. While anybody holds one, the cache counts its changes.
pub(crate) struct Version {
    cache: Arc<Cache>,
    resource: Resource,
    changes: u64,
}

/// What is known of a resource of which answers are stored, or on their way.
#[derive(Default)]
struct Watched {
    /// How often requests may have changed it.
    changes: u64,
    /// How many answers and [versions](Version) there are of it.
    users: usize,
}

struct Content {
    answers: LruCache<Key, StoredEntry>,
    /// What is being stored.
    recordings: HashSet<Key>,
    watched: HashMap<Resource, Watched>,
}

struct StoredEntry {
    answer: Arc<StoredAnswer>,
    resource: Resource,
    /// The changes of the resource when it was asked for.
    changes: u64,
}

/// An answer that is being stored while its body passes. Dropped before it is complete, it is not.
pub(crate) struct Recording {
    cache: Arc<Cache>,
    key: Key,
    version: Version,
    head: Option<StoredHead>,
    body: Vec<u8>,
    /// The memory that it takes so far; `None` once it is complete.
    room: Option<Room>,
}

// === impl Caches ===

impl Caches {
    /// None yet; all of them draw on `memory`.
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, by_rule: RwLock::default() }
    }

    /// The cache of the rule that `policy` is, if it has one.
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
        // One of another size, or by another way, starts anew.
        let cache = Cache::new(bytes, self.memory.clone());
        caches.insert(policy.name.clone(), RuleCache { egress: policy.egress.clone(), cache: cache.clone() });
        Some(cache)
    }

    /// Forgets the caches of rules that `rules` does not have.
    pub(crate) fn retain(&self, rules: &Rules) {
        let has_cache = |name: &str| rules.iter().any(|rule| *rule.name == *name && rule.cache.is_some());
        self.by_rule.write().retain(|name, _| has_cache(name));
    }
}

// === impl Cache ===

impl Cache {
    /// One that takes up to `most` bytes.
    pub(crate) fn new(most: usize, memory: Arc<Memory>) -> Arc<Self> {
        let (recordings, watched) = (HashSet::new(), HashMap::new());
        let content = Content { answers: LruCache::unbounded(), recordings, watched };
        Arc::new(Self { most, used: Arc::default(), memory, content: Mutex::new(content) })
    }

    /// Takes `more` bytes for what has `room`, for which older answers go. Returns `false` if there are not as many.
    fn take(&self, content: &mut Content, room: &mut Room, more: usize) -> bool {
        while !room.grow(more, self.most) {
            if !content.forget_oldest() {
                return false;
            }
        }
        true
    }

    /// `resource` as it is now.
    pub(crate) fn version(self: &Arc<Self>, resource: Resource) -> Version {
        let changes = self.content.lock().watch(resource);
        Version { cache: self.clone(), resource, changes }
    }

    /// A request may have changed `resource`: what was asked for before is not used any more, by anybody (RFC 9111 §4.4).
    pub(crate) fn changed(&self, resource: Resource) {
        if let Some(watched) = self.content.lock().watched.get_mut(&resource) {
            watched.changes += 1;
        }
    }

    /// The answer that is stored for `key`, if the resource is still in this `version`.
    pub(crate) fn find(&self, key: Key, version: &Version) -> Option<Arc<StoredAnswer>> {
        let mut content = self.content.lock();
        let entry = content.answers.get(&key)?;
        if (entry.resource, entry.changes) == (version.resource, version.changes) {
            return Some(entry.answer.clone());
        }
        content.remove(&key);
        None
    }

    /// Forgets what is stored for `key`.
    pub(crate) fn forget(&self, key: Key) {
        self.content.lock().remove(&key);
    }

    /// Stores `answer` for `key`, to a request that was sent when the resource was in this `version`, in the place of `old`:
    /// not if that was replaced meanwhile.
    pub(crate) fn renew(&self, key: Key, version: &Version, old: &Arc<StoredAnswer>, answer: Arc<StoredAnswer>) {
        let fits = answer.head.cost() + answer.body.len() <= self.most / PART;
        let mut content = self.content.lock();
        if !content.answers.peek(&key).is_some_and(|entry| Arc::ptr_eq(&entry.answer, old)) {
            return;
        }
        content.remove(&key);
        // Its body has the memory that it took when it was recorded.
        if fits {
            content.put(key, version, answer);
        }
    }

    /// Begins to store an answer with `head`, whose body has at least `least` bytes. `None` if it is too large, or is being
    /// stored already.
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
    /// Forgets the answer that was not used for longest, of those that nobody has in hand: others would free no memory.
    /// Returns `false` if there is none.
    fn forget_oldest(&mut self) -> bool {
        let is_free = |entry: &StoredEntry| Arc::strong_count(&entry.answer) == 1;
        let oldest = self.answers.iter().rev().find(|(_, entry)| is_free(entry)).map(|(key, _)| *key);
        oldest.iter().for_each(|key| self.remove(key));
        oldest.is_some()
    }

    /// Puts an answer in that was asked for in this `version`.
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

    /// Whether the resource has not changed since this `version`.
    fn is_at(&self, version: &Version) -> bool {
        self.watched.get(&version.resource).is_some_and(|watched| watched.changes == version.changes)
    }

    /// Counts another user of `resource`, and says how often that has changed.
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
        // Otherwise nobody may use it, and a newer one may be stored.
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
