//! Quotas of an API that each kind of request draws on.
//!
//! A quota holds for exactly the kinds of requests whose answers report it. GitHub's search has 30 a minute of its own,
//! which its repositories do not share. A kind without an answer yet is treated like most of its neighbours: the kinds
//! that share the longest prefix of method and path.

use std::collections::HashMap;

use andante_limit::Scope;

use super::RouteKey;

/// Known scopes of the kinds of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Scopes {
    nodes: HashMap<u32, ScopeNode>,
    /// Majority over all kinds.
    root: Majority,
    /// Number of differences between expected and reported scopes.
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct ScopeNode {
    /// Scope that answers to exactly this kind reported.
    reported: Option<Scope>,
    /// Majority over the kinds with this prefix.
    below: Majority,
    /// A kind with this prefix.
    kind: RouteKey,
}

/// The most frequent value, or one of the more frequent ones (Boyer and Moore, 1981).
#[derive(Clone, Copy, Debug, Default)]
struct Majority {
    scope: Scope,
    lead: u32,
}

/// Number of prefixes that are stored. Beyond it, only prefixes that differ from the prefix before them stay.
const MOST: usize = 1024;

// === impl Scopes ===

impl Scopes {
    /// Quotas that a request of `kind` draws on, as far as is known.
    #[inline]
    pub(super) fn of(&self, kind: &RouteKey) -> Scope {
        if self.nodes.is_empty() { self.root.scope } else { self.known(kind) }
    }

    fn known(&self, kind: &RouteKey) -> Scope {
        self.reported(kind).unwrap_or_else(|| {
            let nearest = kind.prefixes().find_map(|prefix| self.nodes.get(&prefix));
            nearest.map_or(self.root.scope, |node| node.below.scope)
        })
    }

    /// Quotas that answers to exactly this kind reported.
    pub(super) fn reported(&self, kind: &RouteKey) -> Option<Scope> {
        self.nodes.get(&kind.exact())?.reported
    }

    /// Records that an answer to a request of `kind` reports `told`, which replaces `instead`.
    pub(super) fn hear(&mut self, kind: &RouteKey, told: Scope, instead: Scope) {
        if kind.is_none() {
            return;
        }
        let before = self.reported(kind);
        let now = before.unwrap_or_default().without(instead).and(told);
        if before == Some(now) {
            return;
        }
        if self.nodes.len() >= MOST && !self.make_room() {
            return;
        }
        if self.of(kind) != now {
            self.version += 1;
        }
        let mut turned = self.root.vote(now);
        let new = ScopeNode { reported: None, below: Majority::default(), kind: *kind };
        for prefix in kind.prefixes() {
            turned |= self.nodes.entry(prefix).or_insert(new).below.vote(now);
        }
        self.nodes.entry(kind.exact()).or_insert(new).reported = Some(now);
        // The expectation of unknown kinds has changed.
        self.version += u64::from(turned);
    }

    /// Removes prefixes with the same scope as the prefix before them. Returns true if there is room then.
    fn make_room(&mut self) -> bool {
        let says_no_more = |(id, node): &(&u32, &ScopeNode)| {
            // The node of a kind with a credential is below all of its prefixes.
            let below = node.kind.prefixes().take_while(|prefix| prefix != *id).count() + 1;
            let below = if **id == node.kind.exact() { usize::from(node.kind.id() == **id) } else { below };
            let mut shorter = node.kind.prefixes().skip(below);
            let above = shorter.find_map(|prefix| self.nodes.get(&prefix)).map_or(&self.root, |node| &node.below);
            node.below.scope == above.scope && node.reported.is_none_or(|reported| reported == above.scope)
        };
        let dispensable: Vec<u32> = self.nodes.iter().filter(says_no_more).map(|(id, _)| *id).collect();
        for id in dispensable {
            self.nodes.remove(&id);
        }
        self.nodes.len() < MOST
    }

    /// Removes quotas that no longer exist.
    pub(super) fn forget(&mut self, gone: Scope) {
        self.version += 1;
        let forget = |majority: &mut Majority| majority.scope = majority.scope.without(gone);
        forget(&mut self.root);
        for node in self.nodes.values_mut() {
            node.reported = node.reported.map(|scope| scope.without(gone));
            forget(&mut node.below);
        }
    }

    /// Number of kinds that report all of `scope`, and number of kinds that do not.
    pub(super) fn count(&self, scope: Scope) -> KindCounts {
        let mut kinds = KindCounts::default();
        for reported in self.nodes.values().filter_map(|node| node.reported) {
            if scope.without(reported).is_empty() {
                kinds.with += 1;
            } else {
                kinds.without += 1;
            }
        }
        kinds
    }

