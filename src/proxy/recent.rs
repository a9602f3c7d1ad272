//! The most recently used values, to be found again.

use smallvec::SmallVec;

/// A few values, the most recently used last.
#[derive(Debug)]
pub(crate) struct Recent<T>(SmallVec<[T; 1]>);

/// Maximum number of remembered values: few workers call more hosts by turns on one connection.
const MOST: usize = 8;

// === impl Recent ===

impl<T: Clone> Recent<T> {
    /// Returns a value that `is_wanted`, which becomes the most recently used.
    pub(crate) fn find(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let found = self.0.iter().rposition(is_wanted)?;
        if found + 1 < self.0.len() {
            let one = self.0.remove(found);
            self.0.push(one);
        }
        self.0.last().cloned()
    }

    /// Returns whether there is no value yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `one`, and drops the least recently used value if there are too many.
    pub(crate) fn add(&mut self, one: T) {
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(one);
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_by_turns_is_found_and_what_is_not_used_is_forgotten() {
        let mut recent = Recent::default();
        recent.add("a");
        recent.add("b");
        for _ in 0..10 {
            assert_eq!(recent.find(|one| *one == "a"), Some("a"));
            assert_eq!(recent.find(|one| *one == "b"), Some("b"));
        }
        assert_eq!(recent.find(|one| *one == "c"), None);
        for one in ["c", "d", "e", "f", "g", "h"] {
            assert_eq!(recent.find(|one| *one == "a"), Some("a"));
            recent.add(one);
        }
        recent.add("i");
        assert_eq!((recent.find(|one| *one == "b"), recent.find(|one| *one == "a")), (None, Some("a")));
    }
}
