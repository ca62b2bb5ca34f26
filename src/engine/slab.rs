//! Where entries live: chunks of fixed size, so that growing neither copies nor doubles, and an id stays the same for
//! as long as its entry lives.

use super::entry::Entry;
use super::names::ShapeIx;

/// Entries in a chunk: 16 KiB.
const CHUNK: usize = 256;
/// The end of the list of free entries.
const NO_ENTRY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Slab {
    chunks: Vec<Box<[Entry]>>,
    free: u32,
    used: u32,
}

impl Slab {
    pub fn new() -> Self {
        Self { chunks: Vec::new(), free: NO_ENTRY, used: 0 }
    }

    /// Entries in use.
    pub fn len(&self) -> u32 {
        self.used
    }

    /// Every id in use is below this.
    pub fn end(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// None when there is no such entry, or a free one.
    pub fn find(&mut self, id: u32) -> Option<&mut Entry> {
        let entry = self.chunks.get_mut(id as usize / CHUNK)?.get_mut(id as usize % CHUNK)?;
        (entry.shape != ShapeIx::NONE).then_some(entry)
    }

    /// Returns its id.
    pub fn insert(&mut self, entry: Entry) -> u32 {
        if self.free == NO_ENTRY {
            self.grow();
        }
        let id = self.free;
        self.free = self[id].unsent;
        self[id] = entry;
        self.used += 1;
        id
    }

    /// Makes the entry free.
    pub fn remove(&mut self, id: u32) {
        self[id] = Entry::free(self.free);
        self.free = id;
        self.used -= 1;
    }

    fn grow(&mut self) {
        let start = self.end();
        let last = start + CHUNK as u32 - 1;
        let next = |id: u32| if id == last { NO_ENTRY } else { id + 1 };
        self.chunks.push((start..=last).map(|id| Entry::free(next(id))).collect());
        self.free = start;
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Entry;
    fn index(&self, id: u32) -> &Entry {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    fn index_mut(&mut self, id: u32) -> &mut Entry {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::KeyHash;

    #[test]
    fn ids_stay_and_are_used_again() {
        let mut slab = Slab::new();
        let key = |i: u32| KeyHash(u128::from(i).to_be_bytes());
        let ids: Vec<_> = (0..600).map(|i| slab.insert(Entry::new(key(i), ShapeIx(1)))).collect();
        assert_eq!((slab.len(), slab.end()), (600, 768));
        for id in &ids[100..200] {
            slab.remove(*id);
            assert!(slab.find(*id).is_none());
        }
        assert_eq!(slab[ids[300]].key, key(300));
        for i in 0..100 {
            let id = slab.insert(Entry::new(key(1000 + i), ShapeIx(1)));
            assert!(ids[100..200].contains(&id));
        }
        assert_eq!((slab.len(), slab.end()), (600, 768));
        assert!(slab.find(9_999).is_none());
    }
}
