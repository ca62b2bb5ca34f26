//! `token_bucket` (`leaky_bucket` without a queue is the same) and `leaky_bucket` with one, in their replicated form.
//!
//! Times are scaled by L: T and `fin` are tokens times W, so that everything is exact in integers. One token costs W; a
//! bucket of rate L per W and capacity C admits c at t iff `max(T, L*t) + W*c - L*t <= W*C`: the generic cell rate
//! algorithm (ITU-T I.371). Every term of [`Walk::step`] is a lower bound on the true T and monotone in the cells, so a
//! replica that knows less never reads more debt than the truth; on one node the walk equals GCRA request by request.
//!
//! What is given back lowers T. A cell keeps that apart, in a word that grows only, and its `fin` as if it had not been:
//! with R given back so far, `T + R` is moved by a spend at t to `max(T + R, L*t + R) + W*c`, and by nothing else. The
//! walk takes a slot's R off at its end. So reads are monotone between refunds only.

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
    /// How long a request may be made to wait for its turn, nanoseconds; 0 without a queue.
    pub queue_ns: u64,
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

    /// `W * cap` without the debits: room for what `nodes` nodes may have overdrawn, `Q + (nodes-1) * (Q + rate * 1s)`
    /// tokens with `Q = C + rate * queue`. With C alone every interval of staleness would be forgiven, and a cluster of three under steady
    /// overload would run at 2.7 times its limit.
    pub fn overdraft_scaled(&self, nodes: u32) -> u128 {
        let full = self.cost(self.capacity).saturating_add(self.scaled(self.queue_ns));
        if planted::has(PlantedBug::CapIsCapacity) {
            return full;
        }
        let one_more = full.saturating_add(self.scaled(1_000_000_000));
        full.saturating_add(u128::from(nodes.max(1) - 1).saturating_mul(one_more))
    }

    /// Adds an own spend of `tokens` at `now_ns` to the writer's cell of the slot.
    pub fn spend(&self, cell: &mut Cell, now_ns: u64, tokens: u64) {
        let from = self.scaled(now_ns).saturating_add(cell.refunded);
        cell.fin = cell.fin.max(from).saturating_add(self.cost(tokens));
        cell.first_ns = cell.first_ns.min(now_ns);
        cell.spent = cell.spent.saturating_add(tokens);
    }

    /// Gives up to `tokens` back at `now_ns` of a debt that is `owed`, in the writer's cell of the slot.
    pub fn refund(&self, cell: &mut Cell, owed: u128, tokens: u64) {
        cell.refunded = cell.refunded.saturating_add(self.cost(tokens).min(owed));
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
        let (mut ends, mut refunded) = (0u128, 0u128);
        for one in cells {
            spent = spent.saturating_add(one.cell.spent);
            refunded = refunded.saturating_add(one.cell.refunded);
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
        let t = self.t.saturating_add(bucket.cost(spent)).max(ends).saturating_sub(refunded);
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
    use crate::algorithms::{Verdict, decide};
    use crate::crdt::{ReplicaIx, Slots};

    fn walk(bucket: &Bucket, slots: &Slots) -> Walk {
        Walk::default().through(bucket, bucket.overdraft_scaled(8), slots.cells(), slots.bases())
    }

    /// GCRA as its definition has it, with a queue and with tokens that are given back.
    #[derive(Default)]
    struct Exact {
        t: u128,
    }

    impl Exact {
        fn take(&mut self, b: &Bucket, now: u64, cost: u64) -> bool {
            let next = self.t.max(b.scaled(now)) + b.cost(cost);
            let most = b.cost(b.capacity) + b.scaled(b.queue_ns);
            let fits = cost <= b.capacity && next - b.scaled(now) <= most;
            if fits {
                self.t = next;
            }
            fits
        }

        fn give_back(&mut self, b: &Bucket, now: u64, tokens: u64) {
            let debt = self.t.saturating_sub(b.scaled(now));
            self.t -= debt.min(b.cost(tokens));
        }
    }

    proptest! {
        /// One node equals the exact algorithm request by request: denials, delays, waits, refunds and all.
        #[test]
        fn one_node_is_gcra(
            limit in 1..50u64, window in 1..5_000u64, capacity in 1..60u64, slot in 1..3_000u64,
            queue in prop_oneof![Just(0), 0..3_000u64],
            steps in prop::collection::vec((0..2_000u64, 1..20u64, prop::bool::weighted(0.2)), 1..120),
        ) {
            let bucket = Bucket { limit, window_ns: window, capacity, slot_ns: slot, queue_ns: queue };
            let (mut exact, mut slots, mut now) = (Exact::default(), Slots::default(), 1_000_000u64);
            let own = ReplicaIx(1);
            for (gap, cost, refund) in steps {
                now += gap;
                let level = bucket.level(walk(&bucket, &slots).t, now);
                prop_assert_eq!(level.debt, exact.t.saturating_sub(bucket.scaled(now)));
                if refund {
                    bucket.refund(slots.own_cell(bucket.slot(now), own, 0), level.debt, cost);
                    exact.give_back(&bucket, now, cost);
                    continue;
                }
                let decide_at = |now| decide(&bucket.level(walk(&bucket, &slots).t, now), capacity, queue, cost);
                let verdict = decide_at(now);
                match verdict {
                    Verdict::After(ns) => {
                        prop_assert!(matches!(decide_at(now + ns), Verdict::Admitted(_)));
                        prop_assert!(!matches!(decide_at(now + ns - 1), Verdict::Admitted(_)));
                    }
                    Verdict::Admitted(delay) if delay > 0 => {
                        let without = |now| decide(&bucket.level(walk(&bucket, &slots).t, now), capacity, 0, cost);
                        prop_assert_eq!(without(now + delay), Verdict::Admitted(0));
                        prop_assert_ne!(without(now + delay - 1), Verdict::Admitted(0));
                    }
                    _ => {}
                }
                let admitted = matches!(verdict, Verdict::Admitted(_));
                prop_assert_eq!(exact.take(&bucket, now, cost), admitted);
                if admitted {
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
            let bucket = Bucket { limit, window_ns: window, capacity, slot_ns: slot, queue_ns: 0 };
            let (mut exact, mut slots, mut now) = (0u128, Slots::default(), 1_000_000u64);
            for (replica, gap, cost) in steps {
                now += gap;
                let t = walk(&bucket, &slots).t;
                let (read, truth) = (bucket.level(t, now).debt, exact.saturating_sub(bucket.scaled(now)));
                prop_assert!(read <= truth, "{read} of {truth}");
                prop_assert!(truth - read <= bucket.scaled(slot), "{read} of {truth}, {} in a slot", bucket.scaled(slot));
                if decide(&bucket.level(t, now), capacity, 0, cost) == Verdict::Admitted(0) {
                    bucket.spend(slots.own_cell(bucket.slot(now), ReplicaIx(replica), 0), now, cost);
                    exact = exact.max(bucket.scaled(now)) + bucket.cost(cost);
                }
            }
        }

        /// A partial read never exceeds the full read: every subset of the cells reads at most as much debt. Refunds that
        /// all know do not change that, and several nodes that know everything never read more than the truth with them.
        #[test]
        fn knowing_less_never_reads_more(
            spends in prop::collection::vec((1..4u16, 0..400u64, 1..6u64, prop::bool::weighted(0.15)), 1..40),
            known in prop::collection::vec(any::<bool>(), 40),
        ) {
            let bucket = Bucket { limit: 5, window_ns: 1_000, capacity: 10, slot_ns: 300, queue_ns: 0 };
            let (mut all, mut some, mut now) = (Slots::default(), Slots::default(), 50_000u64);
            let mut exact = Exact::default();
            for ((replica, gap, cost, refund), known) in spends.into_iter().zip(known) {
                now += gap;
                let (slot, replica) = (bucket.slot(now), ReplicaIx(replica));
                let cell = all.own_cell(slot, replica, 0);
                if refund {
                    let owed = bucket.level(walk(&bucket, &all).t, now).debt;
                    bucket.refund(all.own_cell(slot, replica, 0), owed, cost);
                    exact.t -= owed.min(bucket.cost(cost)).min(exact.t);
                } else {
                    bucket.spend(cell, now, cost);
                    exact.t = exact.t.max(bucket.scaled(now)) + bucket.cost(cost);
                }
                if known || refund {
                    let cell = *all.cell(slot, replica).unwrap();
                    some.merge_cell(slot, replica, &cell);
                }
            }
            prop_assert!(walk(&bucket, &some).t <= walk(&bucket, &all).t);
            prop_assert!(walk(&bucket, &all).t <= exact.t);
        }
    }
}
