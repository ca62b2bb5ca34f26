//! The windows: which slots a limit has, which of them count at an instant, and until when.
//!
//! What peers (or a reset mark) put into slots after the current one counts as if in it: leaving it out would make those
//! tokens free.

use super::Level;
use super::calendar::Calendar;
use super::sliding::TwoCounters;
use super::whole::WholeSlots;
use crate::crdt::{SlotCell, by_slot, net_spent};
use crate::time::{MS, SECOND};

/// A way to count by slots of time. Every `window_ns` is above 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Window {
    /// `fixed_window`: the count in window `floor(t / W)`.
    Fixed {
        /// W, nanoseconds.
        window_ns: u64,
    },
    /// `fixed_window` with `align = "calendar"`: the count in the day, week, month or year.
    Calendar(Calendar),
    /// `sliding_window`: two counters, the previous one weighted.
    Sliding {
        /// W, nanoseconds.
        window_ns: u64,
    },
    /// `sliding_window` with `slots = N`: the current sub-window and the N before it, in full. Never more than L in any
    /// W.
    Slots {
        /// W, nanoseconds, a multiple of `slots`.
        window_ns: u64,
        /// N, above 0.
        slots: u32,
    },
    /// `sliding_log`: sub-windows of a millisecond; what was taken in one stops counting W after its start.
    Log {
        /// W, nanoseconds.
        window_ns: u64,
    },
}

impl Window {
    /// The unit in which slots are numbered, nanoseconds: a slot's number times this is its start.
    pub fn slot_ns(&self) -> u64 {
        match self {
            Self::Fixed { window_ns } | Self::Sliding { window_ns } => *window_ns,
            Self::Slots { window_ns, slots } => (window_ns / u64::from(*slots)).max(1),
            Self::Log { .. } => MS,
            Self::Calendar(_) => SECOND,
        }
    }

    /// The slot of an instant.
    pub fn slot(&self, t_ns: u64) -> u64 {
        match self {
            Self::Calendar(calendar) => calendar.start_s(t_ns),
            _ => t_ns / self.slot_ns(),
        }
    }

    /// The first slot that counts at an instant.
    pub fn first_counted(&self, now_ns: u64) -> u64 {
        match self {
            Self::Fixed { .. } | Self::Calendar(_) => self.slot(now_ns),
            Self::Sliding { .. } => self.slot(now_ns).saturating_sub(1),
            Self::Slots { slots, .. } => self.slot(now_ns).saturating_sub(u64::from(*slots)),
            // m * 1 ms + W > now
            Self::Log { window_ns } => now_ns.checked_sub(*window_ns).map_or(0, |before_ns| before_ns / MS + 1),
        }
    }

    /// When a slot stops counting altogether, nanoseconds. Saturates.
    pub fn leaves_ns(&self, slot: u64) -> u64 {
        let start_ns = slot.saturating_mul(self.slot_ns());
        match self {
            Self::Calendar(calendar) => calendar.end_ns(slot),
            Self::Fixed { window_ns } | Self::Log { window_ns } => start_ns.saturating_add(*window_ns),
            Self::Sliding { window_ns } => start_ns.saturating_add(window_ns.saturating_mul(2)),
            Self::Slots { window_ns, .. } => start_ns.saturating_add(*window_ns).saturating_add(self.slot_ns()),
        }
    }

    /// How long after the end of its unit ([`Window::slot_ns`]) a slot may count, nanoseconds: a constant.
    pub fn look_back_ns(&self) -> u64 {
        match self {
            Self::Fixed { .. } => 0,
            Self::Sliding { window_ns } | Self::Slots { window_ns, .. } | Self::Log { window_ns } => *window_ns,
            Self::Calendar(calendar) => calendar.period.longest_ns(),
        }
    }

    /// What counts of the cells of one key, which are in order of their slots. Slots that have left may be there and do
    /// not count.
    pub fn level<'a>(&'a self, now_ns: u64, cells: &'a [SlotCell]) -> WindowLevel<'a> {
        let cells = &cells[cells.partition_point(|cell| cell.slot < self.first_counted(now_ns))..];
        let used = by_slot(cells).fold(0u64, |sum, slot| sum.saturating_add(net_spent(slot)));
        self.level_of(now_ns, cells, used)
    }

    /// The same of cells that all count, and of which it is known what they come to.
    pub fn level_of<'a>(&'a self, now_ns: u64, cells: &'a [SlotCell], used: u64) -> WindowLevel<'a> {
        WindowLevel(match self {
            Self::Sliding { window_ns } => Kind::Weighted(TwoCounters { window_ns: *window_ns, now_ns, cells }),
            window => Kind::Whole(WholeSlots { window, now_ns, cells, used }),
        })
    }
}

