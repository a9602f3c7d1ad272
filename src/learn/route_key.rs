//! Kinds of requests: a method, and a path without the segments that identify objects.

use std::fmt;

/// A kind of request, by hashes of its method and of the first segments of its path.
///
/// Shorter prefixes are stored too: an API is likely to treat an unknown kind like its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteKey {
    /// The method alone, and the method with one, two, … segments of the path.
    prefixes: [u32; SEGMENTS + 1],
    /// Number of segments in the path; further entries repeat the last prefix.
    depth: u8,
    /// Credential, such as an API key, that the request is sent with.
    credential: Hidden,
    /// Sub-limit whose budget the request draws on.
    budget: Hidden,
}

/// Hash with an unknown key, or nothing. Never shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Hidden(u32);

/// Name of a kind of request, as far as it may be shown.
#[derive(Clone, Copy, Debug)]
pub struct RouteName<'a> {
    /// Method of the kind.
    pub method: &'a str,
    /// Path of one request of the kind.
    pub path: &'a str,
}

/// Number of path segments that count.
const SEGMENTS: usize = 4;
/// A segment of at least this length with digits in it is an identifier.
const LONG: usize = 16;
/// A longer segment, or one with more digits, may be a secret.
const PLAIN: usize = 24;
/// Longest word that is expected in an API: `recommendations`.
const WORD: usize = 15;
const PLAIN_DIGITS: usize = 2;

// === impl RouteKey ===

impl RouteKey {
    /// Kind of a tunnel, or of a request that nothing is learned from.
    pub const NONE: Self = Self { prefixes: [0; SEGMENTS + 1], depth: 0, credential: Hidden(0), budget: Hidden(0) };

    /// The kind of a request.
    pub fn new(method: &str, path: &str) -> Self {
        let mut prefixes = [0; SEGMENTS + 1];
        let mut depth = 0;
        let mut state = hash(SEED, method.as_bytes());
        prefixes[0] = fold(state);
        let segments = path.as_bytes().split(|byte| *byte == b'/');
        for segment in segments.filter(|segment| !segment.is_empty()).take(SEGMENTS) {
            state = hash(state, if is_id(segment) { b"*" } else { segment });
            depth += 1;
            prefixes[depth] = fold(state);
        }
        let last = prefixes[depth];
        prefixes[depth + 1..].fill(last);
        Self { prefixes, depth: depth as u8, ..Self::NONE }
    }

    /// Returns the kind sent with the credential that has this keyed hash.
    pub fn with_credential(self, credential: u32) -> Self {
        Self { credential: Hidden(credential), ..self }
    }

    /// Returns the kind drawing on the sub-limit budget that has this keyed hash.
    pub fn with_budget(self, budget: u64) -> Self {
        Self { budget: Hidden((budget as u32).max(1)), ..self }
    }

    /// Reduces the key to its route, its credential, or its budget, as the flags say.
    pub(super) fn only(self, route: bool, credential: bool, budget: bool) -> Self {
        let kept = |hidden: Hidden, keep| if keep { hidden } else { Hidden(0) };
        let (credential, budget) = (kept(self.credential, credential), kept(self.budget, budget));
        Self { credential, budget, ..if route { self } else { Self::NONE } }
    }

    /// Hash of the sub-limit's budget; 0 without one.
    pub fn budget(&self) -> u32 {
        self.budget.0
    }

    /// Hash of the credential; 0 without one.
    pub(super) fn credential(&self) -> u32 {
        self.credential.0
    }

    /// Hash of the method and path.
    pub(super) fn id(&self) -> u32 {
        self.prefixes[SEGMENTS]
    }

    /// Hash of the method, the path and the credential.
    pub(super) fn exact(&self) -> u32 {
        self.id() ^ self.credential().rotate_left(7)
    }

    /// Prefixes that the kind shares with other kinds, from the longest, its own, to the shortest.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = u32> {
        self.prefixes[..=usize::from(self.depth)].iter().rev().copied()
    }

    /// Returns true for [`NONE`](Self::NONE).
    pub(super) fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

// === impl RouteName ===

impl fmt::Display for RouteName<'_> {
    /// `GET /users/*/posts`: objects are `*`, and a segment that is no plain word is `…`, since it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.method)?;
        let mut segments = self.path.split('/').filter(|segment| !segment.is_empty());
        if self.path.split('/').all(str::is_empty) {
            return f.write_str("/");
        }
        for segment in segments.by_ref().take(SEGMENTS) {
            let shown = if is_id(segment.as_bytes()) {
                "*"
            } else if is_plain(segment) {
                segment
            } else {
                "…"
            };
            write!(f, "/{shown}")?;
        }
        // Further segments do not distinguish kinds.
        if segments.next().is_some() { f.write_str("/**") } else { Ok(()) }
    }
}

// === impl Hidden ===

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == 0 { "none" } else { "some" })
    }
}

/// Start value and prime of FNV-1a. Colliding kinds are treated as one kind; nothing worse happens.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns true if the segment names an object: a number, or a long name with digits in it.
fn is_id(segment: &[u8]) -> bool {
    segment.iter().all(u8::is_ascii_digit) || segment.len() >= LONG && segment.iter().any(u8::is_ascii_digit)
}

/// Returns true if the segment may be a word of an API: lowercase letters and few digits (`v1`, `1.1`,
/// `chat-completions`). A chosen name (`alice`) passes as well.
fn is_plain(segment: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    segment.split(['-', '_', '.']).all(|word| word.len() <= WORD)
        && segment.len() <= PLAIN
        && segment.bytes().all(plain)
        && segment.bytes().filter(u8::is_ascii_digit).count() <= PLAIN_DIGITS
}

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
        assert_eq!(key.only(true, false, false), RouteKey::new("GET", "/a"));
        let shown = format!("{key:?} {key:#x?}");
        assert!(!shown.contains("305419896") && !shown.contains("12345678"), "{shown}");
    }

    #[test]
    fn a_kind_is_called_by_its_words_and_nothing_that_may_be_a_secret() {
        for (path, name) in [
            ("/users/17/posts", "GET /users/*/posts"),
            ("/v1/chat/completions", "GET /v1/chat/completions"),
            ("/1.1/statuses/home_timeline.json", "GET /1.1/statuses/home_timeline.json"),
            ("/", "GET /"),
            ("/a/b/c/d/e", "GET /a/b/c/d/**"),
            ("/objects/9f86d081884c7d659a2feaa0c55ad015", "GET /objects/*"),
            ("/bot123456:ABC-DEF/getMe", "GET /*/…"),
            ("/hooks/xK3vQ9", "GET /hooks/…"),
            ("/hooks/hunter2468", "GET /hooks/…"),
            ("/hooks/qwertyuiopasdfgh", "GET /hooks/…"),
            ("/me:secret@host/a", "GET /…/a"),
        ] {
            assert_eq!(RouteName { method: "GET", path }.to_string(), name);
        }
    }

    #[test]
    fn neighbours_share_prefixes() {
        let (one, two) = (RouteKey::new("GET", "/search/code"), RouteKey::new("GET", "/search/users"));
        let shared: Vec<_> = one.prefixes().filter(|prefix| two.prefixes().any(|other| other == *prefix)).collect();
        assert_eq!(shared.len(), 2, "the method, and the first segment");
        assert_eq!(one.prefixes().next(), Some(one.id()));
    }
}
