//! What counts against a key now: from its cells to a level, which decides, and to figures, which are told.

use super::entry::{Cache, Entry, Held, Many, Sum, one};
use super::names::ShapeInfo;
use super::shard::Shard;
use crate::algorithms::Level;
use crate::algorithms::bucket::{Bucket, BucketLevel, Walk};
use crate::algorithms::window::{Window, WindowLevel};
use crate::crdt::{SlotCell, by_slot, net_spent};
use crate::limits::Shape;

/// When, and how far ahead cells count already.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub now_ns: u64,
    pub max_skew_ns: u64,
}

/// The level of either kind.
pub(super) enum AnyLevel<'a> {
    Window(WindowLevel<'a>),
    Bucket(BucketLevel),
}

impl Level for AnyLevel<'_> {
    fn used(&self) -> u64 {
        match self {
            Self::Window(level) => level.used(),
            Self::Bucket(level) => level.used(),
        }
    }

    fn wait_until_at_most(&self, tokens: u64) -> u64 {
        match self {
            Self::Window(level) => level.wait_until_at_most(tokens),
            Self::Bucket(level) => level.wait_until_at_most(tokens),
        }
    }
}

/// What an answer tells of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Figures {
    pub used: u64,
    pub remaining: u64,
    pub reset_after_ns: u64,
    pub next_after_ns: u64,
}

impl Figures {
    pub fn of(level: &impl Level, capacity: u64) -> Self {
        let used = level.used();
        let wait_until = |tokens| if used <= tokens { 0 } else { level.wait_until_at_most(tokens) };
        let next_after_ns = match capacity.min(used).checked_sub(1) {
            Some(one_less) => wait_until(one_less),
            None => 0,
        };
        Self { used, remaining: capacity.saturating_sub(used), reset_after_ns: wait_until(0), next_after_ns }
    }
}

impl Shard {
    /// What counts against a key; `id` is None when nothing is held of it.
    pub fn level<'a>(&'a mut self, id: Option<u32>, info: &'a ShapeInfo, at: &At) -> AnyLevel<'a> {
        match &info.shape {
            Shape::Bucket(bucket) => {
                let walk = id.map_or(Walk::default(), |id| self.slab[id].walk(info, bucket, at));
                AnyLevel::Bucket(bucket.level(walk.t, at.now_ns))
            }
            Shape::Window(window) => {
                self.scratch.clear();
                let Some(id) = id else { return AnyLevel::Window(window.level(at.now_ns, &[])) };
                let entry = &mut self.slab[id];
                let last = entry.last_counted(info, at);
                AnyLevel::Window(match &mut entry.held {
                    Held::Many(many) => many.window_level(window, at.now_ns, last),
                    Held::One { replica, at: place, spent, fin } => {
                        let cell = one(info, *replica, *place, *spent, *fin);
                        self.scratch.extend((cell.slot <= last).then_some(cell));
                        window.level(at.now_ns, &self.scratch)
                    }
                    Held::Nothing => window.level(at.now_ns, &[]),
                })
            }
        }
    }
}

impl Entry {
    /// The last slot that counts: what starts within `max_skew`, and the one in which a mark makes this node write.
    pub fn last_counted(&self, info: &ShapeInfo, at: &At) -> u64 {
        info.slot(at.now_ns.saturating_add(at.max_skew_ns)).max(self.mark().slot)
    }

    /// A bucket's walk up to what counts now.
    pub fn walk(&mut self, info: &ShapeInfo, bucket: &Bucket, at: &At) -> Walk {
        let last = self.last_counted(info, at);
        match &mut self.held {
            Held::Many(many) => many.walk(info, bucket, info.slot(at.now_ns), last),
            _ => self.read(info, |cells, _| match cells {
                [cell] if cell.slot <= last => Walk::default().through(bucket, info.overdraft, cells, &[]),
                _ => Walk::default(),
            }),
        }
    }
}

