//! A shard: the keys whose hash falls to it, under one lock. An index of entry numbers over the slab of entries.

use hashbrown::HashTable;

use super::entry::{Entry, Held};
use super::names::{LimitIx, ShapeInfo, ShapeIx, Standing};
use super::slab::Slab;
use crate::crdt::{ReplicaIx, SlotCell};
use crate::id::KeyHash;
use crate::planted::{self, PlantedBug};

/// How many shards: a power of two. Enough that two threads seldom meet.
pub(super) const SHARDS: usize = 64;

/// The shard of a key. The table inside takes its bits from both ends of the hash, so these are from the middle.
pub(super) fn shard_of(key: KeyHash) -> usize {
    (key.table_hash() >> 32) as usize % SHARDS
}

#[derive(Debug)]
pub(super) struct Shard {
    index: HashTable<u32>,
    pub slab: Slab,
    /// Entries with own changes since the last drain; a number may be stale.
    changed: Vec<u32>,
    /// No spend is before this: it is complete up to here, or was decided at.
    pub last_ns: u64,
    /// Of the newest limits that anything here was decided by.
    pub generation: u64,
    pub own: ReplicaIx,
    /// Cells, bases and marks held.
    pub cells: u64,
    /// By how much `cells` changed since the engine's total was told.
    untold: i64,
    /// For reading a single cell, so that it need not be allocated.
    pub scratch: Vec<SlotCell>,
}

impl Shard {
    pub fn new(own: ReplicaIx) -> Self {
        Self {
            index: HashTable::new(),
            slab: Slab::new(),
            changed: Vec::new(),
            last_ns: 0,
            generation: 0,
            own,
            cells: 0,
            untold: 0,
            scratch: Vec::new(),
        }
    }

    /// Whether limits of `generation` may decide here: none newer did.
    pub fn accepts(&mut self, generation: u64) -> bool {
        let newest = generation >= self.generation;
        if newest {
            self.generation = generation;
        }
        newest
    }

    pub fn find(&self, shape: ShapeIx, key: KeyHash) -> Option<u32> {
        let same = |id: &u32| {
            let entry = &self.slab[*id];
            entry.key == key && entry.shape == shape
        };
        self.index.find(key.table_hash(), same).copied()
    }

    /// The entry of a key, made when there is none.
    pub fn entry(&mut self, shape: ShapeIx, key: KeyHash) -> u32 {
        self.find(shape, key).unwrap_or_else(|| {
            let id = self.slab.insert(Entry::new(key, shape));
            self.index.insert_unique(key.table_hash(), id, |id| self.slab[*id].key.table_hash());
            id
        })
    }

    /// Changes what an entry holds, keeping count.
    pub fn change<R>(&mut self, id: u32, f: impl FnOnce(&mut Entry) -> R) -> R {
        let entry = &mut self.slab[id];
        let before = entry.len();
        let out = f(entry);
        let by = entry.len() as i64 - before as i64;
        self.cells = self.cells.saturating_add_signed(by);
        self.untold += by;
        out
    }

    /// Changes what this node itself says in an entry: it is to be drained if `f` says so.
    pub fn change_own(&mut self, id: u32, f: impl FnOnce(&mut Entry) -> bool) {
        let listed = self.slab[id].is_listed();
        if self.change(id, f) {
            if let Held::Many(many) = &mut self.slab[id].held {
                many.listed = true;
            }
            if !listed {
                self.list(id);
            }
        }
    }

    fn list(&mut self, id: u32) {
        if self.changed.len() >= self.slab.end() as usize * 2 {
            // Numbers of entries that were dropped and used again: they stand here twice.
            self.changed.sort_unstable();
            self.changed.dedup();
        }
        self.changed.push(id);
    }

    /// The entries with changes to be drained; some may be gone, some may stand there twice.
    pub fn take_changed(&mut self) -> Vec<u32> {
        if planted::has(PlantedBug::EarlyComplete) {
            // Which keys wait is as good as random, so that each goes with one of the next drains.
            let (slab, now_ns) = (&self.slab, self.last_ns);
            let goes =
                |id: &mut u32| (slab[*id].key.table_hash() ^ now_ns).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0;
            return self.changed.extract_if(.., goes).collect();
        }
        std::mem::take(&mut self.changed)
    }

    /// By how much `cells` changed since this was last asked.
    pub fn tell_cells(&mut self) -> i64 {
        std::mem::take(&mut self.untold)
    }

    /// Drops what has expired from an entry, and the entry itself when nothing is left. Returns the limit under which
    /// it no longer counts as an own key.
    pub fn expire(&mut self, id: u32, info: &ShapeInfo, now_ns: u64) -> Option<LimitIx> {
        let own = self.own;
        let free = self.change(id, |entry| {
            entry.expire(own, info, now_ns);
            entry.shrink(info);
            matches!(entry.held, Held::Nothing)
        });
        let entry = &mut self.slab[id];
        let released = entry.standing.counted().filter(|_| !entry.holds_own(own));
        if released.is_some() {
            entry.standing = Standing::FOREIGN;
        }
        if free {
            let hash = entry.key.table_hash();
            if let Ok(found) = self.index.find_entry(hash, |other| *other == id) {
                found.remove();
            }
            self.slab.remove(id);
        }
        released
    }
}
