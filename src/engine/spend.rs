//! What a decision changes in an entry: spends, debits, refunds, resets. Each is by this node itself, so each is to be drained.

use super::entry::{Entry, Held, Many, Sum, one};
use super::names::ShapeInfo;
use super::read::At;
use super::shard::Shard;
use crate::algorithms::bucket::Bucket;
use crate::crdt::{Cell, Mark, ReplicaIx, by_slot, net_spent};
use crate::limits::{MIN_MARK_KEPT_NS, Shape};
use crate::planted::{self, PlantedBug};

/// A spend drops a window's expired cells when they are this part of all. The sweep drops the others.
const MOST_DEAD: usize = 8;

/// Tokens to be taken from a key.
pub(super) struct Spend<'a> {
    pub info: &'a ShapeInfo,
    /// Not below that of any earlier spend of the shard.
    pub now_ns: u64,
    pub tokens: u64,
    /// Taken whatever the state.
    pub debit: bool,
}

impl Shard {
    pub fn spend(&mut self, id: u32, spend: &Spend<'_>) {
        let own = self.own;
        self.change_own(id, |entry| {
            entry.spend(own, spend);
            true
        });
    }

    /// Gives tokens back of what counts now.
    pub fn refund(&mut self, id: u32, info: &ShapeInfo, at: &At, tokens: u64) {
        let own = self.own;
        self.change_own(id, |entry| entry.refund(own, info, at, tokens));
    }

    /// Gives a key its full allowance back.
    pub fn reset(&mut self, id: u32, info: &ShapeInfo, now_ns: u64) {
        let own = self.own;
        self.change_own(id, |entry| {
            entry.reset(own, info, now_ns);
            true
        });
    }
}

impl Entry {
    /// Gives up to `tokens` back of what counts now, newest slot first. False when nothing does.
    fn refund(&mut self, own: ReplicaIx, info: &ShapeInfo, at: &At, tokens: u64) -> bool {
        match &info.shape {
            Shape::Bucket(bucket) => {
                let owed = bucket.level(self.walk(info, bucket, at).t, at.now_ns).debt;
                let slot = info.slot(at.now_ns);
                owed > 0 && self.many(info, own).change_cell(own, slot, |cell| bucket.refund(cell, owed, tokens))
            }
            Shape::Window(window) => {
                let last = self.last_counted(info, at);
                let many = self.many(info, own);
                let mut left = tokens;
                let mut given = Vec::new();
                for slot in by_slot(many.counted(window, at.now_ns, last)).rev() {
                    let back = left.min(net_spent(slot));
                    given.push((slot[0].slot, back));
                    left -= back;
                    if left == 0 {
                        break;
                    }
                }
                for (slot, back) in given.into_iter().filter(|given| given.1 > 0) {
                    let give = |cell: &mut Cell| cell.refunded = cell.refunded.saturating_add(back.into());
                    many.change_cell(own, slot, give);
                }
                left < tokens
            }
        }
    }

    fn spend(&mut self, own: ReplicaIx, spend: &Spend<'_>) {
        let slot = spend.info.slot(spend.now_ns);
        if !self.spend_small(own, slot, spend) {
            self.spend_many(own, slot, spend);
        }
        self.unsent = self.unsent.saturating_add(u32::try_from(spend.tokens).unwrap_or(u32::MAX));
        if planted::has(PlantedBug::FinOfGlobalView)
            && let Some(bucket) = spend.info.bucket()
        {
            let many = self.many(spend.info, own);
            let t = many.whole_walk(spend.info, bucket).t;
            let (slot, n) = many.slots.mark().place(slot);
            let cell = many.slots.own_cell(slot, own, n);
            cell.fin = cell.fin.max(t);
        }
    }

    /// False when the small form cannot hold it.
    fn spend_small(&mut self, own: ReplicaIx, slot: u64, spend: &Spend<'_>) -> bool {
        if spend.debits_bucket() {
            return false;
        }
        let (at, mut cell) = match self.held {
            Held::Nothing => {
                let at = if spend.info.bucket().is_some() { spend.now_ns } else { slot };
                (at, one(spend.info, own, at, 0, 0.into()).cell)
            }
            Held::One { replica, at, spent, fin } => {
                let held = one(spend.info, replica, at, spent, fin);
                if (held.replica, held.slot) != (own, slot) {
                    return false;
                }
                (at, held.cell)
            }
            Held::Many(_) => return false,
        };
        spend.add_to(&mut cell);
        self.held = Held::One { replica: own, at, spent: cell.spent, fin: cell.fin.into() };
        true
    }

