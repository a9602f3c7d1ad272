//! Settings of the process in the system, and an id that distinguishes it from others.

use tracing::warn;

/// Raises the limit of file descriptors to the hard limit: each request in flight may need two.
pub(super) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "could not raise the limit of open files");
    }
}

/// An id that distinguishes this process from others; need not be secret.
pub(super) fn instance() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() as u32
}
