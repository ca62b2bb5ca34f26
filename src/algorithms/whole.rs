//! Slots that count in full until they leave: `fixed_window`, epoch or calendar, `sliding_window` with sub-windows, and
//! `sliding_log`, whose sub-windows are milliseconds. They differ in what a slot is and when it leaves only.

use super::Level;
use super::window::Window;
use crate::crdt::{SlotCell, by_slot, net_spent};

/// The slots of one key that count at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeSlots<'a> {
    pub window: &'a Window,
    pub now_ns: u64,
    /// By slot; all of them count.
    pub cells: &'a [SlotCell],
    /// What they come to.
    pub used: u64,
}

impl Level for WholeSlots<'_> {
    fn used(&self) -> u64 {
        self.used
    }

    fn wait_until_at_most(&self, tokens: u64) -> u64 {
        let leaves_in = |slot: &[SlotCell]| self.window.leaves_ns(slot[0].slot).saturating_sub(self.now_ns);
        // A sum that saturated cannot be counted down.
        if (self.used / 2..self.used).contains(&tokens) && self.used < u64::MAX {
            // Few have to leave: the oldest, until the rest is little enough.
            let mut left = self.used;
            for slot in by_slot(self.cells) {
                left = left.saturating_sub(net_spent(slot));
                if left <= tokens {
                    return leaves_in(slot);
                }
            }
        }
        // Few may stay: the newest, as long as they fit. The first that does not has to leave.
        let mut kept = 0u64;
        for slot in by_slot(self.cells).rev() {
            kept = kept.saturating_add(net_spent(slot));
            if kept > tokens {
                return leaves_in(slot);
            }
        }
        0
    }
}
