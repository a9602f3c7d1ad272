use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header::CACHE_CONTROL};

use super::{freshness::Received, *};
use crate::clock::{Clock, Instant};

const KIB: usize = 1024;

fn memory() -> Arc<Memory> {
    Memory::new(1 << 40, Clock::start())
}

fn head() -> StoredHead {
    let fields = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("max-age=60"))]);
    let received = Received { at: Instant::START, time_of_day: Duration::ZERO, delay: Duration::ZERO };
    StoredHead::of(StatusCode::OK, &fields, &received).unwrap()
}

fn key(number: u64) -> Key {
    Key::new(1, |half| number * 2 + u64::from(half))
}

fn used(cache: &Cache) -> usize {
    cache.used.load(Ordering::Relaxed)
}

/// Records a body of `size` bytes as the answer for `key`. Returns whether it is stored.
fn record(cache: &Arc<Cache>, key: Key, size: usize) -> bool {
    let version = cache.version(Resource(1));
    let Some(mut recording) = cache.record(key, &version, head(), 0).map(Box::new) else { return false };
    for piece in vec![7; size].chunks(KIB) {
        if !recording.piece(piece) {
            return false;
        }
    }
    recording.complete();
    cache.find(key, &version).is_some_and(|answer| answer.body == vec![7; size])
}

#[test]
fn what_was_recorded_to_its_end_is_found_and_what_broke_off_is_not() {
    let cache = Cache::new(64 * KIB, memory());
    assert!(record(&cache, key(1), 100));
    let version = cache.version(Resource(1));
    let mut recording = cache.record(key(2), &version, head(), 0).unwrap();
    assert!(recording.piece(&[1; 100]));
    assert!(cache.find(key(2), &version).is_none());
    let before = used(&cache);
    drop(recording);
    assert!(cache.find(key(2), &version).is_none() && used(&cache) < before);
}

#[test]
fn an_answer_takes_an_eighth_at_most() {
    let cache = Cache::new(64 * KIB, memory());
    let room = 8 * KIB - head().cost();
    assert!(record(&cache, key(1), room));
    assert!(!record(&cache, key(2), room + 1));
    assert!(cache.record(key(3), &cache.version(Resource(1)), head(), room as u64 + 1).is_none());
    assert!(cache.record(key(3), &cache.version(Resource(1)), head(), u64::MAX).is_none());
}

#[test]
fn what_was_not_used_for_longest_goes_first_and_the_memory_is_bounded() {
    let cache = Cache::new(64 * KIB, memory());
    let version = cache.version(Resource(1));
    for number in 0..100 {
        assert!(record(&cache, key(number), 6 * KIB), "{number}");
        assert!(cache.find(key(0), &version).is_some(), "{number}");
        assert!(used(&cache) <= 64 * KIB);
    }
    // The answer that is always used, and the latest ones.
    let stored: Vec<u64> = (0..100).filter(|number| cache.find(key(*number), &version).is_some()).collect();
    assert_eq!((stored[0], *stored.last().unwrap()), (0, 99));
    assert!((8..=9).contains(&stored.len()), "{stored:?}");
}

#[test]
fn what_is_being_stored_counts_as_stored() {
    let cache = Cache::new(64 * KIB, memory());
    let version = cache.version(Resource(1));
    let mut under_way: Vec<_> = (0..30).filter_map(|number| cache.record(key(number), &version, head(), 0)).collect();
    let full = under_way.iter_mut().any(|recording| (0..6).any(|_| !recording.piece(&[0; KIB])));
    assert!(full && used(&cache) <= 64 * KIB);
    drop(under_way);
    assert_eq!(used(&cache), 0);
}

#[test]
fn one_answer_is_stored_once_at_a_time() {
    let cache = Cache::new(64 * KIB, memory());
    let version = cache.version(Resource(1));
    let first = cache.record(key(1), &version, head(), 0);
    assert!(first.is_some() && cache.record(key(1), &version, head(), 0).is_none());
    drop(first);
    assert!(cache.record(key(1), &version, head(), 0).is_some());
}

