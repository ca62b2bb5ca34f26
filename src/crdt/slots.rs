//! All that is held of one key: its cells by slot and replica, its bases by slot, its mark.

use super::{Base, Cell, Mark};

/// A replica, as a number that has meaning within one engine only. `ReplicaIx(0)` is no particular replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicaIx(pub u16);

/// A cell and where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotCell {
    /// The slot.
    pub slot: u64,
    /// The writer.
    pub replica: ReplicaIx,
    /// What it wrote.
    pub cell: Cell,
}

/// What the cells of one slot come to in a window: what all replicas spent, without what they gave back.
pub fn net_spent(slot: &[SlotCell]) -> u64 {
    if let [only] = slot
        && only.cell.refunded == 0
    {
        return only.cell.spent;
    }
    let spent = slot.iter().fold(0u128, |sum, one| sum.saturating_add(one.cell.spent.into()));
    let refunded = slot.iter().fold(0u128, |sum, one| sum.saturating_add(one.cell.refunded));
    u64::try_from(spent.saturating_sub(refunded)).unwrap_or(u64::MAX)
}

/// Cells, slot by slot.
pub fn by_slot(cells: &[SlotCell]) -> impl DoubleEndedIterator<Item = &[SlotCell]> {
    cells.chunk_by(|a, b| a.slot == b.slot)
}

/// What a merge did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merged {
    /// Something became larger or new.
    Changed,
    /// All of it was known.
    Known,
    /// A mark forgives it: nothing was taken over.
    Ignored,
}

/// The state of one key under one shape. Cells are ordered by slot, then replica; bases by slot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots {
    cells: Vec<SlotCell>,
    bases: Vec<(u64, Base)>,
    mark: Mark,
}

impl Slots {
    /// Every cell held, by slot, then replica.
    pub fn cells(&self) -> &[SlotCell] {
        &self.cells
    }

    /// The cells of `slot` and later.
    pub fn cells_from(&self, slot: u64) -> &[SlotCell] {
        &self.cells[self.cells.partition_point(|c| c.slot < slot)..]
    }

    /// Every base held, by slot.
    pub fn bases(&self) -> &[(u64, Base)] {
        &self.bases
    }

    /// The mark; the default one when the key was not reset.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Whether nothing at all is held.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.bases.is_empty() && self.mark == Mark::default()
    }

    /// The newest slot that a cell, a base or the mark names.
    pub fn newest_slot(&self) -> Option<u64> {
        let mark = (self.mark != Mark::default()).then_some(self.mark.slot);
        [self.cells.last().map(|c| c.slot), self.bases.last().map(|b| b.0), mark].into_iter().flatten().max()
    }

    /// The oldest slot that a cell names.
    pub fn oldest_cell_slot(&self) -> Option<u64> {
        self.cells.first().map(|c| c.slot)
    }

    /// One replica's cell of one slot.
    pub fn cell(&self, slot: u64, replica: ReplicaIx) -> Option<&Cell> {
        self.find(slot, replica).ok().map(|at| &self.cells[at].cell)
    }

    fn find(&self, slot: u64, replica: ReplicaIx) -> Result<usize, usize> {
        // Nearly every touch is of the newest slots: look from the end.
        match self.cells.last() {
            Some(last) if (last.slot, last.replica) == (slot, replica) => Ok(self.cells.len() - 1),
            Some(last) if (last.slot, last.replica) < (slot, replica) => Err(self.cells.len()),
            _ => self.cells.binary_search_by_key(&(slot, replica), |c| (c.slot, c.replica)),
        }
    }

    /// Takes in a cell.
    pub fn merge_cell(&mut self, slot: u64, replica: ReplicaIx, cell: &Cell) -> Merged {
        if self.mark.ignores(slot, cell.n) {
            return Merged::Ignored;
        }
        match self.find(slot, replica) {
            Ok(at) => {
                let held = &mut self.cells[at].cell;
                let before = *held;
                held.merge(cell);
                if *held == before { Merged::Known } else { Merged::Changed }
            }
            Err(at) => {
                self.cells.insert(at, SlotCell { slot, replica, cell: *cell });
                Merged::Changed
            }
        }
    }

    /// Takes in a mark: what it forgives is dropped.
    pub fn merge_mark(&mut self, mark: Mark) -> Merged {
        if mark <= self.mark {
            return Merged::Known;
        }
        self.mark = mark;
        self.cells.retain(|c| !mark.ignores(c.slot, c.cell.n));
        self.bases.retain(|(_, base)| base.mark >= mark);
        Merged::Changed
    }

    /// Takes in a base. All bases held were computed under one mark: the highest that any of them bears.
    pub fn merge_base(&mut self, slot: u64, base: &Base) -> Merged {
        let held_under = self.bases.first().map_or(self.mark, |held| held.1.mark.max(self.mark));
        if base.mark < held_under {
            return Merged::Ignored;
        }
        if base.mark > held_under {
            self.bases.clear();
        }
        match self.bases.binary_search_by_key(&slot, |b| b.0) {
            Ok(at) => {
                let held = &mut self.bases[at].1;
                let before = *held;
                held.merge(base);
                if *held == before { Merged::Known } else { Merged::Changed }
            }
            Err(at) => {
                self.bases.insert(at, (slot, *base));
                Merged::Changed
            }
        }
    }

    /// Forgets the mark, once the slot it names has expired.
    pub fn drop_mark(&mut self) {
        self.mark = Mark::default();
    }

    /// Drops every cell of a slot below `slot`. True when there was one.
    pub fn drop_cells_below(&mut self, slot: u64) -> bool {
        let dead = self.cells.partition_point(|c| c.slot < slot);
        self.cells.drain(..dead);
        dead > 0
    }

    /// Drops every base below `slot`.
    pub fn drop_bases_below(&mut self, slot: u64) {
        let dead = self.bases.partition_point(|b| b.0 < slot);
        self.bases.drain(..dead);
    }

    /// Drops every base of which `which` says so. True when there was one.
    pub fn drop_bases(&mut self, which: impl Fn(u64, &Base) -> bool) -> bool {
        let before = self.bases.len();
        self.bases.retain(|(slot, base)| !which(*slot, base));
        self.bases.len() < before
    }

    /// Drops what is of `slot` or later: the cells of `replica`, all bases, the mark.
    pub fn drop_from(&mut self, slot: u64, replica: ReplicaIx) {
        self.cells.retain(|c| c.slot < slot || c.replica != replica);
        self.bases.retain(|base| base.0 < slot);
        if self.mark.slot >= slot {
            self.drop_mark();
        }
    }

    /// The mutable cell of `replica` in `slot`, made when it is not held: for the one writer only.
    pub fn own_cell(&mut self, slot: u64, replica: ReplicaIx, n: u32) -> &mut Cell {
        let at = match self.find(slot, replica) {
            Ok(at) => at,
            Err(at) => {
                self.cells.insert(at, SlotCell { slot, replica, cell: Cell::empty(n) });
                at
            }
        };
        let cell = &mut self.cells[at].cell;
        if cell.n < n {
            *cell = Cell::empty(n);
        }
        cell
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<SlotCell>() + self.bases.capacity() * size_of::<(u64, Base)>()
    }
}