    /// Version that changes when a kind turns out to draw on other quotas than expected.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Scope of most kinds.
    pub(super) fn usual(&self) -> Scope {
        self.root.scope
    }
}

/// Numbers of kinds, by whether they draw on a scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KindCounts {
    pub(super) with: usize,
    pub(super) without: usize,
}

// === impl Majority ===

impl Majority {
    /// Counts one value. Returns true if that changes the majority.
    fn vote(&mut self, scope: Scope) -> bool {
        if scope == self.scope {
            self.lead = self.lead.saturating_add(1);
        } else if self.lead == 0 {
            (self.scope, self.lead) = (scope, 1);
            return true;
        } else {
            self.lead -= 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: u8 = 0;
    const SEARCH: u8 = 1;

    fn get(path: &str) -> RouteKey {
        RouteKey::new("GET", path)
    }

    #[test]
    fn a_kind_draws_on_what_its_answers_report() {
        let (mut scopes, core) = (Scopes::default(), Scope::only(CORE));
        assert_eq!(scopes.of(&get("/a")), Scope::NONE);
        scopes.hear(&get("/a"), core, Scope::NONE);
        assert_eq!(scopes.of(&get("/a")), core);
        assert_eq!(scopes.of(&get("/b")), core, "nothing else is known");
        scopes.hear(&get("/b"), Scope::NONE, Scope::NONE);
        assert_eq!(scopes.of(&get("/b")), Scope::NONE);
        scopes.hear(&get("/a"), Scope::NONE, Scope::NONE);
        assert_eq!(scopes.of(&get("/a")), core, "an answer without a word takes nothing back");
    }

    #[test]
    fn what_is_not_known_is_like_its_neighbours() {
        let (mut scopes, core, search) = (Scopes::default(), Scope::only(CORE), Scope::only(SEARCH));
        for path in ["/users/a", "/repos/a/b", "/orgs/c"] {
            scopes.hear(&get(path), core, Scope::NONE);
        }
        for path in ["/search/code", "/search/issues", "/search/users"] {
            scopes.hear(&get(path), search, Scope::NONE);
        }
        assert_eq!(scopes.of(&get("/search/topics")), search);
        assert_eq!(scopes.of(&get("/users/x")), core);
        assert_eq!(scopes.count(search), KindCounts { with: 3, without: 3 });
    }

    #[test]
    fn another_budget_may_take_the_place_of_one() {
        let (mut scopes, kind) = (Scopes::default(), get("/a"));
        scopes.hear(&kind, Scope::only(3), Scope::NONE);
        scopes.hear(&kind, Scope::only(4), Scope::only(3));
        assert_eq!(scopes.of(&kind), Scope::only(4));
        scopes.forget(Scope::only(4));
        assert_eq!(scopes.of(&kind), Scope::NONE);
    }

    #[test]
    fn the_number_of_kinds_is_bounded() {
        let mut scopes = Scopes::default();
        for at in 0..10_000 {
            scopes.hear(&get(&format!("/a{at:x}b")), Scope::only(0), Scope::NONE);
        }
        assert!(scopes.nodes.len() <= MOST + 5);
        assert_eq!(scopes.of(&get("/new")), Scope::only(0));
    }

    #[test]
    fn what_differs_from_its_neighbours_is_not_forgotten() {
        let (mut scopes, core, search) = (Scopes::default(), Scope::only(CORE), Scope::only(SEARCH));
        scopes.hear(&get("/users/a"), core, Scope::NONE);
        scopes.hear(&get("/search/code"), search, Scope::NONE);
        for at in 0..10_000 {
            scopes.hear(&get(&format!("/repos/owner{at:x}x/repo/issues")), core, Scope::NONE);
        }
        assert!(scopes.nodes.len() <= MOST + 5);
        assert_eq!((scopes.of(&get("/search/code")), scopes.of(&get("/search/issues"))), (search, search));
        assert_eq!(scopes.of(&get("/repos/new/repo/issues")), core);
    }

    #[test]
    fn where_everything_differs_memory_is_bounded_all_the_same() {
        let mut scopes = Scopes::default();
        for at in 0..10_000u32 {
            scopes.hear(&get(&format!("/a{at:x}b")), Scope::only((at % 7) as u8), Scope::NONE);
        }
        assert!(scopes.nodes.len() <= MOST + 5);
    }
}
