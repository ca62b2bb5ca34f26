//! A bucket's rate or burst changed: what each key owed under the old shape, as of the instant of the change, becomes
//! a base under the new one.

use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};

use super::Engine;
use super::bindings::{Bindings, Bound, Change};
use super::entry::{Entry, Many};
use super::names::{LimitIx, ShapeInfo, ShapeIx, Standing};
use super::shard::Shard;
use crate::algorithms::bucket::{Bucket, Walk};
use crate::crdt::{Base, Mark, Merged, ReplicaIx, SlotCell};
use crate::id::KeyHash;

impl Engine {
    /// Carries all keys over that are left from the shapes that limits had before. False when there is nothing to do.
    pub(super) fn carry_all(&self, bindings: &Bindings, now_ns: u64) -> bool {
        if !bindings.pending {
            return false;
        }
        let (mut leaving, mut coming): (Concerned<'_>, Concerned<'_>) = Default::default();
        for bound in bindings.limits() {
            if let Some(change) = &bound.pending {
                leaving.entry(change.from.ix).or_default().push(bound);
                coming.entry(change.to.ix).or_default().push(bound);
            }
        }
        let in_force: HashSet<_> = bindings.all().map(|bound| bound.info.ix).collect();
        let carry = |shard: &mut Shard, id| {
            let Entry { key, shape, standing, .. } = shard.slab[id];
            if let Some(own) = bindings.own(key) {
                return self.carry(shard, own, key, now_ns, true);
            }
            let leaving = leaving.get(&shape).map(Vec::as_slice).unwrap_or_default();
            let coming = coming.get(&shape).map(Vec::as_slice).unwrap_or_default();
            // Of a peer's key nobody knows the limit: it is carried over for all that it may belong to.
            let its = |bound: &&&Bound| standing.limit().is_none_or(|limit| limit == bound.ix);
            let certain = standing != Standing::FOREIGN || (leaving.len() == 1 && !in_force.contains(&shape));
            for bound in leaving.iter().filter(its) {
                self.carry(shard, bound, key, now_ns, certain);
            }
            for bound in coming.iter().filter(|bound| standing.has_left() && its(bound)) {
                self.carry(shard, bound, key, now_ns, true);
            }
        };
        self.shards.iter().for_each(|shard| self.pass(shard, |_, shard, id| carry(shard, id)));
        true
    }

    /// Carries one key over from the shape that its limit had before, if that is still to be done. `certain`: the key
    /// is one of this limit.
    pub(super) fn carry(&self, shard: &mut Shard, bound: &Bound, key: KeyHash, now_ns: u64, certain: bool) {
        let Some(change) = &bound.pending else { return };
        let old = shard.find(change.from.ix, key);
        shard.carry(bound.ix, key, old, change, now_ns);
        let Some(entry) = old.filter(|_| certain).and_then(|old| shard.slab.find(old)) else { return };
        if entry.standing.counted() == Some(bound.ix) {
            // Its cells only wait for their expiry.
            bound.own_keys.fetch_sub(1, Ordering::Relaxed);
            self.own_keys.fetch_sub(1, Ordering::Relaxed);
        }
        if !entry.standing.has_left() {
            entry.standing = Standing::left(bound.ix);
        }
    }
}

/// Limits by a shape of theirs.
type Concerned<'a> = HashMap<ShapeIx, Vec<&'a Bound>>;

impl Shard {
    fn carry(&mut self, limit: LimitIx, key: KeyHash, old: Option<u32>, change: &Change, now_ns: u64) {
        let (Some(from), Some(to)) = (change.from.bucket(), change.to.bucket()) else { return };
        let walk = match old.map(|old| &self.slab[old]).filter(|old| !old.standing.has_left()) {
            Some(old) => old.as_of(&change.from, from, change.at_ns),
            None => Walk::default(),
        };
        let owed = Owed::of(&walk, from, to, change);
        let owes = owed.t > to.scaled(now_ns);
        let new = self.find(change.to.ix, key);
        let back = new.is_some_and(|new| {
            let standing = self.slab[new].standing;
            standing.has_left() && standing.limit() == Some(limit)
        });
        if owes || back {
            let new = new.unwrap_or_else(|| self.entry(change.to.ix, key));
            let own = self.own;
            self.change_own(new, |entry| entry.take_over(own, limit, change, to, owed, owes));
        }
    }
}

/// What a key owed at the instant of a change, in terms of the new shape.
#[derive(Clone, Copy)]
struct Owed {
    t: u128,
    d: u64,
    slot: u64,
}

