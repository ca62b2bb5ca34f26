//! One key's state in memory: 64 bytes for a key with a single plain cell, a box beside it for everything else.

use super::names::{ShapeInfo, ShapeIx, Standing};
use crate::algorithms::bucket::Walk;
use crate::crdt::{Base, Cell, Mark, Merged, ReplicaIx, SlotCell, Slots};
use crate::id::KeyHash;
use crate::limits::Shape;

/// One key under one shape. Exactly one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub key: KeyHash,
    pub held: Held,
    /// Own tokens taken since the last drain; saturates. In a free entry: the next free one.
    pub unsent: u32,
    /// [`ShapeIx::NONE`] in a free entry.
    pub shape: ShapeIx,
    pub standing: Standing,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// What is held of the key.
#[derive(Debug)]
pub(super) enum Held {
    Nothing,
    /// Exactly one cell, never reset, without debits and refunds, of the slot that `at` tells. Its own writer's changes are unsent
    /// exactly while `Entry::unsent` is above 0.
    One {
        replica: ReplicaIx,
        /// A bucket's `first_ns`, within the slot; a window's slot.
        at: u64,
        spent: u64,
        fin: Fin,
    },
    Many(Box<Many>),
}

/// A u128 that needs no 16-byte alignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fin([u64; 2]);

impl From<u128> for Fin {
    fn from(fin: u128) -> Self {
        Self([fin as u64, (fin >> 64) as u64])
    }
}

impl From<Fin> for u128 {
    fn from(Fin([low, high]): Fin) -> Self {
        u128::from(low) | u128::from(high) << 64
    }
}

/// Everything a key can hold.
#[derive(Debug)]
pub(super) struct Many {
    pub slots: Slots,
    /// Until when the mark must be kept.
    pub until_ns: u64,
    pub cache: Option<Cache>,
    pub sum: Option<Sum>,
    /// Own cells of this slot and later were changed since the last drain; `u64::MAX` when none was.
    pub unsent_from: u64,
    /// Whether the entry stands in the shard's list of changed ones.
    pub listed: bool,
    /// The mark was made here since the last drain.
    pub mark_unsent: bool,
    /// A base came from another shape since the last drain.
    pub base_unsent: bool,
    /// A base came to stand for dropped slots and is not in the journal yet.
    pub base_unsaved: bool,
}

/// A bucket's walk through every slot below `slot`, with the bases up to `slot`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub slot: u64,
    pub walk: Walk,
    /// The number of nodes for which it left overdraft room.
    pub nodes: u32,
}

/// What the slots from `first` to below `end` of a window come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub first: u64,
    pub end: u64,
    pub total: u128,
}

impl Entry {
    pub fn free(next: u32) -> Self {
        Self {
            key: KeyHash([0; 16]),
            held: Held::Nothing,
            unsent: next,
            shape: ShapeIx::NONE,
            standing: Standing::FOREIGN,
        }
    }

    pub fn new(key: KeyHash, shape: ShapeIx) -> Self {
        Self { key, held: Held::Nothing, unsent: 0, shape, standing: Standing::FOREIGN }
    }

    /// Whether it stands in the shard's list of changed ones.
    pub fn is_listed(&self) -> bool {
        match &self.held {
            Held::Many(many) => many.listed,
            _ => self.unsent > 0,
        }
    }

    /// Cells, bases and the mark.
    pub fn len(&self) -> u64 {
        match &self.held {
            Held::Nothing => 0,
            Held::One { .. } => 1,
            Held::Many(many) => many.len(),
        }
    }

    /// Calls `f` with all cells and bases.
    pub fn read<R>(&self, info: &ShapeInfo, f: impl FnOnce(&[SlotCell], &[(u64, Base)]) -> R) -> R {
        match &self.held {
            Held::Nothing => f(&[], &[]),
            Held::One { replica, at, spent, fin } => f(&[one(info, *replica, *at, *spent, *fin)], &[]),
            Held::Many(many) => f(many.slots.cells(), many.slots.bases()),
        }
    }

    pub fn mark(&self) -> Mark {
        match &self.held {
            Held::Many(many) => many.slots.mark(),
            _ => Mark::default(),
        }
    }

