//! A cell: what one replica spent in one slot of one key.

use crate::planted::{self, PlantedBug};

/// One writer's spends in one slot: a chain of ever larger values, sent as absolute values, never as increments. Loss,
/// duplication and reordering cannot hurt, since a later value contains every earlier one.
///
/// A window's cell uses `n`, `spent` and `refunded` only; the others keep the values of [`Cell::empty`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The reset number it was written under: of two, the cell with the larger number replaces the other.
    pub n: u32,
    /// Tokens taken, debits included.
    pub spent: u64,
    /// Bucket: slot-clock time of the first spend, nanoseconds; `u64::MAX` while there is
    /// none. Merges by min.
    pub first_ns: u64,
    /// Bucket: the scaled theoretical arrival time of this cell's own stream, which starts from 0 in each slot; as if
    /// nothing had been given back, so that it grows only.
    pub fin: u128,
    /// Bucket: the part of `spent` that debits took.
    pub debited: u64,
    /// What was given back: tokens; a bucket's scaled (tokens times W).
    pub refunded: u128,
}

impl Cell {
    /// The cell before its first spend, under reset number `n`: what merges into anything without a trace.
    pub fn empty(n: u32) -> Self {
        Self { n, spent: 0, first_ns: u64::MAX, fin: 0, debited: 0, refunded: 0 }
    }

    /// Takes in another value of the same cell.
    pub fn merge(&mut self, other: &Cell) {
        if other.n > self.n || (planted::has(PlantedBug::MergeOverwrites) && other.n == self.n) {
            *self = *other;
        } else if other.n == self.n {
            self.spent = match planted::has(PlantedBug::MergeAdds) {
                false => self.spent.max(other.spent),
                true => self.spent.saturating_add(other.spent),
            };
            self.first_ns = self.first_ns.min(other.first_ns);
            self.fin = self.fin.max(other.fin);
            self.debited = self.debited.max(other.debited);
            self.refunded = self.refunded.max(other.refunded);
        }
    }
}
