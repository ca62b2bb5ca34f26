//! One valid limit.

use std::fmt;
use std::sync::Arc;

use super::Shape;
use crate::algorithms::bucket::Bucket;
use crate::algorithms::window::Kind;
use crate::time::{MS, SECOND};

/// The largest number of tokens a limit or a burst may have.
pub const MAX_LIMIT: u64 = i64::MAX as u64;

/// A limit's name: `[A-Za-z0-9._:/-]{1,64}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitName(Arc<str>);

impl LimitName {
    /// None when `name` is no limit name.
    pub fn new(name: &str) -> Option<Self> {
        let fits =
            (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b));
        fits.then(|| Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// How a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// The count in the current window.
    FixedWindow,
    /// Two counters, the previous one weighted.
    SlidingWindow,
    /// Debt that is paid off at a constant rate; `leaky_bucket` without a queue is the same.
    TokenBucket,
}

impl Algorithm {
    /// The name in configurations and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::TokenBucket => "token_bucket",
        }
    }
}

/// What a check of a new key is answered when the table of keys is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFull {
    /// Admit without counting.
    #[default]
    Allow,
    /// Deny, with the reason `table_full`.
    Deny,
}

/// What `RateLimit-Policy` says of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// `q`: tokens.
    pub quota: u64,
    /// `w`: seconds, rounded up; None below one second and for a limit of 0.
    pub window_s: Option<u64>,
}

/// A limit that was found valid. Equal limits decide alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Its name.
    pub name: LimitName,
    /// How it counts.
    pub algorithm: Algorithm,
    /// L: tokens per window, 0..=[`MAX_LIMIT`].
    pub limit: u64,
    /// W: nanoseconds, above 0, at most i64::MAX.
    pub window_ns: u64,
    /// A bucket's capacity as written; None: `limit`.
    pub burst: Option<u64>,
    /// The most keys of this limit that this node itself spends on; None: no bound of its own.
    pub max_keys: Option<u64>,
    /// What happens beyond `max_keys`; None: as the node has it.
    pub on_full: Option<OnFull>,
}

impl Limit {
    /// Tokens a key has when nothing was used.
    pub fn capacity(&self) -> u64 {
        match (self.algorithm, self.limit) {
            (_, 0) => 0,
            (Algorithm::TokenBucket, limit) => self.burst.unwrap_or(limit),
            (_, limit) => limit,
        }
    }

    /// What gives the numbers in this limit's cells their meaning.
    pub fn shape(&self) -> Shape {
        match self.algorithm {
            Algorithm::FixedWindow => Shape::Window { kind: Kind::Fixed, window_ns: self.window_ns },
            Algorithm::SlidingWindow => Shape::Window { kind: Kind::Sliding, window_ns: self.window_ns },
            Algorithm::TokenBucket => Shape::Bucket(Bucket {
                limit: self.limit,
                window_ns: self.window_ns,
                capacity: self.capacity(),
                slot_ns: self.slot_ns(),
            }),
        }
    }

    /// g: C/(16 * rate), between 10 ms and 60 s.
    fn slot_ns(&self) -> u64 {
        let (shortest, longest) = (10 * MS, 60 * SECOND);
        if self.limit == 0 {
            return longest;
        }
        let sixteenth = u128::from(self.capacity()) * u128::from(self.window_ns) / (16 * u128::from(self.limit));
        u64::try_from(sixteenth).unwrap_or(u64::MAX).clamp(shortest, longest)
    }

    /// For the header. A bucket's `w` is the time in which it refills from empty, so that `q` per `w` is its rate.
    pub fn policy(&self) -> Policy {
        let quota = self.capacity();
        let window_ns = match (self.algorithm, self.limit) {
            (_, 0) => None,
            (Algorithm::TokenBucket, limit) => {
                Some((u128::from(quota) * u128::from(self.window_ns)).div_ceil(u128::from(limit)))
            }
            _ => Some(u128::from(self.window_ns)),
        };
        let window_s = window_ns
            .filter(|ns| *ns >= u128::from(SECOND))
            .map(|ns| u64::try_from(ns.div_ceil(u128::from(SECOND))).unwrap_or(u64::MAX));
        Policy { quota, window_s }
    }
}
