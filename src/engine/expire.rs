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
            Held::One { .. } => match self.read(info, |cells, _| one_left(info, &cells[0], oldest, now_ns)) {
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

fn one_left(info: &ShapeInfo, cell: &SlotCell, oldest: u64, now_ns: u64) -> Left {
    if cell.slot >= oldest {
        return Left::Live;
    }
    let debt = info.bucket().is_some_and(|bucket| {
        let walk = Walk::default().through(bucket, info.overdraft, std::slice::from_ref(cell), &[]);
        bucket.limit > 0 && walk.t > bucket.scaled(now_ns)
    });
    if debt { Left::Debt } else { Left::Nothing }
}

impl Many {
    fn expire(&mut self, info: &ShapeInfo, oldest: u64, now_ns: u64) {
        match info.bucket() {
            Some(bucket) => self.fold(info, bucket, oldest, now_ns),
            None => {
                self.slots.drop_cells_below(oldest);
            }
        }
        if self.until_ns <= now_ns && self.slots.mark() != Mark::default() {
            self.slots.drop_mark();
        }
    }

    /// Folds the slots below `oldest` into a base there, and drops bases once the whole walk is paid off: held slots
    /// chain on a base, so its own T says too little.
    fn fold(&mut self, info: &ShapeInfo, bucket: &Bucket, oldest: u64, now_ns: u64) {
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
        if !self.slots.bases().is_empty() && self.paid(info, bucket, oldest, now_ns) {
            self.slots.drop_bases_below(u64::MAX);
            self.cache = None;
            self.base_unsaved = false;
            self.base_unsent = false;
        }
    }

    /// Whether nothing is owed any more. Without a refill nothing is ever paid: a base then goes with its slot.
    fn paid(&self, info: &ShapeInfo, bucket: &Bucket, oldest: u64, now_ns: u64) -> bool {
        match bucket.limit {
            0 => self.slots.bases().iter().all(|base| base.0 < oldest),
            _ => self.whole_walk(info, bucket).t <= bucket.scaled(now_ns),
        }
    }

    /// Until when the bases are needed.
    pub fn bases_needed_ns(&self, info: &ShapeInfo, bucket: &Bucket) -> u64 {
        let newest = self.slots.bases().last().map_or(0, |base| base.0);
        match bucket.limit {
            0 => info.expires_ns(newest),
            limit => {
                let t = self.whole_walk(info, bucket).t;
                u64::try_from(t.div_ceil(u128::from(limit))).unwrap_or(u64::MAX).saturating_add(1)
            }
        }
    }
}
