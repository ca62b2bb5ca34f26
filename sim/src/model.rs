//! The algorithms as their definitions have them, for one limiter that knows everything. Written apart from the
//! product's: the oracle must not share a mistake with what it judges.

/// A limit as the oracle has it. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Tokens in the window of the epoch that holds the instant.
    Fixed {
        /// L.
        limit: u64,
        /// W.
        window_ns: u64,
    },
    /// Those, and the share of the window before that the last W still covers.
    Sliding {
        /// L.
        limit: u64,
        /// W.
        window_ns: u64,
    },
    /// A bucket of `capacity` that refills `limit` a window.
    Bucket {
        /// L.
        limit: u64,
        /// W.
        window_ns: u64,
        /// C.
        capacity: u64,
    },
}

/// Tokens taken at an instant of the slot clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spend {
    /// When.
    pub at_ns: u64,
    /// How many.
    pub tokens: u64,
}

/// Longer than any run, and far from overflow.
const FOREVER_NS: u64 = u64::MAX / 16;

impl Rule {
    /// The most that may be used at once.
    pub fn capacity(&self) -> u64 {
        match *self {
            Self::Fixed { limit, .. } | Self::Sliding { limit, .. } => limit,
            Self::Bucket { capacity, .. } => capacity,
        }
    }

    /// L over W, in tokens a second.
    pub fn tokens_per_s(&self) -> f64 {
        let (Self::Fixed { limit, window_ns }
        | Self::Sliding { limit, window_ns }
        | Self::Bucket { limit, window_ns, .. }) = *self;
        limit as f64 / (window_ns as f64 / 1e9)
    }

    /// How far back a spend may matter.
    pub fn look_back_ns(&self) -> u64 {
        match *self {
            Self::Fixed { window_ns, .. } => window_ns,
            Self::Sliding { window_ns, .. } => 2 * window_ns,
            // Under steady overload a bucket never comes to rest: every spend chains on all before it.
            Self::Bucket { .. } => FOREVER_NS,
        }
    }

    /// What counts against the capacity at `now_ns`. Spends of windows that have not begun count as of this one: their
    /// writers' clocks are ahead.
    pub fn used(&self, now_ns: u64, spends: impl IntoIterator<Item = Spend>) -> u64 {
        match *self {
            Self::Fixed { window_ns, .. } => {
                let from = now_ns / window_ns;
                spends.into_iter().filter(|s| s.at_ns / window_ns >= from).map(|s| s.tokens).sum()
            }
            Self::Sliding { window_ns, .. } => {
                let k = now_ns / window_ns;
                let (mut before, mut current) = (0u64, 0u64);
                for spend in spends {
                    match spend.at_ns / window_ns {
                        slot if slot >= k => current += spend.tokens,
                        slot if slot + 1 == k => before += spend.tokens,
                        _ => {}
                    }
                }
                let left = window_ns - now_ns % window_ns;
                (u128::from(before) * u128::from(left) / u128::from(window_ns)) as u64 + current
            }
            Self::Bucket { limit, window_ns, .. } => {
                let mut spends: Vec<Spend> = spends.into_iter().collect();
                spends.sort_unstable();
                let scaled = |t: u64| u128::from(limit) * u128::from(t);
                let full_again = spends
                    .iter()
                    .fold(0u128, |at, s| at.max(scaled(s.at_ns)) + u128::from(window_ns) * u128::from(s.tokens));
                full_again.saturating_sub(scaled(now_ns)).div_ceil(u128::from(window_ns)) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spends(of: &[(u64, u64)]) -> Vec<Spend> {
        of.iter().map(|&(at_ns, tokens)| Spend { at_ns, tokens }).collect()
    }

    #[test]
    fn windows_by_hand() {
        let taken = spends(&[(55, 7), (61, 10), (100, 5), (121, 2)]);
        let fixed = Rule::Fixed { limit: 50, window_ns: 60 };
        assert_eq!(fixed.used(75, taken.clone()), 17);
        assert_eq!(fixed.used(120, taken.clone()), 2);
        let sliding = Rule::Sliding { limit: 50, window_ns: 60 };
        assert_eq!(sliding.used(75, taken.clone()), 7 * 45 / 60 + 17);
        assert_eq!(sliding.used(130, taken), 15 * 50 / 60 + 2);
    }

    #[test]
    fn a_bucket_by_hand() {
        let bucket = Rule::Bucket { limit: 1, window_ns: 10, capacity: 5 };
        assert_eq!(bucket.used(100, spends(&[(100, 5)])), 5);
        assert_eq!(bucket.used(101, spends(&[(100, 5)])), 5);
        assert_eq!(bucket.used(110, spends(&[(100, 5)])), 4);
        assert_eq!(bucket.used(155, spends(&[(100, 5), (152, 1)])), 1);
        assert_eq!(bucket.used(200, spends(&[(150, 1), (100, 5)])), 0);
    }
}
