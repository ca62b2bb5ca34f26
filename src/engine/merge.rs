//! Taking in what others counted.

use std::sync::atomic::Ordering;

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::entry::{Entry, Held};
use super::names::{MAX_PEER_REPLICAS, MAX_PEER_SHAPES, Names, ShapeInfo};
use super::shard::{Shard, shard_of};
use super::{Engine, Group, KeyBase, KeyCell, KeyMark, Merge, TooFarAhead};
use crate::crdt::{Base, Merged, ReplicaIx, SlotCell};
use crate::id::ReplicaId;
use crate::planted::{self, PlantedBug};
use crate::time::MS;

/// What became of one item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Changed,
    Known,
    Expired,
    Refused,
}

impl From<Merged> for Fate {
    fn from(merged: Merged) -> Self {
        match merged {
            Merged::Changed => Self::Changed,
            Merged::Known | Merged::Ignored => Self::Known,
        }
    }
}

impl Engine {
    /// Takes in cells of the replica `from`, with marks and bases. Cells of a superseded own life are like any other.
    pub fn merge(&self, now_ns: u64, from: &ReplicaId, groups: &[Group]) -> Result<Merge, TooFarAhead> {
        self.merge_as_of(now_ns, now_ns, from, groups)
    }

    /// The same, but whatever had not expired at `alive_ns` is taken in whole, as what was written down then. A bucket's
    /// slots that expired since then are folded by the next look at the key: exactly, where late cells leave their
    /// `fin` alone.
    pub fn merge_as_of(
        &self,
        now_ns: u64,
        alive_ns: u64,
        from: &ReplicaId,
        groups: &[Group],
    ) -> Result<Merge, TooFarAhead> {
        self.check_ahead(now_ns, groups)?;
        let names = self.names_with(from, groups);
        let mut merge = Merge::default();
        let replica = names.find_replica(from);
        for group in groups {
            let (Some(replica), Some(info)) = (replica, names.find_shape(&group.shape)) else {
                merge.refused += group.len();
                continue;
            };
            for cell in &group.cells {
                let mut shard = self.shards[shard_of(cell.key)].lock();
                let is_own = replica == names.own() && cell.slot >= info.oldest_live_slot(now_ns);
                merge.own_above |= is_own && shard.is_above(info, replica, cell);
                // A window that is over counts for nobody.
                let alive_ns = if info.bucket().is_some() { alive_ns } else { now_ns };
                merge.count(self.merge_cell(&mut shard, alive_ns, info, replica, cell));
                self.tell_cells(&mut shard);
            }
            for mark in &group.marks {
                let mut shard = self.shards[shard_of(mark.key)].lock();
                merge.count(self.merge_mark(&mut shard, now_ns, info, mark));
                self.tell_cells(&mut shard);
            }
            for base in &group.bases {
                let mut shard = self.shards[shard_of(base.key)].lock();
                merge.count(self.merge_base(&mut shard, alive_ns, info, base));
                self.tell_cells(&mut shard);
            }
        }
        self.counters.refused_cells.fetch_add(merge.refused as u64, Ordering::Relaxed);
        self.counters.expired_on_arrival.fetch_add(merge.expired as u64, Ordering::Relaxed);
        Ok(merge)
    }

    /// Nothing may be further ahead than two clocks, each within `max_skew` of this one, can be from each other.
    fn check_ahead(&self, now_ns: u64, groups: &[Group]) -> Result<(), TooFarAhead> {
        let furthest_ns = now_ns.saturating_add(self.settings.retention.max_skew_ns.saturating_mul(2));
        for group in groups {
            let cells = group.cells.iter().map(|cell| cell.slot);
            let marks = group.marks.iter().map(|mark| mark.mark.slot);
            let bases = group.bases.iter().map(|base| base.slot);
            let newest = cells.chain(marks).chain(bases).max().unwrap_or(0);
            let start_ns = newest.saturating_mul(group.shape.slot_ns());
            if start_ns > furthest_ns {
                return Err(TooFarAhead { ahead_ms: (start_ns - now_ns) / MS });
            }
        }
        Ok(())
    }

