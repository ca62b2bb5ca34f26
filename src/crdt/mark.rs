//! Reset marks.

use crate::planted::{self, PlantedBug};

/// `(slot, n)`: everything of the key below `slot` is ignored, and in `slot` everything written under a reset number
/// below `n`. Merged by lexicographic max. The default, `(0, 0)`, ignores nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Mark {
    /// The slot in which the reset happened.
    pub slot: u64,
    /// How many resets this slot has seen; 0 only in the default.
    pub n: u32,
}

impl Mark {
    /// Whether a cell of `slot`, written under reset number `n`, is forgiven.
    pub fn ignores(&self, slot: u64, n: u32) -> bool {
        let counts = slot == self.slot || planted::has(PlantedBug::ResetEpoch);
        slot < self.slot || (counts && n < self.n)
    }

    /// Where a spend in `slot` is to be written: the slot and the reset number. A node whose own slot is still below
    /// the mark writes in the mark's slot: left in its own, the spend would be free.
    pub fn place(&self, slot: u64) -> (u64, u32) {
        match slot.cmp(&self.slot) {
            std::cmp::Ordering::Greater if planted::has(PlantedBug::ResetEpoch) => (slot, self.n),
            std::cmp::Ordering::Greater => (slot, 0),
            _ => (self.slot, self.n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_below_and_places_at() {
        let mark = Mark { slot: 5, n: 2 };
        assert!(mark.ignores(4, 9) && mark.ignores(5, 1));
        assert!(!mark.ignores(5, 2) && !mark.ignores(5, 3) && !mark.ignores(6, 0));
        assert_eq!(mark.place(3), (5, 2));
        assert_eq!(mark.place(5), (5, 2));
        assert_eq!(mark.place(6), (6, 0));
        assert_eq!(Mark::default().place(0), (0, 0));
    }
}
