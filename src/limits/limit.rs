//! One valid limit.

use std::fmt;
use std::sync::Arc;

use super::{Keying, Overrides, Shape};
use crate::algorithms::bucket::Bucket;
use crate::algorithms::calendar::Calendar;
use crate::algorithms::window::Window;
use crate::time::{MS, SECOND};

/// The largest number of tokens a limit or a burst may have.
pub const MAX_LIMIT: u64 = i64::MAX as u64;

/// A limit's name: `[A-Za-z0-9._:/-]{1,64}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitName(Arc<str>);

impl LimitName {
    /// What [`LimitName::new`] takes, as a regular expression.
    pub const PATTERN: &'static str = "^[A-Za-z0-9._:/-]{1,64}$";

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
    /// The count in the current day, week, month or year.
    CalendarWindow(Calendar),
    /// Two counters, the previous one weighted.
    SlidingWindow,
    /// So many sub-windows and the current one, all in full.
    SlidingSlots(u32),
    /// What was taken in the last window, to the millisecond.
    SlidingLog,
    /// Debt that is paid off at a constant rate; `leaky_bucket` without a queue is the same.
    TokenBucket,
    /// The same, and a request that does not conform waits for its turn, at most this many nanoseconds.
    LeakyBucket(u64),
}

impl Algorithm {
    /// All names.
    pub const NAMES: [&'static str; 5] =
        ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"];

    /// The name in configurations and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FixedWindow | Self::CalendarWindow(_) => "fixed_window",
            Self::SlidingWindow | Self::SlidingSlots(_) => "sliding_window",
            Self::SlidingLog => "sliding_log",
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
        }
    }

    /// Whether it has a burst.
    pub fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket(_))
    }

    /// How long a request may be made to wait, nanoseconds.
    pub fn queue_ns(self) -> u64 {
        if let Self::LeakyBucket(queue_ns) = self { queue_ns } else { 0 }
    }
}

/// Whether a limit is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Enforce {
    /// It denies.
    #[default]
    Deny,
    /// It counts and tells what it would have denied.
    Shadow,
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
    /// W: nanoseconds, above 0, at most i64::MAX; of a calendar's window the nominal length of the longest.
    pub window_ns: u64,
    /// A bucket's capacity as written; None: `limit`.
    pub burst: Option<u64>,
    /// Whether it denies.
    pub enforce: Enforce,
    /// The most keys of this limit that this node itself spends on; None: no bound of its own.
    pub max_keys: Option<u64>,
    /// What happens beyond `max_keys`; None: as the node has it.
    pub on_full: Option<OnFull>,
    /// Whom it counts.
    pub keying: Keying,
    /// Keys that have their own allowance.
    pub overrides: Overrides,
}

impl Limit {
    /// Tokens a key has when nothing was used.
    pub fn capacity(&self) -> u64 {
        match self.limit {
            0 => 0,
            limit if self.algorithm.is_bucket() => self.burst.unwrap_or(limit),
            limit => limit,
        }
    }

    /// Whether it only watches.
    pub fn is_shadow(&self) -> bool {
        self.enforce == Enforce::Shadow
    }

    /// What gives the numbers in this limit's cells their meaning.
    pub fn shape(&self) -> Shape {
        let window_ns = self.window_ns;
        Shape::Window(match self.algorithm {
            Algorithm::FixedWindow => Window::Fixed { window_ns },
            Algorithm::CalendarWindow(calendar) => Window::Calendar(calendar),
            Algorithm::SlidingWindow => Window::Sliding { window_ns },
            Algorithm::SlidingSlots(slots) => Window::Slots { window_ns, slots },
            Algorithm::SlidingLog => Window::Log { window_ns },
            Algorithm::TokenBucket | Algorithm::LeakyBucket(_) => {
                return Shape::Bucket(Bucket {
                    limit: self.limit,
                    window_ns,
                    capacity: self.capacity(),
                    slot_ns: self.slot_ns(),
                    queue_ns: self.algorithm.queue_ns(),
                });
            }
        })
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
        let window_ns = match self.limit {
            0 => None,
            limit if self.algorithm.is_bucket() => {
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