impl Owed {
    /// The debt stays in tokens, rounded up to what can be said. What of it is beyond the new shape's overdraft room
    /// is treated as debited: left in T alone the walk would forgive it.
    fn of(walk: &Walk, from: &Bucket, to: &Bucket, change: &Change) -> Self {
        let debt = walk.t.saturating_sub(from.scaled(change.at_ns));
        let slot = change.to.slot(change.at_ns);
        if debt == 0 {
            return Self { t: 0, d: walk.d, slot };
        }
        let debt = rescaled(debt, from.window_ns, to.window_ns);
        let beyond = debt.saturating_sub(change.to.overdraft).div_ceil(u128::from(to.window_ns));
        let d = walk.d.max(u64::try_from(beyond).unwrap_or(u64::MAX));
        Self { t: to.scaled(change.at_ns).saturating_add(debt), d, slot }
    }
}

/// `ceil(debt * to / from)`, saturated.
fn rescaled(debt: u128, from: u64, to: u64) -> u128 {
    let (from, to) = (u128::from(from), u128::from(to));
    let (whole, rest) = (debt / from, debt % from);
    whole.saturating_mul(to).saturating_add((rest * to).div_ceil(from))
}

impl Entry {
    /// The walk as it was at `at_ns`. A peer that changes later still writes the old shape: its cells are cut to what
    /// can have been spent by then, for uncut its `fin` would read as debt.
    fn as_of(&self, info: &ShapeInfo, bucket: &Bucket, at_ns: u64) -> Walk {
        let last = info.slot(at_ns).max(self.mark().slot);
        self.read(info, |cells, bases| {
            let cut: Vec<_> =
                cells.iter().take_while(|cell| cell.slot <= last).map(|c| cut(c, bucket, at_ns)).collect();
            let bases = &bases[..bases.partition_point(|base| base.0 <= last)];
            Walk::default().through(bucket, info.overdraft, &cut, bases)
        })
    }

    /// Takes over what was owed. Whether that changed anything.
    fn take_over(
        &mut self,
        own: ReplicaIx,
        limit: LimitIx,
        change: &Change,
        to: &Bucket,
        owed: Owed,
        owes: bool,
    ) -> bool {
        let info = &*change.to;
        let stale = self.standing == Standing::left(limit);
        if self.standing.has_left() {
            self.standing = Standing::FOREIGN;
        }
        let mark = self.mark();
        match change.left_ns {
            Some(left_ns) if stale => {
                self.many(info, own).come_back(info, to, change.at_ns, left_ns, owed, owes);
                true
            }
            // A reset after the change forgives what was owed before.
            None if mark != Mark::default() && mark.slot >= owed.slot => false,
            _ if !owes => false,
            // If a peer came back to this shape first, its mark has dropped what was held from before.
            _ => {
                let many = self.many(info, own);
                many.owe(many.beside(info, to, change.at_ns, owed))
            }
        }
    }
}

impl Many {
    /// Back at a shape of which cells are still held. What was spent before this node left it is in what is owed: a
    /// mark drops it, as a reset does, and a base brings it back. What peers spent under the shape meanwhile the mark
    /// drops too: the base is at least that.
    fn come_back(&mut self, info: &ShapeInfo, bucket: &Bucket, at_ns: u64, left_ns: u64, mut owed: Owed, owes: bool) {
        let meanwhile = self.slots.cells_from(info.slot(left_ns) + 1);
        let meanwhile = Walk::default().through(bucket, info.overdraft, meanwhile, &[]);
        (owed.t, owed.d) = (owed.t.max(meanwhile.t), owed.d.max(meanwhile.d));
        let forgiven = self.whole_walk(info, bucket).d;
        self.make_mark(info, at_ns, forgiven);
        if owes || meanwhile.t > bucket.scaled(at_ns) {
            self.owe(owed);
        }
    }

    /// What is owed, and beside it what peers that changed before have spent under the new shape and not yet paid back: of
    /// the two the walk would take the larger where the base comes to stand. What they spend from there on it adds.
    fn beside(&self, info: &ShapeInfo, bucket: &Bucket, at_ns: u64, owed: Owed) -> Owed {
        let cells = self.slots.cells();
        let below = &cells[..cells.partition_point(|cell| cell.slot < owed.slot)];
        let spent = Walk::default().through(bucket, info.overdraft, below, &[]);
        Owed { t: owed.t.saturating_add(spent.t.saturating_sub(bucket.scaled(at_ns))), ..owed }
    }

    /// A base under the mark that holds. Whether it is news.
    fn owe(&mut self, owed: Owed) -> bool {
        let base = Base { mark: self.held_under(), t: owed.t, d: owed.d };
        let changed = self.merge_base(owed.slot.max(self.slots.mark().slot), &base) == Merged::Changed;
        self.base_unsent |= changed;
        changed
    }
}

fn cut(held: &SlotCell, bucket: &Bucket, at_ns: u64) -> SlotCell {
    let mut held = *held;
    held.cell.first_ns = held.cell.first_ns.min(at_ns);
    held.cell.fin = held
        .cell
        .fin
        .min(bucket.scaled(at_ns).saturating_add(held.cell.refunded).saturating_add(bucket.cost(held.cell.spent)));
    held
}
