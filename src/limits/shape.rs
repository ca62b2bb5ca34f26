//! Shapes: all that gives a cell's numbers meaning, and how long its slots matter.

use crate::algorithms::bucket::Bucket;
use crate::algorithms::window::Window;
use crate::time::SECOND;

/// A bucket's reset mark is kept at least this long, nanoseconds.
pub const MIN_MARK_KEPT_NS: u64 = 3600 * SECOND;

/// How long state must outlive its use, the same on every node of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// A partition shorter than this heals exactly (buckets), nanoseconds.
    pub partition_memory_ns: u64,
    /// The largest difference between two nodes' clocks, nanoseconds.
    pub max_skew_ns: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { partition_memory_ns: 60 * SECOND, max_skew_ns: 2 * SECOND }
    }
}

/// State is addressed by (shape, key hash). A window's L is not part of its shape, so that changing it keeps what was
/// used; a bucket's cells mean nothing without L, W, C and g, and its queue says how much may be owed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shape {
    /// `fixed_window`, `sliding_window` and `sliding_log`.
    Window(Window),
    /// `token_bucket` and `leaky_bucket`.
    Bucket(Bucket),
}

impl Shape {
    /// The unit in which slots are numbered, nanoseconds: a slot's number times this is its start.
    pub fn slot_ns(&self) -> u64 {
        match self {
            Self::Window(window) => window.slot_ns(),
            Self::Bucket(bucket) => bucket.slot_ns,
        }
    }

    /// The slot of an instant.
    pub fn slot(&self, t_ns: u64) -> u64 {
        match self {
            Self::Window(window) => window.slot(t_ns),
            Self::Bucket(bucket) => bucket.slot(t_ns),
        }
    }

    /// How long after its **end** a slot is kept, nanoseconds: a constant of the shape.
    pub fn kept_ns(&self, retention: &Retention) -> u64 {
        let skew = retention.max_skew_ns.saturating_mul(2);
        match self {
            Self::Window(window) => window.look_back_ns().saturating_add(skew),
            Self::Bucket(bucket) => {
                let refill = match bucket.limit {
                    0 => u64::MAX,
                    limit => u64::try_from(bucket.cost(bucket.capacity) / u128::from(limit)).unwrap_or(u64::MAX),
                };
                let floor = (4 * SECOND).saturating_add(skew);
                refill.min(retention.partition_memory_ns).max(bucket.slot_ns.saturating_mul(4)).max(floor)
            }
        }
    }

    /// When a slot expires: its end plus what it is kept for. Saturates.
    pub fn expires_ns(&self, slot: u64, retention: &Retention) -> u64 {
        slot.saturating_add(1).saturating_mul(self.slot_ns()).saturating_add(self.kept_ns(retention))
    }

    /// The oldest slot that has not expired at `now_ns`.
    pub fn oldest_live_slot(&self, now_ns: u64, retention: &Retention) -> u64 {
        // slot + 1 > (now - kept) / g
        now_ns.saturating_sub(self.kept_ns(retention)) / self.slot_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::calendar::{Calendar, Period, Zone};

    #[test]
    fn the_oldest_live_slot_is_the_first_not_expired() {
        let retention = Retention::default();
        let bucket =
            Shape::Bucket(Bucket { limit: 10, window_ns: SECOND, capacity: 10, slot_ns: SECOND / 16, queue_ns: 0 });
        let berlin = Calendar { period: Period::Day, zone: Zone::new("Europe/Berlin").unwrap() };
        let windows = [
            Window::Sliding { window_ns: 7 * SECOND },
            Window::Slots { window_ns: 7 * SECOND, slots: 7 },
            Window::Log { window_ns: 7 * SECOND },
            Window::Calendar(berlin),
        ];
        for shape in windows.map(Shape::Window).into_iter().chain([bucket]) {
            for now in (1_000_000 * SECOND..1_000_020 * SECOND).step_by(10_000_019) {
                let oldest = shape.oldest_live_slot(now, &retention);
                assert!(shape.expires_ns(oldest, &retention) > now);
                assert!(shape.expires_ns(oldest - 1, &retention) <= now);
            }
        }
    }
}
