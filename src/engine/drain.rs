//! Handing out state: what changed since the last time, and, piece by piece, everything.

use super::entry::{Entry, Held, Many};
use super::names::{Names, ShapeInfo};
use super::pack::Packer;
use super::shard::Shard;
use super::{Drained, Engine, Export, ExportCursor, KeyBase, KeyCell, KeyMark};
use crate::crdt::{Mark, ReplicaIx};
use crate::id::{KeyHash, ReplicaId};

/// Entries that one call of [`Engine::export`] looks at.
const EXPORT_ENTRIES: u32 = 4096;
/// Entries looked at under one lock.
const EXPORT_ENTRIES_A_LOCK: u32 = 256;
/// An export goes no further once it has this many items.
const EXPORT_ITEMS: usize = 4096;

impl Engine {
    /// Everything this node itself changed since the last call.
    pub fn drain(&self, now_ns: u64) -> Drained {
        let mut packer = Packer::default();
        for shard in &self.shards {
            let names = self.names.read();
            let mut shard = shard.lock();
            shard.last_ns = shard.last_ns.max(now_ns);
            shard.drain(&names, &mut packer);
            self.tell_cells(&mut shard);
        }
        packer.drained(now_ns)
    }

    /// The next piece of the live state: cells of the replicas `of` (None: all), all marks and bases. Looks at no more
    /// than a bounded number of entries a call (the piece may be empty with `next` set).
    pub fn export(&self, now_ns: u64, from: ExportCursor, of: Option<&[ReplicaId]>) -> Export {
        self.carry_rest(now_ns);
        let names = self.names.read();
        let of: Option<Vec<_>> = of.map(|of| of.iter().filter_map(|id| names.find_replica(id)).collect());
        let wanted = |replica: ReplicaIx| of.as_ref().is_none_or(|of| of.contains(&replica));
        let mut packer = Packer::default();
        let (mut at, mut looked) = (from, 0);
        while looked < EXPORT_ENTRIES && packer.items < EXPORT_ITEMS {
            let Some(shard) = self.shards.get(at.shard as usize) else { break };
            let mut shard = shard.lock();
            let end = shard.slab.end().min(at.entry.saturating_add(EXPORT_ENTRIES_A_LOCK));
            for id in at.entry..end {
                shard.export(id, now_ns, &names, &wanted, &mut packer);
            }
            looked += end.saturating_sub(at.entry).max(1);
            at = match end < shard.slab.end() {
                true => ExportCursor { entry: end, ..at },
                false => ExportCursor { shard: at.shard + 1, entry: 0 },
            };
        }
        let known = |(replica, part)| names.replica(replica).map(|id| (id.clone(), part));
        let parts = packer.finish().into_iter().filter_map(known).collect();
        Export { parts, next: ((at.shard as usize) < self.shards.len()).then_some(at) }
    }
}

impl Shard {
    /// Takes out everything that was changed under the own id since the last time.
    pub fn drain(&mut self, names: &Names, packer: &mut Packer) {
        for id in self.take_changed() {
            self.drain_entry(id, names, packer);
        }
    }

    fn drain_entry(&mut self, id: u32, names: &Names, packer: &mut Packer) {
        let own = self.own;
        let Some(entry) = self.slab.find(id) else { return };
        let Some(info) = names.info(entry.shape) else { return };
        let unsent = std::mem::take(&mut entry.unsent) > 0;
        let key = entry.key;
        match &mut entry.held {
            Held::Many(many) => many.drain(own, key, info, packer),
            _ if unsent => pack_cells(entry, info, |replica, _| replica == own, packer),
            _ => {}
        }
    }

    fn export(
        &mut self,
        id: u32,
        now_ns: u64,
        names: &Names,
        wanted: &impl Fn(ReplicaIx) -> bool,
        packer: &mut Packer,
    ) {
        let own = self.own;
        let Some(entry) = self.slab.find(id) else { return };
        let Some(info) = names.info(entry.shape) else { return };
        let oldest = info.oldest_live_slot(now_ns);
        let (key, bucket) = (entry.key, info.bucket());
        let overdue = entry.read(info, |cells, _| cells.first().is_some_and(|cell| cell.slot < oldest));
        if overdue && bucket.is_some() {
            self.change(id, |entry| entry.expire(own, info, now_ns));
        }
        let entry = &self.slab[id];
        pack_cells(entry, info, |replica, slot| slot >= oldest && wanted(replica), packer);
        if let Held::Many(many) = &entry.held {
            many.pack_mark(own, key, info, packer);
            many.pack_bases(own, key, info, packer);
        }
    }
}

impl Many {
    fn drain(&mut self, own: ReplicaIx, key: KeyHash, info: &ShapeInfo, packer: &mut Packer) {
        self.listed = false;
        let from = std::mem::replace(&mut self.unsent_from, u64::MAX);
        for held in self.slots.cells_from(from).iter().filter(|held| held.replica == own) {
            packer.cell(own, info, KeyCell { key, slot: held.slot, cell: held.cell });
        }
        if std::mem::take(&mut self.mark_unsent) {
            self.pack_mark(own, key, info, packer);
        }
        if std::mem::take(&mut self.base_unsent) {
            self.pack_bases(own, key, info, packer);
        }
    }

    fn pack_mark(&self, own: ReplicaIx, key: KeyHash, info: &ShapeInfo, packer: &mut Packer) {
        if self.slots.mark() != Mark::default() {
            packer.mark(own, info, KeyMark { key, mark: self.slots.mark(), until_ns: self.until_ns });
        }
    }

    pub fn pack_bases(&self, own: ReplicaIx, key: KeyHash, info: &ShapeInfo, packer: &mut Packer) {
        let Some(bucket) = info.bucket().filter(|_| !self.slots.bases().is_empty()) else { return };
        for (slot, base) in self.slots.bases() {
            let needed_ns = Self::base_needed_ns(info, bucket, *slot, base);
            packer.base(own, info, KeyBase { key, slot: *slot, base: *base }, needed_ns);
        }
    }
}

fn pack_cells(entry: &Entry, info: &ShapeInfo, wanted: impl Fn(ReplicaIx, u64) -> bool, packer: &mut Packer) {
    entry.read(info, |cells, _| {
        for held in cells.iter().filter(|held| wanted(held.replica, held.slot)) {
            packer.cell(held.replica, info, KeyCell { key: entry.key, slot: held.slot, cell: held.cell });
        }
    });
}
