//! Hashes of clients' values, to be kept instead of the values.

use std::{
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    sync::{LazyLock, OnceLock},
};

/// Key of [`lasting`] hashes.
static SECRET: OnceLock<[u64; 2]> = OnceLock::new();

/// Hash of `value`, with a key that is random in each process. Hashes show only whether two values are the same, and
/// clients cannot make two of them collide.
pub(crate) fn of(value: impl Hash) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(value)
}

/// Hash of a `value` that outlives the process: its key is the [secret](set_secret) of the state file, if there is one.
pub(crate) fn lasting(value: impl Hash) -> u64 {
    // std's hasher with a fixed key: the secret, which is hashed first, keys it.
    let mut hasher = DefaultHasher::new();
    SECRET.get_or_init(new_secret).hash(&mut hasher);
    value.hash(&mut hasher);
    hasher.finish()
}

/// Keys lasting hashes with `secret`. Does nothing once a lasting hash was made.
pub(crate) fn set_secret(secret: [u64; 2]) {
    // Only tests have a second state in one process.
    let _ = SECRET.set(secret);
}

/// Creates an unpredictable secret.
pub(crate) fn new_secret() -> [u64; 2] {
    [0, 1].map(|half| RandomState::new().hash_one(half))
}
