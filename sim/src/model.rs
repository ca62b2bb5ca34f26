//! The algorithms as their definitions have them, for one limiter that knows everything. Written apart from the
//! product's: the oracle must not share a mistake with what it judges.

use std::collections::BTreeMap;

use tidegate::limits::{Algorithm, Limit};

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
    /// Tokens in slots of `slot_ns` of the epoch, each of which counts in full until `counts_ns` after its start:
    /// sub-windows, and the milliseconds of a log.
    Slots {
        /// L.
        limit: u64,
        /// W.
        window_ns: u64,
        /// The length of a slot.
        slot_ns: u64,
        /// How long one counts from its start.
        counts_ns: u64,
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
    /// The rule of a limit.
    pub fn of(limit: &Limit) -> Self {
        let (tokens, window_ns) = (limit.limit, limit.window_ns);
        match limit.algorithm {
            Algorithm::FixedWindow => Self::Fixed { limit: tokens, window_ns },
            Algorithm::SlidingWindow => Self::Sliding { limit: tokens, window_ns },
            Algorithm::SlidingSlots(slots) => {
                let slot_ns = window_ns / u64::from(slots);
                Self::Slots { limit: tokens, window_ns, slot_ns, counts_ns: window_ns + slot_ns }
            }
            Algorithm::SlidingLog => Self::Slots { limit: tokens, window_ns, slot_ns: 1_000_000, counts_ns: window_ns },
            // A run is much shorter than a page, and the tests of the product turn pages.
            Algorithm::CalendarWindow(_) => Self::Fixed { limit: tokens, window_ns },
            Algorithm::TokenBucket | Algorithm::LeakyBucket(_) => {
                Self::Bucket { limit: tokens, window_ns, capacity: limit.capacity() }
            }
        }
    }

    /// The most that may be used at once.
    pub fn capacity(&self) -> u64 {
        match *self {
            Self::Fixed { limit, .. } | Self::Sliding { limit, .. } | Self::Slots { limit, .. } => limit,
            Self::Bucket { capacity, .. } => capacity,
        }
    }

    /// L over W, in tokens a second.
    pub fn tokens_per_s(&self) -> f64 {
        let (Self::Fixed { limit, window_ns }
        | Self::Sliding { limit, window_ns }
        | Self::Slots { limit, window_ns, .. }
        | Self::Bucket { limit, window_ns, .. }) = *self;
        limit as f64 / (window_ns as f64 / 1e9)
    }

    /// How far back a spend may matter.
    pub fn look_back_ns(&self) -> u64 {
        match *self {
            Self::Fixed { window_ns, .. } => window_ns,
            Self::Sliding { window_ns, .. } => 2 * window_ns,
            Self::Slots { counts_ns, .. } => counts_ns,
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
            Self::Slots { slot_ns, counts_ns, .. } => {
                let counts = |s: &Spend| s.at_ns / slot_ns * slot_ns + counts_ns > now_ns;
                spends.into_iter().filter(counts).map(|s| s.tokens).sum()
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

/// What was spent on one key, as it comes to be known: in any order. Answers as [`Rule::used`] does, without going
/// through all of it each time.
#[derive(Clone, Debug)]
pub struct Ledger {
    rule: Rule,
    /// What a bucket owes beyond so many tokens is forgiven.
    cap: u64,
    /// Of windows: tokens by window.
    windows: BTreeMap<u64, u64>,
    /// Of buckets: spends in order, each with the scaled time at which the bucket is full again after it.
    spends: Vec<(Spend, u128)>,
    /// Up to which spend those times are right.
    right: usize,
    /// Tokens that were debited: they are never forgiven.
    debited: u64,
}

impl Ledger {
    /// Nothing was spent. `cap` is for buckets; `u64::MAX` forgives nothing.
    pub fn new(rule: Rule, cap: u64) -> Self {
        Self { rule, cap, windows: BTreeMap::new(), spends: Vec::new(), right: 0, debited: 0 }
    }

    /// A spend comes to be known.
    pub fn add(&mut self, spend: Spend) {
        match self.rule {
            Rule::Fixed { window_ns, .. } | Rule::Sliding { window_ns, .. } => {
                *self.windows.entry(spend.at_ns / window_ns).or_default() += spend.tokens;
            }
            Rule::Slots { slot_ns, .. } => {
                *self.windows.entry(spend.at_ns / slot_ns).or_default() += spend.tokens;
            }
            Rule::Bucket { .. } => {
                let at = self.spends.partition_point(|held| held.0 <= spend);
                self.spends.insert(at, (spend, 0));
                self.right = self.right.min(at);
            }
        }
    }

    /// A spend that was taken whatever the state: what is owed beyond the cap is forgiven, debits are not.
    pub fn add_debit(&mut self, spend: Spend) {
        self.debited = self.debited.saturating_add(spend.tokens);
        self.right = 0;
        self.add(spend);
    }

    /// What counts against the capacity at `now_ns`.
    pub fn used(&mut self, now_ns: u64) -> u64 {
        match self.rule {
            Rule::Fixed { window_ns, .. } => self.windows.range(now_ns / window_ns..).map(|window| window.1).sum(),
            Rule::Sliding { window_ns, .. } => {
                let k = now_ns / window_ns;
                let before = k.checked_sub(1).and_then(|k| self.windows.get(&k)).copied().unwrap_or(0);
                let current: u64 = self.windows.range(k..).map(|window| window.1).sum();
                let left = window_ns - now_ns % window_ns;
                (u128::from(before) * u128::from(left) / u128::from(window_ns)) as u64 + current
            }
            Rule::Slots { slot_ns, counts_ns, .. } => {
                let first = now_ns.checked_sub(counts_ns).map_or(0, |left_ns| left_ns / slot_ns + 1);
                self.windows.range(first..).map(|window| window.1).sum()
            }
            Rule::Bucket { limit, window_ns, .. } => {
                let scaled = |t: u64| u128::from(limit) * u128::from(t);
                let window = u128::from(window_ns);
                let cap = window * u128::from(self.cap.saturating_add(self.debited));
                for at in self.right..self.spends.len() {
                    let before = at.checked_sub(1).map_or(0, |before| self.spends[before].1);
                    let (spend, full_again) = &mut self.spends[at];
                    let now = scaled(spend.at_ns);
                    *full_again =
                        (before.max(now) + window * u128::from(spend.tokens)).min(now.saturating_add(cap).max(before));
                }
                self.right = self.spends.len();
                let full_again = self.spends.last().map_or(0, |last| last.1);
                full_again.saturating_sub(scaled(now_ns)).div_ceil(window) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

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
    fn a_ledger_answers_as_the_rule_does_whatever_the_order() {
        let mut rng = StdRng::seed_from_u64(1);
        let rules = [
            Rule::Fixed { limit: 50, window_ns: 60 },
            Rule::Sliding { limit: 50, window_ns: 60 },
            Rule::Bucket { limit: 3, window_ns: 10, capacity: 5 },
            Rule::Slots { limit: 50, window_ns: 60, slot_ns: 10, counts_ns: 70 },
        ];
        for round in 0..300 {
            let rule = rules[round % rules.len()];
            let (mut ledger, mut all) = (Ledger::new(rule, u64::MAX), Vec::new());
            for _ in 0..40 {
                let spend = Spend { at_ns: rng.random_range(1_000..1_400), tokens: rng.random_range(1..9) };
                ledger.add(spend);
                all.push(spend);
                let now_ns = rng.random_range(1_000..1_500);
                let counted = all.iter().copied();
                assert_eq!(ledger.used(now_ns), rule.used(now_ns, counted), "{rule:?} at {now_ns}: {all:?}");
            }
        }
    }

    #[test]
    fn a_ledger_forgives_beyond_its_cap() {
        let mut ledger = Ledger::new(Rule::Bucket { limit: 1, window_ns: 10, capacity: 5 }, 8);
        spends(&[(100, 5), (101, 9)]).into_iter().for_each(|spend| ledger.add(spend));
        assert_eq!(ledger.used(101), 8);
        assert_eq!(ledger.used(121), 6);
        // A debit is not, nor does it make room for what was forgiven before.
        ledger.add_debit(Spend { at_ns: 121, tokens: 20 });
        assert!(ledger.used(121) >= 26);
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
