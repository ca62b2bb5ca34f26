//! Shapes, replicas and limits as small numbers, so that a key need not carry them.
//!
//! Every call but a decision holds these tables for reading while it has a shard locked, so that a number does not
//! change its meaning under it; a decision finds all it needs in the binding of its limit.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use crate::algorithms::bucket::Bucket;
use crate::crdt::ReplicaIx;
use crate::id::ReplicaId;
use crate::limits::{LimitName, MAX_LIMITS, MAX_OVERRIDES, Retention, Shape};
use crate::time::SECOND;

/// The most shapes, and the most replicas, that are told apart at once.
pub(super) const MAX_NAMES: usize = u16::MAX as usize - 1;
/// Shapes of peers are taken up to here: room for those of this node's own limits, old and new.
pub(super) const MAX_PEER_SHAPES: usize = MAX_NAMES - 2 * (MAX_LIMITS + MAX_OVERRIDES);
/// Replicas of peers are taken up to here: room for this node's own lives.
pub(super) const MAX_PEER_REPLICAS: usize = MAX_NAMES - 64;
/// The most limits that are told apart, those in force and those that are gone but have keys.
const MAX_LIMIT_NAMES: usize = LEFT as usize - 1;
/// Expiries are rounded up to multiples of at least this, nanoseconds.
const EXPIRY_STEP_NS: u64 = 10 * SECOND;

/// A shape, as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ShapeIx(pub u16);

impl ShapeIx {
    /// No shape.
    pub const NONE: Self = Self(0);
}

/// A limit's name, as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct LimitIx(u16);

/// How an entry stands to a limit, where that is known: two bits, and the limit's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing(u16);

/// The limit has another shape now, the key was carried over to it.
const LEFT: u16 = 1 << 14;
/// The same, and a mark has dropped since what was held then.
const MARKED: u16 = 1 << 15;

impl Standing {
    /// A peer's key: its limit is not known.
    pub const FOREIGN: Self = Self(0);

    /// A key of this node's own, counted under the limit.
    pub fn own(limit: LimitIx) -> Self {
        Self(limit.0)
    }

    pub fn left(limit: LimitIx) -> Self {
        Self(limit.0 | LEFT)
    }

    /// The same after a mark that dropped what was held.
    pub fn marked(self) -> Self {
        if self.0 & LEFT == 0 { self } else { Self(self.0 & !LEFT | MARKED) }
    }

    /// The limit under which it is counted as an own key.
    pub fn counted(self) -> Option<LimitIx> {
        (self != Self::FOREIGN && !self.has_left()).then_some(LimitIx(self.0))
    }

    /// Whether its limit has another shape now.
    pub fn has_left(self) -> bool {
        self.0 & (LEFT | MARKED) != 0
    }

    /// Its limit, where it is known.
    pub fn limit(self) -> Option<LimitIx> {
        (self != Self::FOREIGN).then_some(LimitIx(self.0 & !(LEFT | MARKED)))
    }
}

/// A shape and what follows from it.
#[derive(Debug)]
pub(super) struct ShapeInfo {
    pub ix: ShapeIx,
    pub shape: Shape,
    pub slot_ns: u64,
    pub kept_ns: u64,
    /// A bucket's `W * cap` without the debits, for `nodes` nodes.
    pub overdraft: u128,
    pub nodes: u32,
}

impl ShapeInfo {
    fn new(ix: ShapeIx, shape: Shape, retention: &Retention, nodes: u32) -> Self {
        let overdraft = match &shape {
            Shape::Bucket(bucket) => bucket.overdraft_scaled(nodes),
            Shape::Window(_) => 0,
        };
        Self { ix, shape, slot_ns: shape.slot_ns(), kept_ns: shape.kept_ns(retention), overdraft, nodes }
    }

    pub fn bucket(&self) -> Option<&Bucket> {
        match &self.shape {
            Shape::Bucket(bucket) => Some(bucket),
            Shape::Window(_) => None,
        }
    }

    /// The slot of an instant.
    pub fn slot(&self, t_ns: u64) -> u64 {
        self.shape.slot(t_ns)
    }

    pub fn slot_start_ns(&self, slot: u64) -> u64 {
        slot.saturating_mul(self.slot_ns)
    }

    /// The scaled time at the start of a slot: a T that is not after it says nothing to this slot and later ones.
    pub fn paid_before(&self, bucket: &Bucket, slot: u64) -> u128 {
        bucket.scaled(self.slot_start_ns(slot))
    }

    pub fn slot_end_ns(&self, slot: u64) -> u64 {
        self.slot_start_ns(slot.saturating_add(1))
    }

    /// When a slot expires.
    pub fn expires_ns(&self, slot: u64) -> u64 {
        self.slot_end_ns(slot).saturating_add(self.kept_ns)
    }

    /// The oldest slot that has not expired.
    pub fn oldest_live_slot(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.kept_ns) / self.slot_ns
    }

    /// Rounds an expiry up, so that few different ones arise.
    pub fn rounded_ns(&self, expires_ns: u64) -> u64 {
        let step = EXPIRY_STEP_NS.max(self.kept_ns / 8);
        expires_ns.checked_next_multiple_of(step).unwrap_or(u64::MAX)
    }
}

/// The tables.
#[derive(Debug)]
pub(super) struct Names {
    retention: Retention,
    nodes: u32,
    shapes: Numbers<Shape>,
    infos: Vec<Option<Arc<ShapeInfo>>>,
    replicas: Numbers<ReplicaId>,
    own: ReplicaIx,
    limits: Numbers<LimitName>,
    /// By the limit's number: how many keys of this node's own stand under it.
    own_keys: Vec<Arc<AtomicU64>>,
}

