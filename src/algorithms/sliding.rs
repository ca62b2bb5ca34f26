//! `sliding_window` with two counters, aligned to the epoch: `floor(prev * (W - t mod W) / W) + cur`.

use super::Level;

/// The windows of one key at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwoCounters<'a> {
    pub window_ns: u64,
    pub now_ns: u64,
    /// (window number, tokens), ascending. Windows before the previous one may be there and do not count.
    pub counts: &'a [(u64, u64)],
}

impl TwoCounters<'_> {
    /// The tokens of window `k` that weigh on it as "previous", and those that weigh in full.
    fn split(&self, k: u64) -> (u64, u64) {
        let prev = self.counts.iter().find(|c| Some(c.0) == k.checked_sub(1)).map_or(0, |c| c.1);
        let cur = self.counts.iter().filter(|c| c.0 >= k).fold(0u64, |sum, c| sum.saturating_add(c.1));
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
        let last = self.counts.last().map_or(first, |c| c.0.max(first)).saturating_add(2);
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