/// What counts of one key's slots at one instant.
#[derive(Clone, Copy, Debug)]
pub struct WindowLevel<'a>(Kind<'a>);

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Weighted(TwoCounters<'a>),
    Whole(WholeSlots<'a>),
}

impl Level for WindowLevel<'_> {
    fn used(&self) -> u64 {
        match &self.0 {
            Kind::Weighted(level) => level.used(),
            Kind::Whole(level) => level.used(),
        }
    }

    fn wait_until_at_most(&self, tokens: u64) -> u64 {
        match &self.0 {
            Kind::Weighted(level) => level.wait_until_at_most(tokens),
            Kind::Whole(level) => level.wait_until_at_most(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::calendar::{Period, Zone};
    use crate::crdt::{Cell, ReplicaIx};

    /// Cells of one replica: (slot, tokens).
    fn cells(counts: &[(u64, u64)]) -> Vec<SlotCell> {
        let cell = |spent| Cell { spent, ..Cell::empty(0) };
        counts.iter().map(|&(slot, spent)| SlotCell { slot, replica: ReplicaIx(1), cell: cell(spent) }).collect()
    }

    #[test]
    fn two_counters() {
        let counts = cells(&[(6, 100), (7, 10)]);
        assert_eq!(Window::Sliding { window_ns: 60 }.level(60 * 7 + 15, &counts).used(), 75 + 10);
        let fixed = Window::Fixed { window_ns: 60 };
        assert_eq!(fixed.level(60 * 7 + 15, &counts).used(), 10);
        assert_eq!(fixed.level(60 * 7 + 15, &counts).wait_until_at_most(9), 45);
    }

    #[test]
    fn windows_ahead_count_now_and_until_they_end() {
        let counts = cells(&[(8, 5)]);
        let fixed = Window::Fixed { window_ns: 60 };
        assert_eq!(fixed.level(60 * 7 + 15, &counts).used(), 5);
        assert_eq!(fixed.level(60 * 7 + 15, &counts).wait_until_at_most(4), 45 + 60);
    }

    #[test]
    fn sub_windows_leave_one_later_than_the_log() {
        let slots = Window::Slots { window_ns: 6 * MS, slots: 6 };
        let log = Window::Log { window_ns: 6 * MS };
        let counts = cells(&[(10, 3)]);
        let used = |window: &Window, t_ns| window.level(t_ns, &counts).used();
        assert_eq!((used(&slots, 17 * MS - 1), used(&slots, 17 * MS)), (3, 0));
        assert_eq!((used(&log, 16 * MS - 1), used(&log, 16 * MS)), (3, 0));
    }

    #[test]
    fn a_month_counts_until_the_next_begins() {
        let zone = Zone::new("Europe/Berlin").unwrap();
        let month = Window::Calendar(Calendar { period: Period::Month, zone });
        // 2026-03-15T00:00:00Z, and the first of April in Berlin, where it is summer by then.
        let (now_ns, april_ns) = (1_773_532_800 * SECOND, 1_774_994_400 * SECOND);
        let counts = cells(&[(month.slot(now_ns), 9)]);
        let level = month.level(now_ns, &counts);
        assert_eq!((level.used(), level.wait_until_at_most(8)), (9, april_ns - now_ns));
        assert_eq!(month.level(april_ns, &counts).used(), 0);
    }

    proptest! {
        /// Nanosecond by nanosecond: the wait told is the first instant at which it holds. And no slot leaves later than
        /// the constant says after which it is dropped.
        #[test]
        fn the_wait_is_the_least(
            kind in 0..3, unit in 1..9u64, into in 0..40u64,
            counts in prop::collection::btree_map(3..10u64, 0..30u64, 0..6), tokens in 0..30u64,
        ) {
            let window = match kind {
                0 => Window::Fixed { window_ns: unit * 4 },
                1 => Window::Sliding { window_ns: unit * 4 },
                _ => Window::Slots { window_ns: unit * 4, slots: 4 },
            };
            let counts = cells(&counts.into_iter().collect::<Vec<_>>());
            let slot_ns = window.slot_ns();
            let now = 7 * slot_ns + into % slot_ns;
            let used = |t| window.level(t, &counts).used();
            let wait = window.level(now, &counts).wait_until_at_most(tokens);
            prop_assert!(used(now + wait) <= tokens);
            for t in now..now + wait {
                prop_assert!(used(t) > tokens, "{t} would do already");
            }
            for SlotCell { slot, .. } in counts {
                prop_assert!(window.leaves_ns(slot) <= (slot + 1) * slot_ns + window.look_back_ns());
                prop_assert!(window.first_counted(window.leaves_ns(slot)) > slot);
                prop_assert!(window.first_counted(window.leaves_ns(slot) - 1) <= slot);
            }
        }
    }
}