    /// The tables, with everything numbered that the arguments name, as far as there is room.
    fn names_with(&self, from: &ReplicaId, groups: &[Group]) -> RwLockReadGuard<'_, Names> {
        let names = self.names.read();
        let shapes_known = groups.iter().all(|group| names.find_shape(&group.shape).is_some());
        if shapes_known && names.find_replica(from).is_some() {
            return names;
        }
        drop(names);
        let mut names = self.names.write();
        let number = |names: &mut Names| {
            let shapes = groups.iter().filter(|g| names.number_shape(&g.shape, MAX_PEER_SHAPES).is_none()).count();
            names.number_replica(from, MAX_PEER_REPLICAS).is_some() && shapes == 0
        };
        if !number(&mut names) {
            self.forget_unused(&mut names);
            number(&mut names);
        }
        RwLockWriteGuard::downgrade(names)
    }

    fn merge_cell(&self, shard: &mut Shard, now_ns: u64, info: &ShapeInfo, replica: ReplicaIx, item: &KeyCell) -> Fate {
        let held = shard.find(info.ix, item.key);
        if item.slot < info.oldest_live_slot(now_ns) && !planted::has(PlantedBug::SlotResurrected) {
            return self.merge_late(shard, held, now_ns, info, item);
        }
        let slot = match planted::has(PlantedBug::ResetInPlace) && info.bucket().is_none() {
            false => item.slot,
            true => item.slot.max(info.slot(now_ns)),
        };
        let known = held.is_some_and(|id| shard.slab[id].has_cell(info, slot, replica));
        if !known && !self.has_room() {
            return Fate::Refused;
        }
        let id = held.unwrap_or_else(|| shard.entry(info.ix, item.key));
        let own = shard.own;
        let cell = SlotCell { slot, replica, cell: item.cell };
        shard.change(id, |entry| entry.merge_cell(own, info, &cell)).into()
    }

    fn merge_mark(&self, shard: &mut Shard, now_ns: u64, info: &ShapeInfo, item: &KeyMark) -> Fate {
        if item.until_ns <= now_ns {
            return Fate::Expired;
        }
        let held = shard.find(info.ix, item.key);
        if held.is_none() && !self.has_room() {
            return Fate::Refused;
        }
        let id = held.unwrap_or_else(|| shard.entry(info.ix, item.key));
        let own = shard.own;
        let merged = shard.change(id, |entry| entry.many(info, own).merge_mark(item.mark, item.until_ns));
        if merged == Merged::Changed {
            shard.slab[id].standing = shard.slab[id].standing.marked();
        }
        merged.into()
    }

    fn merge_base(&self, shard: &mut Shard, now_ns: u64, info: &ShapeInfo, item: &KeyBase) -> Fate {
        let Some(bucket) = info.bucket() else { return Fate::Known };
        let held = shard.find(info.ix, item.key);
        if held.is_none() && item.base.t <= info.paid_before(bucket, info.oldest_live_slot(now_ns)) {
            return Fate::Expired;
        }
        let known = held.is_some_and(|id| shard.slab[id].has_base(info, item.slot));
        if !known && !self.has_room() {
            return Fate::Refused;
        }
        let id = held.unwrap_or_else(|| shard.entry(info.ix, item.key));
        let own = shard.own;
        shard.change(id, |entry| entry.many(info, own).merge_base(item.slot, &item.base)).into()
    }

    /// A cell of a slot that was dropped: what of it cannot be counted twice joins the base at the oldest slot held.
    fn merge_late(&self, shard: &mut Shard, held: Option<u32>, now_ns: u64, info: &ShapeInfo, item: &KeyCell) -> Fate {
        let Some(bucket) = info.bucket() else { return Fate::Expired };
        if held.is_none() {
            if item.cell.fin <= info.paid_before(bucket, info.oldest_live_slot(now_ns)) {
                // It is paid off, and nothing chains on it.
                return Fate::Expired;
            }
            if !self.has_room() {
                return Fate::Refused;
            }
        }
        let id = held.unwrap_or_else(|| shard.entry(info.ix, item.key));
        shard.late_base(id, now_ns, info, item);
        Fate::Expired
    }

    fn has_room(&self) -> bool {
        if planted::has(PlantedBug::CellsUnbounded) {
            return true;
        }
        u64::try_from(self.cells.load(Ordering::Relaxed)).unwrap_or(0) < self.settings.max_cells
    }

    /// Brings the total up to date. To be called before a shard is unlocked in which much may have changed.
    pub(super) fn tell_cells(&self, shard: &mut Shard) {
        match shard.tell_cells() {
            0 => {}
            by => {
                self.cells.fetch_add(by, Ordering::Relaxed);
            }
        }
    }
}