    fn spend_many(&mut self, own: ReplicaIx, slot: u64, spend: &Spend<'_>) {
        let info = spend.info;
        let oldest = info.oldest_live_slot(spend.now_ns);
        let overdue = self.read(info, |cells, _| {
            let dead = cells.partition_point(|cell| cell.slot < oldest);
            // A log has one every millisecond: dropping each by itself would move all others each time.
            dead > 0 && (info.bucket().is_some() || dead >= cells.len() / MOST_DEAD)
        });
        if overdue {
            self.expire(own, info, spend.now_ns);
            self.shrink(info);
            if matches!(self.held, Held::Nothing) && self.spend_small(own, slot, spend) {
                return;
            }
        }
        self.many(info, own).change_cell(own, slot, |cell| spend.add_to(cell));
    }

    fn reset(&mut self, own: ReplicaIx, info: &ShapeInfo, now_ns: u64) {
        let many = self.many(info, own);
        let debited = info.bucket().map_or(0, |bucket| many.whole_walk(info, bucket).d);
        many.make_mark(info, now_ns, debited);
        self.unsent = 0;
    }
}

impl Many {
    /// Changes the own cell of a slot, or where the mark has it written. True, for it is to be drained.
    fn change_cell(&mut self, own: ReplicaIx, slot: u64, f: impl FnOnce(&mut Cell)) -> bool {
        let (slot, n) = self.slots.mark().place(slot);
        let summed = self.sum.filter(|sum| (sum.first..sum.end).contains(&slot));
        let before = summed.map(|_| self.net_spent(slot));
        f(self.slots.own_cell(slot, own, n));
        self.touched(slot);
        if let Some((sum, before)) = summed.zip(before) {
            // The one change of which it is known by how much: a sum need not be made anew for every spend.
            self.sum = Some(Sum { total: sum.total - u128::from(before) + u128::from(self.net_spent(slot)), ..sum });
        }
        self.unsent_from = self.unsent_from.min(slot);
        true
    }

    fn net_spent(&self, slot: u64) -> u64 {
        let cells = self.slots.cells_from(slot);
        net_spent(&cells[..cells.partition_point(|cell| cell.slot == slot)])
    }

    /// A mark above all that is held; what is below it is dropped. `debited` are the debits this forgives.
    pub fn make_mark(&mut self, info: &ShapeInfo, now_ns: u64, debited: u64) -> Mark {
        let current = info.slot(now_ns);
        let slot = self.slots.newest_slot().map_or(current, |newest| newest.max(current));
        let cells = self.slots.cells_from(slot).iter().map(|c| c.cell.n);
        let marks = [self.slots.mark(), self.held_under()].into_iter().filter(|mark| mark.slot == slot).map(|m| m.n);
        let highest = cells.chain(marks).max().unwrap_or(0);
        let mark = Mark { slot, n: highest.saturating_add(1) };
        let until_ns = match info.bucket() {
            None => info.expires_ns(slot),
            Some(bucket) => bucket_mark_until_ns(info, bucket, slot, debited),
        };
        self.merge_mark(mark, until_ns);
        self.unsent_from = u64::MAX;
        self.mark_unsent = true;
        mark
    }
}

/// A peer may hold debt that the mark forgives for as long as it takes to be paid off from the most it can be.
fn bucket_mark_until_ns(info: &ShapeInfo, bucket: &Bucket, slot: u64, debited: u64) -> u64 {
    let end_ns = info.slot_end_ns(slot);
    let most = info.overdraft.saturating_add(bucket.cost(debited));
    let paid_ns = match bucket.limit {
        0 => 0,
        limit => u64::try_from(most.div_ceil(u128::from(limit))).unwrap_or(u64::MAX),
    };
    info.expires_ns(slot).max(end_ns.saturating_add(paid_ns.max(MIN_MARK_KEPT_NS)))
}

impl Spend<'_> {
    fn debits_bucket(&self) -> bool {
        self.debit && self.info.bucket().is_some()
    }

    fn add_to(&self, cell: &mut Cell) {
        match self.info.bucket() {
            Some(bucket) => bucket.spend(cell, self.now_ns, self.tokens),
            None => cell.spent = cell.spent.saturating_add(self.tokens),
        }
        if self.debits_bucket() {
            cell.debited = cell.debited.saturating_add(self.tokens);
        }
    }
}
