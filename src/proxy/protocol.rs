//! Bounds on HTTP towards workers, and the mark that distinguishes its two versions.

/// Maximum bytes of a request's head, and of each buffered piece of a body: a worker's longest URL with its fields.
pub(crate) const MAX_HEAD: usize = 64 * 1024;
/// Maximum number of fields of a head, of a request or an answer, by either protocol. In practice the size of heads is
/// the tighter bound. For each possible field, hyper allocates 32 bytes twice per head. Blocks for 1,024 fields are
/// still small enough for the allocator's cache per thread.
pub(crate) const MAX_FIELDS: usize = 1024;
/// First bytes of an HTTP/2 client, with which no method begins (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI ";
