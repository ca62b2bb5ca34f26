//! `token_bucket` (`leaky_bucket` without a queue is the same), in its replicated form.
//!
//! Times are scaled by L: T and `fin` are tokens times W, so that everything is exact in integers. One token costs W; a
//! bucket of rate L per W and capacity C admits c at t iff `max(T, L*t) + W*c - L*t <= W*C`: the generic cell rate
//! algorithm (ITU-T I.371). Every term of [`Walk::step`] is a lower bound on the true T and monotone in the cells, so a
//! replica that knows less never reads more debt than the truth; on one node the walk equals GCRA request by request.

use super::{Level, div_ceil_saturating};
use crate::crdt::{Base, Cell, SlotCell};
use crate::planted::{self, PlantedBug};

/// What gives a bucket's numbers their meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bucket {
    /// L: tokens per window; the refill rate. 0 denies everything.
    pub limit: u64,
    /// W: nanoseconds; above 0.
    pub window_ns: u64,
    /// C: tokens it holds when full.
    pub capacity: u64,
    /// g: the length of a slot, nanoseconds; above 0.
    pub slot_ns: u64,
}

impl Bucket {
    /// `L * t`.
    pub fn scaled(&self, t_ns: u64) -> u128 {
        u128::from(self.limit) * u128::from(t_ns)
    }

    /// `W * tokens`.
    pub fn cost(&self, tokens: u64) -> u128 {
        u128::from(self.window_ns) * u128::from(tokens)
    }

    /// The slot of an instant.
    pub fn slot(&self, t_ns: u64) -> u64 {
        t_ns / self.slot_ns
    }

    /// `W * cap` without the debits: room for what `nodes` nodes may have overdrawn, `C + (nodes-1) * (C + rate * 1s)`
    /// tokens. With C alone every interval of staleness would be forgiven, and a cluster of three under steady
    /// overload would run at 2.7 times its limit.
    pub fn overdraft_scaled(&self, nodes: u32) -> u128 {
        let full = self.cost(self.capacity);
        if planted::has(PlantedBug::CapIsCapacity) {
            return full;
        }
        let one_more = full.saturating_add(self.scaled(1_000_000_000));
        full.saturating_add(u128::from(nodes.max(1) - 1).saturating_mul(one_more))
    }

    /// Adds an own spend of `tokens` at `now_ns` to the writer's cell of the slot.
    pub fn spend(&self, cell: &mut Cell, now_ns: u64, tokens: u64) {
        cell.fin = cell.fin.max(self.scaled(now_ns)).saturating_add(self.cost(tokens));
        cell.first_ns = cell.first_ns.min(now_ns);
        cell.spent = cell.spent.saturating_add(tokens);
    }

    /// The debt of a walk's T as seen at `now_ns`.
    pub fn level(&self, t: u128, now_ns: u64) -> BucketLevel {
        BucketLevel { bucket: *self, debt: t.saturating_sub(self.scaled(now_ns)) }
    }
}

/// T and D as the slots are walked upward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walk {
    /// The scaled theoretical arrival time.
    pub t: u128,
    /// Tokens debited so far.
    pub d: u64,
}

impl Walk {
    /// Takes in a base.
    pub fn join(&mut self, base: &Base) {
        self.t = self.t.max(base.t);
        self.d = self.d.max(base.d);
    }

    /// Walks through one slot, whose cells of all replicas are `cells`. `overdraft` is `W * cap` without the debits.
    pub fn step(&mut self, bucket: &Bucket, overdraft: u128, slot: u64, cells: &[SlotCell]) {
        let mut spent = 0u64;
        let mut ends = 0u128;
        for one in cells {
            spent = spent.saturating_add(one.cell.spent);
            if !planted::has(PlantedBug::DebitsForgiven) {
                self.d = self.d.saturating_add(one.cell.debited);
            }
            // Everything first spent at this cell's first spend or later lies after that instant.
            let later = cells.iter().filter(|other| other.cell.first_ns >= one.cell.first_ns);
            let later = later.fold(0u64, |sum, other| sum.saturating_add(other.cell.spent));
            let from_first = match one.cell.spent {
                0 => 0,
                _ => bucket.scaled(one.cell.first_ns).saturating_add(bucket.cost(later)),
            };
            ends = ends.max(one.cell.fin).max(from_first);
        }
        let t = self.t.saturating_add(bucket.cost(spent)).max(ends);
        let slot_end = u128::from(slot).saturating_add(1).saturating_mul(u128::from(bucket.slot_ns));
        let most = u128::from(bucket.limit)
            .saturating_mul(slot_end)
            .saturating_add(overdraft)
            .saturating_add(bucket.cost(self.d));
        self.t = t.min(most);
    }

    /// Walks from here through `cells` (ordered by slot) and `bases` (likewise).
    pub fn through(mut self, bucket: &Bucket, overdraft: u128, cells: &[SlotCell], bases: &[(u64, Base)]) -> Self {
        let mut bases = bases.iter().peekable();
        for slot in cells.chunk_by(|a, b| a.slot == b.slot) {
            while let Some((_, base)) = bases.next_if(|base| base.0 <= slot[0].slot) {
                self.join(base);
            }
            self.step(bucket, overdraft, slot[0].slot, slot);
        }
        for (_, base) in bases {
            self.join(base);
        }
        self
    }
}

