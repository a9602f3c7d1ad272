//! Private caches (RFC 9111), one for each rule that has one: their memory, and what ends the life of what is in them.
//!
//! Whose an answer is, is a part of its [`Key`]; this module never looks at requests. What is stored is bounded, what is
//! being stored counts as stored, and those answers go first that were not used for the longest time.

pub(crate) mod freshness;
pub(crate) mod stored;

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
    sync::Arc,
};

use lru::LruCache;
use parking_lot::{Mutex, RwLock};

use self::stored::{StoredAnswer, StoredHead};
use super::sharing::Key;
use crate::{
    policy::{CachePolicy, Egress, Policy, Rules},
    proxy::message::recorded_body::BodyRecorder,
};

/// One answer takes at most this part of its cache.
const PART: usize = 8;

/// The caches of all rules.
#[derive(Default)]
pub(crate) struct Caches {
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
    /// The bytes that both take.
    used: usize,
}

struct StoredEntry {
    answer: Arc<StoredAnswer>,
    resource: Resource,
    /// The changes of the resource when it was asked for.
    changes: u64,
    cost: usize,
}

/// An answer that is being stored while its body passes. Dropped before it is complete, it is not.
pub(crate) struct Recording {
    cache: Arc<Cache>,
    key: Key,
    version: Version,
    head: Option<StoredHead>,
    body: Vec<u8>,
    /// The bytes that it takes so far.
    cost: usize,
}

// === impl Caches ===

impl Caches {
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
        let cache = Cache::new(bytes);
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
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let (recordings, watched) = (HashSet::new(), HashMap::new());
        let content = Content { answers: LruCache::unbounded(), recordings, watched, used: 0 };
        Arc::new(Self { most, content: Mutex::new(content) })
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
        let cost = answer.head.cost() + answer.body.len();
        let mut content = self.content.lock();
        if !content.answers.peek(&key).is_some_and(|entry| Arc::ptr_eq(&entry.answer, old)) {
            return;
        }
        content.remove(&key);
        if cost <= self.most / PART && content.take(cost, self.most) {
            content.put(key, version, answer, cost);
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
        let mut content = self.content.lock();
        if content.recordings.contains(&key) || !content.take(cost, self.most) {
            return None;
        }
        content.recordings.insert(key);
        drop(content);
        let version = version.clone();
        Some(Recording { cache: self.clone(), key, version, head: Some(head), body: Vec::new(), cost })
    }
}

// === impl Content ===

impl Content {
    /// Makes room for `bytes`; `false` if there is none although no answer is left.
    fn take(&mut self, bytes: usize, most: usize) -> bool {
        self.used += bytes;
        while self.used > most {
            let Some((_, entry)) = self.answers.pop_lru() else {
                self.used -= bytes;
                return false;
            };
            self.forgotten(&entry);
        }
        true
    }

    /// Puts an answer in that was asked for in this `version`; its `cost` was [taken](Self::take).
    fn put(&mut self, key: Key, version: &Version, answer: Arc<StoredAnswer>, cost: usize) {
        let Version { resource, changes, .. } = *version;
        self.watch(resource);
        self.answers.put(key, StoredEntry { answer, resource, changes, cost });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.answers.pop(key) {
            self.forgotten(&entry);
        }
    }

    fn forgotten(&mut self, entry: &StoredEntry) {
        self.used -= entry.cost;
        self.unwatch(entry.resource);
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
        let after = self.cost + piece.len();
        if after > self.cache.most / PART || !self.cache.content.lock().take(piece.len(), self.cache.most) {
            return false;
        }
        self.cost = after;
        self.body.extend_from_slice(piece);
        true
    }

    fn complete(mut self: Box<Self>) {
        let Some(head) = self.head.take() else { return };
        let answer = Arc::new(StoredAnswer { head, body: mem::take(&mut self.body).into_boxed_slice().into() });
        // What it takes is the answer's from here on.
        let cost = mem::take(&mut self.cost);
        let mut content = self.cache.content.lock();
        if !content.is_at(&self.version) {
            // Nobody may use it, and a newer one may be stored.
            content.used -= cost;
            return;
        }
        content.remove(&self.key);
        content.put(self.key, &self.version, answer, cost);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut content = self.cache.content.lock();
        content.used -= self.cost;
        content.recordings.remove(&self.key);
    }
}