    /// Whether it holds a cell of `own`, or a mark (which this node may have made).
    pub fn holds_own(&self, own: ReplicaIx) -> bool {
        match &self.held {
            Held::Nothing => false,
            Held::One { replica, .. } => *replica == own,
            Held::Many(many) => {
                many.slots.mark() != Mark::default() || many.slots.cells().iter().any(|c| c.replica == own)
            }
        }
    }

    /// The full form. `own` tells whether a single cell may be unsent.
    pub fn many(&mut self, info: &ShapeInfo, own: ReplicaIx) -> &mut Many {
        if !matches!(self.held, Held::Many(_)) {
            let mut many = Box::new(Many::empty());
            if let Held::One { replica, at, spent, fin } = self.held {
                let cell = one(info, replica, at, spent, fin);
                many.slots.merge_cell(cell.slot, replica, &cell.cell);
                if replica == own && self.unsent > 0 {
                    (many.unsent_from, many.listed) = (cell.slot, true);
                }
            }
            self.held = Held::Many(many);
        }
        match &mut self.held {
            Held::Many(many) => many,
            _ => unreachable!("it was made so above"),
        }
    }

    /// Goes back to the small form where that can hold everything.
    pub fn shrink(&mut self, info: &ShapeInfo) {
        let Held::Many(many) = &self.held else { return };
        if many.slots.mark() != Mark::default() || !many.slots.bases().is_empty() {
            return;
        }
        match many.slots.cells() {
            [] => (self.held, self.unsent) = (Held::Nothing, 0),
            [only] if !many.listed => {
                if let Some(held) = Held::plain(info, only) {
                    self.held = held;
                }
            }
            _ => {}
        }
    }
}

impl Held {
    /// The small form of a single cell, if it has one.
    pub fn plain(info: &ShapeInfo, only: &SlotCell) -> Option<Self> {
        let cell = &only.cell;
        let at = match info.shape {
            Shape::Window(_) => only.slot,
            Shape::Bucket(_) => cell.first_ns,
        };
        let plain = Held::One { replica: only.replica, at, spent: cell.spent, fin: cell.fin.into() };
        (one(info, only.replica, at, cell.spent, cell.fin.into()) == *only).then_some(plain)
    }
}

/// The cell of the small form.
pub(super) fn one(info: &ShapeInfo, replica: ReplicaIx, at: u64, spent: u64, fin: Fin) -> SlotCell {
    let (slot, first_ns) = match info.shape {
        Shape::Window(_) => (at, u64::MAX),
        Shape::Bucket(bucket) => (bucket.slot(at), at),
    };
    SlotCell { slot, replica, cell: Cell { spent, first_ns, fin: fin.into(), ..Cell::empty(0) } }
}

impl Many {
    fn empty() -> Self {
        Self {
            slots: Slots::default(),
            until_ns: 0,
            cache: None,
            sum: None,
            unsent_from: u64::MAX,
            listed: false,
            mark_unsent: false,
            base_unsent: false,
            base_unsaved: false,
        }
    }

    fn len(&self) -> u64 {
        let mark = usize::from(self.slots.mark() != Mark::default());
        (self.slots.cells().len() + self.slots.bases().len() + mark) as u64
    }

    /// The mark under which whatever is held was written, also after that mark expired: bases remember it.
    pub fn held_under(&self) -> Mark {
        let bases = self.slots.bases().first().map_or(Mark::default(), |base| base.1.mark);
        bases.max(self.slots.mark())
    }

    /// Something changed in `slot`: a walk that has passed it is void, and so is a sum that holds it.
    pub fn touched(&mut self, slot: u64) {
        self.sum = self.sum.filter(|sum| !(sum.first..sum.end).contains(&slot));
        if self.cache.is_some_and(|cache| cache.slot > slot) {
            self.cache = None;
        }
    }

    /// A base came to stand at `slot`.
    pub fn merge_base(&mut self, slot: u64, base: &Base) -> Merged {
        if self.cache.is_some_and(|cache| cache.slot >= slot) {
            self.cache = None;
        }
        self.slots.merge_base(slot, base)
    }

    /// Takes in a mark that must be kept until `until_ns`.
    pub fn merge_mark(&mut self, mark: Mark, until_ns: u64) -> Merged {
        let merged = self.slots.merge_mark(mark);
        if merged == Merged::Changed {
            (self.cache, self.sum) = (None, None);
        }
        if mark == self.slots.mark() {
            self.until_ns = self.until_ns.max(until_ns);
        }
        merged
    }
}
