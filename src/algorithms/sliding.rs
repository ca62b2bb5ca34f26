//! `sliding_window` with two counters, aligned to the epoch: `floor(prev * (W - t mod W) / W) + cur`.

use super::Level;
use crate::crdt::{SlotCell, by_slot, net_spent};

/// The windows of one key at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwoCounters<'a> {
    pub window_ns: u64,
    pub now_ns: u64,
    /// By slot. Windows before the previous one may be there and do not count.
    pub cells: &'a [SlotCell],
}

impl TwoCounters<'_> {
    /// The tokens of window `k` that weigh on it as "previous", and those that weigh in full.
    fn split(&self, k: u64) -> (u64, u64) {
        let (mut prev, mut cur) = (0, 0u64);
        for slot in by_slot(self.cells) {
            match slot[0].slot {
                number if number >= k => cur = cur.saturating_add(net_spent(slot)),
                number if number.checked_add(1) == Some(k) => prev = net_spent(slot),
                _ => {}
            }
        }
        (prev, cur)
    }
}

/// `floor(prev * left / window)`.
fn weighted(prev: u64, left_ns: u64, window_ns: u64) -> u64 {
    match prev.checked_mul(left_ns) {
        Some(product) => product / window_ns,
        None => (u128::from(prev) * u128::from(left_ns) / u128::from(window_ns)) as u64,
    }
}

/// The least time into a window, in `0..=W`, at which `floor(prev * (W - x) / W)` is at most `most`.
fn decayed_after(prev: u64, most: u64, window_ns: u64) -> u64 {
    if prev <= most {
        return 0;
    }
    // floor(prev * left / W) <= most  <=>  prev * left < (most + 1) * W
    let left = ((u128::from(most) + 1) * u128::from(window_ns)).div_ceil(u128::from(prev)) - 1;
    window_ns - u64::try_from(left).unwrap_or(u64::MAX).min(window_ns)
}

impl Level for TwoCounters<'_> {
    fn used(&self) -> u64 {
        let (k, into) = (self.now_ns / self.window_ns, self.now_ns % self.window_ns);
        let (prev, cur) = self.split(k);
        weighted(prev, self.window_ns - into, self.window_ns).saturating_add(cur)
    }

    fn wait_until_at_most(&self, tokens: u64) -> u64 {
        let first = self.now_ns / self.window_ns;
        // One window after the last that holds anything, only the weight of that one is left, and then nothing.
        let last = self.cells.last().map_or(first, |cell| cell.slot.max(first)).saturating_add(2);
        for k in first..=last {
            let (prev, cur) = self.split(k);
            let Some(room) = tokens.checked_sub(cur) else { continue };
            let start = u128::from(k) * u128::from(self.window_ns);
            let at = start + u128::from(decayed_after(prev, room, self.window_ns));
            return u64::try_from(at.saturating_sub(u128::from(self.now_ns))).unwrap_or(u64::MAX);
        }
        unreachable!("the window after the last counts nothing in full, so every number of tokens has room")
    }
}
