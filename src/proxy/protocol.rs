//! What the proxy reads of HTTP towards workers: how much, and how the two versions are told apart.

/// The head of a request, and each piece of a body that is buffered: a worker's longest URL with its fields.
pub(crate) const MAX_HEAD: usize = 64 * 1024;
/// Fields of a head, of a request or an answer, by either protocol. The size of heads is what bounds them in practice. hyper
/// allocates 32 bytes for each of so many fields twice per head: with 1,024 that is what the allocator caches per thread.
pub(crate) const MAX_FIELDS: usize = 1024;
/// What an HTTP/2 client says first, and no method begins with (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI ";
