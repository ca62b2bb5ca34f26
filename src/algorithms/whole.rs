//! Slots that count in full until they leave: `fixed_window`, epoch or calendar, `sliding_window` with sub-windows, and
//! `sliding_log`, whose sub-windows are milliseconds. They differ in what a slot is and when it leaves only.

use super::Level;
use super::window::Window;

/// The slots of one key at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeSlots<'a> {
    pub window: &'a Window,
    pub now_ns: u64,
    /// (slot, tokens), ascending. Slots that have left may be there and do not count.
    pub counts: &'a [(u64, u64)],
}

impl WholeSlots<'_> {
    fn counted(&self) -> &[(u64, u64)] {
        let first = self.window.first_counted(self.now_ns);
        &self.counts[self.counts.partition_point(|c| c.0 < first)..]
    }
}

impl Level for WholeSlots<'_> {
    fn used(&self) -> u64 {
        self.counted().iter().fold(0, |sum, c| sum.saturating_add(c.1))
    }

    fn wait_until_at_most(&self, tokens: u64) -> u64 {
        let counted = self.counted();
        // What stays longest is kept as long as it fits; the last that does not has to leave.
        let mut kept = 0u64;
        for (slot, count) in counted.iter().rev() {
            kept = kept.saturating_add(*count);
            if kept > tokens {
                return self.window.leaves_ns(*slot).saturating_sub(self.now_ns);
            }
        }
        0
    }
}
