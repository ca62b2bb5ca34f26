//! `fixed_window` and `sliding_window` (two counters), both aligned to the epoch.
//!
//! `fixed`: the count in window `k = floor(t / W)`. `sliding`: `floor(prev * (W - t mod W) / W) + cur`. What peers (or
//! a reset mark) put into windows after `k` counts as if in `k`: leaving it out would make those tokens free.

use super::Level;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Only the current window counts.
    Fixed,
    /// The previous window counts too, weighted by how much of it the last W still covers.
    Sliding,
}

/// The windows of one key at one instant.
#[derive(Clone, Copy, Debug)]
pub struct WindowLevel<'a> {
    kind: Kind,
    window_ns: u64,
    now_ns: u64,
    /// (window number, tokens), ascending, none below the previous window.
    counts: &'a [(u64, u64)],
}

impl<'a> WindowLevel<'a> {
    /// `counts` are (window number, tokens) in ascending order; `window_ns` is above 0. Windows before the previous one
    /// may be there and do not count.
    pub fn new(kind: Kind, window_ns: u64, now_ns: u64, counts: &'a [(u64, u64)]) -> Self {
        Self { kind, window_ns, now_ns, counts }
    }

    fn sum(&self, from: u64) -> u64 {
        self.counts.iter().filter(|c| c.0 >= from).fold(0, |sum, c| sum.saturating_add(c.1))
    }

    /// The tokens of window `k` that weigh on it as "previous", and those that weigh in full.
    fn split(&self, k: u64) -> (u64, u64) {
        let prev = match self.kind {
            Kind::Fixed => 0,
            Kind::Sliding => self.counts.iter().find(|c| Some(c.0) == k.checked_sub(1)).map_or(0, |c| c.1),
        };
        (prev, self.sum(k))
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

impl Level for WindowLevel<'_> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_counters() {
        let level = WindowLevel::new(Kind::Sliding, 60, 60 * 7 + 15, &[(6, 100), (7, 10)]);
        assert_eq!(level.used(), 75 + 10);
        let fixed = WindowLevel::new(Kind::Fixed, 60, 60 * 7 + 15, &[(6, 100), (7, 10)]);
        assert_eq!(fixed.used(), 10);
        assert_eq!(fixed.wait_until_at_most(9), 45);
    }

    #[test]
    fn windows_ahead_count_now_and_until_they_end() {
        let level = WindowLevel::new(Kind::Fixed, 60, 60 * 7 + 15, &[(8, 5)]);
        assert_eq!(level.used(), 5);
        assert_eq!(level.wait_until_at_most(4), 45 + 60);
    }

    proptest! {
        /// Nanosecond by nanosecond: the wait told is the first instant at which it holds.
        #[test]
        fn the_wait_is_the_least(
            sliding: bool, window in 1..40u64, into in 0..40u64,
            counts in prop::collection::btree_map(6..10u64, 0..30u64, 0..4), tokens in 0..30u64,
        ) {
            let kind = if sliding { Kind::Sliding } else { Kind::Fixed };
            let counts: Vec<_> = counts.into_iter().collect();
            let now = 7 * window + into % window;
            let used = |t| WindowLevel::new(kind, window, t, &counts).used();
            let wait = WindowLevel::new(kind, window, now, &counts).wait_until_at_most(tokens);
            prop_assert!(used(now + wait) <= tokens);
            for t in now..now + wait {
                prop_assert!(used(t) > tokens, "{t} would do already");
            }
        }
    }
}