/// RFC 9111 §4.4; also for answers that were in flight meanwhile.
#[test]
fn a_change_ends_what_was_asked_for_before_it_whoever_asked() {
    let cache = Cache::new(64 * KIB, memory());
    let before = cache.version(Resource(1));
    assert!(record(&cache, key(1), 10) && record(&cache, key(2), 10));
    let mut late = Box::new(cache.record(key(3), &before, head(), 0).unwrap());
    cache.changed(Resource(1));
    assert!(late.piece(b"old"));
    late.complete();
    let now = cache.version(Resource(1));
    assert!((1..=3).all(|number| cache.find(key(number), &now).is_none()));
    assert_eq!(used(&cache), 0);
    // No state is kept for an unused resource.
    drop((before, now));
    assert!(cache.content.lock().watched.is_empty());
}

#[test]
fn a_freshened_answer_takes_the_place_of_the_one_before() {
    let cache = Cache::new(64 * KIB, memory());
    let version = cache.version(Resource(1));
    assert!(record(&cache, key(1), 10));
    let before = used(&cache);
    let first = cache.find(key(1), &version).unwrap();
    let renewed = |body| Arc::new(StoredAnswer { head: head(), body });
    cache.renew(key(1), &version, &first, renewed(Bytes::from_static(b"0123456789")));
    assert_eq!((used(&cache), &cache.find(key(1), &version).unwrap().body[..]), (before, &b"0123456789"[..]));
    // RFC 9111 §4: the most recent answer is used, and this one was renewed from an answer that is no longer stored.
    cache.renew(key(1), &version, &first, renewed(Bytes::from_static(b"older")));
    assert_eq!(cache.find(key(1), &version).unwrap().body[..], b"0123456789"[..]);
    // An answer that has grown beyond an eighth of the cache is not stored.
    let second = cache.find(key(1), &version).unwrap();
    cache.renew(key(1), &version, &second, renewed(vec![0; 8 * KIB].into()));
    assert!(cache.find(key(1), &version).is_none());
    drop(first);
    assert_eq!(used(&cache), 0);
}

#[test]
fn an_answer_in_the_hands_of_a_reader_counts_and_is_not_forgotten_in_vain() {
    let cache = Cache::new(64 * KIB, memory());
    let version = cache.version(Resource(1));
    let size = 8 * KIB - head().cost();
    let held: Vec<_> = (0..8)
        .map(|number| {
            assert!(record(&cache, key(number), size), "{number}");
            let body = cache.find(key(number), &version).unwrap().reader();
            cache.forget(key(number));
            body
        })
        .collect();
    assert_eq!(used(&cache), 64 * KIB);
    assert!(!record(&cache, key(100), 2 * KIB), "no memory is left");
    drop(held);
    assert_eq!(used(&cache), 0);
    assert!(record(&cache, key(100), 2 * KIB));
}

#[test]
fn a_rule_keeps_its_cache_until_its_size_changes_or_it_goes() {
    let rule = |bytes| {
        let cache = Some(CachePolicy { bytes, always_revalidates: false });
        Policy { cache, ..Policy::new("rule", Vec::new()) }
    };
    let caches = Caches::new(memory());
    let first = caches.of(&rule(1024)).unwrap();
    assert!(Arc::ptr_eq(&first, &caches.of(&rule(1024)).unwrap()));
    assert!(!Arc::ptr_eq(&first, &caches.of(&rule(2048)).unwrap()));
    let before = caches.of(&rule(1024)).unwrap();
    let mut elsewhere = rule(1024);
    elsewhere.egress.sni = Some("another.test".into());
    assert!(!Arc::ptr_eq(&before, &caches.of(&elsewhere).unwrap()));
    assert!(caches.of(&Policy::new("rule", Vec::new())).is_none());
    caches.retain(&Rules::default());
    assert!(caches.by_rule.read().is_empty());
}