/// A bucket's debt at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketLevel {
    bucket: Bucket,
    /// Scaled: tokens times W.
    pub debt: u128,
}

impl Level for BucketLevel {
    fn used(&self) -> u64 {
        div_ceil_saturating(self.debt, u128::from(self.bucket.window_ns))
    }

    fn wait_until_at_most(&self, tokens: u64) -> u64 {
        let over = self.debt.saturating_sub(self.bucket.cost(tokens));
        match (over, self.bucket.limit) {
            (0, _) => 0,
            (_, 0) => u64::MAX,
            (over, limit) => div_ceil_saturating(over, u128::from(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::{Wait, decide};
    use crate::crdt::{ReplicaIx, Slots};

    /// GCRA as its definition has it.
    #[derive(Default)]
    struct Exact {
        t: u128,
    }

    impl Exact {
        fn take(&mut self, b: &Bucket, now: u64, cost: u64) -> bool {
            let next = self.t.max(b.scaled(now)) + b.cost(cost);
            let fits = next - b.scaled(now) <= b.cost(b.capacity);
            if fits {
                self.t = next;
            }
            fits
        }
    }

    proptest! {
        /// One node equals the exact algorithm request by request, denials, waits and all.
        #[test]
        fn one_node_is_gcra(
            limit in 1..50u64, window in 1..5_000u64, capacity in 1..60u64, slot in 1..3_000u64,
            steps in prop::collection::vec((0..2_000u64, 1..20u64), 1..120),
        ) {
            let bucket = Bucket { limit, window_ns: window, capacity, slot_ns: slot };
            let (mut exact, mut slots, mut now) = (Exact::default(), Slots::default(), 1_000_000u64);
            let own = ReplicaIx(1);
            for (gap, cost) in steps {
                now += gap;
                let walk = Walk::default().through(&bucket, bucket.overdraft_scaled(8), slots.cells(), slots.bases());
                let level = bucket.level(walk.t, now);
                prop_assert_eq!(level.debt, exact.t.saturating_sub(bucket.scaled(now)));
                let wait = decide(&level, capacity, cost);
                if let Wait::After(ns) = wait {
                    prop_assert!(decide(&bucket.level(walk.t, now + ns), capacity, cost) == Wait::None);
                    prop_assert!(decide(&bucket.level(walk.t, now + ns - 1), capacity, cost) != Wait::None);
                }
                prop_assert_eq!(exact.take(&bucket, now, cost), wait == Wait::None);
                if wait == Wait::None {
                    bucket.spend(slots.own_cell(bucket.slot(now), own, 0), now, cost);
                }
            }
        }

        /// Several nodes that all know everything read at most one slot's refill less than the truth, and never more.
        #[test]
        fn full_knowledge_misses_at_most_a_slots_refill(
            limit in 1..50u64, window in 1..5_000u64, capacity in 1..60u64, slot in 1..3_000u64,
            steps in prop::collection::vec((1..5u16, 0..500u64, 1..20u64), 1..150),
        ) {
            let bucket = Bucket { limit, window_ns: window, capacity, slot_ns: slot };
            let (mut exact, mut slots, mut now) = (0u128, Slots::default(), 1_000_000u64);
            for (replica, gap, cost) in steps {
                now += gap;
                let walk = Walk::default().through(&bucket, bucket.overdraft_scaled(8), slots.cells(), slots.bases());
                let (read, truth) = (bucket.level(walk.t, now).debt, exact.saturating_sub(bucket.scaled(now)));
                prop_assert!(read <= truth, "{read} of {truth}");
                prop_assert!(truth - read <= bucket.scaled(slot), "{read} of {truth}, {} in a slot", bucket.scaled(slot));
                if decide(&bucket.level(walk.t, now), capacity, cost) == Wait::None {
                    bucket.spend(slots.own_cell(bucket.slot(now), ReplicaIx(replica), 0), now, cost);
                    exact = exact.max(bucket.scaled(now)) + bucket.cost(cost);
                }
            }
        }

        /// A partial read never exceeds the full read: every subset of the cells reads at most as much debt.
        #[test]
        fn knowing_less_never_reads_more(
            spends in prop::collection::vec((1..4u16, 0..400u64, 1..6u64), 1..40), known in prop::collection::vec(any::<bool>(), 40),
        ) {
            let bucket = Bucket { limit: 5, window_ns: 1_000, capacity: 10, slot_ns: 300 };
            let (mut all, mut some, mut now) = (Slots::default(), Slots::default(), 50_000u64);
            for ((replica, gap, cost), known) in spends.into_iter().zip(known) {
                now += gap;
                let (slot, replica) = (bucket.slot(now), ReplicaIx(replica));
                bucket.spend(all.own_cell(slot, replica, 0), now, cost);
                if known {
                    let cell = *all.cell(slot, replica).unwrap();
                    some.merge_cell(slot, replica, &cell);
                }
            }
            let read = |s: &Slots| Walk::default().through(&bucket, bucket.overdraft_scaled(3), s.cells(), s.bases());
            prop_assert!(read(&some).t <= read(&all).t);
        }
    }
}
