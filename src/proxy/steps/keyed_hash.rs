//! A hash of what clients say, to be kept in the place of it.

use std::{
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    sync::{LazyLock, OnceLock},
};

/// What [`lasting`] hashes are keyed with.
static SECRET: OnceLock<[u64; 2]> = OnceLock::new();

/// The hash of `value`. Its key is random in each process: a hash tells whether two values are the same, and nothing
/// else, and clients cannot make two of them collide.
pub(crate) fn of(value: impl Hash) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(value)
}

/// The same of what outlives the process: its key is the [secret](set_secret) of the state file, if there is one.
pub(crate) fn lasting(value: impl Hash) -> u64 {
    // std's hasher with a fixed key: what comes first keys it.
    let mut hasher = DefaultHasher::new();
    SECRET.get_or_init(new_secret).hash(&mut hasher);
    value.hash(&mut hasher);
    hasher.finish()
}

/// Keys lasting hashes with `secret`. Does nothing once one was made.
pub(crate) fn set_secret(secret: [u64; 2]) {
    // A second state in this process is one of a test.
    let _ = SECRET.set(secret);
}

/// A secret that nobody can foresee.
pub(crate) fn new_secret() -> [u64; 2] {
    [0, 1].map(|half| RandomState::new().hash_one(half))
}
