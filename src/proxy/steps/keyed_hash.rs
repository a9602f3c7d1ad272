//! A hash of what clients say, to be kept in the place of it.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

/// The hash of `value`. Its key is random in each process: a hash tells whether two values are the same, and nothing
/// else, and clients cannot make two of them collide.
pub(crate) fn of(value: impl Hash) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(value)
}
