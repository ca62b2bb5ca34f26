//! Forgetting: window slots are dropped, bucket slots are folded into a base, bases go when the key's debt is paid,
//! marks when their time is over. Done by the sweep, and by whoever touches a key first.

use super::entry::{Entry, Held, Many};
use super::names::ShapeInfo;
use crate::algorithms::bucket::{Bucket, Walk};
use crate::crdt::{Base, Mark, ReplicaIx, SlotCell};
use crate::planted::{self, PlantedBug};

impl Entry {
    /// Drops what has expired; what a bucket still owes of it becomes a base.
    pub fn expire(&mut self, own: ReplicaIx, info: &ShapeInfo, now_ns: u64) {
        let oldest = info.oldest_live_slot(now_ns);
        match &self.held {
            Held::Nothing => {}
            Held::One { .. } => match self.read(info, |cells, _| one_left(info, &cells[0], oldest)) {
                Left::Live => {}
                Left::Nothing => (self.held, self.unsent) = (Held::Nothing, 0),
                Left::Debt => self.many(info, own).expire(info, oldest, now_ns),
            },
            Held::Many(_) => self.many(info, own).expire(info, oldest, now_ns),
        }
    }
}

/// What is left of a single cell.
enum Left {
    Live,
    Nothing,
    Debt,
}

fn one_left(info: &ShapeInfo, cell: &SlotCell, oldest: u64) -> Left {
    if cell.slot >= oldest {
        return Left::Live;
    }
    let debt = info.bucket().is_some_and(|bucket| {
        let walk = Walk::default().through(bucket, info.overdraft, std::slice::from_ref(cell), &[]);
        bucket.limit > 0 && walk.t > info.paid_before(bucket, oldest)
    });
    if debt { Left::Debt } else { Left::Nothing }
}

impl Many {
    fn expire(&mut self, info: &ShapeInfo, oldest: u64, now_ns: u64) {
        match info.bucket() {
            Some(bucket) => self.fold(info, bucket, oldest),
            None => {
                self.sum = self.sum.filter(|sum| sum.first >= oldest);
                self.slots.drop_cells_below(oldest);
            }
        }
        if self.until_ns <= now_ns && self.slots.mark() != Mark::default() {
            self.slots.drop_mark();
        }
    }

    /// Folds the slots below `oldest` into a base there, and drops bases that no held slot chains on any more.
    ///
    /// That is so once a base's T is not after the start of `oldest`: every spend that is held or may still arrive is
    /// later, and starts from its own time. That nothing is owed now is not enough: spends of peers that arrive late
    /// would chain on what was dropped, and count for less by up to the rate times what they were under way.
    fn fold(&mut self, info: &ShapeInfo, bucket: &Bucket, oldest: u64) {
        let (cells, bases) = (self.slots.cells(), self.slots.bases());
        let dead = cells.partition_point(|cell| cell.slot < oldest);
        if dead > 0 {
            let bases = &bases[..bases.partition_point(|base| base.0 < oldest)];
            let walk = Walk::default().through(bucket, info.overdraft, &cells[..dead], bases);
            let base = Base { mark: self.held_under(), t: walk.t, d: walk.d };
            self.slots.drop_cells_below(oldest);
            self.slots.drop_bases_below(oldest);
            self.slots.merge_base(oldest, &base);
            self.base_unsaved |= !planted::has(PlantedBug::BaseTooLate);
            self.cache = self.cache.filter(|cache| cache.slot >= oldest);
        }
        let paid = |slot: u64, base: &Base| match bucket.limit {
            // Without a refill nothing is ever paid: a base goes with its slot.
            0 => slot < oldest,
            _ if planted::has(PlantedBug::BaseTooSoon) => base.t <= bucket.scaled(info.expires_ns(oldest)),
            _ => base.t <= info.paid_before(bucket, oldest),
        };
        if self.slots.drop_bases(paid) {
            self.cache = None;
            let none = self.slots.bases().is_empty();
            self.base_unsaved &= !none;
            self.base_unsent &= !none;
        }
    }

    /// Until when a base is needed: until the slots are dropped that may chain on it.
    pub fn base_needed_ns(info: &ShapeInfo, bucket: &Bucket, slot: u64, base: &Base) -> u64 {
        match bucket.limit {
            0 => info.expires_ns(slot),
            limit => {
                let full_again_ns = u64::try_from(base.t.div_ceil(u128::from(limit))).unwrap_or(u64::MAX);
                info.expires_ns(info.slot(full_again_ns))
            }
        }
    }
}
