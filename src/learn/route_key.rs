//! Kinds of requests: a method, and a path without what tells one object from another.

/// A kind of request, by hashes of its method and of the first segments of its path.
///
/// The shorter prefixes are kept too: a kind of which nothing is known is likely to be treated like those next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteKey {
    /// The method alone, and the method with one, two, … segments of the path.
    prefixes: [u32; SEGMENTS + 1],
    /// How many of the segments there are; those behind repeat the last prefix.
    depth: u8,
    /// What it is sent with, if it is sent with a key or the like.
    credential: Credential,
}

/// A hash of a credential with a key that is never known, or nothing. It is shown nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Credential(u32);

/// So many segments of a path count.
const SEGMENTS: usize = 4;
/// A segment of this length with digits in it is an identifier.
const LONG: usize = 16;

// === impl RouteKey ===

impl RouteKey {
    /// Not a request to an API, or one that nothing is learned from: a tunnel.
    pub const NONE: Self = Self { prefixes: [0; SEGMENTS + 1], depth: 0, credential: Credential(0) };

    /// The kind of a request.
    pub fn new(method: &str, path: &str) -> Self {
        let mut prefixes = [0; SEGMENTS + 1];
        let mut depth = 0;
        let mut state = hash(SEED, method.as_bytes());
        prefixes[0] = fold(state);
        for segment in path.split('/').filter(|segment| !segment.is_empty()).take(SEGMENTS) {
            // Numbers and long names with digits in them name an object, and not a kind.
            let id = segment.bytes().all(|b| b.is_ascii_digit())
                || segment.len() >= LONG && segment.bytes().any(|b| b.is_ascii_digit());
            state = hash(state, if id { b"*" } else { segment.as_bytes() });
            depth += 1;
            prefixes[depth] = fold(state);
        }
        let last = prefixes[depth];
        prefixes[depth + 1..].fill(last);
        Self { prefixes, depth: depth as u8, credential: Credential(0) }
    }

    /// The same, sent with the credential that has this keyed hash.
    pub fn with_credential(self, credential: u32) -> Self {
        Self { credential: Credential(credential), ..self }
    }

    /// The same, whoever sends it.
    pub(super) fn without_credential(self) -> Self {
        self.with_credential(0)
    }

    /// All that is sent with its credential.
    pub(super) fn without_route(self) -> Self {
        Self::NONE.with_credential(self.credential.0)
    }

    /// The hash of its credential; 0 if it has none.
    pub(super) fn credential(&self) -> u32 {
        self.credential.0
    }

    /// What tells it from other kinds.
    pub(super) fn id(&self) -> u32 {
        self.prefixes[SEGMENTS]
    }

    /// What tells it, sent with its credential, from everything else.
    pub(super) fn exact(&self) -> u32 {
        self.id() ^ self.credential().rotate_left(7)
    }

    /// The prefixes that it shares with other kinds, the longest first, itself included.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = u32> {
        self.prefixes[..=usize::from(self.depth)].iter().rev().copied()
    }

    /// Whether it is no kind at all.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

// === impl Credential ===

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0 == 0 { "none" } else { "some" })
    }
}

/// FNV-1a's constants, and a prime for the end of a segment. Kinds that collide are taken for one; nothing worse happens.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

fn hash(before: u64, bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(before, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    // A segment's end counts: "/ab/c" is not "/a/bc".
    (hash ^ 0x2f).wrapping_mul(PRIME)
}

fn fold(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_a_method_and_a_path_without_its_objects() {
        let key = |path| RouteKey::new("GET", path);
        assert_eq!(key("/users/17/posts"), key("/users/42/posts"));
        assert_eq!(key("/users/0c6a9e1e-5b52-4b1c/posts"), key("/users/9f86d081884c7d65/posts"));
        assert_ne!(key("/users/17/posts"), key("/users/17/likes"));
        assert_ne!(key("/users"), RouteKey::new("POST", "/users"));
        assert_ne!(key("/ab/c").id(), key("/a/bc").id());
    }

    #[test]
    fn a_credential_makes_another_kind_and_is_not_shown() {
        let key = RouteKey::new("GET", "/a").with_credential(305_419_896);
        assert_ne!(key, RouteKey::new("GET", "/a").with_credential(1));
        assert_eq!(key.id(), RouteKey::new("GET", "/a").id());
        assert_eq!(key.without_credential(), RouteKey::new("GET", "/a"));
        let shown = format!("{key:?} {key:#x?}");
        assert!(!shown.contains("305419896") && !shown.contains("12345678"), "{shown}");
    }

    #[test]
    fn neighbours_share_prefixes() {
        let (one, two) = (RouteKey::new("GET", "/search/code"), RouteKey::new("GET", "/search/users"));
        let shared: Vec<_> = one.prefixes().filter(|prefix| two.prefixes().any(|other| other == *prefix)).collect();
        assert_eq!(shared.len(), 2, "the method, and the first segment");
        assert_eq!(one.prefixes().next(), Some(one.id()));
    }
}