/// From this many cells on the sum of what counts is remembered: a log holds one for every millisecond with traffic.
const SUMMED_CELLS: usize = 16;

impl Many {
    /// The cells of the slots that count, up to `last`.
    pub fn counted(&self, window: &Window, now_ns: u64, last: u64) -> &[SlotCell] {
        let cells = self.slots.cells_from(window.first_counted(now_ns));
        &cells[..cells.partition_point(|cell| cell.slot <= last)]
    }

    fn window_level<'a>(&'a mut self, window: &'a Window, now_ns: u64, last: u64) -> WindowLevel<'a> {
        if self.slots.cells().len() < SUMMED_CELLS {
            return window.level(now_ns, self.counted(window, now_ns, last));
        }
        let used = self.sum_through(window.first_counted(now_ns), last);
        window.level_of(now_ns, self.counted(window, now_ns, last), used)
    }

    /// What the slots `first..=last` come to: from what they came to the last time, if only time has passed since.
    fn sum_through(&mut self, first: u64, last: u64) -> u64 {
        let total = |from: u64, below: u64| {
            let cells = self.slots.cells_from(from);
            let cells = &cells[..cells.partition_point(|cell| cell.slot < below)];
            by_slot(cells).fold(0u128, |sum, slot| sum + u128::from(net_spent(slot)))
        };
        let end = last.saturating_add(1);
        let usable = self.sum.filter(|sum| sum.first <= first && first <= sum.end && sum.end <= end);
        let sum = match usable {
            Some(sum) => sum.total - total(sum.first, first) + total(sum.end, end),
            None => total(first, end),
        };
        self.sum = Some(Sum { first, end, total: sum });
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    /// The walk through slots up to `last`, by way of the walk to the start of `current`, which is remembered: then a
    /// check walks through one slot only.
    pub fn walk(&mut self, info: &ShapeInfo, bucket: &Bucket, current: u64, last: u64) -> Walk {
        let start = self.walk_to(info, bucket, current);
        let cells = self.slots.cells_from(current);
        let bases = self.slots.bases();
        let bases = &bases[bases.partition_point(|base| base.0 <= current)..];
        let counted = cells.partition_point(|cell| cell.slot <= last);
        start.through(bucket, info.overdraft, &cells[..counted], bases)
    }

    /// The walk through everything.
    pub fn whole_walk(&self, info: &ShapeInfo, bucket: &Bucket) -> Walk {
        match self.cache.filter(|cache| cache.nodes == info.nodes) {
            Some(cache) => {
                let bases = self.slots.bases();
                let bases = &bases[bases.partition_point(|base| base.0 <= cache.slot)..];
                cache.walk.through(bucket, info.overdraft, self.slots.cells_from(cache.slot), bases)
            }
            None => Walk::default().through(bucket, info.overdraft, self.slots.cells(), self.slots.bases()),
        }
    }

    /// The walk through every slot below `current`, with the bases up to it.
    fn walk_to(&mut self, info: &ShapeInfo, bucket: &Bucket, current: u64) -> Walk {
        let usable = self.cache.filter(|cache| cache.slot <= current && cache.nodes == info.nodes);
        if let Some(cache) = usable.filter(|cache| cache.slot == current) {
            return cache.walk;
        }
        let (cells, bases) = (self.slots.cells(), self.slots.bases());
        let (start, first_cell, first_base) = match usable {
            None => (Walk::default(), 0, 0),
            Some(cache) => (
                cache.walk,
                cells.partition_point(|cell| cell.slot < cache.slot),
                bases.partition_point(|base| base.0 <= cache.slot),
            ),
        };
        let cells = &cells[first_cell..cells.partition_point(|cell| cell.slot < current)];
        let bases = &bases[first_base..bases.partition_point(|base| base.0 <= current)];
        let walk = start.through(bucket, info.overdraft, cells, bases);
        self.cache = Some(Cache { slot: current, walk, nodes: info.nodes });
        walk
    }
}