impl Names {
    pub fn new(own: &ReplicaId, retention: Retention, nodes: u32) -> Self {
        let mut replicas = Numbers::new();
        let own = ReplicaIx(replicas.number(own, MAX_NAMES).unwrap_or_default());
        let (shapes, limits) = (Numbers::new(), Numbers::new());
        Self { retention, nodes, shapes, infos: Vec::new(), replicas, own, limits, own_keys: Vec::new() }
    }

    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The id under which this node writes.
    pub fn own(&self) -> ReplicaIx {
        self.own
    }

    pub fn replica(&self, ix: ReplicaIx) -> Option<&ReplicaId> {
        self.replicas.value(ix.0)
    }

    pub fn find_replica(&self, id: &ReplicaId) -> Option<ReplicaIx> {
        self.replicas.find(id).map(ReplicaIx)
    }

    /// Numbers a replica, while there are fewer than `most`.
    pub fn number_replica(&mut self, id: &ReplicaId, most: usize) -> Option<ReplicaIx> {
        self.replicas.number(id, most).map(ReplicaIx)
    }

    pub fn set_own(&mut self, own: ReplicaIx) {
        self.own = own;
    }

    pub fn info(&self, ix: ShapeIx) -> Option<&Arc<ShapeInfo>> {
        self.infos.get(usize::from(ix.0))?.as_ref()
    }

    pub fn find_shape(&self, shape: &Shape) -> Option<&Arc<ShapeInfo>> {
        self.info(ShapeIx(self.shapes.find(shape)?))
    }

    /// Whether `more` shapes can be numbered.
    pub fn has_room_for_shapes(&self, more: usize) -> bool {
        self.shapes.numbers.len() + more <= MAX_NAMES
    }

    /// Numbers a shape, while there are fewer than `most`.
    pub fn number_shape(&mut self, shape: &Shape, most: usize) -> Option<Arc<ShapeInfo>> {
        let ix = self.shapes.number(shape, most)?;
        let at = usize::from(ix);
        if self.infos.len() <= at {
            self.infos.resize(at + 1, None);
        }
        let make = || Arc::new(ShapeInfo::new(ShapeIx(ix), *shape, &self.retention, self.nodes));
        Some(Arc::clone(self.infos[at].get_or_insert_with(make)))
    }

    /// Another number of nodes: every bucket's overdraft room changes.
    pub fn set_nodes(&mut self, nodes: u32) {
        self.nodes = nodes;
        for info in self.infos.iter_mut().flatten() {
            *info = Arc::new(ShapeInfo::new(info.ix, info.shape, &self.retention, nodes));
        }
    }

    /// Forgets shapes and replicas that nothing uses any more, as the two tell.
    pub fn keep(&mut self, shape: impl Fn(ShapeIx) -> bool, replica: impl Fn(ReplicaIx) -> bool) {
        self.shapes.keep(|ix, _| shape(ShapeIx(ix)));
        for (ix, info) in self.infos.iter_mut().enumerate() {
            if self.shapes.value(ix as u16).is_none() {
                *info = None;
            }
        }
        self.replicas.keep(|ix, _| ix == self.own.0 || replica(ReplicaIx(ix)));
    }

    /// Forgets the limits that `bound` does not name, as far as no key stands under them.
    pub fn keep_limits(&mut self, bound: impl Fn(&LimitName) -> bool) {
        let own_keys = &self.own_keys;
        let counts = |ix: u16| own_keys[usize::from(ix)].load(Ordering::Relaxed) > 0;
        self.limits.keep(|ix, name| bound(name) || counts(ix));
        if self.limits.numbers.len() + MAX_LIMITS > MAX_LIMIT_NAMES {
            // What stands under them is then counted under the limits that take their numbers.
            self.limits.keep(|_, name| bound(name));
        }
    }

    /// The number of a limit, and its count of keys.
    pub fn number_limit(&mut self, name: &LimitName) -> Option<(LimitIx, Arc<AtomicU64>)> {
        let ix = self.limits.number(name, MAX_LIMIT_NAMES)?;
        let at = usize::from(ix);
        if self.own_keys.len() <= at {
            self.own_keys.resize_with(at + 1, Arc::default);
        }
        Some((LimitIx(ix), Arc::clone(&self.own_keys[at])))
    }

    /// How many keys of this node's own stand under a limit.
    pub fn own_keys(&self, ix: LimitIx) -> Option<&AtomicU64> {
        self.own_keys.get(usize::from(ix.0)).map(|count| &**count)
    }
}

/// Values numbered from 1.
#[derive(Debug)]
struct Numbers<T> {
    values: Vec<Option<T>>,
    numbers: HashMap<T, u16>,
    free: Vec<u16>,
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    fn new() -> Self {
        Self { values: vec![None], numbers: HashMap::new(), free: Vec::new() }
    }

    fn find(&self, value: &T) -> Option<u16> {
        self.numbers.get(value).copied()
    }

    fn value(&self, number: u16) -> Option<&T> {
        self.values.get(usize::from(number))?.as_ref()
    }

    fn number(&mut self, value: &T, most: usize) -> Option<u16> {
        if let Some(number) = self.find(value) {
            return Some(number);
        }
        if self.numbers.len() >= most {
            return None;
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.values.push(None);
                (self.values.len() - 1) as u16
            }
        };
        self.values[usize::from(number)] = Some(value.clone());
        self.numbers.insert(value.clone(), number);
        Some(number)
    }

    fn keep(&mut self, used: impl Fn(u16, &T) -> bool) {
        self.numbers.retain(|value, number| {
            let keep = used(*number, value);
            if !keep {
                self.values[usize::from(*number)] = None;
                self.free.push(*number);
            }
            keep
        });
    }
}
