//! Containers keyed by numbers: slabs that reuse the places of removed items, and maps with fast lookups.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    ops::{Index, IndexMut},
};

/// Items by small numbers. The number of a removed item is given to another one.
#[derive(Debug)]
pub struct Slab<T> {
    items: Vec<Place<T>>,
    /// The place that was emptied last; the number after all of them if none is empty.
    free: u32,
    len: u32,
}

#[derive(Debug)]
enum Place<T> {
    Taken(T),
    /// The number of the place that was emptied before this one.
    Empty(u32),
}

/// A map with a fast hash that does not resist collisions: for keys that are hashes or numbers from andante.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// The hash function of [`Map`]: multiplies and rotates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix(u64);

// === impl Slab ===

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { items: Vec::new(), free: 0, len: 0 }
    }

    /// Stores `item`. Returns its number.
    pub fn insert(&mut self, item: T) -> u32 {
        let id = self.free;
        match self.items.get_mut(id as usize) {
            Some(place) => {
                let Place::Empty(before) = *place else { unreachable!("an empty place is empty") };
                (self.free, *place) = (before, Place::Taken(item));
            }
            None => {
                self.items.push(Place::Taken(item));
                self.free = u32::try_from(self.items.len()).expect("more would not fit into memory");
            }
        }
        self.len += 1;
        id
    }

    /// Removes the item with the number `id`. Panics if there is none.
    pub fn remove(&mut self, id: u32) -> T {
        match std::mem::replace(&mut self.items[id as usize], Place::Empty(self.free)) {
            Place::Taken(item) => {
                (self.free, self.len) = (id, self.len - 1);
                item
            }
            Place::Empty(_) => unreachable!("an item is taken out once"),
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.items.get(id as usize)?.item()
    }

    /// The item with the number `id`.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.items.get_mut(id as usize)?.item_mut()
    }

    /// Upper bound of the numbers.
    pub fn end(&self) -> u32 {
        self.items.len() as u32
    }

    /// All items with their numbers.
    pub fn iter_mut_numbered(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.items).filter_map(|(id, item)| Some((id, item.item_mut()?)))
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.items).filter_map(|(id, item)| Some((id, item.item()?)))
    }

    /// All items.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut().filter_map(Place::item_mut)
    }

    /// Number of items.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Number of items that fit into the allocated memory.
    pub(crate) fn room(&self) -> usize {
        self.items.capacity()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, id: u32) -> &T {
        self.get(id).expect("the item is still there")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.get_mut(id).expect("the item is still there")
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Place ===

impl<T> Place<T> {
    fn item(&self) -> Option<&T> {
        match self {
            Self::Taken(item) => Some(item),
            Self::Empty(_) => None,
        }
    }

    fn item_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Taken(item) => Some(item),
            Self::Empty(_) => None,
        }
    }
}

// === impl Mix ===

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        // The map uses the upper bits and the lower ones.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(26) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}