impl Shard {
    fn late_base(&mut self, id: u32, now_ns: u64, info: &ShapeInfo, item: &KeyCell) {
        let own = self.own;
        let oldest = info.oldest_live_slot(now_ns);
        self.change(id, |entry| {
            entry.expire(own, info, now_ns);
            if entry.mark().ignores(item.slot, item.cell.n) {
                return;
            }
            let many = entry.many(info, own);
            let net = item.cell.fin.saturating_sub(item.cell.refunded);
            let base = Base { mark: many.held_under(), t: net, d: item.cell.debited };
            many.base_unsaved |= many.merge_base(oldest, &base) == Merged::Changed;
        });
    }

    /// Whether this node's own cell is smaller than what another holds of it.
    fn is_above(&self, info: &ShapeInfo, own: ReplicaIx, item: &KeyCell) -> bool {
        let Some(id) = self.find(info.ix, item.key) else { return true };
        let entry = &self.slab[id];
        if entry.mark().ignores(item.slot, item.cell.n) {
            return false;
        }
        entry.read(info, |cells, _| {
            let at = cells.binary_search_by_key(&(item.slot, own), |cell| (cell.slot, cell.replica));
            let Ok(at) = at else { return true };
            let held = &cells[at].cell;
            let more = item.cell.spent > held.spent || item.cell.refunded > held.refunded;
            item.cell.n > held.n || (item.cell.n == held.n && more)
        })
    }
}

impl Entry {
    fn has_cell(&self, info: &ShapeInfo, slot: u64, replica: ReplicaIx) -> bool {
        self.read(info, |cells, _| {
            cells.binary_search_by_key(&(slot, replica), |cell| (cell.slot, cell.replica)).is_ok()
        })
    }

    fn has_base(&self, info: &ShapeInfo, slot: u64) -> bool {
        self.read(info, |_, bases| bases.binary_search_by_key(&slot, |base| base.0).is_ok())
    }

    fn merge_cell(&mut self, own: ReplicaIx, info: &ShapeInfo, cell: &SlotCell) -> Merged {
        if let Held::Nothing = self.held
            && let Some(held) = Held::plain(info, cell)
        {
            self.held = held;
            return Merged::Changed;
        }
        if let Held::One { .. } = self.held {
            let held = self.read(info, |cells, _| cells[0]);
            if (held.slot, held.replica) == (cell.slot, cell.replica) {
                let mut merged = held;
                merged.cell.merge(&cell.cell);
                if let Some(plain) = Held::plain(info, &merged) {
                    self.held = plain;
                    return if merged == held { Merged::Known } else { Merged::Changed };
                }
            }
        }
        let many = self.many(info, own);
        let merged = many.slots.merge_cell(cell.slot, cell.replica, &cell.cell);
        if merged == Merged::Changed {
            many.touched(cell.slot);
        }
        merged
    }
}

impl Merge {
    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Changed => self.changed += 1,
            Fate::Known => self.known += 1,
            Fate::Expired => self.expired += 1,
            Fate::Refused => self.refused += 1,
        }
    }
}
