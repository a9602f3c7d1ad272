//! A sorted set that usually has few members, and may have many.

use std::collections::BTreeSet;

use smallvec::SmallVec;

/// Few members are stored inline in sorted order, many in a tree. Each of ten thousand classes has sets of two or
/// three: a tree for each would mean a cache miss.
#[derive(Debug)]
pub(super) enum SortedSet<T> {
    Few(SmallVec<[T; INLINE]>),
    Many(BTreeSet<T>),
}

/// Number of members that need no memory of their own.
const INLINE: usize = 2;
/// Larger sets are trees.
const FEW: usize = 8;

impl<T: Copy + Ord> SortedSet<T> {
    pub(super) fn first(&self) -> Option<&T> {
        match self {
            Self::Few(few) => few.first(),
            Self::Many(many) => many.first(),
        }
    }

    /// Inserts `item`. Returns whether it was absent.
    pub(super) fn insert(&mut self, item: T) -> bool {
        match self {
            Self::Many(many) => many.insert(item),
            Self::Few(few) => {
                // Most new items go behind all others, and the first one is removed first.
                let place = few.iter().rposition(|other| *other <= item).map_or(0, |before| before + 1);
                if place > 0 && few[place - 1] == item {
                    return false;
                }
                if few.len() < FEW {
                    few.insert(place, item);
                } else {
                    *self = Self::Many(few.drain(..).chain([item]).collect());
                }
                true
            }
        }
    }

    /// Removes `item`. Returns whether it was present.
    pub(super) fn remove(&mut self, item: &T) -> bool {
        match self {
            Self::Few(few) => few.iter().position(|other| other == item).map(|place| few.remove(place)).is_some(),
            Self::Many(many) => {
                let removed = many.remove(item);
                if many.len() <= INLINE {
                    *self = Self::Few(many.iter().copied().collect());
                }
                removed
            }
        }
    }

    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = &T> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few.iter()), None),
            Self::Many(many) => (None, Some(many.iter())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self::Few(SmallVec::new_const())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set_that_a_tree_is(steps in prop::collection::vec((any::<bool>(), 0_u8..24), 0..200)) {
            let (mut set, mut tree) = (SortedSet::default(), BTreeSet::new());
            for (inserts, item) in steps {
                match inserts {
                    true => prop_assert_eq!(set.insert(item), tree.insert(item)),
                    false => prop_assert_eq!(set.remove(&item), tree.remove(&item)),
                }
                prop_assert!(set.iter().eq(tree.iter()));
                prop_assert_eq!(set.first(), tree.first());
            }
        }
    }
}
